"""A log that is captured goes on while it is compacted and truncated, and gives the same as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.change_feed import ChangeFeed
from tests.support.log_tasks import LogTask, busy, restored
from tests.support.looks import seen

from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup_jobs.logs.upkeep import compact, snapshot, truncate
from lakebackup_jobs.logs.upkeep.compact import CompactLogRequest
from lakebackup_jobs.logs.upkeep.truncate import TruncateRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


def test_beside_a_running_task(lab: Lab, topic: Callable[..., str]) -> None:
    feed = ChangeFeed(partitions=2)
    name = topic("feed", partitions=2)
    table = feed.create_table("shop", "orders")
    task = LogTask(lab, name)
    task.begin()

    def more() -> int:
        busy(feed, table, 12, begin=feed.now)
        feed.send(lab.bootstrap, name)
        task.until_captured(feed.now)
        return feed.now

    def live() -> list[dict[str, Any]]:
        return seen(
            lab.folder,
            "SELECT backup_id, path FROM lifetimes "
            "WHERE gone_in IS NULL AND role = 'data' AND format = 'log-arrow-1'",
        )

    def state(to: str, end_ts: int) -> dict[str, dict[bytes, bytes]]:
        return restored(lab, lab.folder.parent / to, end_ts=end_ts, on_full=True)

    with task.run():
        early, _, late = more(), more(), more()
        before = len(live())
        done = compact.run(CompactLogRequest(str(lab.folder), "lab"), spark=lab.spark, reporter=lab.reporter)
        assert done["files"] == before
        assert len(live()) < before
        last = more()
    rows = seen(lab.folder, "SELECT number, backup_id, kind, intact FROM backups ORDER BY number")
    assert all(row["intact"] for row in rows)
    # The task went on behind the compaction, and from where it had been.
    assert rows[-1]["backup_id"] != done["backup_id"]
    assert state("early", early) == feed.rows(early)
    assert state("last", last) == feed.rows(last)
    full = LogRestoreRequest(str(lab.folder), "lab", end_ts=late)
    snapshot.run(full, spark=lab.spark, reporter=lab.reporter)
    cut = TruncateRequest(str(lab.folder), "lab", until=last, delete=True)
    gone = truncate.run(cut, spark=lab.spark, reporter=lab.reporter)
    assert gone["cut"] == late
    assert gone["compacted_files"] == before
    assert state("again", last) == feed.rows(last)
    with task.run():
        final = more()
    assert state("final", final) == feed.rows(final)
