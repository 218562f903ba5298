"""Tests which flushes the job of a log task plans, over a real broker and a catalog, without Spark."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed, produce
from tests.support.log_tasks import approve, busy
from tests.support.made_backups import MadeBackups

from lakebackup.errors import Refused
from lakebackup.plan.logs.flush import Flush
from lakebackup.rows.logs import LogTable
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.capture import publish
from lakebackup_jobs.logs.capture.flush import LogRequest, Planner
from lakebackup_jobs.logs.control.status import waiting
from lakebackup_jobs.logs.task import Task, TaskSettings

pytestmark = pytest.mark.kafka


class Lab:
    """A feed of two partitions, and an empty catalog."""

    def __init__(self, root: Path, bootstrap: str, topic: str) -> None:
        MadeBackups(root).flush()
        self.root, self.bootstrap, self.topic = str(root), bootstrap, topic
        self.feed = ChangeFeed(partitions=2)
        self.orders = self.feed.create_table("shop", "orders")
        self.send()

    def send(self) -> None:
        busy(self.feed, self.orders, 20, begin=self.feed.last_ts)
        self.feed.send(self.bootstrap, self.topic)

    def request(self, **changes: Any) -> LogRequest:
        settings = TaskSettings("br", self.bootstrap, (self.topic,), **changes)
        return LogRequest(self.root, "lab", settings, {"bootstrap.servers": self.bootstrap})

    def record_backup(self, flush: Flush, kind: str = "log") -> None:
        """Record the flush in the catalog. With another `kind`: record another backup with its number."""
        request = self.request()
        work = Workspace(request, "lab", Reporter(io.StringIO(), io.StringIO()))
        row = publish.row_of(request, work, flush, Totals(), 5, "tso")
        rows = flush.positions if kind == "log" else ()
        CatalogWriter(None, self.root).append([replace(row, kind=kind), *rows])


@pytest.fixture
def lab(tmp_path: Path, broker: Broker, topic: Callable[..., str]) -> Lab:
    return Lab(tmp_path / "backups", broker.bootstrap, topic("feed", partitions=2))


def plan_flush(planner: Planner | LogRequest) -> Flush:
    """Plan the next flush. Given a request: with a new planner, for all events that exist now."""
    flush = planner.plan() if isinstance(planner, Planner) else Planner(planner).plan(immediate=True)
    assert flush is not None
    return flush


def ends(flush: Flush) -> dict[str, int]:
    return {row.region: row.end_position for row in flush.positions}


def test_a_flush_without_events_is_not_planned_again_at_once(lab: Lab) -> None:
    """The size of the waiting events makes no difference. If another backup took the number of the flush, it
    is planned again."""
    planner = Planner(lab.request(flush_every_s=3600, flush_bytes=1))
    first_flush = plan_flush(planner)
    assert planner.plan() is None
    planner = Planner(lab.request(flush_every_s=3600, flush_bytes=1))
    first_flush = plan_flush(planner)
    lab.record_backup(first_flush, kind="full")
    second_flush = plan_flush(planner)
    assert (second_flush.number, ends(second_flush)) == (first_flush.number + 1, ends(first_flush))


def test_existing_events_are_flushed_now_in_steps_and_no_later_ones(lab: Lab) -> None:
    expected_ends = {
        str(partition): len(events) for partition, events in enumerate(lab.feed.delivered_events)
    }
    planner = Planner(lab.request(flush_every_s=3600, flush_bytes=20 * 1024))
    flush_count = 0
    while flush := planner.plan(immediate=True):
        flush_count += 1
        lab.record_backup(flush, kind="full" if flush_count == 2 else "log")
        last_flush = flush
        lab.send()
    assert flush_count > 2
    assert ends(last_flush) == expected_ends
    idle_planner = Planner(lab.request(flush_every_s=0.001))
    assert idle_planner.plan(immediate=True) is not None
    assert (
        idle_planner.plan(immediate=True) is None
    )  # the first flush recorded no backup, so it captured nothing


def test_an_emptied_partition_after_the_last_backup_is_refused(lab: Lab) -> None:
    truth.delete_records(lab.bootstrap, lab.topic, {1: len(lab.feed.delivered_events[1])})
    with pytest.raises(Refused, match=r"may have come after 5: topic .*, partition 1 starts later"):
        Planner(lab.request(lastbackupts=5)).plan()


def test_a_gap_is_refused_or_allowed_and_moves_the_floor(lab: Lab) -> None:
    first_flush = plan_flush(lab.request())
    assert (first_flush.floor, first_flush.gaps) == (0, ())
    lab.record_backup(first_flush)
    gap_start = len(lab.feed.delivered_events[1])
    lab.send()
    gap_end = len(lab.feed.delivered_events[1])
    truth.delete_records(lab.bootstrap, lab.topic, {1: gap_end})
    with pytest.raises(Refused, match="were deleted before they were read"):
        Planner(lab.request()).plan(immediate=True)
    flush_after_gap = plan_flush(lab.request(allow_gaps=True))
    assert [(gap.reason, gap.region, gap.from_position, gap.to_position) for gap in flush_after_gap.gaps] == [
        ("purged", "1", gap_start, gap_end)
    ]
    assert ends(flush_after_gap)["0"] == len(lab.feed.delivered_events[0])
    # A log that begins now has no known floor.
    new_task_flush = plan_flush(replace(lab.request(), name="fresh"))
    assert (new_task_flush.floor, new_task_flush.gaps) == (None, ())


def test_tables_outside_the_filter_are_excluded_once_their_names_are_known(lab: Lab) -> None:
    request = lab.request(filters=("*.*", "!private.*"))
    first_flush = plan_flush(request)
    assert first_flush.left_out is None
    lab.record_backup(first_flush)
    names = [("shop", "orders", 1), ("private", "notes", 2), ("private", "moved", 3), ("shop", "moved", 3)]
    rows = [
        LogTable(
            backup_id=first_flush.backup_id, source="lab", table_id=table, db=db, name=name, from_ts=from_ts,
            action="create", covered_from=0,
        )
        for from_ts, (db, name, table) in enumerate(names, 1)
    ]  # fmt: skip
    CatalogWriter(None, lab.root).append(rows)
    lab.send()
    second_flush = plan_flush(request)
    assert second_flush.left_out is not None
    excluded_tables = pq.read_table(f"{lab.root}/{second_flush.left_out}")
    # A table that ever had a name in the filter is captured.
    assert excluded_tables.to_pydict() == {"table_id": [2]}
    unfiltered_flush = plan_flush(lab.request())
    assert unfiltered_flush.left_out is None


def test_waiting_events_are_counted_by_topic(lab: Lab) -> None:
    def count_waiting() -> dict[str, int] | None:
        task = Task("lab", "running", 0, "", lab.request().settings, None)
        approve(lab.root, "lab", task.settings)
        return waiting(lab.root, None, task, {})

    assert count_waiting() == {lab.topic: sum(len(events) for events in lab.feed.delivered_events)}
    flush = plan_flush(lab.request())
    lab.record_backup(flush)
    assert count_waiting() == {}
    produce(lab.bootstrap, lab.topic, [(1, b"one"), (1, b"more")])
    assert count_waiting() == {lab.topic: 2}
