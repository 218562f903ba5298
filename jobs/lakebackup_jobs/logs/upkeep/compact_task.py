"""The Spark tasks of a log's compaction: read log files, merge them into few, and list the old files."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from lakebackup.formats.logs.cipher import Cipher, LogKeys
from lakebackup.formats.logs.events import stored_schema
from lakebackup.formats.logs.logfile import MOST_RAW, LogFileWriter, LogPlace, Scratch, read_log_file
from lakebackup.rows.backups import DataFile
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine.worker import PerNumber, runs, task_number
from lakebackup.storage import Storage, open_storage
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.roots import Roots
from lakebackup_jobs.lifecycle.tasks.errors import guarded
from lakebackup_jobs.lifecycle.tasks.part import PartTask
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, totals
from lakebackup_jobs.logs.upkeep.derived import WithoutNumber

#: A record and the kind of its new file. place: table id, column family and operation, separated by blanks.
RECORDS = (
    "place STRING, key BINARY, value BINARY, start_ts BIGINT, commit_ts BIGINT, type STRING, "
    "seq BIGINT, sub INT"
)
#: The columns by which the records of a file are sorted.
ORDER = ("place", "key", "commit_ts", "start_ts", "seq", "sub")


@dataclass(frozen=True, slots=True)
class ReadLog(PerNumber):
    """Reads the records (RECORDS) of the files in the shares of a task, rows of log_compact_files."""

    plan: PlanShares
    roots: Roots
    keys: LogKeys | None = field(default=None, repr=False)

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        count = self.plan.task_progress().counter(f"{number:06d}")
        for batch in self.plan.batches(number):
            for row in batch.to_pylist():
                yield from self._records(row)
                count(row["entries"], row["bytes"])

    def _records(self, row: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        storage = self.roots.open(row["destination"])
        group = f"{row['scope']} {row['cf']} {row['op']}"
        for batch in read_log_file(storage, SimpleNamespace(**row), self.keys, self.roots.keys):
            groups = pa.repeat(pa.scalar(group), len(batch))
            yield pa.RecordBatch.from_arrays([groups, *batch.columns], ["place", *stored_schema().names])


@dataclass(frozen=True, kw_only=True)
class WriteLog(WithoutNumber):
    """For `mapInArrow` over records in ORDER: writes them to log files; yields one row of OUTCOME.

    `cipher`: the key of a key file that encrypts them, unless `key` does.
    """

    ts_domain: str
    codec: str
    cipher: Cipher | None = field(default=None, repr=False)
    most_raw: int = MOST_RAW

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = task_number()
        yield guarded(OUTCOME, partial(self._write, task, batches))

    def _write(self, task: int, batches: Iterable[pa.RecordBatch]) -> Mapping[str, Any]:
        rows: list[DataFile] = []
        with Scratch() as scratch:
            for group, pieces in groupby(runs(batches, "place"), itemgetter(0)):
                writer = LogFileWriter(self._log_place(group, task), scratch, self.codec)
                for _, records in pieces:
                    if writer.entries and writer.raw_bytes + records.nbytes > self.most_raw:
                        rows.append(self._publish(writer))
                        writer = LogFileWriter(self._log_place(group, task), scratch, self.codec)
                    writer.add(records)
                rows.append(self._publish(writer))
        return totals(task, self.keep_apart(open_storage(self.uri), task, rows))

    def _log_place(self, group: str, task: int) -> LogPlace:
        scope, cf, op = group.split(" ")
        return LogPlace(self.source, self.backup_id, int(scope), task, cf, op, "compacted")

    def _publish(self, writer: LogFileWriter) -> DataFile:
        columns = writer.publish(open_storage(self.uri), self.key or self.cipher) | {"region": "-"}
        return DataFile(destination=self.destination, added_in=0, ts_domain=self.ts_domain, **columns)


@dataclass(frozen=True, kw_only=True)
class ListDepartures(PartTask):
    """Lists rows of log_compact_files as departures.

    Each task writes one Parquet object of at most `most` rows, and lists it in its part. `first`: the number
    of the first of these parts.
    """

    file: PlanFile
    first: int
    most: int

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        schema = ARROW_SCHEMAS["departures"]
        begin = (task - self.first) * self.most
        departures = (
            pa.RecordBatch.from_pylist([{**row, "gone_in": self.number} for row in batch.to_pylist()], schema)
            for batch in self.file.batches(begin, begin + self.most)
        )
        path = f"{self.folder}listing/{task:06d}-{secrets.token_hex(4)}.gone.parquet"
        size, _, sha256 = write_rows(storage, path, schema, departures)
        return [self.listing("departures", path, size, sha256, scope="-", region="-", codec="none")]
