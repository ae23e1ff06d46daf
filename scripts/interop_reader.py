"""Read caches with whichever dataset-rt this interpreter has, and print what it delivers.

`interop.py` runs this file inside the environments of published releases: keep it to what 0.2.0 offers.
Standard input holds a JSON list of jobs, `{"validate": bool, "paths": [...]}`. For each job one JSON line
comes back: `{"lines": [...], "error": ""}`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING

import dataset_rt

if TYPE_CHECKING:
    from collections.abc import Mapping


def describe(value: object) -> list[str]:
    """Name a metadata value so that two are equal only when type and every bit are."""
    return [type(value).__name__, value.hex() if isinstance(value, float) else str(value)]


def describe_sample(data: bytes, metadata: Mapping[str, object], cache_id: int, sample_id: int) -> str:
    """Return one canonical line for a sample."""
    row = {key: describe(metadata[key]) for key in sorted(metadata)}
    digest = hashlib.sha256(data).hexdigest()
    return json.dumps([cache_id, sample_id, type(data).__name__, len(data), digest, row])


def describe_row(row: Mapping[str, object]) -> str:
    """Return one canonical line for a row of the samples metadata table."""
    return json.dumps({key: describe(row[key]) for key in row})


def read(paths: list[str], *, validate: bool) -> list[str]:
    """Return a line per sample in physical order, then a line per row of the metadata table."""
    config = dataset_rt.ReaderConfig(seed=0, shuffle=False, validate_cache=validate)
    if hasattr(dataset_rt, "DatasetRuntime"):
        runtime = dataset_rt.DatasetRuntime(num_workers=2)
        dataset = runtime.cached_dataset(paths, reader_config=config)
        table = dataset.get_metadata()
    else:
        dataset = dataset_rt.CachedDataset(paths, reader_config=config)
        table = dataset.samples_metadata()
    samples = [describe_sample(s.data, s.metadata, s.cache_id, s.sample_id) for s in dataset]
    return samples + [describe_row(row) for row in table.iter_rows(named=True)]


def main() -> None:
    """Answer every job on standard input."""
    for job in json.load(sys.stdin):
        answer: dict[str, object] = {"lines": [], "error": ""}
        try:
            answer["lines"] = read(job["paths"], validate=job["validate"])
        except Exception as error:  # noqa: BLE001 - whatever a release raises is the answer
            answer["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
