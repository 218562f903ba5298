"""Ends, holds and hurries the jobs at chosen steps, in this process and in Spark's Python workers.

A step is something that stays: an object put, a Delta commit, a change of a topic, a Kafka transaction.
Their order is written down in a file that all processes of a run share. At the chosen step the run dies: a
worker by SIGKILL, this process by an exception after which no step of the run does anything any more.
"""

from __future__ import annotations

import fcntl
import os
import signal
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
from lakebackup_jobs.kafka.admin import cluster
from lakebackup_jobs.kafka.client import consume, produce
from lakebackup_jobs.lifecycle.deletion import executor as removing
from lakebackup_jobs.targets import replay_task
from lakebackup_jobs.topics.tasks import compact as compact_task
from lakebackup_jobs.topics.tasks import copy as copy_task
from lakebackup_jobs.topics.tasks import merge as merge_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from tests.support.runs import Lab


class Killed(BaseException):
    """What a killed run raises here: no handler of expected or unexpected failures takes it."""


@dataclass(frozen=True)
class Steps:
    """The steps of one run; `folder` is where its processes meet.

    `kill_at`: the step at which the run dies instead of taking it: its number, from 1, or its name, "name #2"
    where steps before it had the same name (tasks take theirs in any order). `hold`: the run
    waits before the first step whose name begins so, until `go`. `patience`: seconds without an answer from
    the broker after which it gives up.
    """

    folder: Path
    kill_at: int | str | None = None
    hold: str | None = None
    patience: float | None = None
    driver: int = 0

    @property
    def dead(self) -> bool:
        return (self.folder / "dead").exists()

    @property
    def held(self) -> bool:
        return (self.folder / "held").exists()

    def go(self) -> None:
        (self.folder / "go").touch()

    def taken(self) -> list[str]:
        """Names of the steps so far, in order; the last is the one that killed, if one did."""
        log = self.folder / "steps"
        return log.read_text().splitlines() if log.exists() else []

    def _died_at(self, taken: list[str]) -> int | None:
        """The number of the step among these that kills, if one does."""
        if not isinstance(self.kill_at, str):
            return self.kill_at
        name, _, times = self.kill_at.partition(" #")
        numbers = [number for number, step in enumerate(taken, 1) if step == name]
        return next(iter(numbers[int(times or 1) - 1 :]), None)

    def step(self, name: str) -> None:
        """Called before a step is taken."""
        if os.getpid() == self.driver and threading.current_thread().name.startswith(("lease", "progress")):
            return  # their times are their own: a run would never take the same steps twice
        with (self.folder / "steps").open("a+") as log:
            fcntl.flock(log, fcntl.LOCK_EX)  # once a step has killed, no other process takes another
            if not self.dead:
                log.seek(0)
                before = log.read().splitlines()
                log.write(name + "\n")
                if self._died_at([*before, name]) == 1 + len(before):
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
    """A task's work, with the steps watched in the process that does it."""

    steps: Steps
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._watched():
            yield from self.work(batches)

    def each(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        with self._watched():
            yield from cast("PerNumber", self.work).each(numbers)

    def _watched(self) -> AbstractContextManager[None]:
        """The driver's steps are watched already, also where it does a task's work itself."""
        return nullcontext() if os.getpid() == self.steps.driver else _watched(self.steps)

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
    folder: Path, *, kill_at: int | str | None = None, hold: str | None = None, patience: float | None = None
) -> Iterator[Steps]:
    """Runs of jobs inside the block have their steps counted, and die, wait or lose patience as told."""
    folder.mkdir(parents=True)
    steps = Steps(folder, kill_at, hold, patience, os.getpid())

    def there(work: Any) -> Callable[..., _InWorker]:
        return lambda *args, **named: _InWorker(steps, work(*args, **named))

    release, wait = Lease.release, patience or cluster.ADMIN_TIMEOUT_S

    def let_go(lease: Lease) -> None:
        if steps.dead:
            lease._stop.set()  # the thread of a dead process renews nothing
        else:
            release(lease)

    with (
        _watched(steps),
        mock.patch.object(copy_task, "CopyJob", there(copy_task.CopyJob)),
        mock.patch.object(replay_task, "ReplayJob", there(replay_task.ReplayJob)),
        mock.patch.object(compact_task, "FindNewest", there(compact_task.FindNewest)),
        mock.patch.object(compact_task, "KeepNewest", there(compact_task.KeepNewest)),
        mock.patch.object(merge_task, "Merge", there(merge_task.Merge)),
        mock.patch.object(line_source, "CopyLines", there(line_source.CopyLines)),
        mock.patch.object(removing, "RemovalWriter", there(removing.RemovalWriter)),
        mock.patch.object(removing, "DeleteObjects", there(removing.DeleteObjects)),
        mock.patch.object(Lease, "release", let_go),
        mock.patch.object(cluster, "ADMIN_TIMEOUT_S", wait),
    ):
        yield steps


