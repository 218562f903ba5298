"""A limit of bytes a second: waited for by the clock's reading, shared by the tasks that run at once."""

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
    """How long each wait was to be; a stand-in for the clock goes on by it."""
    found: list[float] = []
    monkeypatch.setattr(pace.time, "monotonic", lambda: sum(found))
    monkeypatch.setattr(pace.time, "sleep", found.append)
    return found


@pytest.fixture(autouse=True)
def unlimited() -> Iterator[None]:
    yield
    limit(None)


@dataclass(frozen=True, slots=True)
class Spend(Task):
    """Each task spends 100 bytes, and says at what rate."""

    COLUMNS: ClassVar[str] = "rate BIGINT, error STRING"

    def run(self, number: int) -> dict[str, Any]:  # noqa: ARG002
        pace.spend(100)
        throttle = getattr(pace._in_thread, "throttle", None)
        return {"rate": throttle and throttle._rate}


def test_what_is_spent_is_waited_for(waits: list[float]) -> None:
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
@pytest.mark.parametrize(("at_once", "tasks", "each"), [(1, 5, 1000), (2, 5, 500), (8, 2, 500), (4, 1, 1000)])
def test_the_tasks_at_once_share_the_limit(at_once: int, tasks: int, each: int) -> None:
    limit(1000)
    assert {row.rate for row in run_all(Spend(), range(tasks), None, at_once)} == {each}
    job, count = Spend().within_limit(range(tasks), at_once)
    assert (job, count) == (Paced(Spend(), each), min(tasks, at_once))
    (batch,) = job.rows(0)
    assert batch.to_pylist() == [{"rate": each, "error": None}]


def test_without_a_limit_nothing_waits(waits: list[float]) -> None:
    assert Spend().within_limit(range(9), None) == (Spend(), None)
    assert {row.rate for row in run_all(Spend(), range(3), None, 2)} == {None}
    assert waits == []


def test_the_setting_has_a_unit_of_time_or_none() -> None:
    assert Settings(bandwidth="50MB/s").bandwidth == Settings(bandwidth="50MB").bandwidth == 50_000_000  # type: ignore[arg-type]
    assert worker.rate_of_one(2) is None
