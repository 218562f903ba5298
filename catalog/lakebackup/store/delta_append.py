"""Appends rows of Spark tasks to catalog tables. Each task writes its own files; the driver commits them.

No row passes through the driver, which gets one line for each file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakebackup.errors import Damaged, NotFound
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.rules.kinds import KINDS
from lakebackup.sql_engine.delta.log import opened
from lakebackup.sql_engine.delta.table import write_rows
from lakebackup.sql_engine.worker import PerNumber, in_chunks, trim_worker
from lakebackup.storage import open_storage
from lakebackup.store.manifest import get_verified, read_part

ADDED = "added STRING"
# With many more rows in a file, readers can skip less; with many fewer, they open more files.
ROWS_PER_FILE = 200_000
RowSource = Callable[["Iterable[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]
Groups = tuple[tuple[str, ...], ...]


def grouped(paths: Sequence[str], count: int) -> Groups:
    """Distribute paths among `count` tasks."""
    return tuple(tuple(paths[task::count]) for task in range(count))


@dataclass(frozen=True, slots=True)
class FrameWriter:
    """For `mapInArrow` over rows of a table: writes files of the table, and returns a row of `ADDED` a file.

    `settings` are the table's. `source`, if given, converts the batches to rows of the table.
    """

    catalog_uri: str
    table: str
    settings: Mapping[str, str]
    source: RowSource | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for added in self.write(self.source(batches) if self.source else batches):
            yield pa.RecordBatch.from_pydict({"added": [added]})
        trim_worker()

    def write(self, rows: Iterable[pa.RecordBatch]) -> Iterator[str]:
        """Write rows, in any process. Returns a text for each file, which `commit` makes visible."""
        storage = opened(self.catalog_uri)
        for table in in_chunks(rows, ARROW_SCHEMAS[self.table], ROWS_PER_FILE):
            yield write_rows(storage, self.table, table, self.settings)


@dataclass(frozen=True, slots=True)
class WrittenRows(PerNumber):
    """Writes the rows that `source` returns for a number, and returns a row of `ADDED` for each file."""

    writer: FrameWriter
    source: PerNumber

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        return self.writer(self.source.rows(number))


@dataclass(frozen=True, slots=True)
class PartRows(PerNumber):
    """Reads rows of `files` from the manifest parts `paths[number]`.

    There are few paths, because a part covers a task or a topic, not a file of data.
    """

    destination_uri: str
    paths: Groups

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        storage = open_storage(self.destination_uri)
        for path in self.paths[number]:
            rows = [as_row(row) for row in read_part(storage, path)]
            yield pa.RecordBatch.from_pylist(rows, ARROW_SCHEMAS["files"])


#: Table -> `files.format` of the Parquet objects beside a backup that hold rows of the table.
LISTED: Mapping[str, str] = {
    "snapshot_files": "snapshot-files",
    "snapshot_departures": "snapshot-departures",
    "snapshot_folders": "snapshot-folders",
    "log_regions": "log-regions",
    "log_tables": "log-tables",
    "departures": "log-departures",
    "queue_points": "queue-points",
    "queue_positions": "queue-positions",
    "queue_transactions": "queue-transactions",
    "queue_schemas": "queue-schemas",
}
#: Kind of source -> the tables of which its backups list rows.
LISTED_BY = {name: kind.listed for name, kind in KINDS.items() if kind.listed}


@dataclass(frozen=True, slots=True)
class ListedRows(PerNumber):
    """Reads rows of `table` from the Parquet objects that the parts `paths[number]` name.

    Objects of earlier versions lack the columns that were added later: these are NULL.
    """

    destination_uri: str
    table: str
    paths: Groups

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        storage = open_storage(self.destination_uri)
        for path in self.paths[number]:
            for row in read_part(storage, path):
                if row.format == LISTED[self.table]:
                    data = pa.BufferReader(get_verified(storage, row.path, row.sha256))
                    yield from map(self._with_every_column, pq.ParquetFile(data).iter_batches())

    def _with_every_column(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for column in ARROW_SCHEMAS[self.table]:
            if column.nullable and column.name not in batch.schema.names:
                batch = batch.append_column(column, pa.nulls(len(batch), column.type))
        return batch


@dataclass(frozen=True, slots=True)
class TornListings(PerNumber):
    """Reports the part `paths[number]` if the part, or listed rows that it names, are missing or damaged."""

    destination_uri: str
    paths: tuple[str, ...]

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        storage, path = open_storage(self.destination_uri), self.paths[number]
        try:
            for row in read_part(storage, path):
                if row.format in LISTED.values():
                    get_verified(storage, row.path, row.sha256)
        except (NotFound, Damaged) as error:
            yield pa.RecordBatch.from_pydict({"path": [path], "problem": [error.message]})
