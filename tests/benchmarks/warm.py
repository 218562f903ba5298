"""A living session that runs jobs on request: one JSON object a line in, one out.

The timeline comes from what a job tells its reporter: the data phase lasts from `start` to the last `update`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import psutil

from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.restore import job as restore_changes
from lakebackup_jobs.queues.backup import job as backup_queue
from lakebackup_jobs.runtime.session import spark_session
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.topics import backup as backup_topics
from lakebackup_jobs.topics import compact, merge
from lakebackup_jobs.topics import restore as restore_topics
from lakebackup_jobs.topics.request import BackupRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType


class Timeline:
    """A reporter that only looks at the clock."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.data_from = self.data_to = 0.0

    def start(self, *_: object, **__: object) -> None:
        self.data_from = self.data_from or time.perf_counter()

    def update(self, *_: object, **__: object) -> None:
        self.data_to = time.perf_counter()

    def note(self, text: str) -> None:
        pass

    def warning(self, text: str) -> None:
        print(text, file=sys.stderr)

    def result(self, values: Mapping[str, Any]) -> None:
        pass

    def phases(self) -> dict[str, float]:
        """Seconds before, of and after the data phase; empty when the job told nothing."""
        if not self.data_from or not self.data_to:
            return {}
        before, data = self.data_from - self.started, self.data_to - self.data_from
        return {"before_s": before, "data_s": data, "after_s": time.perf_counter() - self.data_to}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Jobs:
    """What can be asked for."""

    def __init__(self) -> None:
        self.spark = spark_session()

    def backup(
        self, bootstrap: str, topic: str, destination: str, mode: Literal["auto", "full"] = "full"
    ) -> dict[str, Any]:
        """A backup of one topic."""
        request = BackupRequest(
            destination=destination,
            topics=(topic,),
            kafka={"bootstrap.servers": bootstrap},
            mode=mode,
            groups="none",  # the peers save records alone
        )
        timeline = Timeline()
        return backup_topics.run(request, spark=self.spark, reporter=timeline) | timeline.phases()

    def log_restore(self, destination: str, target: str) -> dict[str, Any]:
        """All of a change feed's log."""
        request = LogRestoreRequest(destination=destination, name="bench", target=target)
        timeline = Timeline()
        return restore_changes.run(request, spark=self.spark, reporter=timeline) | timeline.phases()

    def restore(self, bootstrap: str, topic: str, destination: str, target: str) -> dict[str, Any]:
        """One topic to another name on the same cluster."""
        request = RestoreRequest(
            destination=destination, topics=(topic,), maps={topic: target}, target=f"kafka://{bootstrap}"
        )
        timeline = Timeline()
        return restore_topics.run(request, spark=self.spark, reporter=timeline) | timeline.phases()

    def compact(self, destination: str) -> dict[str, Any]:
        """All that a destination holds."""
        request = compact.CompactRequest(destination=destination, patterns=(".*",), all_keyed=True)
        timeline = Timeline()
        return compact.run(request, spark=self.spark, reporter=timeline) | timeline.phases()

    def merge(self, destination: str) -> dict[str, Any]:
        """A full and all backups of level 1 that stand on it."""
        timeline = Timeline()
        request = merge.MergeRequest(destination=destination, level=1)
        return merge.run(request, spark=self.spark, reporter=timeline) | timeline.phases()

    def init(self, destination: str) -> dict[str, Any]:
        """An empty catalog."""
        return {"version": CatalogWriter.open(self.spark, destination).migrate()}

    def backup_snapshot(self, source: str, destination: str) -> dict[str, Any]:
        """The files below a folder."""
        timeline = Timeline()
        request = backup_snapshot.SnapshotRequest(destination=destination, paths=(source,), source="files")
        return backup_snapshot.run(request, spark=self.spark, reporter=timeline) | timeline.phases()

    def restore_snapshot(self, destination: str, target: str) -> dict[str, Any]:
        """The newest snapshot, into a folder."""
        timeline = Timeline()
        request = SnapshotRestoreRequest(destination=destination, folder=target)
        return restore_snapshot.run(request, spark=self.spark, reporter=timeline) | timeline.phases()

    def backup_queue(
        self,
        graph: str,
        bootstrap: str,
        topics: list[str],
        destination: str,
        mode: Literal["full", "differential", "incremental"],
        snapshot: str,
        config: str,
        schema: str,
    ) -> dict[str, Any]:
        """An engine's snapshot, or what came into its queues."""
        request = backup_queue.QueueRequest(
            destination=destination,
            source=graph,
            topics=tuple(topics),
            kafka={"bootstrap.servers": bootstrap},
            mode=mode,
            snapshot=snapshot if mode == "full" else None,
            config=config,
            schema=schema,
        )
        timeline = Timeline()
        return backup_queue.run(request, spark=self.spark, reporter=timeline) | timeline.phases()

    def forget_peak(self) -> dict[str, Any]:
        """Start counting the driver's memory from now."""
        self._jvm().System.gc()
        for pool in self._heap_pools():
            pool.resetPeakUsage()
        Path("/proc/self/clear_refs").write_text("5", "ascii")
        return {}

    def memory(self) -> dict[str, Any]:
        """Bytes: top of the driver's Python, peak of its JVM's heap, and what a collection leaves of that."""
        status = Path("/proc/self/status").read_text("ascii")
        python = int(status.split("VmHWM:")[1].split()[0]) * 1024
        peak = sum(pool.getPeakUsage().getUsed() for pool in self._heap_pools())
        self._jvm().System.gc()
        live = self._management().getMemoryMXBean().getHeapMemoryUsage().getUsed()
        below = psutil.Process().children(recursive=True)
        workers = sum(process.memory_info().rss for process in below if "python" in process.name())
        return {"python_peak": python, "heap_peak": peak, "heap_live": live, "workers_now": workers}

    def _jvm(self) -> Any:
        return self.spark.sparkContext._jvm

    def _management(self) -> Any:
        return self._jvm().java.lang.management.ManagementFactory

    def _heap_pools(self) -> list[Any]:
        pools = self._management().getMemoryPoolMXBeans()
        return [pool for pool in pools if pool.getType().toString() == "Heap memory"]


def main() -> int:
    """Answers until its input ends. Standard output is for answers alone."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs = Jobs()
    verbs: dict[str, Callable[..., dict[str, Any]]] = {
        verb: getattr(jobs, verb)
        for verb in (
            "backup",
            "restore",
            "log_restore",
            "compact",
            "merge",
            "backup_snapshot",
            "restore_snapshot",
            "backup_queue",
            "init",
            "forget_peak",
            "memory",
        )
    }
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        verb = asked.pop("verb")
        started, used = time.perf_counter(), time.process_time()
        done = verbs[verb](**asked)
        own = time.process_time() - used
        answer = {**done, "seconds": time.perf_counter() - started, "own_cpu_s": own}
        print(json.dumps(answer, default=str), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
