"""A dataset for DuckDB whose rows are produced while they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds


class LazyDataset(ds.InMemoryDataset):  # type: ignore[misc]
    """A dataset whose batches come from the function `scan`. `rows`: an empty table with its schema.

    `scan` gets the names of the columns that are read; it may return more. The class has what DuckDB calls of
    a dataset.
    """

    def __init__(self, rows: pa.Table, scan: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]) -> None:
        super().__init__(rows)
        self._scan = scan

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:  # noqa: A002
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])

        def batches() -> Iterator[pa.RecordBatch]:
            # The condition may be on other columns than those of the result.
            for batch in self._scan(names if filter is None else self.schema.names):
                table = pa.Table.from_batches([batch])
                if filter is not None:
                    table = table.filter(filter)
                yield from table.select(names).to_batches()

        return SimpleNamespace(
            projected_schema=schema,
            to_reader=lambda: pa.RecordBatchReader.from_batches(schema, batches()),
        )
