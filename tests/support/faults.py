"""Kills, holds and hurries jobs at chosen steps, in this process and in Spark's Python workers.

A step is an action with a lasting effect: an object put, a Delta commit, a change of a topic, a Kafka
transaction. All processes of a run share a file that lists the steps in order. At the chosen step the run
dies: a worker by SIGKILL, this process by an exception, after which no step of the run has any effect. Or
the step raises an error, which the run handles.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

from tests.support import line_source
from tests.support.kafka_truth import Record, records_in

from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import local, open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin import cluster, topic_changes
from lakebackup_jobs.kafka.client import produce
from lakebackup_jobs.lifecycle.atomic_dir import StagedFolder
from lakebackup_jobs.lifecycle.deletion import executor as removing
from lakebackup_jobs.queues.restore import job as restore_queue
from lakebackup_jobs.queues.restore import replay_task as queue_replay_task
from lakebackup_jobs.queues.restore.engine_folder import EngineFolder
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots.target import Target
from lakebackup_jobs.snapshots.tasks import write
from lakebackup_jobs.targets import change_topics, delta, kafka, records, replay_task
from lakebackup_jobs.topics import merge
from lakebackup_jobs.topics.tasks import compact as compact_task
from lakebackup_jobs.topics.tasks import copy as copy_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa
    from tests.support.runs import Lab


class Killed(BaseException):
    """Raised in place of a kill of this process; handlers of failures do not catch it."""


@dataclass(frozen=True)
class Steps:
    """The steps of one run. The processes of the run share `folder`.

    `kill_at`: the step before which the run dies: its number, from 1, or its name, or "name #2" for the
    second step of that name (tasks take their steps in any order). `hold`: the run waits before the first
    step whose name starts with it, until `release` is called. `patience`: seconds without an answer from the
    broker after which the run gives up. `error`: the run does not die at the step `kill_at`, which raises
    this error instead (only in this process).
    """

    folder: Path
    kill_at: int | str | None = None
    hold: str | None = None
    patience: float | None = None
    driver: int = 0
    error: BaseException | None = None

    @property
    def dead(self) -> bool:
        return (self.folder / "dead").exists()

    @property
    def raised(self) -> bool:
        return (self.folder / "raised").exists()

    @property
    def is_waiting(self) -> bool:
        return (self.folder / "held").exists()

    def release(self) -> None:
        (self.folder / "go").touch()

    def names(self) -> list[str]:
        """Names of the steps so far, in order; if a step killed the run, it is the last one."""
        log = self.folder / "steps"
        return log.read_text().splitlines() if log.exists() else []

    def _died_at(self, steps: list[str]) -> int | None:
        """The number of the step among these that kills the run; None if none does."""
        if not isinstance(self.kill_at, str):
            return self.kill_at
        name, _, times = self.kill_at.partition(" #")
        numbers = [number for number, step in enumerate(steps, 1) if step == name]
        return next(iter(numbers[int(times or 1) - 1 :]), None)

    def step(self, name: str) -> None:
        """Record a step before it is taken; kills or holds the run if this is the chosen step."""
        if os.getpid() == self.driver and threading.current_thread().name.startswith(("lease", "progress")):
            return  # these threads follow the clock: with their steps, no two runs would take the same ones
        with (self.folder / "steps").open("a+") as log:
            fcntl.flock(log, fcntl.LOCK_EX)  # once a step has killed the run, no other process takes another
            if not self.dead:
                log.seek(0)
                steps_before = log.read().splitlines()
                log.write(name + "\n")
                if self._died_at([*steps_before, name]) == 1 + len(steps_before):
                    if self.error:
                        (self.folder / "raised").touch()
                        raise self.error
                    (self.folder / "dead").touch()
        if self.dead:
            self._die()
        if self.hold and name.startswith(self.hold):
            self._hold()

    def _hold(self) -> None:
        try:
            (self.folder / "held").touch(exist_ok=False)
        except FileExistsError:
            return
        deadline = time.monotonic() + 120
        while not (self.folder / "go").exists():
            assert time.monotonic() < deadline, "nobody let the run go on"
            time.sleep(0.01)

    def _die(self) -> None:
        if os.getpid() == self.driver:
            raise Killed
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class _InWorker:
    """A task's work, with the steps of the process that does it recorded."""

    steps: Steps
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._record_steps():
            yield from self.work(batches)

    def each(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        with self._record_steps():
            yield from cast("PerNumber", self.work).each(numbers)

    def _record_steps(self) -> AbstractContextManager[None]:
        """Record this process's steps; the driver's are already recorded, with those of its tasks."""
        return nullcontext() if os.getpid() == self.steps.driver else _steps_recorded(self.steps)

    def over(self, *args: Any) -> Any:
        return PerNumber.over(cast("Any", self), *args)

    def reports(self, *args: Any) -> Any:
        return PerNumber.reports(cast("Any", self), *args)

    def within_limit(self, *args: Any) -> Any:
        return PerNumber.within_limit(cast("Any", self), *args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.work, name)


@contextmanager
def watched(
    folder: Path,
    *,
    kill_at: int | str | None = None,
    hold: str | None = None,
    patience: float | None = None,
    error: BaseException | None = None,
) -> Iterator[Steps]:
    """Record the steps of jobs inside the block; the jobs die, wait, fail or lose patience as the arguments
    say."""
    folder.mkdir(parents=True)
    steps = Steps(folder, kill_at, hold, patience, os.getpid(), error)

    def in_worker(work: Any) -> Callable[..., _InWorker]:
        # A class that is replaced in its module is pickled by value, with the names that its module has then.
        module = sys.modules[work.__module__]
        for name in list(vars(module).get("__lazy_imports__", ())):
            getattr(module, name)
        return lambda *args, **keywords: _InWorker(steps, work(*args, **keywords))

    release, admin_timeout_s = Lease.release, patience or cluster.ADMIN_TIMEOUT_S

    def release_lease(lease: Lease) -> None:
        if steps.dead:
            lease._stop.set()  # the thread of a dead process does not renew its lease
        else:
            release(lease)

    with (
        _steps_recorded(steps),
        mock.patch.object(copy_task, "CopyJob", in_worker(copy_task.CopyJob)),
        mock.patch.object(kafka, "ReplayJob", in_worker(kafka.ReplayJob)),
        mock.patch.object(restore_queue, "QueueReplayJob", in_worker(restore_queue.QueueReplayJob)),
        mock.patch.object(change_topics, "ProduceJob", in_worker(change_topics.ProduceJob)),
        mock.patch.object(records, "_RewriteJob", in_worker(records._RewriteJob)),
        mock.patch.object(restore_snapshot, "WriteJob", in_worker(restore_snapshot.WriteJob)),
        mock.patch.object(compact_task, "FindNewest", in_worker(compact_task.FindNewest)),
        mock.patch.object(compact_task, "KeepNewest", in_worker(compact_task.KeepNewest)),
        mock.patch.object(merge, "Merge", in_worker(merge.Merge)),
        mock.patch.object(line_source, "CopyLines", in_worker(line_source.CopyLines)),
        mock.patch.object(removing, "DeleteObjects", in_worker(removing.DeleteObjects)),
        mock.patch.object(Lease, "release", release_lease),
        mock.patch.object(cluster, "ADMIN_TIMEOUT_S", admin_timeout_s),
        mock.patch.object(topic_changes, "ADMIN_TIMEOUT_S", admin_timeout_s),
    ):
        yield steps


@contextmanager
def _steps_recorded(steps: Steps) -> Iterator[None]:
    """Record the steps that this process takes inside the block."""
    commit, exit_writer = local.LocalWriter.commit, local.LocalWriter.__exit__

    def commit_object(writer: local.LocalWriter, path: str, **keywords: Any) -> None:
        if "/progress/" not in path:
            steps.step(_put_name(path))
        commit(writer, path, **keywords)

    def discard(writer: local.LocalWriter, *error: Any) -> None:
        if steps.dead:
            writer._file.close()  # a dead process leaves the object it was writing as it is
        else:
            exit_writer(writer, *error)

    with_step = partial(_with_step, steps)
    delete = local.LocalStorage.delete

    def delete_object(storage: local.LocalStorage, path: str) -> None:
        if path.startswith("restores/"):
            steps.step(f"delete {path.rpartition('/')[2]}")
        elif path.endswith(".data") or "/snapshots/" in path:
            steps.step("delete data")
        elif "/data-keys/" in path:
            steps.step("delete data key")
        elif path.endswith("/begun.json"):
            steps.step("delete begun.json")
        delete(storage, path)

    commit_transaction = produce.RestoreProducer.commit
    patience_option = {"patience": steps.patience} if steps.patience else {}
    replacements: list[tuple[Any, str, Any]] = [
        (local.LocalWriter, "commit", commit_object),
        (local.LocalWriter, "__exit__", discard),
        (local.LocalStorage, "delete", delete_object),
        (produce.RestoreProducer, "begin", with_step("begin transaction", produce.RestoreProducer.begin)),
        (
            produce.RestoreProducer,
            "commit",
            with_step("commit transaction", commit_transaction, "after transaction"),
        ),
        *(
            (module, "RestoreProducer", partial(produce.RestoreProducer, **patience_option))
            for module in (replay_task, queue_replay_task, change_topics)
        ),
        # Each file is its own transaction.
        *((module, "TRANSACTION_BYTES", 1) for module in (replay_task, queue_replay_task, change_topics)),
        *_of_folders_and_tables(steps),
        (copy_task, "copy_range", partial(copy_task.copy_range, **patience_option)),
        *(
            (kind, name, with_step(name, getattr(kind, name)))
            for kind, name in (
                (topic_changes.TopicChanges, "create_topics"),
                (topic_changes.TopicChanges, "alter_settings"),
                (cluster.Cluster, "delete_group"),
            )
        ),
    ]
    with _replaced(replacements):
        yield


def _with_step(steps: Steps, name: str, call: Any, next_step: str | None = None) -> Callable[..., Any]:
    """A method that takes the step `name` before `call`, and `next_step` behind it."""

    def call_with_steps(instance: Any, *args: Any, **keywords: Any) -> Any:
        steps.step(name)
        result = call(instance, *args, **keywords)
        if next_step:
            steps.step(next_step)
        return result

    return call_with_steps


def _of_folders_and_tables(steps: Steps) -> Iterator[tuple[Any, str, Any]]:
    """The methods by which restores write to folders and tables, with steps."""
    yield delta.DeltaTarget, "write", _with_step(steps, "write table", delta.DeltaTarget.write, "after table")
    yield write.Folder, "write", _with_step(steps, "write file", write.Folder.write)
    for kind, name in (
        (EngineFolder, "begin"), (EngineFolder, "finish"),
        (StagedFolder, "finish"), (StagedFolder, "release"), (Target, "finish"),
    ):  # fmt: skip
        yield kind, name, _with_step(steps, f"{name} folder", getattr(kind, name))


@contextmanager
def _replaced(replacements: list[tuple[Any, str, Any]]) -> Iterator[None]:
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    try:
        for owner, name, value in replacements:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in originals:
            setattr(owner, name, value)


def _put_name(path: str) -> str:
    """The name of the step of a put: what it writes, without the parts that differ between runs."""
    if "/_delta_log/" in path and path.endswith(".json"):
        return f"commit {path.split('/')[0]}"
    return f"put {_kind(path)}"


def _kind(path: str) -> str:
    if path.startswith("leases/"):
        return "lease " + path.split("/")[1].split("-")[0]
    if path.endswith(".crc"):
        return f"checksum of {'rows' if path.endswith('.parquet.crc') else 'commit'}"
    if path.startswith("audit/") and path.endswith(".json"):
        return "audit"
    if "/signatures/" in path:
        return "signature"
    if "/data-keys/" in path:
        return "data key"
    if path.endswith(".enc"):  # the name of the file, and the id of a data key
        path = path.removesuffix(".enc").rpartition(".")[0]
    return {"data": "data", "keys": "keys", "jsonl": "part", "parquet": f"rows of {path.split('/')[0]}"}.get(
        path.rpartition(".")[2], path.rpartition("/")[2]
    )


def expire_leases(folder: Path) -> None:
    """Make every lease below a destination expire."""
    for lease in {path.parent for path in folder.rglob("leases/*/*.json")}:
        newest = max(lease.glob("*.json"))
        os.utime(newest, (0, 0))


def rows_of(partitions: int, count: int, start: int = 0) -> list[Record]:
    times = 1_600_000_000_000
    return [
        Record(p, b"%d" % i, b"value %d" % i * (i % 50), (("h", None),) if i % 9 == 0 else (), times + i)
        for p in range(partitions)
        for i in range(start, start + count)
    ]


def catalog_rows(lab: Lab) -> dict[str, list[dict[str, Any]]]:
    """The rows of the catalog's relations about backups."""
    reader = CatalogReader.require(str(lab.folder))
    relations = ("backups", "files", "positions", "scopes", "gaps")
    return {name: reader.select(f"SELECT * FROM {name}").read_all().to_pylist() for name in relations}


def stored_records(
    lab: Lab, content_of: Callable[[Mapping[str, Any], bytes], bytes] = lambda _, content: content
) -> dict[int, list[Record]]:
    """The records of all files in the catalog, read by fastavro in the order of their offsets.

    `content_of`: returns the content of a file from its row and its stored object.
    """
    records: dict[int, list[Record]] = {}
    storage = open_storage(str(lab.folder))
    for row in sorted(catalog_rows(lab)["files"], key=lambda f: (f["region"], f["start_position"])):
        for _, record in records_in(content_of(row, storage.get(row["path"]))):
            records.setdefault(record.partition, []).append(record)
    return records