@contextmanager
def _watched(steps: Steps) -> Iterator[None]:
    """The same in any process."""
    commit, leave = local.LocalWriter.commit, local.LocalWriter.__exit__

    def put(writer: local.LocalWriter, path: str, **named: Any) -> None:
        if "/progress/" not in path:
            steps.step(_put(path))
        commit(writer, path, **named)

    def discard(writer: local.LocalWriter, *error: Any) -> None:
        if steps.dead:
            writer._file.close()  # what a dead process has written of an object stays
        else:
            leave(writer, *error)

    def before(name: str, call: Any) -> Callable[..., Any]:
        def stepped(itself: Any, *args: Any, **named: Any) -> Any:
            steps.step(name)
            return call(itself, *args, **named)

        return stepped

    delete = local.LocalStorage.delete

    def away(storage: local.LocalStorage, path: str) -> None:
        if path.endswith(".data") or "/snapshots/" in path:
            steps.step("delete data")
        elif path.endswith("/begun.json"):
            steps.step("delete begun.json")
        delete(storage, path)

    finish = produce.RestoreProducer.commit

    def transaction(producer: produce.RestoreProducer, *args: Any) -> Any:
        steps.step("commit transaction")
        sent = finish(producer, *args)
        steps.step("after transaction")
        return sent

    patient = {"patience": steps.patience} if steps.patience else {}
    changes: list[tuple[Any, str, Any]] = [
        (local.LocalWriter, "commit", put),
        (local.LocalWriter, "__exit__", discard),
        (local.LocalStorage, "delete", away),
        (produce.RestoreProducer, "begin", before("begin transaction", produce.RestoreProducer.begin)),
        (produce.RestoreProducer, "commit", transaction),
        (produce, "RestoreProducer", partial(produce.RestoreProducer, **patient)),
        (replay_task, "TRANSACTION_BYTES", 1),  # each file a transaction of its own
        (consume, "copy_range", partial(consume.copy_range, **patient)),
        *(
            (cluster.Cluster, name, before(name, getattr(cluster.Cluster, name)))
            for name in ("create_topic", "alter_settings", "delete_group")
        ),
    ]
    with _all(changes):
        yield


@contextmanager
def _all(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _put(path: str) -> str:
    """What a put is: what it puts, without what differs from run to run."""
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
    return {"data": "data", "keys": "keys", "jsonl": "part", "parquet": f"rows of {path.split('/')[0]}"}.get(
        path.rpartition(".")[2], path.rpartition("/")[2]
    )


def expire_leases(folder: Path) -> None:
    """As if the time of every lease below a destination were over."""
    for lease in {found.parent for found in folder.rglob("leases/*/*.json")}:
        newest = max(lease.glob("*.json"))
        os.utime(newest, (0, 0))


def rows_of(partitions: int, count: int, start: int = 0) -> list[Record]:
    times = 1_600_000_000_000
    return [
        Record(p, b"%d" % i, b"value %d" % i * (i % 50), (("h", None),) if i % 9 == 0 else (), times + i)
        for p in range(partitions)
        for i in range(start, start + count)
    ]


def shown(lab: Lab) -> dict[str, list[dict[str, Any]]]:
    """What anyone sees of backups in the catalog."""
    opened = CatalogReader.require(str(lab.folder))
    relations = ("backups", "files", "positions", "scopes", "gaps")
    return {name: opened.select(f"SELECT * FROM {name}").read_all().to_pylist() for name in relations}


def stored(lab: Lab) -> dict[int, list[Record]]:
    """The records of all files that the catalog shows, read by fastavro in the order of their offsets."""
    found: dict[int, list[Record]] = {}
    storage = open_storage(str(lab.folder))
    for row in sorted(shown(lab)["files"], key=lambda f: (f["region"], f["start_position"])):
        for _, record in records_in(storage.get(row["path"])):
            found.setdefault(record.partition, []).append(record)
    return found
