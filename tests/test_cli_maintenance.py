"""The commands that check and change caches: what they say is what was done."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from dataset_rt import CachedDataset
from tests.cli_support import cli, digits, process
from tests.support import flip, numbered, read, reader, write

CHANGE = ["path", "operation", "generation", "previous_generation", "samples", "added", "deleted", "bytes_written"]


def live(path) -> list[int]:
    return [sample.sample_id for sample in read(path)]


def test_delete_takes_what_a_condition_says(tmp_path, capsys):
    path = digits(tmp_path)
    plan = cli(capsys, "delete", path, "--where", "label = 3", "--dry-run", "--json").document
    assert (plan["samples"], plan["matching"], plan["changed"]) == (40, 10, False)
    assert plan["ids"] == list(range(3, 40, 4))
    assert len(live(path)) == 40
    done = cli(capsys, "delete", path, "--where", "label = 3", "--yes", "--json").document
    assert list(done) == [*CHANGE, "changed"]
    assert (done["operation"], done["generation"], done["samples"], done["deleted"]) == ("delete", 1, 30, 10)
    assert live(path) == [n for n in range(40) if n % 4 != 3]
    assert "10" in cli(capsys, "info", path).out
    again = cli(capsys, "delete", path, "--where", "label = 3", "--yes", "--json").document
    assert (again["matching"], again["changed"]) == (0, False)


def test_delete_takes_ids_ranges_and_lists(tmp_path, capsys):
    path = digits(tmp_path)
    (tmp_path / "ids").write_text("30\n31\n")
    assert cli(capsys, "delete", path, "--ids", "1,5-7", "--yes").code == 0
    assert cli(capsys, "delete", path, "--ids", f"@{tmp_path / 'ids'}", "--yes").code == 0
    assert live(path) == [n for n in range(40) if n not in (1, 5, 6, 7, 30, 31)]
    assert cli(capsys, "show", path, 5).code == 2
    assert cli(capsys, "show", path, 5, "--generation", 0).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="neither"),
        pytest.param(["--where", "label = 1", "--ids", "1"], id="both"),
        pytest.param(["--ids", "40"], id="beyond the last"),
        pytest.param(["--ids", "0-18446744073709551615"], id="all that could be"),
        pytest.param(["--ids", "3-1"], id="backwards"),
        pytest.param(["--ids", "-1"], id="negative"),
        pytest.param(["--ids", "one"], id="a word"),
        pytest.param(["--ids", ","], id="nothing"),
        pytest.param(["--where", "label ="], id="half a condition"),
        pytest.param(["--where", "nope = 1"], id="no such column"),
        pytest.param(["--where", "label"], id="no condition"),
        pytest.param(["--where", "label = 1"], id="nobody to ask", marks=[]),
    ],
)
def test_delete_refuses_and_changes_nothing(tmp_path, capsys, arguments):
    path = digits(tmp_path)
    yes = [] if arguments == ["--where", "label = 1"] else ["--yes"]
    assert cli(capsys, "delete", path, *arguments, *yes).code == 2
    assert live(path) == list(range(40))


def test_nothing_is_removed_without_an_answer(tmp_path):
    path = write(tmp_path, numbered(5))
    for arguments in (["delete", path, "--ids", "1"], ["vacuum", path], ["repair", path]):
        shown = process(*arguments)
        assert (shown.code, shown.out) == (2, "")
        assert "--yes" in shown.err


def test_compact_and_vacuum_give_the_bytes_back(tmp_path, capsys):
    path = write(tmp_path, [(bytes(1000), {"n": n}) for n in range(40)])
    before = cli(capsys, "stats", path, "--json").document
    assert (before["samples"], before["deleted"], before["reclaimable_bytes"]) == (40, 0, 0)
    cli(capsys, "delete", path, "--where", "n >= 10", "--yes")
    stats = cli(capsys, "stats", path, "--shards", "--json").document
    assert (stats["samples"], stats["deleted"]) == (10, 30)
    assert stats["reclaimable_bytes"] > 30_000
    assert [shard["live_records"] for shard in stats["shards"]] == [10]
    assert [generation["operation"] for generation in stats["generations"]][-1] == "delete"
    assert "reclaimable" in cli(capsys, "stats", path, "--shards").out
    done = cli(capsys, "compact", path, "--json").document
    assert (done["operation"], done["generation"], done["changed"]) == ("compact", 2, True)
    assert cli(capsys, "compact", path, "--json").document["changed"] is False
    assert "nothing to do" in cli(capsys, "compact", path).out
    plan = cli(capsys, "vacuum", path, "--grace", "0s", "--dry-run", "--json").document
    assert (plan["removed"], plan["dry_run"]) == ([0], True)
    assert "would remove" in cli(capsys, "vacuum", path, "--grace", "0s", "--dry-run").out
    cli(capsys, "delete", path, "--ids", "0", "--yes")
    report = cli(capsys, "vacuum", path, "--grace", "0s", "--yes", "--json").document
    assert report["removed"] == [0, 1]
    assert report["bytes"] > 40_000
    assert live(path) == list(range(1, 10))


def test_append_takes_what_write_takes(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", x=np.arange(12.0).reshape(4, 3), n=np.arange(4))
    pl.DataFrame({"data": [b"one", b"two"], "n": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "files" / "cat").mkdir(parents=True)
    (tmp_path / "files" / "cat" / "1.txt").write_text("one")
    inputs = {"arrays": tmp_path / "a.npz", "table": tmp_path / "a.parquet", "folder": tmp_path / "files"}
    for name, source in inputs.items():
        path = tmp_path / name
        assert cli(capsys, "write", path, source, "--compression", "lz4").code == 0
        samples = read(path)
        done = cli(capsys, "append", path, source, "--json").document
        assert list(done) == [*CHANGE, "changed"]
        assert (done["operation"], done["added"], done["samples"]) == ("append", len(samples), 2 * len(samples))
        assert cli(capsys, "info", path, "--json").document["caches"][0]["compression"].keys() == {"lz4"}
        for old, new in zip(samples, read(path)[len(samples) :], strict=True):
            assert str((old.data, old.metadata)) == str((new.data, new.metadata))
    before = live(tmp_path / "arrays")
    added = cli(capsys, "append", tmp_path / "arrays", tmp_path / "arrays", "--json").document["added"]
    assert added == len(before) == len(live(tmp_path / "arrays")) // 2


def test_append_takes_files_with_and_without_a_folder(tmp_path, capsys):
    for name in ("a/1", "b/2", "3"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(name)
    (tmp_path / "more" / "c").mkdir(parents=True)
    (tmp_path / "more" / "c" / "4").write_text("4")
    cli(capsys, "write", tmp_path / "out", tmp_path / "in")
    assert cli(capsys, "append", tmp_path / "out", tmp_path / "more").code == 0
    assert [sample.metadata["label"] for sample in read(tmp_path / "out")] == [None, "a", "b", "c"]


def test_append_refuses_other_columns(tmp_path, capsys):
    path = digits(tmp_path)
    other = write(tmp_path, numbered(3), "other")
    shown = cli(capsys, "append", path, other, "--json")
    assert shown.code in (2, 3)
    assert shown.document["error"]["message"]
    assert live(path) == list(range(40))


def test_verify_lists_all_damage_of_all_caches(tmp_path, capsys):
    good, bad, gone = (write(tmp_path, numbered(50), name) for name in ("a", "b", "c"))
    assert cli(capsys, "verify", good).out.startswith(f"{good}: ok, generation 0, 50 samples")
    flip(bad / "shards" / "000000.bin", 20)
    (gone / "manifest.json").write_bytes(b"")
    shown = cli(capsys, "verify", tmp_path, "--json")
    assert shown.code in (1, 3)
    caches = shown.document["caches"]
    assert [cache["ok"] for cache in caches] == [True, False, False]
    assert shown.document["ok"] is False
    damaged = {finding["sample_id"] for finding in caches[1]["findings"]}
    assert 0 in damaged
    human = cli(capsys, "verify", bad)
    assert human.code == 1
    assert "000000.bin" in human.out
    assert cli(capsys, "verify", bad, "--fast").code == 0


def test_repair_says_what_is_lost(tmp_path, capsys):
    path = write(tmp_path, numbered(50))
    assert cli(capsys, "repair", path, "--yes").code == 0
    flip(path / "shards" / "000000.bin", 20)
    shown = cli(capsys, "repair", path, "--yes", "--json")
    assert shown.code == 1
    assert shown.document["lost_sample_ids"] == [0]
    assert shown.document["change"]["changed"] is True
    assert cli(capsys, "verify", path).code == 0
    assert live(path) == list(range(1, 50))


def test_merge_and_write_copy_records_as_they_are_stored(tmp_path, capsys):
    path = digits(tmp_path)
    cli(capsys, "delete", path, "--ids", "0", "--yes")
    assert cli(capsys, "merge", tmp_path / "out", path, "--json").document["samples"] == 39
    assert cli(capsys, "write", tmp_path / "copy", path, "--json").document["samples"] == 39
    assert cli(capsys, "diff", tmp_path / "out", tmp_path / "copy").code == 0
    smaller = cli(capsys, "merge", tmp_path / "small", path, "--compression", "zstd", "--level", 9, "--json").document
    assert smaller["samples"] == 39
    assert cli(capsys, "info", tmp_path / "small", "--json").document["caches"][0]["compression"] == {"zstd": 1}


def test_bench_measures_files_and_cache(tmp_path, capsys):
    path = digits(tmp_path)
    found = cli(capsys, "bench", path, "--seconds", 0.01, "--rounds", 2, "--batch-size", 8, "--json").document
    names = {"files, in order", "cache, in order", "files, at random", "cache, gathers", "cache, samples"}
    assert {one["name"] for one in found["measurements"]} == names
    assert all(one["bytes_per_second"] > 0 for one in found["measurements"])
    assert "samples/s" in cli(capsys, "bench", path, "--seconds", 0.01, "--rounds", 1, "--no-cold").out


def test_the_report_tells_damage(tmp_path, capsys):
    path = digits(tmp_path)
    (path / "index.bin").write_bytes((path / "index.bin").read_bytes()[::-1])
    output = tmp_path / "report.html"
    flip(path / "index.bin", 0)
    shown = cli(capsys, "report", path, "-o", output, "--previews", 0, "--json")
    assert shown.code == 0
    assert "damaged" in output.read_text(encoding="utf-8")


def test_a_cache_without_samples_is_shown(tmp_path, capsys):
    path = digits(tmp_path, count=3)
    cli(capsys, "delete", path, "--ids", "0-2", "--yes")
    for command in ("info", "head", "order", "stats", "verify"):
        assert cli(capsys, command, path).code == 0, command
    assert cli(capsys, "diff", path, path).code == 0
    assert cli(capsys, "report", path, "-o", tmp_path / "r.html").code == 0
    assert cli(capsys, "show", path, 0).code == 2
    assert cli(capsys, "bench", path).code == 2
    assert len(CachedDataset([path], reader_config=reader())) == 0
    counted = cli(capsys, "query", "select count(*) as n from samples", path, "--json").document
    assert counted["rows"] == [{"n": 0}]
