"""How often a log task's job asks the catalog what it is to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakebackup_jobs.logs import task_watch
from lakebackup_jobs.logs.task import Task, TaskSettings
from lakebackup_jobs.logs.task_watch import TaskWatch


class Table:
    """A table with a clock, which records when its version is looked up and when its rows are read."""

    def __init__(self) -> None:
        self.version, self.time_s = 3, 0.0
        self.looks: list[float] = []
        self.reads: list[float] = []

    def newest(self, _uri: str) -> int:
        self.looks.append(self.time_s)
        return self.version

    def read(self) -> Task:
        self.reads.append(self.time_s)
        return Task("prod", "running", self.version, "me", TaskSettings("br", "h:1", ("t",)), None)

    def watched(self, uri: str) -> Callable[[int], list[int]]:
        watch = TaskWatch(uri, self.read, lambda: self.time_s)

        def seconds(count: int) -> list[int]:
            """The versions that a look each second returns."""
            versions = []
            for _ in range(count):
                versions.append(watch.look().recorded_us)
                self.time_s += 1
            return versions

        return seconds


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    table = Table()
    monkeypatch.setattr(task_watch, "newest_version", table.newest)
    return table


def test_object_storage_is_asked_seldom_while_nothing_changes(table: Table) -> None:
    seconds = table.watched("s3://bucket/catalog/log_tasks")
    assert seconds(59) == [3] * 59
    assert len(table.reads) == 1
    assert len(table.looks) < 16
    table.version = 4
    assert 4 in seconds(5)
    assert len(table.reads) == 2
    looks = len(table.looks)
    seconds(3)
    assert len(table.looks) - looks >= 1  # soon again after a change


def test_a_forgotten_task_is_read_again(table: Table) -> None:
    watch = TaskWatch("s3://bucket/catalog/log_tasks", table.read, lambda: 0.0)
    watch.look()
    table.version = 4
    watch.forget()
    assert watch.look().recorded_us == 4


def test_a_folder_is_looked_at_each_second_and_read_when_it_changed(table: Table) -> None:
    seconds = table.watched("/backups/catalog/log_tasks")
    assert seconds(30) == [3] * 30
    assert (len(table.looks), len(table.reads)) == (30, 1)
    table.version = 4
    assert seconds(2) == [4, 4]
    assert seconds(90)[-1] == 4
    assert len(table.reads) == 3  # once more after a minute: another table may be in its place


def test_a_table_that_cannot_be_looked_at_is_read(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_uri: str) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(task_watch, "newest_version", fail)
    assert table.watched("/backups/catalog/log_tasks")(3) == [3, 3, 3]
    assert len(table.reads) == 3
