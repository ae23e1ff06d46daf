"""The command line: answers, exit codes, JSON that stays, and output that obeys nothing in the data."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dataset_rt.cli.app import _COMMANDS
from dataset_rt.inspection.text import one_line, size
from tests.cli_support import HOSTILE, cli, digits, process
from tests.support import PATIENCE, ROOT, flip, numbered, run, start, write


def test_help_of_every_command_names_its_options(capsys):
    assert "Exit codes" in cli(capsys, "--help").out
    for command in _COMMANDS:
        shown = cli(capsys, command, "--help")
        assert shown.code == 0
        assert "--json" in shown.out, command
        assert "--traceback" in shown.out, command


def test_importing_the_package_loads_neither_the_command_line_nor_what_it_needs():
    loaded = run("import sys, json, dataset_rt; dataset_rt.CachedDataset; print(json.dumps(sorted(sys.modules)))")
    assert "dataset_rt.dataset" in loaded
    for name in ("click", "rich", "dataset_rt.cli", "dataset_rt.report", "dataset_rt.inspection"):
        assert name not in loaded


def test_help_loads_neither_polars_nor_numpy():
    script = """
        import sys, json
        from dataset_rt.cli.app import run
        assert run(["--help"]) == 0 and run(["query", "--help"]) == 0
        print(json.dumps(sorted(sys.modules)))
    """
    loaded = run(script)
    assert "polars" not in loaded
    assert "numpy" not in loaded


def test_info_says_of_one_cache_what_its_manifest_says(tmp_path, capsys):
    path = digits(tmp_path)
    shown = cli(capsys, "info", path)
    assert shown.code == 0
    for part in ("digits", "40", "uint8", "3 × 8 × 8", "label", "crc32c"):
        assert part in shown.out
    [cache] = cli(capsys, "info", path, "--json").document["caches"]
    assert (cache["samples"], cache["shards"], cache["compression"]) == (40, 1, {"none": 1})
    assert cache["payload"] == [{"name": "image", "dtype": "uint8", "shape": [3, 8, 8]}]
    assert cache["metadata"] == [{"name": "label", "kind": "int"}, {"name": "name", "kind": "string"}]
    files = [file for file in path.rglob("*") if file.is_file() and file.name != "manifest.json"]
    assert cache["stored_bytes"] == sum(file.stat().st_size for file in files)


def test_info_reads_no_file_but_manifests(tmp_path, capsys):
    path = digits(tmp_path)
    for file in path.rglob("*.*"):
        if file.name != "manifest.json":
            file.write_bytes(b"\xff" * file.stat().st_size)
    assert cli(capsys, "info", path).code == 0


def test_info_lists_a_folder_of_caches_and_names_the_bad_ones(tmp_path, capsys):
    for name in ("b", "a", "c"):
        digits(tmp_path, name)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "b" / "manifest.json").write_text("{")
    shown = cli(capsys, "info", tmp_path, "--json")
    assert shown.code == 3
    assert [Path(cache["path"]).name for cache in shown.document["caches"]] == ["a", "b", "c"]
    assert shown.document["caches"][1]["error"]["kind"] == "ManifestError"
    assert (shown.document["readable"], shown.document["samples"]) == (2, 80)
    human = cli(capsys, "info", tmp_path)
    assert "2 caches, 80 samples" in human.out
    assert str(tmp_path / "b") in human.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(["info"], 2, id="no path"),
        pytest.param(["inof", "x"], 2, id="no such command"),
        pytest.param(["info", "--wrong"], 2, id="no such option"),
        pytest.param(["info", "missing"], 3, id="no cache"),
        pytest.param(["head", "missing"], 3, id="no cache to read"),
        pytest.param(["show", "CACHE", "40"], 2, id="no such sample"),
        pytest.param(["show", "CACHE", "-1"], 2, id="negative sample"),
        pytest.param(["query", "select nope from samples", "CACHE"], 2, id="no such column"),
        pytest.param(["query", "no sql", "CACHE"], 2, id="no SQL"),
        pytest.param(["query", "select * from samples", "CACHE", "-o", "x.xyz"], 2, id="no such format"),
        pytest.param(["query", "select * from samples", "CACHE", "-o", "missing/x.csv"], 4, id="nowhere to write"),
        pytest.param(["order", "CACHE", "--rank", "2", "--world-size", "2"], 2, id="no such rank"),
        pytest.param(["order", "CACHE", "--start", "99"], 2, id="no such position"),
        pytest.param(["order", "CACHE", "--weights", "missing.parquet"], 4, id="no weights"),
        pytest.param(["diff", "CACHE", "missing"], 3, id="nothing to compare"),
        pytest.param(["merge", "OUT", "CACHE", "--where", "label = 9"], 2, id="nothing to merge"),
        pytest.param(["merge", "CACHE", "CACHE"], 3, id="exists"),
        pytest.param(["write", "OUT", "missing"], 4, id="no input"),
        pytest.param(["write", "OUT", "SCRIPT"], 2, id="unknown input"),
        pytest.param(["report", "CACHE", "--balance", "nope"], 2, id="no column to balance"),
    ],
)
def test_an_error_is_one_message_and_its_exit_code(tmp_path, monkeypatch, capsys, arguments, code):
    monkeypatch.chdir(tmp_path)
    names = {"CACHE": digits(tmp_path), "OUT": tmp_path / "out", "SCRIPT": ROOT / "justfile"}
    given = [names.get(argument, argument) for argument in arguments]
    shown = cli(capsys, *given)
    assert shown.code == code, shown
    assert shown.out == ""
    assert "error" in shown.err.lower()
    assert len(shown.err.strip().splitlines()) <= 4
    answer = cli(capsys, *given, "--json")
    assert answer.code == code
    # `info` goes on with the next cache, so it has an error for each.
    error = answer.document.get("error") or answer.document["caches"][0]["error"]
    assert error["exit_code"] == code
    assert error["message"]
    assert sorted(tmp_path.iterdir()) == [tmp_path / "digits"]


def test_a_traceback_is_shown_when_it_is_asked_for(tmp_path):
    assert "Traceback" not in process("head", tmp_path / "missing").err
    assert "Traceback" in process("head", tmp_path / "missing", "--traceback").err
    assert "Traceback" in process("head", tmp_path / "missing", DATASET_RT_TRACEBACK="1").err


def test_a_defect_says_that_it_is_one(monkeypatch, capsys):
    def broken(*_):
        raise KeyError("surprise")

    monkeypatch.setattr("dataset_rt._dataset_rt.find_caches", broken)
    shown = cli(capsys, "info", "x")
    assert shown.code == 70
    assert "defect" in shown.err


def test_text_from_data_reaches_the_terminal_as_text(tmp_path, capsys):
    path = write(tmp_path, [(HOSTILE.encode(), {HOSTILE: HOSTILE})])
    for arguments in (["info", path], ["head", path], ["show", path, 0], ["query", "select * from samples", path]):
        shown = cli(capsys, *arguments)
        assert shown.code == 0
        assert "[red]<script>" in shown.out
        assert "\\x1b[31m\\u202e" in shown.out
        assert not {"\x1b", "\u202e"} & set(shown.out)
    assert cli(capsys, "head", path, "--json").document["rows"][0][HOSTILE] == HOSTILE


def test_a_path_that_is_no_text_is_printed(tmp_path):
    name = os.fsdecode(b"caf\xe9\n[bold]")
    shown = process("info", tmp_path / name)
    assert shown.code == 3
    assert "\\udce9" in shown.err
    assert "[bold]" in shown.err
    assert process("info", tmp_path / name, "--json", PYTHONIOENCODING="ascii").code == 3


def test_show_describes_every_field(tmp_path, capsys):
    path = digits(tmp_path)
    found = cli(capsys, "show", path, 3, 1, "--json").document
    assert [sample["sample_id"] for sample in found["samples"]] == [3, 1]
    sample = found["samples"][0]
    assert sample["metadata"] == {"label": 3, "name": "digit 3"}
    [image] = sample["payload"]
    assert (image["field"], image["dtype"], image["shape"], image["bytes"]) == ("image", "uint8", [3, 8, 8], 192)
    assert (image["min"], image["max"]) == (64, 255)
    assert "min 64   max 255" in cli(capsys, "show", path, 3).out


def test_show_previews_bytes_as_text_or_hexadecimal(tmp_path, capsys):
    path = write(tmp_path, [("grün\n".encode(), {}), (b"\x00\xff" * 40, {}), (b"", {})])
    assert "grün" in cli(capsys, "show", path, 0).out
    dump = cli(capsys, "show", path, 1, "--bytes", 16).out
    assert "00000000  00 ff 00 ff" in dump
    assert "64 B more" in dump
    payloads = [sample["payload"][0] for sample in cli(capsys, "show", path, 0, 1, 2, "--json").document["samples"]]
    assert [(one["text"], one["hex"]) for one in payloads] == [("grün\n", None), (None, ("00ff" * 32)), ("", None)]


def test_images_are_drawn_only_where_a_terminal_shows_colours(tmp_path):
    path = digits(tmp_path)
    assert "▀" not in process("show", path, 0, FORCE_COLOR="").out
    for environment, drawn in (
        ({"COLORTERM": "truecolor"}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ):
        shown = in_terminal(["show", str(path), "0"], **{"TERM": "xterm-256color", **environment})
        assert ("▀" in shown) == drawn, environment
        assert "digit 0" in shown


@pytest.mark.parametrize("width", [24, 200])
def test_no_line_is_longer_than_a_narrow_terminal(tmp_path, width):
    path = digits(tmp_path, "a")
    digits(tmp_path, "b")
    for arguments in (["info", str(tmp_path)], ["info", str(path)], ["head", str(path)]):
        shown = in_terminal(arguments, COLUMNS=str(width), NO_COLOR="1", TERM="xterm")
        lines = [
            line.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "") for line in shown.splitlines()
        ]
        assert max(map(len, lines)) <= width


def in_terminal(arguments: list[str], **environment: str) -> str:
    """Run a command whose output is a terminal; return what it shows."""
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "dataset_rt", *arguments]
    clean = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")}
    child = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, cwd=ROOT, env={**clean, **environment})
    os.close(inner)
    shown = b""
    while True:
        try:
            piece = os.read(outer, 1 << 16)
        except OSError:
            break  # the other end is closed: the process has ended
        if not piece:
            break
        shown += piece
    os.close(outer)
    assert child.wait(PATIENCE) == 0, shown
    return shown.decode()


def test_output_for_programs_is_never_broken_or_cut(tmp_path, capsys):
    path = write(tmp_path, [(b"", {"long": "x" * 5000, "n": n}) for n in range(3)])
    shown = cli(capsys, "head", path)
    assert len(shown.out.splitlines()) == 4
    assert "x" * 5000 in shown.out


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    path = write(tmp_path, numbered(3000))
    child = start("from dataset_rt.cli import main; main()", "head", path, "-n", 3000)
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.wait(PATIENCE) == 141
    assert child.stderr.read() == ""
    child.stderr.close()
    assert child.stdin is not None
    child.stdin.close()


def test_ctrl_c_ends_a_command_with_one_word(tmp_path):
    (tmp_path / "in").mkdir()
    for n in range(200):
        (tmp_path / "in" / f"{n}.bin").write_bytes(b"x")
    script = """
        import os, signal, sys
        from dataset_rt.cli import main
        from dataset_rt.cli.inputs import _Files
        real = _Files.__iter__
        def interrupted(self):
            for number, sample in enumerate(real(self)):
                if number == 100:
                    os.kill(os.getpid(), signal.SIGINT)
                yield sample
        _Files.__iter__ = interrupted
        main()
    """
    child = start(script, "write", tmp_path / "out", tmp_path / "in")
    out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, out, err.strip()) == (130, "", "interrupted")
    assert not (tmp_path / "out").exists()


def test_query_answers_sql_and_writes_files(tmp_path, capsys):
    import polars as pl

    path = digits(tmp_path)
    sql = "select label, count(*) as n from samples group by label order by label"
    found = cli(capsys, "query", sql, path, "--json").document
    assert found["rows"] == [{"label": label, "n": 10} for label in range(4)]
    assert [column["name"] for column in found["columns"]] == ["label", "n"]
    cut = cli(capsys, "query", "select * from self", path, "--limit", 3, "--json").document
    assert (len(cut["rows"]), cut["truncated"]) == (3, True)
    named = cli(capsys, "query", "select name, samples from caches", path, "--json").document["rows"]
    assert named == [{"name": "digits", "samples": 40}]
    for suffix, read in (("parquet", pl.read_parquet), ("csv", pl.read_csv), ("json", pl.read_json)):
        file = tmp_path / f"out.{suffix}"
        assert cli(capsys, "query", sql, path, "-o", file).code == 0
        assert read(file)["n"].to_list() == [10, 10, 10, 10]


def test_order_shows_what_a_dataset_delivers(tmp_path, capsys):
    from tests.order_support import opened, order

    path = digits(tmp_path)
    found = cli(capsys, "order", path, "--seed", 11, "--epoch", 2, "--stop", 40, "--json").document["order"]
    assert [(row["cache_id"], row["sample_id"]) for row in found] == order(opened(path), 2)
    ranks = [
        cli(capsys, "order", path, "--rank", r, "--world-size", 3, "--batch-size", 4, "--step", 1, "--json").document
        for r in range(3)
    ]
    positions = [[row["position"] for row in rank["order"]] for rank in ranks]
    assert positions == [[12, 13, 14, 15], [16, 17, 18, 19], [20, 21, 22, 23]]
    assert {row["step"] for rank in ranks for row in rank["order"]} == {1}


def test_diff_tells_added_removed_and_changed_samples(tmp_path, capsys):
    items = numbered(50)
    base = write(tmp_path, items, "base")
    assert cli(capsys, "diff", base, write(tmp_path, items, "same")).code == 0
    changed = [*items[:48]]
    changed[7] = (b"other", changed[7][1])
    changed[9] = (changed[9][0], {"n": 9, "name": "renamed"})
    shown = cli(capsys, "diff", base, write(tmp_path, changed, "other"), "--json")
    samples = shown.document["samples"]
    assert (shown.code, shown.document["equal"]) == (1, False)
    assert samples["only_in_a"] == {"count": 2, "ids": [48, 49], "truncated": False}
    assert samples["only_in_b"]["count"] == 0
    assert samples["changed"]["ids"] == [7, 9]
    assert samples["metadata_changed"]["ids"] == [9]
    assert samples["metadata_changes"] == {"name": 1}


def test_diff_reads_no_payload(tmp_path, capsys):
    paths = [write(tmp_path, numbered(50), name) for name in ("a", "b")]
    for path in paths:
        flip(path / "shards" / "000000.bin", 20)
    assert cli(capsys, "diff", *paths).code == 0


def test_diff_does_not_call_samples_equal_that_it_cannot_compare(tmp_path, capsys):
    from tests.support import edit_manifest

    one, other = (write(tmp_path, numbered(5), name) for name in ("a", "b"))
    edit_manifest(other, record_checksums=...)
    shown = cli(capsys, "diff", one, other, "--json")
    assert (shown.code, shown.document["equal"], shown.document["samples"]["checksums"]) == (1, False, None)


def test_a_folder_of_files_becomes_a_cache(tmp_path, capsys):
    from tests.support import pairs, read

    for name in ("cat/1.txt", "cat/deep/2.txt", "dog/[1].txt", ".git/config", "dog/.hidden"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(name)
    written = cli(capsys, "write", tmp_path / "out", tmp_path / "in", "--compression", "lz4", "--json").document
    assert written["samples"] == 3
    assert pairs(read(tmp_path / "out")) == [
        (name.encode(), {"label": name.partition("/")[0], "path": name})
        for name in ("cat/1.txt", "cat/deep/2.txt", "dog/[1].txt")
    ]


@pytest.mark.parametrize(
    ("algo", "level", "found"),
    [("lz4", 13, "1 to 12"), ("zstd", 20, "-7 to 19"), ("none", 3, "no levels"), (None, 3, "--compression")],
)
def test_a_level_that_the_compression_does_not_have_is_refused_before_anything_is_written(
    tmp_path, capsys, algo, level, found
):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a")
    chosen = ("--compression", algo) if algo else ()
    ended = cli(capsys, "write", tmp_path / "out", tmp_path / "in", *chosen, "--level", level)
    assert ended.code == 2
    assert f"--level {level}" in ended.err
    assert found in ended.err
    assert not (tmp_path / "out").exists()


def test_arrays_tables_and_caches_become_caches(tmp_path, capsys):
    import numpy as np
    import polars as pl

    from tests.support import read

    np.savez(tmp_path / "a.npz", x=np.arange(12.0).reshape(4, 3), n=np.arange(4))
    np.save(tmp_path / "a.npy", np.arange(4))
    pl.DataFrame({"data": [b"%d" % n for n in range(10_000)], "n": range(10_000)}).write_parquet(tmp_path / "a.parquet")
    assert cli(capsys, "write", tmp_path / "npz", tmp_path / "a.npz").code == 0
    assert cli(capsys, "write", tmp_path / "npy", tmp_path / "a.npy", "--payload", "x").code == 0
    assert cli(capsys, "write", tmp_path / "table", tmp_path / "a.parquet").code == 0
    assert cli(capsys, "write", tmp_path / "copy", tmp_path / "npz").code == 0
    sample = read(tmp_path / "npz")[2]
    assert (sample.data["x"].tolist(), sample.metadata) == ([6.0, 7.0, 8.0], {"n": 2})
    assert read(tmp_path / "npy")[3].data["x"] == 3
    assert read(tmp_path / "table")[9_999].data == b"9999"
    assert cli(capsys, "diff", tmp_path / "copy", tmp_path / "npz").code == 0


def test_merge_keeps_the_samples_that_fulfil_a_condition(tmp_path, capsys):
    from tests.support import read

    paths = [digits(tmp_path, name) for name in ("a", "b")]
    merged = cli(capsys, "merge", tmp_path / "out", *paths, "--where", "label = 3 and name like 'digit 1%'", "--json")
    names = [sample.metadata["name"] for sample in read(tmp_path / "out")]
    assert names == 2 * ["digit 11", "digit 15", "digit 19"]
    assert merged.document["samples"] == 6


def test_completion_knows_commands_and_is_installed_once(tmp_path):
    shown = process(_DATASET_RT_COMPLETE="bash_complete", COMP_WORDS="dataset-rt ve", COMP_CWORD="1")
    assert shown.out == "plain,verify\n"
    for shell in ("bash", "zsh", "fish"):
        assert "_DATASET_RT_COMPLETE" in process("completion", "show", shell).out
        for _ in range(2):
            assert process("completion", "install", shell, HOME=str(tmp_path)).code == 0
    assert (tmp_path / ".bashrc").read_text().count("completion.bash") == 1
    assert (tmp_path / ".config" / "fish" / "completions" / "dataset-rt.fish").exists()


def test_keys_of_json_documents_stay(tmp_path, capsys):
    path = digits(tmp_path)
    keys = {
        "info": "caches readable unreadable samples stored_bytes payload_bytes",
        "head": "columns rows total",
        "show": "path samples",
        "query": "columns rows truncated output",
        "order": "epoch seed epoch_length start stop order",
        "diff": "a b equal manifest columns fields samples",
        "write": "path samples stored_bytes input",
        "merge": "path samples stored_bytes inputs",
        "completion": "shell script",
    }
    arguments = {
        "info": [path],
        "head": [path],
        "show": [path, 0],
        "query": ["select * from samples", path],
        "order": [path],
        "diff": [path, path],
        "write": [tmp_path / "w", path],
        "merge": [tmp_path / "m", path],
        "completion": ["show", "bash"],
    }
    for command, names in keys.items():
        assert list(cli(capsys, command, *arguments[command], "--json").document) == names.split(), command
    names = (
        "path name samples deleted format_version generation operation created_unix shards stored_bytes shard_bytes "
        "metadata_bytes payload_bytes compression dictionary_bytes record_checksums metadata payload source_version "
        "created_by"
    )
    assert list(cli(capsys, "info", path, "--json").document["caches"][0]) == names.split()


def test_text_is_cut_and_spelled_out_before_it_is_printed():
    assert one_line("a\tb\nc\x00\x9b", 6) == "a\\tb\\nc…"
    assert [size(n) for n in (0, 1023, 1024, 1536 * 1024, 2**63)] == ["0 B", "1023 B", "1 KiB", "1.5 MiB", "8 EiB"]
