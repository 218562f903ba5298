"""Rows of catalog tables that Spark tasks hold: each task writes its own file, the driver commits them.

No row passes through the driver; it gets one line a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from lakebackup.errors import Damaged, NotFound
from lakebackup.rows.base import CHANGES, QUEUES, SNAPSHOT
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.sql_engine.delta import write_rows
from lakebackup.sql_engine.worker import settle
from lakebackup.storage import open_storage
from lakebackup.store.manifest import read_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from lakebackup.rows.backups import DataFile
    from lakebackup.storage import Storage

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

    def here(self, count: int) -> list[str]:
        """What tasks with the numbers below `count` would write, written by this process."""
        import pyarrow as pa

        numbers = pa.RecordBatch.from_pydict({"id": list(range(count))})
        return list(self.write(self.source([numbers]) if self.source else [numbers]))

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


#: `files.format` of the objects that hold rows of a table, as Parquet, beside a backup.
LISTED: Mapping[str, str] = {
    "snapshot_files": "snapshot-files",
    "snapshot_departures": "snapshot-departures",
    "log_regions": "log-regions",
    "log_tables": "log-tables",
    "departures": "log-departures",
    "queue_points": "queue-points",
    "queue_positions": "queue-positions",
    "queue_transactions": "queue-transactions",
    "queue_schemas": "queue-schemas",
}
#: The tables that backups of a kind of source list rows of.
LISTED_BY: Mapping[str, tuple[str, ...]] = {
    SNAPSHOT: ("snapshot_files", "snapshot_departures"),
    CHANGES: ("log_regions", "log_tables", "departures"),
    QUEUES: ("queue_points", "queue_positions", "queue_transactions", "queue_schemas"),
}


@dataclass(frozen=True, slots=True)
class ListedRows:
    """Numbers in, rows of `table` out: those in the Parquet objects that the parts `paths[number]` name."""

    destination_uri: str
    table: str
    paths: tuple[tuple[str, ...], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = open_storage(self.destination_uri)
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            for path in self.paths[number]:
                for row in read_part(storage, path):
                    if row.format == LISTED[self.table]:
                        yield from _listed(storage, row, ARROW_SCHEMAS[self.table])


@dataclass(frozen=True, slots=True)
class TornListings:
    """Numbers in; out, of each part `paths[number]` that names rows which are not whole, what is wrong."""

    destination_uri: str
    paths: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        storage = open_storage(self.destination_uri)
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            try:
                for row in read_part(storage, self.paths[number]):
                    if row.format in LISTED.values():
                        _whole(storage, row)
            except (NotFound, Damaged) as error:
                yield pa.RecordBatch.from_pydict({"path": [self.paths[number]], "problem": [error.message]})
        settle()


def _whole(storage: Storage, file: DataFile) -> bytes:
    """Such an object. Raises NotFound, and Damaged when it is not as it was written."""
    data = storage.get(file.path)
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise Damaged(
            f"{file.path} is not as it was written (sha256).",
            hint="Take it from another copy of the destination; what it lists may still be whole.",
        )
    return data


def _listed(storage: Storage, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of such an object. Raises as `_whole` does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = _whole(storage, file)
    for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches():
        yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()
