"""Commands in documents print what the documents say."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.cli_support import cli
from tests.support import ROOT

BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
DOCUMENTS = [path for path in (ROOT / "docs").rglob("*.md") if "```console\n$ dataset-rt" in path.read_text("utf-8")]


def dateless(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*", "DATE", text)


def commands(block: str) -> list[tuple[str, str]]:
    """Return the commands of a block, and what is said to come from each."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, output.strip("\n")) for command, _, output in (part.partition("\n") for part in parts)]


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in DOCUMENTS])
def test_commands_of_a_document_print_what_it_says(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for block in BLOCK.finditer(path.read_text(encoding="utf-8")):
        if block[1] == "python":
            exec(compile(block[2], str(path), "exec"), names)
            continue
        for command, output in commands(block[2]):
            shown = cli(capsys, *shlex.split(command)[1:])
            assert dateless(shown.err + shown.out).strip("\n") == dateless(output), command


def test_there_is_such_a_document():
    assert {path.stem for path in DOCUMENTS} >= {"command-line"}
