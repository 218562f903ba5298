"""The Spark task of a flush: it reads its ranges of a change feed, decodes them and writes log files.

The part is the task's commit: of two attempts the first counts. All events of a region are in one partition,
and one task reads a whole partition, so no two tasks write files of one (region, table).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import LakebackupError
from lakebackup.formats.logs.cipher import Cipher
from lakebackup.formats.logs.events import META_TABLE, WRITE
from lakebackup.formats.logs.logfile import LogFileWriter, LogPlace, Scratch
from lakebackup.rows.backups import DataFile
from lakebackup.sql_engine.pace import spend
from lakebackup.storage import Storage, open_storage
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client.consume import reader
from lakebackup_jobs.kafka.format.arrow import records_of
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.lifecycle.tasks.rows import read_rows
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, totals
from lakebackup_jobs.logs.capture import region_marks
from lakebackup_jobs.logs.capture.spool import HELD_BYTES, Group, Spool
from lakebackup_jobs.logs.feeds import ISOLATION, Feed, Range
from lakebackup_jobs.logs.skips import split

#: One row for each task. ends: JSON [[topic, partition, start, end], …], the captured offsets of each range.
#: They are fewer than planned where a transaction of the feed is not complete yet.
CAPTURED = f"{OUTCOME}, ends STRING"

# Events are small and similar. An answer of the broker is ten times as large once it is decompressed, and the
# client needs several times an event's bytes to hold it.
_TUNING = {
    "fetch.message.max.bytes": str(2 << 20),
    "fetch.max.bytes": str(8 << 20),
    "queued.max.messages.kbytes": str(16 << 10),
}


@dataclass(frozen=True, kw_only=True)
class CaptureJob(Parts, Task):
    """Captures the offsets of one flush. All its tasks share this job.

    client: librdkafka's settings. context: what the feed's `prepare` returned. tasks: the ranges that each
    task reads, one for each partition. codec: one of logfile.CODECS. cipher: the key of a key file that
    encrypts the files, unless `key` does, which leaves meta keys in clear: later flushes read these.
    left_out: path of a Parquet object whose column `table_id` has the tables that were never in the filter,
    and that the tasks drop; unknown ids are captured. after_ts: writes with commit_ts <= it are dropped (meta
    keys never are). until_ts: events with a later ts are dropped. None: no limit. scratch: folder for
    temporary files of a task. held_bytes: most bytes of records in memory.
    """

    COLUMNS = CAPTURED

    level: int = 1
    client: Mapping[str, str] = field(repr=False)
    feed: Feed
    context: Mapping[str, Any]
    tasks: tuple[tuple[Range, ...], ...]
    codec: str = "zstd"
    cipher: Cipher | None = None
    excluded_tables_path: str | None = None
    after_ts: int | None = None
    until_ts: int | None = None
    scratch: str | None = None
    held_bytes: int = HELD_BYTES

    def run(self, number: int) -> dict[str, Any]:
        """Capture the ranges of a task; returns its row (CAPTURED).

        Raises EnvironmentProblem (broker, disk, storage), Damaged (an event cannot be read) and NotFound (a
        topic was deleted). Then nothing of the task is visible.
        """
        storage = open_storage(self.uri)
        attempt = _Attempt(self, storage, number)
        rows = self.write_once(storage, number, attempt.capture)
        attempt.discard({row.path for row in rows})
        _, report = region_marks.read_report(storage, self.source, self.backup_id, number)
        return totals(number, rows) | {"ends": json.dumps(report["ends"])}


class _Attempt:
    """One attempt at a task."""

    def __init__(self, job: CaptureJob, storage: Storage, task: int) -> None:
        self._job, self._storage, self._task = job, storage, task
        self._excluded_ids = _ids(storage, job.excluded_tables_path) if job.excluded_tables_path else None
        self._marks = region_marks.Marks()
        self._files: list[dict[str, Any]] = []
        self._finished: list[Mapping[str, Any]] = []
        self._ends: list[tuple[str, int, int, int]] = []
        self._max_excluded_ts: int | None = None

    def capture(self) -> list[DataFile]:
        """Capture the ranges; returns the rows of the files."""
        try:
            with Scratch(self._job.scratch) as scratch:
                spool = Spool(partial(self._open, scratch), self._publish, held_bytes=self._job.held_bytes)
                for feed_range in self._job.tasks[self._task]:
                    self._capture(feed_range, spool)
                spool.finish()
            Cluster(self._job.client).require_same({r.topic: r.epoch for r in self._job.tasks[self._task]})
            return self._rows()
        except BaseException:
            self.discard(set())
            raise

    def _capture(self, feed_range: Range, spool: Spool) -> None:
        job = self._job
        decoder = job.feed.decoder(self._storage, feed_range, job.context)
        end = feed_range.end
        if feed_range.start < feed_range.end:
            source = reader({**_TUNING, **job.client}, ISOLATION, (feed_range.topic, feed_range.epoch))
            block_iterator = source.blocks(
                feed_range.topic, feed_range.partition, feed_range.start, feed_range.end
            )
            with closing(block_iterator) as blocks:
                for block in blocks:
                    spend(block.data.nbytes)
                    records = records_of(block, f"{feed_range.topic}[{feed_range.partition}]")
                    records, skipped = split(
                        records, job.feed.skipped, feed_range.topic, feed_range.partition
                    )
                    if skipped is not None:
                        decoder.skip(skipped)
                        if not len(records):
                            continue
                    decoded = decoder.decode(records)
                    self._marks.add(decoded.marks)
                    spool.add(self._filter(decoded.records))
                    if decoded.upto is not None:
                        end = decoded.upto
                        break
        self._ends.append((feed_range.topic, feed_range.partition, feed_range.start, end))
        finished = decoder.finish()
        if finished is not None:
            self._finished.append(finished)

    def _filter(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the records of excluded tables and those outside of the task's span."""
        job = self._job
        if not len(records) or (self._excluded_ids is None and job.after_ts is None and job.until_ts is None):
            return records
        ts = pc.coalesce(records["commit_ts"], records["start_ts"]).to_numpy()
        tables = records["table_id"].to_numpy()
        keep = np.ones(len(records), bool)
        if job.after_ts is not None:
            writes = pc.equal(records["cf"], WRITE).to_numpy(zero_copy_only=False)
            keep &= ~writes | (ts > job.after_ts) | (tables == META_TABLE)
        if job.until_ts is not None:
            keep &= ts <= job.until_ts
        if self._excluded_ids is not None:
            is_excluded = np.isin(tables, self._excluded_ids) & keep
            if is_excluded.any():
                self._max_excluded_ts = max(int(ts[is_excluded].max()), self._max_excluded_ts or 0)
                keep &= ~is_excluded
        return records if keep.all() else records.filter(pa.array(keep))

    def _open(self, scratch: Scratch, group: Group) -> LogFileWriter:
        job = self._job
        self._marks.see(group.region, group.store)
        location = LogPlace(
            job.source, job.backup_id, group.table_id, group.region, group.cf, group.op, group.store
        )
        return LogFileWriter(location, scratch, job.codec)

    def _publish(self, writer: LogFileWriter) -> None:
        job, encryption = self._job, self._job.key or self._job.cipher
        if job.key is not None and writer.file_key.is_meta:
            encryption = None
        self._files.append(writer.publish(self._storage, encryption))

    def _rows(self) -> list[DataFile]:
        """The rows of the files, with the resolved ts of their regions; writes the report for the fold."""
        job, marks = self._job, self._marks.table()
        report = {"ends": self._ends, "left_ts": self._max_excluded_ts, "finished": self._finished}
        region_marks.write_report(self._storage, job.source, job.backup_id, self._task, marks, report)
        resolved_by_region = region_marks.resolved(marks)
        return [
            job.row(
                **{
                    **columns,
                    "ts_domain": job.feed.domain,
                    "resolved_ts": resolved_by_region.get(int(columns["region"])),
                }
            )
            for columns in sorted(self._files, key=lambda columns: str(columns["path"]))
        ]

    def discard(self, counted: set[str]) -> None:
        """Delete the files of this attempt whose paths are not in `counted`, as no part names them."""
        for columns in self._files:
            if columns["path"] not in counted:
                with suppress(LakebackupError):
                    self._storage.delete(columns["path"])


def _ids(storage: Storage, path: str) -> Any:
    return np.concatenate([batch["table_id"].to_numpy() for batch in read_rows(storage, path)])
