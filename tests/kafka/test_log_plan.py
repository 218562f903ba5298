"""Which flushes the job of a log task plans, over a real broker and a catalog; no Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.log_tasks import busy
from tests.support.made_backups import MadeBackups

from lakebackup.errors import Refused
from lakebackup.store import CatalogWriter
from lakebackup_jobs.changelog import publish
from lakebackup_jobs.changelog.flush import LogRequest, Planner
from lakebackup_jobs.changelog.task import TaskSettings
from lakebackup_jobs.tally import Totals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakebackup.plan.log_flush import Flush
    from lakebackup_jobs.broker import Broker

pytestmark = pytest.mark.kafka


class Lab:
    """A feed of two partitions, and an empty catalog."""

    def __init__(self, root: Path, bootstrap: str, topic: str) -> None:
        MadeBackups(root).flush()
        self.root, self.bootstrap, self.topic, self.feed = (
            str(root),
            bootstrap,
            topic,
            ChangeFeed(partitions=2),
        )
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
        row = publish.row_of(self.request(), flush, Totals(), 5, "tso")
        rows = flush.positions if kind == "log" else ()
        CatalogWriter.open(None, self.root).append([replace(row, kind=kind), *rows])


@pytest.fixture
def lab(tmp_path: Path, broker: Broker, topic: Callable[..., str]) -> Lab:
    return Lab(tmp_path / "backups", broker.bootstrap, topic("feed", partitions=2))


def ends(flush: Flush | None) -> dict[str, int]:
    assert flush is not None
    return {row.region: row.end_position for row in flush.positions}


def test_a_flush_that_came_to_nothing_is_not_planned_again_at_once(lab: Lab) -> None:
    """However much waits; but when another backup only took its number, it is."""
    planner = Planner(lab.request(flush_every_s=3600, flush_bytes=1))
    first = planner.plan()
    assert first is not None
    assert planner.plan() is None
    planner = Planner(lab.request(flush_every_s=3600, flush_bytes=1))
    first = planner.plan()
    assert first is not None
    lab.captured(first, kind="full")
    second = planner.plan()
    assert second is not None
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
    with pytest.raises(Refused, match=r"may have come after 5: topic .*, partition 1 begins later"):
        Planner(lab.request(lastbackupts=5)).plan()
