"""A limit of bytes a second. Tasks wait by the clock, and those that run at once share the limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from lakebackup.config import Settings
from lakebackup.sql_engine import pace, worker
from lakebackup.sql_engine.worker import Paced, limit
from lakebackup_jobs.lifecycle.tasks.task import Task, run_all


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The length of each wait, in seconds. A fake clock advances by it."""
    seconds: list[float] = []
    monkeypatch.setattr(pace.time, "monotonic", lambda: sum(seconds))
    monkeypatch.setattr(pace.time, "sleep", seconds.append)
    return seconds


@pytest.fixture(autouse=True)
def unlimited() -> Iterator[None]:
    yield
    limit(None)


@dataclass(frozen=True, slots=True)
class Spend(Task):
    """Each task spends 100 bytes and returns its rate."""

    COLUMNS: ClassVar[str] = "rate BIGINT, error STRING"

    def run(self, number: int) -> dict[str, Any]:  # noqa: ARG002
        pace.spend(100)
        throttle = getattr(pace._in_thread, "throttle", None)
        return {"rate": throttle and throttle._rate}


def test_spending_bytes_waits(waits: list[float]) -> None:
    pace.spend(1 << 40)  # outside of a task
    with pace.paced(50):
        pace.spend(100)
        with pace.paced(None):  # a job within a task
            pace.spend(1 << 40)
        pace.spend(25)
    with pace.paced(None):
        pace.spend(1 << 40)
    pace.spend(1 << 40)
    assert waits == [2, 0.5]


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize(
    ("max_tasks", "tasks", "rate"), [(1, 5, 1000), (2, 5, 500), (8, 2, 500), (4, 1, 1000)]
)
def test_tasks_that_run_at_once_share_the_limit(max_tasks: int, tasks: int, rate: int) -> None:
    limit(1000)
    assert {row.rate for row in run_all(Spend(), range(tasks), None, max_tasks)} == {rate}
    job, count = Spend().within_limit(range(tasks), max_tasks)
    assert (job, count) == (Paced(Spend(), rate), min(tasks, max_tasks))
    (batch,) = job.rows(0)
    assert batch.to_pylist() == [{"rate": rate, "error": None}]


def test_without_a_limit_nothing_waits(waits: list[float]) -> None:
    assert Spend().within_limit(range(9), None) == (Spend(), None)
    assert {row.rate for row in run_all(Spend(), range(3), None, 2)} == {None}
    assert waits == []


def test_the_setting_has_a_unit_of_time_or_none() -> None:
    assert Settings(bandwidth="50MB/s").bandwidth == Settings(bandwidth="50MB").bandwidth == 50_000_000  # type: ignore[arg-type]
    assert worker.rate_of_one(2) is None
