"""A living session that runs commands on request: a JSON list of words a line in, one JSON object out.

`forget-peak` and `memory` are asked of the session itself. The timeline comes from what a command tells its
reporter: the data phase lasts from `start` to the last `update`.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from lakebackup_jobs.cli import main as run_command
from lakebackup_jobs.lifecycle import progress
from lakebackup_jobs.runtime.session import spark_session


class Timeline(progress.Reporter):
    """A reporter that only looks at the clock, and keeps the result."""

    def __init__(self) -> None:
        super().__init__(io.StringIO(), sys.stderr)
        self.started = time.perf_counter()
        self.data_from = self.data_to = 0.0
        self.found: Mapping[str, Any] = {}

    def start(self, *_: object, **__: object) -> None:
        self.data_from = self.data_from or time.perf_counter()

    def update(self, *_: object, **__: object) -> None:
        self.data_to = time.perf_counter()

    def result(self, values: Mapping[str, Any]) -> None:
        self.found = values

    def phases(self) -> dict[str, float]:
        """Seconds before, of and after the data phase; empty when the command reported none."""
        if not self.data_from or not self.data_to:
            return {}
        before, data = self.data_from - self.started, self.data_to - self.data_from
        return {"before_s": before, "data_s": data, "after_s": time.perf_counter() - self.data_to}


class Living:
    """The session, and what can be asked of it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def answer(self, words: list[str]) -> dict[str, Any]:
        """What a command reported, its seconds and this process's own CPU seconds; or its exit code."""
        if words[0] in ("forget-peak", "memory"):
            return self.forget_peak() if words[0] == "forget-peak" else self.memory()
        timeline, used = Timeline(), time.process_time()
        progress.reporter = lambda **_: timeline  # every command asks here for its reporter
        # As for a command, no session is there until the job asks for it.
        own_session = words[:2] in (["backup", "snapshot"], ["backup", "queue"])
        spark = (lambda: self.spark) if own_session else self.spark
        if code := run_command(words, spark=spark):
            return {"code": f"exit code {code}: {' '.join(words)}"}
        seconds, own = time.perf_counter() - timeline.started, time.process_time() - used
        return {**timeline.found, **timeline.phases(), "seconds": seconds, "own_cpu_s": own}

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
    living = Living(spark_session())
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(living.answer(json.loads(line)), default=str), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
