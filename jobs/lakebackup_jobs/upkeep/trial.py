"""Trial restores: a restore point is restored into a folder, and compared with what was backed up.

A trial runs the same code as any other restore. There is one class for each kind of source.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
from lakebackup.plan.logs.restore import plan_restore as plan_log_restore
from lakebackup.plan.queues.restore import QueueRestorePlan, QueueRestoreRequest
from lakebackup.plan.queues.restore import plan_restore as plan_queue_restore
from lakebackup.plan.snapshots.restore import SnapshotRestorePlan, SnapshotRestoreRequest
from lakebackup.plan.snapshots.restore import plan_restore as plan_snapshot_restore
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.plan.topics.request import plan_restore as plan_topic_restore
from lakebackup.plan.topics.restore import RestorePlan
from lakebackup.requests import RunRequest
from lakebackup.rows.base import CHANGES, QUEUES, SNAPSHOT
from lakebackup.rules import layout
from lakebackup.sql_engine.delta.dataset import small_or_dataset
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.sql_engine.lazy_dataset import LazyDataset
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.keyring import open_roots
from lakebackup_jobs.lifecycle.planning import plan_on_engine
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.tasks.runner import of_restored_files
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.restore import job
from lakebackup_jobs.query.record_query import select
from lakebackup_jobs.queues.restore import trial
from lakebackup_jobs.queues.restore.scan_task import ALL
from lakebackup_jobs.snapshots import restore as snapshots
from lakebackup_jobs.snapshots.restore import store_shares
from lakebackup_jobs.topics import restore as topics
from lakebackup_jobs.topics.restore import store_partitions
from lakebackup_jobs.upkeep.trial_task import (
    CompareRecords,
    CompareRestoredFiles,
    join_differences,
    restored_records,
)

_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Amount:
    """How much a restore reads. `bytes` is the size of the files as they are stored."""

    files: int
    bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class TrialContext:
    """What a trial needs to run. `request` is the verify or the drill that it is part of. `keys_file` is the
    path of the file with the keys of encrypted log files."""

    request: RunRequest
    keys_file: str | None
    spark: SparkSession | None
    reporter: Reporter

    @property
    def request_arguments(self) -> dict[str, Any]:
        """The arguments that every restore request takes from `request`."""
        names = ("destination", "catalog", "remote", "bandwidth", "runner", "local_below")
        return {name: getattr(self.request, name) for name in names}


class Trial(ABC):
    """A trial restore of one row of the query trial_targets or drill_targets, into folders below `folder`."""

    #: The kind of target that it restores into.
    TARGET: ClassVar[Literal["dir", "delta"]] = "dir"
    #: What `differences` compares, and what it does not, in sentences.
    COMPARED: ClassVar[str]
    NOT_COMPARED: ClassVar[Sequence[str]] = ()

    def __init__(self, row: Mapping[str, Any], folder: str, context: TrialContext) -> None:
        self.row, self.folder, self.context = row, folder, context
        self.restored = f"{folder}/restored"

    @property
    @abstractmethod
    def amount(self) -> Amount:
        """How much the restore will read, by its plan. Raises NotFound and Refused, as planning does."""

    @property
    def needed_bytes(self) -> int:
        """About how many bytes the trial writes below its folder."""
        return self.amount.bytes

    @abstractmethod
    def restore(self) -> str:
        """Run the restore. Returns a text that says how much was restored. Raises Refused, Damaged,
        EnvironmentProblem, Busy."""

    @abstractmethod
    def differences(self) -> str | None:
        """Compare what was restored with what was backed up. Returns what differs, and where; None if nothing
        differs."""

    @abstractmethod
    def relation(self) -> pa.Table | ds.Dataset:
        """Return what was restored, as rows."""

    @cached_property
    def reader(self) -> CatalogReader:
        """A reader for this trial alone, since planning registers relations in it."""
        return self.work.current()

    @cached_property
    def work(self) -> Workspace:
        return Workspace(self.request, "", self.context.reporter, self.context.spark)

    @property
    @abstractmethod
    def request(self) -> Any:
        """The request of the restore."""

    @property
    @abstractmethod
    def plan(self) -> Any:
        """The plan of the restore. Raises NotFound and Refused."""

    @property
    def parts(self) -> Sequence[Trial]:
        """The restores that the trial consists of."""
        return [self]

    @property
    def to_ms(self) -> int | None:
        """The time that is restored to, in ms since 1970 UTC; None if it is that of the backup."""
        to_ms: int | None = self.row["to_ts"]
        return to_ms

    @property
    def _run(self) -> dict[str, Any]:
        return {"spark": self.context.spark, "reporter": self.context.reporter}

    def _plan_on_engine(self, plan: Callable[[CatalogReader], Any]) -> Any:
        return plan_on_engine(self.reader, self.request, self.context.spark, self.context.reporter, plan)


def trial_of(row: Mapping[str, Any], folder: str, context: TrialContext) -> Trial:
    """Return the trial of a row of the query trial_targets or drill_targets, for its kind of source."""
    kinds: dict[str, type[Trial]] = {SNAPSHOT: _Snapshot, CHANGES: _Log, QUEUES: _Queues}
    return kinds.get(row["source_kind"], _Topics)(row, folder, context)


class _Topics(Trial):
    COMPARED = (
        "Of each partition, the number of records and a SHA-256 over all of them in order (key, value, "
        "headers, times, offset), with those in the backup's files. The size and SHA-256 of each file."
    )
    NOT_COMPARED = (
        "Records were not decoded by their schemas.",
        "Topic settings and consumer groups were not restored.",
        "Nothing was written to a Kafka cluster.",
    )

    @cached_property
    def request(self) -> RestoreRequest:
        return RestoreRequest(
            **self.context.request_arguments,
            source=self.row["source"],
            topics=tuple(self.row["scopes"].split(",")),
            to_ts=self.row["to_ts"],
            target=f"dir:{self.restored}",
            allow_empty=True,
        )

    @cached_property
    def plan(self) -> RestorePlan:
        plan: RestorePlan = self._plan_on_engine(partial(plan_topic_restore, self.request))
        return plan

    @property
    def amount(self) -> Amount:
        return Amount(self.plan.files, self.plan.bytes, self.plan.entries)

    def restore(self) -> str:
        return f"{topics.run(self.request, **self._run)['entries']} records restored"

    def differences(self) -> str | None:
        """Compare every record of every partition, in order and byte by byte."""
        shares = store_partitions(open_storage(self.folder), "compare/", self.plan)
        task = CompareRecords(
            shares=shares,
            roots=open_roots(self.reader, self.plan.file),
            targets={topic.scope: topic.target for topic in self.plan.topics},
            from_ts=self.plan.from_ts,
            to_ts=self.plan.to_ts,
            folder=self.restored,
        )
        self.context.reporter.wait("comparing")
        self.work.choose_runner(self.request, self.plan.bytes)
        rows = run_all(task, shares.numbers, self.work.task_cluster)
        return join_differences([row.different for row in rows], "partitions")

    def relation(self) -> ds.Dataset:
        return restored_records(self.reader, self.row["source"], f"{self.restored}/topics")


class _Snapshot(Trial):
    COMPARED = "The size and SHA-256 of each file, with those in the catalog. That there is no other file."
    NOT_COMPARED = (
        "Modes and times of files were not compared.",
        "No database opened the files.",
    )

    @cached_property
    def request(self) -> SnapshotRestoreRequest:
        return SnapshotRestoreRequest(
            **self.context.request_arguments, folder=self.restored, backup=self.row["backup_id"]
        )

    @cached_property
    def plan(self) -> SnapshotRestorePlan:
        plan: SnapshotRestorePlan = self._plan_on_engine(partial(plan_snapshot_restore, self.request))
        return plan

    @property
    def amount(self) -> Amount:
        return Amount(self.plan.files, self.plan.bytes, self.plan.files)

    def restore(self) -> str:
        return f"{snapshots.run(self.request, **self._run)['files']} files restored"

    def differences(self) -> str | None:
        """Compare every file by its size and SHA-256, and the number of files."""
        storage = open_storage(f"{self.folder}/compare")
        shares = store_shares(storage, self.plan)
        task = CompareRestoredFiles(shares, self.restored)
        self.context.reporter.wait("comparing")
        self.work.choose_runner(self.request, of_restored_files(self.plan.weight), beside_spark=True)
        rows = run_all(task, shares.numbers, self.work.task_cluster)
        file_count = sum(len(names) for _, _, names in os.walk(self.restored))
        difference = (
            None if file_count == self.plan.files else f"{file_count} files are there, not {self.plan.files}"
        )
        return join_differences([difference, *(row.different for row in rows)], "of them")

    def relation(self) -> ds.Dataset:
        return _list_files(self.restored)


_EXTRA_ROWS = "SELECT * FROM restored EXCEPT ALL SELECT * FROM stored"
_MISSING_ROWS = "SELECT * FROM stored EXCEPT ALL SELECT * FROM restored"


class _Log(Trial):
    TARGET = "delta"
    COMPARED = (
        "Of a full, each row with those of the stored full. Of a log, the number of rows with what the "
        "restore read, and the size and SHA-256 of each of the log's files."
    )
    NOT_COMPARED = (
        "The rows of a log were counted, and not compared one by one.",
        "Changes in gaps of a log were never captured, so they were not restored.",
    )

    @cached_property
    def request(self) -> LogRestoreRequest:
        return LogRestoreRequest(
            **self.context.request_arguments,
            name=self.row["source"],
            end_ts=self.row["to_ts"],
            on_full=self.row["kind"] == "full",
            target=f"delta:{self.restored}",
            keys_file=self.context.keys_file,
            allow_gaps=True,  # a trial checks only what was captured
        )

    @cached_property
    def plan(self) -> LogRestorePlan:
        plan: LogRestorePlan = self._plan_on_engine(partial(plan_log_restore, self.request))
        return plan

    @property
    def to_ms(self) -> int:
        return self.plan.to_ms

    @property
    def amount(self) -> Amount:
        plan = self.plan
        log = Amount(plan.writes.files + plan.values.files, plan.bytes, plan.entries)
        if plan.full is None:
            return log
        (full,) = self.reader.rows("show_backup", backup_id=plan.full.backup_id)
        return Amount(log.files + full["files"], log.bytes + full["bytes"], log.entries + full["entries"])

    def restore(self) -> str:
        result = job.run(self.request, **self._run)
        self._entries = int(result["entries"])
        gaps = f", over gaps: {len(result['obstacles'])}" if result["obstacles"] else ""
        return f"{self._entries} rows restored{gaps}"

    def differences(self) -> str | None:
        """Compare all rows of a full with the stored full. For a log, whose files the restore itself checks,
        compare only the number of rows with the number that the restore reported."""
        if self.row["kind"] == "full":
            folder = layout.full_folder(self.row["source"], self.row["backup_id"])
            root = self.reader.destinations().open(self.row["destination"])
            relations = {"restored": self.relation(), "stored": _table(f"{root.uri}/{folder}".rstrip("/"))}
            extra, missing = self._count(_EXTRA_ROWS, relations), self._count(_MISSING_ROWS, relations)
            return (
                f"{extra} rows are not in the full, {missing} of the full are not there"
                if extra or missing
                else None
            )
        row_count = self._count("SELECT 1 AS one FROM restored", {"restored": self.relation()})
        return None if row_count == self._entries else f"{row_count} rows are there, not {self._entries}"

    def _count(self, rows: str, tables: Mapping[str, pa.Table | ds.Dataset]) -> int:
        answer = select(self.reader, f"SELECT COUNT(*) AS n FROM ({rows}) AS r", extra_relations=tables)  # noqa: S608
        return int(answer.rows.read_all()["n"][0].as_py())

    def relation(self) -> pa.Table | ds.Dataset:
        return _table(open_storage(self.restored).uri)


class _Queues(Trial):
    """The trial of an engine: it restores the snapshot and reads every message, but writes into no queue."""

    COMPARED = (
        "The size and SHA-256 of each file of the snapshot, with those in the catalog. That there is no "
        "other file. All messages were read from verified files, and counted."
    )
    NOT_COMPARED = (
        "Messages were not written to queues, and not compared one by one.",
        "Modes and times of files were not compared.",
        "No engine opened the files.",
    )

    @cached_property
    def request(self) -> QueueRestoreRequest:
        return QueueRestoreRequest(
            **self.context.request_arguments,
            source=self.row["source"],
            target="",
            folder=self.restored,
            backup=self.row["backup_id"],
        )

    @cached_property
    def plan(self) -> QueueRestorePlan:
        # The request names a backup and no instant, so no tid is looked up for one.
        return plan_queue_restore(self.request, self.reader, lambda *_: ALL)

    @cached_property
    def snapshot(self) -> _Snapshot:
        """The trial of the snapshot that the engine is restored onto."""
        row = {**self.row, "source_kind": SNAPSHOT, "backup_id": self.plan.restore_path.full.snapshot_id}
        trial = _Snapshot(row, self.folder, self.context)
        trial.restored = f"{self.restored}/snapshot"
        return trial

    @property
    def parts(self) -> Sequence[Trial]:
        return [self, self.snapshot]

    @property
    def to_ms(self) -> None:
        return None  # the point is that of the backup

    @property
    def amount(self) -> Amount:
        plan, snapshot_amount = self.plan, self.snapshot.amount
        return Amount(plan.files + snapshot_amount.files, plan.bytes + snapshot_amount.bytes, plan.entries)

    @property
    def needed_bytes(self) -> int:
        return self.snapshot.needed_bytes

    def restore(self) -> str:
        return trial.run(self.request, **self._run)

    def differences(self) -> str | None:
        """Compare the files of the snapshot. The messages were counted while they were read."""
        return self.snapshot.differences()

    def relation(self) -> ds.Dataset:
        return self.snapshot.relation()


def _table(uri: str) -> pa.Table | ds.Dataset:
    """Open a Delta table as rows."""
    return small_or_dataset(uri, open_table(uri))


def _list_files(folder: str) -> ds.Dataset:
    """Return the files below a folder as rows: the path relative to the folder, and the bytes."""
    schema = pa.schema([("path", pa.string()), ("bytes", pa.int64())])

    def rows() -> Iterator[dict[str, Any]]:
        for parent, _, names in os.walk(folder):
            for name in names:
                path = Path(parent, name)
                yield {"path": str(path.relative_to(folder)), "bytes": path.lstat().st_size}

    def scan(_columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        file_rows = rows()
        while batch := list(islice(file_rows, _BATCH)):
            yield pa.RecordBatch.from_pylist(batch, schema)

    return LazyDataset(schema.empty_table(), scan)
