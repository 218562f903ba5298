"""A log task over a real broker: what it captures, and what its verbs do and say."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.log_tasks import LogTask, busy, captured, sent

from lakebackup.errors import Busy, NotFound, Refused
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup_jobs.logs.capture.job import run
from lakebackup_jobs.logs.control import verbs as control

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def feed(topic: Callable[..., str]) -> ChangeFeed:
    made = ChangeFeed(partitions=2)
    made.topic = topic("feed", partitions=2)
    made.orders = made.create_table("shop", "orders")
    return made


def send(lab: Lab, feed: ChangeFeed, count: int = 20) -> None:
    busy(feed, feed.orders, count, begin=feed.now)
    feed.send(lab.bootstrap, feed.topic)


def logs(lab: Lab, name: str = "lab") -> list[dict[str, object]]:
    return lab.sql(f"SELECT * FROM backups WHERE source = '{name}' ORDER BY number")


@pytest.mark.long
def test_what_stopping_loses_is_said_and_captured_when_it_is_started_again(
    lab: Lab, feed: ChangeFeed
) -> None:
    send(lab, feed)
    task = LogTask(lab, feed.topic, flush_every_s=3600)
    task.begin()
    with task.run():
        first = task.until_captured(feed.now)["checkpoint_ts"]
        busy(feed, feed.orders, 10)
        lost = feed.send(lab.bootstrap, feed.topic)
        done = control.stop(task.place, "lab")
    assert (done["lost"], done["checkpoint_ts"]) == ({feed.topic: lost}, first)
    assert isinstance(task.ended[0], dict)  # its job ended by itself
    with pytest.raises(Refused, match=f"reaches up to {first}; it cannot continue from 5"):
        control.start(task.place, "lab", LogTask(lab, feed.topic, lastbackupts=5).settings)
    control.start(task.place, "lab", LogTask(lab, feed.topic, lastbackupts=first).settings)
    with task.run():
        task.until_captured(feed.now)
    assert captured(str(lab.folder)) == sent(feed)


def test_a_task_with_an_end_is_complete_there(lab: Lab, feed: ChangeFeed) -> None:
    send(lab, feed)
    middle = feed.now
    send(lab, feed)
    task = LogTask(lab, feed.topic, endts=middle)
    task.begin()
    with task.run():
        task.until(lambda now: now["state"] == "complete", "the end is reached")
        with pytest.raises(control.Failed, match=f"it is complete up to {middle}"):
            control.start(task.place, "lab", task.settings)
    assert logs(lab)[-1]["end_ts"] == middle
    assert [r for r in captured(str(lab.folder)) if (r[6] or 0) > middle] == []


@pytest.mark.long
def test_tasks_side_by_side_with_filters_and_keys(lab: Lab, feed: ChangeFeed, tmp_path: Path) -> None:
    other = feed.create_table("private", "notes")
    busy(feed, other, 5)
    send(lab, feed)
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": {"k1": "A" * 43 + "="}}))
    keys = LogKeys.load(str(file))
    plain = LogTask(lab, feed.topic, name="plain", codec="lz4", filters=("*.*", "!private.*"))
    sealed = LogTask(lab, feed.topic, name="sealed", encrypt=True, keys_file=str(file))
    for task in (plain, sealed):
        task.begin()
    with plain.run(), sealed.run():
        plain.until_captured(feed.now)
        sealed.until_captured(feed.now)
        with pytest.raises(Busy):
            run(plain.request(), stop=threading.Event(), spark=lab.spark, reporter=lab.reporter)
        # From the first flush on the catalog knows which tables are not meant.
        begun = {r for r in captured(str(lab.folder), "plain") if r[2] == str(other)}
        busy(feed, other, 5)
        send(lab, feed)
        plain.until_captured(feed.now)
        sealed.until_captured(feed.now)
    assert captured(str(lab.folder), "sealed", keys) == sent(feed)
    found = captured(str(lab.folder), "plain")
    assert {r for r in found if r[2] == str(other)} == begun
    assert [r for r in found if r[2] != str(other)] == [r for r in sent(feed) if r[2] != str(other)]
    control.stop(sealed.place, "sealed")
    control.start(sealed.place, "sealed", sealed.settings)
    sealed.request_changes = {}
    with sealed.run():
        send(lab, feed)
        told = sealed.until(lambda now: bool(now["detail"]), "the missing keys are told")
        assert "no file of keys is named" in told["detail"]


def test_topics_that_are_not_there_and_names_that_are_taken(lab: Lab, feed: ChangeFeed) -> None:
    task = LogTask(lab, "no-such-topic")
    with pytest.raises(NotFound, match=r"No topic of .* matches no-such-topic"):
        control.start(task.place, "lab", task.settings)
    truth.produce(lab.bootstrap, feed.topic, [truth.Record(0, b"k", b"v", (), 1_600_000_000_000)])
    lab.backup(feed.topic)
    with pytest.raises(Refused, match="of another kind: topics"):
        control.start(task.place, "lab", LogTask(lab, feed.topic).settings)
