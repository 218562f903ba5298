"""Rows of catalog tables that Spark tasks hold: each task writes its own file, the driver commits them.

No row passes through the driver; it gets one line a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from lakebackup.engine.delta import write_rows
from lakebackup.model import ARROW_SCHEMAS, as_row
from lakebackup.sidecar import read_part
from lakebackup.storage import open_storage
from lakebackup.worker import settle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

ADDED = "added STRING"
# A file of a table with many more rows prunes badly, with many fewer each costs an open.
ROWS_PER_FILE = 200_000
RowSource = Callable[["Iterable[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


@dataclass(frozen=True, slots=True)
class FrameWriter:
    """For `mapInArrow` over rows of a table: writes them as files of it, one line of `ADDED` a file.

    With `source` the batches are what that makes rows of.
    """

    catalog_uri: str
    table: str
    source: RowSource | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for added in self.write(self.source(batches) if self.source else batches):
            yield pa.RecordBatch.from_pydict({"added": [added]})
        settle()

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
        """Rows that are at hand, in any process: a text a file, which `commit` makes visible."""
        import pyarrow as pa

        schema = ARROW_SCHEMAS[self.table]
        held: list[pa.Table] = []
        for batch in chain(batches, [None]):
            if batch is not None and batch.num_rows:
                held.append(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
            if held and (batch is None or sum(map(len, held)) >= ROWS_PER_FILE):
                added = write_rows(open_storage(self.catalog_uri), self.table, pa.concat_tables(held))
                held = []
                yield added


@dataclass(frozen=True, slots=True)
class PartRows:
    """Numbers in, rows of `files` out: those of the manifest parts `paths[number]`.

    A task or a topic has a part, not a file of data, so that their paths are few.
    """

    destination_uri: str
    paths: tuple[tuple[str, ...], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        storage = open_storage(self.destination_uri)
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            for path in self.paths[number]:
                rows = [as_row(row) for row in read_part(storage, path)]
                yield pa.RecordBatch.from_pylist(rows, ARROW_SCHEMAS["files"])


@dataclass(frozen=True, slots=True)
class PartWriter:
    """For `mapInArrow` over numbers: the rows of `PartRows` become files of `files`."""

    destination_uri: str
    catalog_uri: str
    paths: tuple[tuple[str, ...], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return FrameWriter(self.catalog_uri, "files", PartRows(self.destination_uri, self.paths))(batches)
