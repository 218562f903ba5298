"""Spark tasks of a log's compaction: read log files, write their records into few, list the old ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebackup.formats.logs.events import stored
from lakebackup.formats.logs.logfile import MOST_RAW, LogFileWriter, LogPlace, Scratch, read_log_file
from lakebackup.rows.backups import DataFile, Departure
from lakebackup.rows.tables import ARROW_SCHEMAS, json_line
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import settle, task_number
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup_jobs.lifecycle.tasks.errors import guarded
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.lifecycle.tasks.progress import TaskBoard
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakebackup.formats.logs.cipher import Cipher, LogKeys
    from lakebackup.store.roots import Roots

#: A record with its future file. place: table id, column family and operation, separated by blanks.
RECORDS = (
    "place STRING, key BINARY, value BINARY, start_ts BIGINT, commit_ts BIGINT, type STRING, "
    "seq BIGINT, sub INT"
)
#: Records of a file are sorted by these.
ORDER = ("place", "key", "commit_ts", "start_ts", "seq", "sub")
#: A row of `files`, as JSON text, of each object of departures.
LISTED_ROW = "row STRING"


class _File(NamedTuple):
    """What it takes to read a file, of a row of log_compact_files."""

    path: str
    codec: str
    key_id: str | None
    bytes: int
    sha256: str
    entries: int


@dataclass(frozen=True, slots=True)
class ReadLog:
    """For `mapInArrow` over rows of log_compact_files: their records, columns RECORDS."""

    board_uri: str
    folder: str
    roots: Roots
    keys: LogKeys | None = field(default=None, repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        board, count = TaskBoard(open_storage(self.board_uri), self.folder), None
        for batch in batches:
            for row in batch.to_pylist():
                count = count or board.counter(hashlib.sha256(row["path"].encode()).hexdigest()[:16])
                yield from self._records(row)
                count(row["entries"], row["bytes"])
        settle()

    def _records(self, row: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        storage = self.roots.open(row["destination"])
        file = _File(**{name: row[name] for name in _File._fields})
        place = f"{row['scope']} {row['cf']} {row['op']}"
        for batch in read_log_file(storage, file, self.keys):
            places = pa.repeat(pa.scalar(place), len(batch))
            yield pa.RecordBatch.from_arrays([places, *batch.columns], ["place", *stored().names])


@dataclass(frozen=True, kw_only=True)
class WriteLog(Parts):
    """For `mapInArrow` over records in ORDER: writes them as log files, one row of OUTCOME a task.

    The rows of the files are kept aside, since their backup has no number yet.
    """

    ts_domain: str
    codec: str
    cipher: Cipher | None = field(default=None, repr=False)
    most_raw: int = MOST_RAW

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = task_number()
        yield guarded(OUTCOME, partial(self._write, task, batches))

    def _write(self, task: int, batches: Iterable[pa.RecordBatch]) -> Mapping[str, Any]:
        storage = open_storage(self.uri)
        rows: list[DataFile] = []
        with Scratch() as scratch:
            writer: LogFileWriter | None = None
            now = ""
            for place, records in _runs(batches):
                full = writer is not None and writer.raw_bytes + records.nbytes > self.most_raw
                if writer is not None and (place != now or full):
                    rows.append(self._published(writer))
                    writer = None
                if writer is None:
                    writer, now = LogFileWriter(self._place(place, task), scratch, self.codec), place
                writer.add(records)
            if writer is not None:
                rows.append(self._published(writer))
        rows = sidecar.write_part(storage, layout.made_path(self.source, self.backup_id, task), rows)
        return totals(task, rows)

    def _place(self, place: str, task: int) -> LogPlace:
        scope, cf, op = place.split(" ")
        return LogPlace(self.source, self.backup_id, int(scope), task, cf, op, "compacted")

    def _published(self, writer: LogFileWriter) -> DataFile:
        found = writer.publish(open_storage(self.uri), self.cipher) | {"region": "-"}
        return DataFile(destination=self.destination, added_in=0, ts_domain=self.ts_domain, **found)


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Records of one place at a time."""
    for batch in batches:
        if not len(batch):
            continue
        runs = pc.run_end_encode(batch["place"])
        begin = 0
        for end, place in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield place, batch.slice(begin, end - begin)
            begin = end


@dataclass(frozen=True, kw_only=True)
class ListDepartures(Parts):
    """For `mapInArrow` over rows of log_compact_files: lists them as departures, a Parquet object a task.

    Returns the object's row of `files`.
    """

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema, names = ARROW_SCHEMAS["departures"], Departure.__slots__
        sink, count = pa.BufferOutputStream(), 0
        with pq.ParquetWriter(sink, schema) as parquet:
            for batch in batches:
                rows = [{**row, "gone_in": self.number} for row in batch.to_pylist()]
                count += len(rows)
                parquet.write_table(
                    pa.Table.from_pylist([{n: row[n] for n in names} for row in rows], schema)
                )
        if count:
            yield pa.RecordBatch.from_pydict({"row": [self._put(sink.getvalue().to_pybytes())]})
        settle()

    def _put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        path = f"{self.folder}listing/{task_number():06d}-{digest[:8]}.gone.parquet"
        open_storage(self.uri).put(path, data)
        return json_line(
            self.listing("departures", path, len(data), digest, scope="-", region="-", codec="none")
        )
