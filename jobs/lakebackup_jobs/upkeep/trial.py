"""A trial restore: a restore point, restored into a folder by the code of any restore, and compared with what
was backed up. One class for each kind of source."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lakebackup.rows.base import CHANGES, QUEUES, SNAPSHOT
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.planning import planned
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql import SparkSession

    from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
    from lakebackup.plan.queues.restore import QueueRestorePlan, QueueRestoreRequest
    from lakebackup.plan.snapshots.restore import SnapshotRestorePlan, SnapshotRestoreRequest
    from lakebackup.plan.topics.request import RestoreRequest
    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.requests import Request
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.progress import Reporter

_FILES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Amount:
    """What a restore reads; `bytes` as they are stored."""

    files: int
    bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class Means:
    """What a trial works with. `asked`: the request that it is part of; `keys_file`: of the keys that encrypt
    log files."""

    asked: Request
    keys_file: str | None
    spark: SparkSession | None
    reporter: Reporter

    @property
    def given(self) -> dict[str, Any]:
        """What every request of a restore has."""
        names = ("destination", "catalog", "remote", "bandwidth")
        return {name: getattr(self.asked, name) for name in names}


class Trial(ABC):
    """A restore of a row of the query trial_targets or drill_targets, into folders below `folder`."""

    #: What it restores into.
    TARGET: ClassVar[Literal["dir", "delta"]] = "dir"

    def __init__(self, row: Mapping[str, Any], folder: str, means: Means) -> None:
        self.row, self.folder, self.means = row, folder, means
        self.restored = f"{folder}/restored"

    @property
    @abstractmethod
    def amount(self) -> Amount:
        """What it reads, by its plan. Raises what planning does: NotFound, Refused."""

    @property
    def room(self) -> int:
        """How many bytes it writes below its folder, about."""
        return self.amount.bytes

    @abstractmethod
    def restore(self) -> str:
        """Restore; returns how much it was, as text. Raises Refused, Damaged, EnvironmentProblem, Busy."""

    @abstractmethod
    def differences(self) -> str | None:
        """What of the restored is not what was backed up, and where; None: all is as it was."""

    @abstractmethod
    def relation(self) -> pa.Table | ds.Dataset:
        """What was restored, as rows."""

    @cached_property
    def reader(self) -> CatalogReader:
        """The catalog, for this trial alone: a plan gives its relations names."""
        return self.work.current()

    @cached_property
    def work(self) -> Workspace:
        return Workspace(self.request, "", self.means.reporter, self.means.spark)

    @property
    @abstractmethod
    def request(self) -> Any:
        """What the restore is asked."""

    @property
    def _run(self) -> dict[str, Any]:
        return {"spark": self.means.spark, "reporter": self.means.reporter}

    def _planned(self, plan: Callable[[CatalogReader], Any]) -> Any:
        return planned(self.reader, self.request, self.means.spark, self.means.reporter, plan)


def trial_of(row: Mapping[str, Any], folder: str, means: Means) -> Trial:
    """The trial of a row of the query trial_targets or drill_targets."""
    kinds: dict[str, type[Trial]] = {SNAPSHOT: _Snapshot, CHANGES: _Log, QUEUES: _Queues}
    return kinds.get(row["source_kind"], _Topics)(row, folder, means)


class _Topics(Trial):
    @cached_property
    def request(self) -> RestoreRequest:
        from lakebackup.plan.topics.request import RestoreRequest

        return RestoreRequest(
            **self.means.given,
            source=self.row["source"],
            topics=tuple(self.row["scopes"].split(",")),
            to_ts=self.row["to_ts"],
            target=f"dir:{self.restored}",
            allow_empty=True,
        )

    @cached_property
    def made(self) -> RestorePlan:
        from lakebackup.plan.topics.request import plan_restore

        made: RestorePlan = self._planned(partial(plan_restore, self.request))
        return made

    @property
    def amount(self) -> Amount:
        return Amount(self.made.files, self.made.bytes, self.made.entries)

    def restore(self) -> str:
        from lakebackup_jobs.topics import restore

        return f"{restore.run(self.request, **self._run)['entries']} records restored"

    def differences(self) -> str | None:
        """Every record of every partition, in its order, byte by byte."""
        from lakebackup_jobs.lifecycle.tasks.splits import write_splits
        from lakebackup_jobs.upkeep.trial_task import CompareRecords, named

        splits = write_splits(open_storage(self.folder), self.made, "compare/")
        job = CompareRecords(
            splits=splits,
            roots=self.reader.destinations(),
            targets={topic.scope: topic.target for topic in self.made.topics},
            from_ts=self.made.from_ts,
            to_ts=self.made.to_ts,
            folder=self.restored,
        )
        self.means.reporter.wait("comparing")
        return named([row.different for row in run_all(job, splits.numbers, self.work.cluster)], "partitions")

    def relation(self) -> ds.Dataset:
        from lakebackup_jobs.upkeep.trial_task import restored_records

        return restored_records(self.reader, self.row["source"], f"{self.restored}/topics")


class _Snapshot(Trial):
    @cached_property
    def request(self) -> SnapshotRestoreRequest:
        from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest

        return SnapshotRestoreRequest(**self.means.given, folder=self.restored, backup=self.row["backup_id"])

    @cached_property
    def made(self) -> SnapshotRestorePlan:
        from lakebackup.plan.snapshots.restore import plan_restore

        made: SnapshotRestorePlan = self._planned(partial(plan_restore, self.request))
        return made

    @property
    def amount(self) -> Amount:
        return Amount(self.made.files, self.made.bytes, self.made.files)

    def restore(self) -> str:
        from lakebackup_jobs.snapshots import restore

        return f"{restore.run(self.request, **self._run)['files']} files restored"

    def differences(self) -> str | None:
        """Every file by its size and SHA-256, and that there is no other."""
        from lakebackup_jobs.snapshots.restore import is_little, write_splits
        from lakebackup_jobs.upkeep.trial_task import CompareRestoredFiles, named

        storage = open_storage(f"{self.folder}/compare")
        splits = write_splits(storage, self.made)
        job = CompareRestoredFiles(storage.uri, splits, self.restored)
        self.means.reporter.wait("comparing")
        here = is_little(self.made)
        rows = run_all(job, range(len(splits)), None if here else self.work.cluster)
        found = sum(len(names) for _, _, names in os.walk(self.restored))
        count = None if found == self.made.files else f"{found} files are there, not {self.made.files}"
        return named([count, *(row.different for row in rows)], "of them")

    def relation(self) -> ds.Dataset:
        return _files_below(self.restored)


_MORE = "SELECT * FROM restored EXCEPT ALL SELECT * FROM stored"
_LESS = "SELECT * FROM stored EXCEPT ALL SELECT * FROM restored"


class _Log(Trial):
    TARGET = "delta"

    @cached_property
    def request(self) -> LogRestoreRequest:
        from lakebackup.plan.logs.restore import LogRestoreRequest

        return LogRestoreRequest(
            **self.means.given,
            name=self.row["source"],
            end_ts=self.row["to_ts"],
            on_full=self.row["kind"] == "full",
            target=f"delta:{self.restored}",
            keys_file=self.means.keys_file,
            allow_gaps=True,  # what was never captured is not checked
        )

    @cached_property
    def made(self) -> LogRestorePlan:
        from lakebackup.plan.logs.restore import plan_restore

        made: LogRestorePlan = self._planned(partial(plan_restore, self.request))
        return made

    @property
    def amount(self) -> Amount:
        made = self.made
        log = Amount(made.writes.files + made.values.files, made.bytes, made.entries)
        if made.full is None:
            return log
        (full,) = self.reader.rows("show_backup", backup_id=made.full.backup_id)
        return Amount(log.files + full["files"], log.bytes + full["bytes"], log.entries + full["entries"])

    def restore(self) -> str:
        from lakebackup_jobs.logs.restore import job

        done = job.run(self.request, **self._run)
        self._entries = int(done["entries"])
        over = f", over gaps: {len(done['obstacles'])}" if done["obstacles"] else ""
        return f"{self._entries} rows restored{over}"

    def differences(self) -> str | None:
        """Every row of a full with those of the full as it is stored; of a log, whose files the restore
        checked, the number of rows with what it found in them."""
        if self.row["kind"] == "full":
            place = layout.full_folder(self.row["source"], self.row["backup_id"])
            root = self.reader.destinations().open(self.row["destination"])
            both = {"restored": self.relation(), "stored": _table(f"{root.uri}/{place}")}
            more, less = self._count(_MORE, both), self._count(_LESS, both)
            return (
                f"{more} rows are not in the full, {less} of the full are not there" if more or less else None
            )
        found = self._count("SELECT 1 AS one FROM restored", {"restored": self.relation()})
        return None if found == self._entries else f"{found} rows are there, not {self._entries}"

    def _count(self, rows: str, tables: Mapping[str, pa.Table | ds.Dataset]) -> int:
        from lakebackup_jobs.query.record_query import select

        answer = select(self.reader, f"SELECT COUNT(*) AS n FROM ({rows}) AS r", more=tables)  # noqa: S608
        return int(answer.rows.read_all()["n"][0].as_py())

    def relation(self) -> pa.Table | ds.Dataset:
        return _table(open_storage(self.restored).uri)


class _Queues(Trial):
    """Of an engine all but the writing into queues: its snapshot is restored, and every message read."""

    @cached_property
    def request(self) -> QueueRestoreRequest:
        from lakebackup.plan.queues.restore import QueueRestoreRequest

        return QueueRestoreRequest(
            **self.means.given,
            source=self.row["source"],
            target="",
            folder=self.restored,
            backup=self.row["backup_id"],
        )

    @cached_property
    def made(self) -> QueueRestorePlan:
        from lakebackup.plan.queues.restore import plan_restore
        from lakebackup_jobs.queues.restore.scan_task import ALL

        return plan_restore(self.request, self.reader, lambda *_: ALL)

    @cached_property
    def snapshot(self) -> _Snapshot:
        """The trial of the snapshot that the engine is restored onto."""
        row = {**self.row, "source_kind": SNAPSHOT, "backup_id": self.made.restore_path.full.snapshot_id}
        below = _Snapshot(row, self.folder, self.means)
        below.restored = f"{self.restored}/snapshot"
        return below

    @property
    def amount(self) -> Amount:
        made, below = self.made, self.snapshot.amount
        return Amount(made.files + below.files, made.bytes + below.bytes, made.entries)

    @property
    def room(self) -> int:
        return self.snapshot.room

    def restore(self) -> str:
        from lakebackup_jobs.queues.restore import trial

        return trial.run(self.request, **self._run)

    def differences(self) -> str | None:
        """The files of the snapshot; the messages were counted as they were read."""
        return self.snapshot.differences()

    def relation(self) -> ds.Dataset:
        return self.snapshot.relation()


def _table(uri: str) -> pa.Table | ds.Dataset:
    """A Delta table as rows."""
    from lakebackup.sql_engine.delta.dataset import small_or_dataset
    from lakebackup.sql_engine.delta.table import open_table

    return small_or_dataset(uri, open_table(uri))


def _files_below(folder: str) -> ds.Dataset:
    """The files of a folder as rows: path (below it) and bytes."""
    import pyarrow as pa

    from lakebackup_jobs.query.lazy_dataset import LazyDataset

    schema = pa.schema([("path", pa.string()), ("bytes", pa.int64())])

    def rows() -> Iterator[dict[str, Any]]:
        for above, _, names in os.walk(folder):
            for name in names:
                path = Path(above, name)
                yield {"path": str(path.relative_to(folder)), "bytes": path.lstat().st_size}

    def scan() -> Iterator[pa.RecordBatch]:
        found = rows()
        while some := list(islice(found, _FILES_AT_ONCE)):
            yield pa.RecordBatch.from_pylist(some, schema)

    return LazyDataset(schema.empty_table(), scan)
