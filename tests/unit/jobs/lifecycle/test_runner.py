"""Where tasks run, and what the threads of this process do when one of the tasks fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from lakebackup.errors import Refused
from lakebackup.requests import RunRequest
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks import runner
from lakebackup_jobs.lifecycle.tasks.progress import Stopped, TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import Task, run_all
from lakebackup_jobs.runtime.java import jvm

MIB = 1 << 20
SPARK = cast(SparkSession, object())


@pytest.mark.parametrize(
    ("options", "size", "session", "expected"),
    [
        ({}, 64 * MIB, None, "local"),
        ({}, 64 * MIB + 1, None, "spark"),
        ({}, None, None, "spark"),
        ({}, 0, SPARK, "spark"),
        ({"remote": "sc://there"}, 0, None, "spark"),
        ({"local_below": 100}, 100, None, "local"),
        ({"local_below": 100}, 101, None, "spark"),
        ({"runner": "spark"}, 0, None, "spark"),
        ({"runner": "local"}, None, SPARK, "local"),
        ({}, runner.of_files(256 * MIB), None, "local"),
        ({}, runner.of_messages(2_000_000), None, "local"),
        ({}, runner.of_restored_messages(256 * MIB, 1), None, "local"),
        ({}, runner.of_restored_messages(1, 3_000_000), None, "spark"),
        ({}, runner.of_restored_files(4 << 30), None, "local"),
    ],
)
def test_small_amounts_run_in_this_process(
    options: dict[str, Any], size: int | None, session: SparkSession | None, expected: str
) -> None:
    assert runner.choose(RunRequest("d", **options), size, session=session) == expected


@pytest.mark.parametrize("size", [None, 1 << 40])
def test_without_java_tasks_run_in_this_process(size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert runner.choose(RunRequest("d"), size, session=None) == "local"
    assert runner.choose(RunRequest("d", runner="spark"), size, session=None) == "spark"


def test_a_cluster_that_runs_the_command_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "SUBMITTED", True)
    assert runner.choose(RunRequest("d"), 0, session=None) == "spark"
    assert runner.choose(RunRequest("d", runner="local"), 0, session=None) == "local"


@dataclass
class Counting(Task):
    """Task 0 fails with `error` once another task counts; the others count until they are stopped."""

    progress: TaskProgress
    error: BaseException
    counting: threading.Event = field(default_factory=threading.Event)
    stopped: list[int] = field(default_factory=list)

    COLUMNS = "error STRING"

    def run(self, number: int) -> dict[str, Any]:
        add: Callable[[int, int], None] = self.progress.counter(f"{number}")
        if number == 0:
            assert self.counting.wait(60)
            raise self.error
        try:
            while True:
                add(1, 1)
                self.counting.set()
        except Stopped:
            self.stopped.append(number)
            raise


@pytest.mark.parametrize("error", [Refused("it is torn"), KeyboardInterrupt()])
def test_an_error_or_an_interruption_stops_the_other_tasks(tmp_path: Path, error: BaseException) -> None:
    job = Counting(TaskProgress(open_storage(str(tmp_path)), "a/"), error)
    with pytest.raises(type(error)):
        run_all(job, range(5), None, max_tasks=2)
    assert 1 in job.stopped
    assert 4 not in job.stopped  # it never started
