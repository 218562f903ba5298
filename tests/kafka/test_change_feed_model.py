"""Any sequence of transactions, regions and tables over a real broker: a restore to any ts is what the
database held then.

Prewrites, commits key by key, rollbacks, overlaps, regions behind each other that split and merge, events
sent again, tables that are made, renamed, truncated, dropped; flushes cut all of it anywhere. The model is
the database of tests/support/change_feed.py itself. Without a broker, many more such sequences:
tests/unit/jobs/logs. One restore of a captured feed always runs: test_log_command_line.py.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.change_story import KINDS, Story
from tests.support.log_tasks import LogTask, restored

from lakebackup_jobs.logs.control.status import waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

SEEDS = (1, 2)
FLUSHES, STEPS_A_FLUSH = 4, 30
#: So many ts are restored to upon nothing, and so many one upon the other.
FRESH, CONTINUED = 3, 2


class Run:
    """A feed, the task that captures it, and restores of what it captured."""

    def __init__(self, lab: Lab, topic: str) -> None:
        self.lab, self.topic, self.story = lab, topic, Story()
        self.task = LogTask(lab, topic)
        self.task.begin()

    def flush(self) -> None:
        """Send what reached the topic; go on when nothing waits to be captured."""
        self.story.feed.send(self.lab.bootstrap, self.topic, deliver=False)
        folder = str(self.lab.folder)

        def captured(now: dict[str, Any]) -> bool:
            assert now["detail"] is None, now
            return waiting(folder, None, self.task.place.task("lab"), {}) == {}

        self.task.until(captured, "all that was sent is captured", 120)

    def held(self, ts: int) -> dict[str, dict[bytes, bytes]]:
        return {name: rows for name, rows in self.story.feed.rows(ts).items() if rows}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_restore_to_any_ts_is_what_the_database_held(
    lab: Lab, topic: Callable[..., str], seed: int
) -> None:
    chance = Random(seed)
    run = Run(lab, topic("feed", partitions=2))
    feed = run.story.feed
    with run.task.run():
        for part in range(FLUSHES):
            for _ in range(STEPS_A_FLUSH):
                run.story.play((chance.choice(KINDS), *(chance.randrange(n) for n in (8, 8, 3))))
            if part == FLUSHES - 1:
                run.story.finish()
            run.flush()
        assert run.task.until_captured(feed.now)["checkpoint_ts"] == feed.now
    for ts in chance.sample(range(1, feed.now), FRESH):
        assert restored(lab, lab.folder / f"to-{ts}", end_ts=ts) == run.held(ts), ts
    before: dict[str, int] = {}
    for ts in [*sorted(chance.sample(range(feed.now // 2, feed.now), CONTINUED)), feed.now]:
        assert restored(lab, lab.folder / "on", end_ts=ts, **before) == run.held(ts), (before, ts)
        before = {"start_ts": ts}
