"""The Python examples in documents and docstrings run as they stand, and links within the documents lead somewhere."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

import dataset_rt
from tests.order_support import opened
from tests.support import run, write

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^(?:<!-- needs ([\w, ]+) -->\n)?```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""An example, with the packages it needs that this project does not bring."""

LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def documented_modules():
    """Return the modules of the package that can be imported here."""
    modules: list[ModuleType] = [dataset_rt]
    for found in pkgutil.walk_packages(dataset_rt.__path__, "dataset_rt."):
        try:
            modules.append(importlib.import_module(found.name))
        except ImportError as error:
            assert error.name in ("torch", "jax")  # noqa: PT017 (anything else is a fault of the package)
    return modules


def anchors(text: str) -> set[str]:
    """Return what a document's headings can be linked as."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def run_examples(path: Path) -> list[str]:
    """Run the examples of a document in order; return the packages that some of them lack."""
    names, text = {"__name__": "example"}, path.read_text(encoding="utf-8")
    lacking: list[str] = []
    for block in BLOCK.finditer(text):
        missing = [package for package in needed(block) if find_spec(package) is None]
        lacking += missing
        if not missing:
            line = text[: block.start(2)].count("\n")
            exec(compile("\n" * line + block.group(2), str(path), "exec"), names)
    return lacking


def needed(block: re.Match[str]) -> list[str]:
    return (block.group(1) or "").replace(",", " ").split()


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata, with newer releases of PyTorch
@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem) for path in DOCUMENTS if BLOCK.search(path.read_text(encoding="utf-8"))],
)
def test_examples_of_a_document_run_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if any("jax" in needed(block) for block in BLOCK.finditer(path.read_text(encoding="utf-8"))):
        # Where JAX has started its threads, nothing may fork any more, which other tests do.
        script = "import json, os, sys; from tests.test_documents import Path, run_examples; os.chdir(sys.argv[2]); "
        lacking = run(script + "print(); print(json.dumps(run_examples(Path(sys.argv[1]))))", path, tmp_path)
    else:
        lacking = run_examples(path)
    if lacking:
        pytest.skip(f"examples need {', '.join(sorted(set(lacking)))}")


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS])
def test_links_within_the_documents_lead_somewhere(path):
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


def test_examples_in_docstrings_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = write(tmp_path, [(b"%d" % n, {"label": n % 2}) for n in range(10)])
    public = {name: getattr(dataset_rt, name) for name in dataset_rt.__all__}
    finder, runner, names = doctest.DocTestFinder(exclude_empty=True), doctest.DocTestRunner(), set()
    for module in documented_modules():
        for example in finder.find(module):
            if not example.examples or example.name in names:
                continue
            names.add(example.name)
            example.globs.update(public, np=np, pl=pl, cache=cache, dataset=opened(cache))
            said: list[str] = []
            runner.run(example, out=said.append)
            assert not said, "".join(said)
    assert {"dataset_rt.values.Payloads", "dataset_rt.dataset.CachedDataset.filter"} <= names
