"""A running session that executes commands: reads a JSON list of words per line, and writes a JSON object.

`forget-peak` and `memory` are requests to the session itself. The timeline comes from the calls that a
command makes to its reporter: the data phase lasts from `start` to the last `update`.
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
from lakebackup_jobs.cli import verb
from lakebackup_jobs.lifecycle import progress
from lakebackup_jobs.runtime.session import spark_session


class Timeline(progress.Reporter):
    """A reporter that records times and the result, and prints nothing."""

    def __init__(self) -> None:
        super().__init__(io.StringIO(), sys.stderr)
        self.started = time.perf_counter()
        self.data_from = self.data_to = 0.0
        self.reported: Mapping[str, Any] = {}

    def start(self, *_: object, **__: object) -> None:
        self.data_from = self.data_from or time.perf_counter()

    def update(self, *_: object, **__: object) -> None:
        self.data_to = time.perf_counter()

    def result(self, values: Mapping[str, Any]) -> None:
        self.reported = values

    def phases(self) -> dict[str, float]:
        """Return the seconds before, in and after the data phase; empty when the command reported none."""
        if not self.data_from or not self.data_to:
            return {}
        before_s, data_s = self.data_from - self.started, self.data_to - self.data_from
        return {"before_s": before_s, "data_s": data_s, "after_s": time.perf_counter() - self.data_to}


class Living:
    """The session, with the requests that it answers."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def answer(self, words: list[str]) -> dict[str, Any]:
        """Run a command. Returns its report, its seconds and this process's CPU seconds, or its exit code."""
        if words[0] in ("forget-peak", "memory"):
            return self.forget_peak() if words[0] == "forget-peak" else self.memory()
        timeline, cpu_before = Timeline(), time.process_time()
        verb.reporter = lambda **_: timeline  # every command asks here for its reporter
        # As in a command of its own, the job gets the session only when it asks for it.
        own_session = words[:2] in (["backup", "snapshot"], ["backup", "queue"])
        spark = (lambda: self.spark) if own_session else self.spark
        if code := run_command(words, spark=spark):
            return {"code": f"exit code {code}: {' '.join(words)}"}
        seconds, own_cpu_s = time.perf_counter() - timeline.started, time.process_time() - cpu_before
        return {**timeline.reported, **timeline.phases(), "seconds": seconds, "own_cpu_s": own_cpu_s}

    def forget_peak(self) -> dict[str, Any]:
        """Reset the peaks of the driver's memory."""
        self._jvm().System.gc()
        for pool in self._heap_pools():
            pool.resetPeakUsage()
        Path("/proc/self/clear_refs").write_text("5", "ascii")
        return {}

    def memory(self) -> dict[str, Any]:
        """Return bytes: peaks of the driver's Python and of its JVM's heap, live heap, and Python workers."""
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
    """Answer requests until the input ends. Only answers go to standard output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    living = Living(spark_session())
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(living.answer(json.loads(line)), default=str), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
