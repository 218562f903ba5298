"""Following topics: batches that are backups, exactly once, beside single backups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import rows_of, shown, stored

from lakebackup.errors import Busy, Refused
from lakebackup_jobs.backup_topics import BackupRequest
from lakebackup_jobs.follow_topics import follow

if TYPE_CHECKING:
    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]


class Following:
    """A follower on a thread of its own; `ended` has its result or its error."""

    def __init__(self, lab: Lab, *topics: str, **changes: Any) -> None:
        lab.make_catalog()
        self.stop = threading.Event()
        self.ended: list[dict[str, Any] | Exception] = []
        self._request = BackupRequest(
            **{
                "destination": str(lab.folder),
                "topics": topics,
                "kafka": {"bootstrap.servers": lab.bootstrap},
                "source": "lab",
                **changes,
            }
        )
        self._thread = threading.Thread(target=self._run, args=(lab,), name="follow")
        self._thread.start()

    def _run(self, lab: Lab) -> None:
        try:
            done = follow(self._request, every_s=0.2, stop=self.stop, spark=lab.spark, reporter=lab.reporter)
            self.ended.append(done)
        except Exception as error:  # noqa: BLE001 - judged by the test
            self.ended.append(error)

    def join(self) -> dict[str, Any] | Exception:
        self._thread.join(60)
        assert self.ended
        return self.ended[0]


@contextmanager
def following(lab: Lab, *topics: str, **changes: Any) -> Iterator[Following]:
    found = Following(lab, *topics, **changes)
    try:
        yield found
    finally:
        found.stop.set()
        found.join()


def until_stored(run: Following, lab: Lab, topic: str) -> None:
    """Until the catalog shows every record that the topic has now, once, in order."""
    expected = truth.contents(lab.bootstrap, topic)

    def there() -> bool:
        assert not run.ended, str(run.ended[0])
        return stored(lab) == expected

    truth.until(there, f"{topic} is backed up", 60)


def kinds(lab: Lab) -> list[str]:
    backups = sorted(shown(lab)["backups"], key=lambda b: b["number"])
    assert [b["number"] for b in backups] == list(range(1, len(backups) + 1))
    assert [b["parent"] for b in backups[1:]] == [b["backup_id"] for b in backups[:-1]]
    return [b["kind"] for b in backups]


def test_batches_are_backups_that_continue_each_other(lab: Lab, topic: Make) -> None:
    name = topic("follow", partitions=2)
    with following(lab, name) as run:
        for start in (0, 20, 40):
            truth.produce(lab.bootstrap, name, rows_of(2, 20, start))
            until_stored(run, lab, name)
    result = run.join()
    assert isinstance(result, dict), result
    assert kinds(lab) == ["full"] + ["log"] * (result["backups"] - 1)
    assert result["entries"] == 120
    copy = topic("copy", partitions=2)
    lab.restore(name, maps={name: copy})
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)


def test_single_backups_and_following_continue_each_other(lab: Lab, topic: Make) -> None:
    name = topic("both", partitions=2)
    truth.produce(lab.bootstrap, name, rows_of(2, 20))
    lab.backup(name)
    truth.produce(lab.bootstrap, name, rows_of(2, 20, 20))
    with following(lab, name) as run:
        until_stored(run, lab, name)
        assert kinds(lab) == ["full", "log"]
    truth.produce(lab.bootstrap, name, rows_of(2, 20, 40))
    lab.backup(name)
    with following(lab, name) as run:
        truth.produce(lab.bootstrap, name, rows_of(2, 20, 60))
        until_stored(run, lab, name)
    assert kinds(lab)[:3] == ["full", "log", "differential"]
    assert set(kinds(lab)[3:]) == {"log"}


def test_nothing_new_is_no_backup(lab: Lab, topic: Make) -> None:
    name = topic("idle")
    truth.produce(lab.bootstrap, name, rows_of(1, 20))
    lab.backup(name)
    for _ in range(2):
        with following(lab, name):
            truth.until(lambda: any(lab.folder.glob("lab/follow/commits/*")), "a batch went by")
    assert kinds(lab) == ["full"]


def test_new_topics_and_partitions_come_along(lab: Lab, topic: Make) -> None:
    prefix = topic("grow")
    with following(lab, patterns=(f"{prefix}.*",)):
        truth.until(lambda: len(shown(lab)["scopes"]) == 1, "the empty topic")
        truth.create_topic(lab.bootstrap, f"{prefix}-later", 3)
        truth.until(lambda: {s["regions"] for s in shown(lab)["scopes"]} == {1, 3}, "the new empty topic")
    truth.delete_topic(lab.bootstrap, f"{prefix}-later")


def test_only_one_process_follows_a_source(lab: Lab, topic: Make) -> None:
    name = topic("one")
    with following(lab, name):
        truth.until(lambda: bool(shown(lab)["backups"]), "the first batch")
        assert isinstance(Following(lab, name).join(), Busy)


def test_what_refuses_a_backup_ends_following(lab: Lab, topic: Make) -> None:
    name = topic("purged")
    truth.produce(lab.bootstrap, name, rows_of(1, 20))
    with following(lab, name, on_gap="fail") as run:
        until_stored(run, lab, name)
    truth.produce(lab.bootstrap, name, rows_of(1, 20, 20))
    truth.delete_records(lab.bootstrap, name, {0: 30})
    with following(lab, name, on_gap="fail") as run:
        ended = run.join()
        assert isinstance(ended, Refused)
        assert "[20, 30)" in ended.message
        assert "--on-gap" in ended.hint
    with following(lab, name, on_gap="continue"):
        truth.until(lambda: len(shown(lab)["gaps"]) == 1, "the gap")
    assert kinds(lab) == ["full", "log"]
