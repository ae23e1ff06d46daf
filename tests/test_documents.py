"""The Python examples in the documents run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem) for path in DOCUMENTS if BLOCK.search(path.read_text(encoding="utf-8"))],
)
def test_examples_of_a_document_run_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for block in BLOCK.finditer(path.read_text(encoding="utf-8")):
        line = path.read_text(encoding="utf-8")[: block.start(1)].count("\n")
        exec(compile("\n" * line + block.group(1), str(path), "exec"), names)
