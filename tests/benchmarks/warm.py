"""A living session that runs jobs on request: one JSON object a line in, one out.

The timeline comes from what a job tells its reporter: the data phase lasts from `start` to the last `update`.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Literal

import psutil

from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.logs.restore import job as restore_changes
from lakebackup_jobs.queues.backup import job as backup_queue
from lakebackup_jobs.queues.backup.request import QueueRequest
from lakebackup_jobs.runtime.session import spark_session
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.topics import backup as backup_topics
from lakebackup_jobs.topics import compact, merge
from lakebackup_jobs.topics import restore as restore_topics
from lakebackup_jobs.topics.request import BackupRequest


class Timeline(Reporter):
    """A reporter that only looks at the clock."""

    def __init__(self) -> None:
        super().__init__(io.StringIO(), sys.stderr)
        self.started = time.perf_counter()
        self.data_from = self.data_to = 0.0

    def start(self, *_: object, **__: object) -> None:
        self.data_from = self.data_from or time.perf_counter()

    def update(self, *_: object, **__: object) -> None:
        self.data_to = time.perf_counter()

    def phases(self) -> dict[str, float]:
        """Seconds before, of and after the data phase; empty when the job told nothing."""
        if not self.data_from or not self.data_to:
            return {}
        before, data = self.data_from - self.started, self.data_to - self.data_from
        return {"before_s": before, "data_s": data, "after_s": time.perf_counter() - self.data_to}


class Jobs:
    """What can be asked for."""

    def __init__(self) -> None:
        self.spark = spark_session()

    def _run(self, job: Any, request: object) -> dict[str, Any]:
        timeline = Timeline()
        # As for a command, no session is there until the job asks for it.
        spark = (lambda: self.spark) if job in (backup_snapshot, backup_queue) else self.spark
        found: dict[str, Any] = job.run(request, spark=spark, reporter=timeline)
        return found | timeline.phases()

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
        return self._run(backup_topics, request)

    def log_restore(self, destination: str, target: str) -> dict[str, Any]:
        """All of a change feed's log."""
        request = LogRestoreRequest(destination=destination, name="bench", target=target)
        return self._run(restore_changes, request)

    def restore(self, bootstrap: str, topic: str, destination: str, target: str) -> dict[str, Any]:
        """One topic to another name on the same cluster."""
        request = RestoreRequest(
            destination=destination, topics=(topic,), maps={topic: target}, target=f"kafka://{bootstrap}"
        )
        return self._run(restore_topics, request)

    def compact(self, destination: str) -> dict[str, Any]:
        """All that a destination holds."""
        request = compact.CompactRequest(destination=destination, patterns=(".*",), all_keyed=True)
        return self._run(compact, request)

    def merge(self, destination: str) -> dict[str, Any]:
        """A full and all backups of level 1 that stand on it."""
        request = merge.MergeRequest(destination=destination, level=1)
        return self._run(merge, request)

    def init(self, destination: str) -> dict[str, Any]:
        """An empty catalog."""
        return {"version": CatalogWriter(self.spark, destination).migrate()}

    def backup_snapshot(self, source: str, destination: str) -> dict[str, Any]:
        """The files below a folder."""
        request = backup_snapshot.SnapshotRequest(destination=destination, paths=(source,), source="files")
        return self._run(backup_snapshot, request)

    def restore_snapshot(self, destination: str, target: str) -> dict[str, Any]:
        """The newest snapshot, into a folder."""
        request = SnapshotRestoreRequest(destination=destination, folder=target)
        return self._run(restore_snapshot, request)

    def backup_queue(
        self, bootstrap: str, topics: list[str], mode: str, snapshot: str, **asked: str
    ) -> dict[str, Any]:
        """An engine's snapshot, or what came into its queues."""
        request = QueueRequest(
            topics=tuple(topics),
            kafka={"bootstrap.servers": bootstrap},
            mode=mode,  # type: ignore[arg-type]
            snapshot=snapshot if mode == "full" else None,
            **asked,
        )
        return self._run(backup_queue, request)

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
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        verb = asked.pop("verb")
        started, used = time.perf_counter(), time.process_time()
        done = getattr(jobs, verb)(**asked)
        own = time.process_time() - used
        answer = {**done, "seconds": time.perf_counter() - started, "own_cpu_s": own}
        print(json.dumps(answer, default=str), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
