"""Which flushes the job of a log task plans, over a real broker and a catalog; no Spark."""

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
        busy(self.feed, self.orders, 20, begin=self.feed.now)
        self.feed.send(self.bootstrap, self.topic)

    def request(self, **changes: Any) -> LogRequest:
        settings = TaskSettings("br", self.bootstrap, (self.topic,), **changes)
        return LogRequest(self.root, "lab", settings, {"bootstrap.servers": self.bootstrap})

    def captured(self, flush: Flush, kind: str = "log") -> None:
        """It is in the catalog; or another backup took its number."""
        request = self.request()
        work = Workspace(request, "lab", Reporter(io.StringIO(), io.StringIO()))
        row = publish.row_of(request, work, flush, Totals(), 5, "tso")
        rows = flush.positions if kind == "log" else ()
        CatalogWriter(None, self.root).append([replace(row, kind=kind), *rows])


@pytest.fixture
def lab(tmp_path: Path, broker: Broker, topic: Callable[..., str]) -> Lab:
    return Lab(tmp_path / "backups", broker.bootstrap, topic("feed", partitions=2))


def planned(by: Planner | LogRequest) -> Flush:
    """The next flush, of a request all that is there now."""
    found = by.plan() if isinstance(by, Planner) else Planner(by).plan(now=True)
    assert found is not None
    return found


def ends(flush: Flush) -> dict[str, int]:
    return {row.region: row.end_position for row in flush.positions}


def test_a_flush_that_came_to_nothing_is_not_planned_again_at_once(lab: Lab) -> None:
    """However much waits; but when another backup only took its number, it is."""
    planner = Planner(lab.request(flush_every_s=3600, flush_bytes=1))
    first = planned(planner)
    assert planner.plan() is None
    planner = Planner(lab.request(flush_every_s=3600, flush_bytes=1))
    first = planned(planner)
    lab.captured(first, kind="full")
    second = planned(planner)
    assert (second.number, ends(second)) == (first.number + 1, ends(first))


def test_all_that_was_there_is_flushed_now_in_steps_and_no_more(lab: Lab) -> None:
    there = {str(partition): len(events) for partition, events in enumerate(lab.feed.sent)}
    planner = Planner(lab.request(flush_every_s=3600, flush_bytes=20 * 1024))
    steps = 0
    while flush := planner.plan(now=True):
        steps += 1
        lab.captured(flush, kind="full" if steps == 2 else "log")
        last = flush
        lab.send()
    assert steps > 2
    assert ends(last) == there
    nothing = Planner(lab.request(flush_every_s=0.001))
    assert nothing.plan(now=True) is not None
    assert nothing.plan(now=True) is None  # it came to nothing


def test_a_partition_that_was_emptied_may_have_lost_what_came_after_the_last_backup(lab: Lab) -> None:
    truth.delete_records(lab.bootstrap, lab.topic, {1: len(lab.feed.sent[1])})
    with pytest.raises(Refused, match=r"may have come after 5: topic .*, partition 1 starts later"):
        Planner(lab.request(lastbackupts=5)).plan()


def test_a_gap_is_refused_or_gone_over_and_the_log_then_begins_later(lab: Lab) -> None:
    first = planned(lab.request())
    assert (first.floor, first.gaps) == (0, ())
    lab.captured(first)
    there = len(lab.feed.sent[1])
    lab.send()
    lost = len(lab.feed.sent[1])
    truth.delete_records(lab.bootstrap, lab.topic, {1: lost})
    with pytest.raises(Refused, match="were deleted before they were read"):
        Planner(lab.request()).plan(now=True)
    over = planned(lab.request(allow_gaps=True))
    assert [(g.reason, g.region, g.from_position, g.to_position) for g in over.gaps] == [
        ("purged", "1", there, lost)
    ]
    assert ends(over)["0"] == len(lab.feed.sent[0])
    # Nobody knows from where on a log is whole that begins now.
    fresh = planned(replace(lab.request(), name="fresh"))
    assert (fresh.floor, fresh.gaps) == (None, ())


def test_tables_out_of_the_filter_are_left_out_once_their_names_are_known(lab: Lab) -> None:
    request = lab.request(filters=("*.*", "!private.*"))
    first = planned(request)
    assert first.left_out is None
    lab.captured(first)
    names = [("shop", "orders", 1), ("private", "notes", 2), ("private", "moved", 3), ("shop", "moved", 3)]
    rows = [
        LogTable(
            backup_id=first.backup_id, source="lab", table_id=table, db=db, name=name, from_ts=at,
            action="create", covered_from=0,
        )
        for at, (db, name, table) in enumerate(names, 1)
    ]  # fmt: skip
    CatalogWriter(None, lab.root).append(rows)
    lab.send()
    second = planned(request)
    assert second.left_out is not None
    left = pq.read_table(f"{lab.root}/{second.left_out}")
    assert left.to_pydict() == {"table_id": [2]}  # one with a name in the filter at any time is captured
    everything = planned(lab.request())
    assert everything.left_out is None


def test_what_waits_is_told_by_topic(lab: Lab) -> None:
    def waits() -> dict[str, int] | None:
        task = Task("lab", "running", 0, "", lab.request().settings, None)
        approve(lab.root, "lab", task.settings)
        return waiting(lab.root, None, task, {})

    assert waits() == {lab.topic: sum(len(events) for events in lab.feed.sent)}
    first = planned(lab.request())
    lab.captured(first)
    assert waits() == {}
    produce(lab.bootstrap, lab.topic, [(1, b"one"), (1, b"more")])
    assert waits() == {lab.topic: 2}
