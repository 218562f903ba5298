"""Following topics: batches that are backups, exactly once, beside single backups."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import rows_of, shown
from tests.support.following import Following, following, kinds, until_stored

from lakebackup.errors import Busy, Refused
from lakebackup.recovery.rebuild import rebuild
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle import stream

if TYPE_CHECKING:
    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]


def test_batches_are_backups_that_continue_each_other(
    lab: Lab, topic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidied: list[int] = []
    monkeypatch.setattr(stream, "SMALL_FILES", 2)
    monkeypatch.setattr(CatalogWriter, "tidy", lambda _, most: tidied.append(most))
    name = topic("follow", partitions=2)
    with following(lab, name) as run:
        for start in (0, 20, 40):
            truth.produce(lab.bootstrap, name, rows_of(2, 20, start))
            until_stored(run, lab, name)
        # Only one process follows a source.
        assert isinstance(Following(lab, name).join(), Busy)
    result = run.join()
    assert isinstance(result, dict), result
    assert kinds(lab) == ["full"] + ["log"] * (result["backups"] - 1)
    assert result["entries"] == 120
    assert tidied == [2] * (result["backups"] // 2)
    copy = topic("copy", partitions=2)
    lab.restore(name, maps={name: copy})
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)
    before = shown(lab)
    (lab.folder / "catalog").rename(lab.folder.parent / "lost")
    rebuild(lab.spark, str(lab.folder))
    for relation, rows in shown(lab).items():
        assert sorted(map(str, rows)) == sorted(map(str, before[relation])), relation


@pytest.mark.long
def test_a_lost_checkpoint_loses_nothing(lab: Lab, topic: Make) -> None:
    name = topic("lost", partitions=2)
    for start in (0, 20):
        truth.produce(lab.bootstrap, name, rows_of(2, 20, start))
        with following(lab, name) as run:
            until_stored(run, lab, name)
        shutil.rmtree(lab.folder / "lab/follow")
    assert kinds(lab) == ["full", "log"]


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


def test_new_topics_and_partitions_come_along(lab: Lab, topic: Make) -> None:
    prefix = topic("grow")
    with following(lab, patterns=(f"{prefix}.*",)):
        truth.until(lambda: len(shown(lab)["scopes"]) == 1, "the empty topic")
        truth.create_topic(lab.bootstrap, f"{prefix}-later", 3)
        truth.until(lambda: {s["regions"] for s in shown(lab)["scopes"]} == {1, 3}, "the new empty topic")
    truth.delete_topic(lab.bootstrap, f"{prefix}-later")


def test_what_refuses_a_backup_ends_following(lab: Lab, topic: Make) -> None:
    name = topic("purged")
    truth.produce(lab.bootstrap, name, rows_of(1, 20))
    lab.backup(name)
    truth.produce(lab.bootstrap, name, rows_of(1, 20, 20))
    truth.delete_records(lab.bootstrap, name, {0: 30})
    with following(lab, name, on_gap="fail") as run:
        ended = run.join()
        assert isinstance(ended, Refused)
        assert "[20, 30)" in ended.message
        assert "--on-gap" in ended.hint
    assert kinds(lab) == ["full"]
    with following(lab, name, on_gap="continue"):
        truth.until(lambda: len(shown(lab)["gaps"]) == 1, "the gap")
    assert kinds(lab) == ["full", "log"]
