"""The Python examples in the documents run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^(?:<!-- needs ([\w, ]+) -->\n)?```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""An example, with the packages it needs that this project does not bring."""


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata, with newer releases of PyTorch
@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem) for path in DOCUMENTS if BLOCK.search(path.read_text(encoding="utf-8"))],
)
def test_examples_of_a_document_run_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for block in BLOCK.finditer(path.read_text(encoding="utf-8")):
        for package in (block.group(1) or "").replace(",", " ").split():
            pytest.importorskip(package, reason=f"an example needs {package}")
        line = path.read_text(encoding="utf-8")[: block.start(2)].count("\n")
        exec(compile("\n" * line + block.group(2), str(path), "exec"), names)
    names.clear()  # loaders end their workers at once; as cyclic garbage they would take seconds
