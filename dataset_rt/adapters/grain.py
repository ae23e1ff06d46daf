"""Grain: the rows of a `CachedDataset` as a `RandomAccessDataSource`.

Order, epochs, shards and state are Grain's then; weights, and the order of the dataset, do not count. Importing this
module does not import Grain, whose protocol needs no base class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataset_rt.dataset import CachedDataset
    from dataset_rt.records import CachedSample

__all__ = ["RowSource", "source"]


def source(dataset: CachedDataset, columns: Sequence[str] | None = None) -> RowSource:
    """Return a data source for `grain.MapDataset.source` and `grain.DataLoader`: element `i` is row `i` of the dataset.

    Args:
        dataset: The dataset or view to read. Worker processes open its caches when they first read.
        columns: Payload fields (`data` for plain bytes) and metadata columns that elements have; `None` is all of them.

    Raises:
        ConfigError: There is no column of a name.
    """
    return RowSource(dataset, columns)


class RowSource:
    """Rows of a dataset as dicts that Grain can batch; made by `source`.

    An element has the payload fields and the metadata columns by name. Bytes are arrays of `uint8`: NumPy would cut
    zeros from the end of `bytes` when Grain stacks them to a batch.
    """

    def __init__(self, dataset: CachedDataset, columns: Sequence[str] | None) -> None:
        known = dataset._columns  # noqa: SLF001 (the adapter is one of us)
        self.dataset = dataset
        self._columns = known if columns is None else known.select(columns)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return the row of this number; its arrays own their memory."""
        sample: CachedSample = self.dataset[index]
        payload: Any = sample.data
        values = {**sample.metadata, **payload} if isinstance(payload, dict) else {"data": payload, **sample.metadata}
        return {name: _stackable(values[name]) for name in self._columns.names}

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return several rows, read together; their arrays are parts of those of one batch."""
        columns = self._columns
        batch = self.dataset.gather(indices, columns=columns.names)
        values = {name: batch.metadata.get_column(name).to_list() for name in columns.metadata}
        values |= {name: list(map(_stackable, batch[name])) for name in columns.names if name not in values}
        if columns.fields is not None:
            values |= {field.name: list(map(_stackable, batch[field.name])) for field in columns.fields}
        return [{name: values[name][row] for name in columns.names} for row in range(len(batch))]

    def _getitems(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return several rows; this is what Grain's protocol calls it."""
        return self.__getitems__(indices)

    def __repr__(self) -> str:
        """Name the contents: Grain compares this with a checkpoint before it resumes one."""
        state = self.dataset.state_dict()
        return (
            f"RowSource({len(self)} rows, contents={state['contents']}, rows={state['rows']}, "
            f"columns={self._columns.names})"
        )


def _stackable(value: Any) -> Any:
    """Return a value that Grain can stack without changing it."""
    return np.frombuffer(value, np.uint8) if isinstance(value, bytes | memoryview) else value
