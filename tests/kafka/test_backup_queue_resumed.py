"""Backups of an engine's queues behind runs that were cut off, and behind restores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.lives import read_draft
from tests.support.social import SCHEMA, Cut, Social, cut_off, ordered, put_back

from lakebackup.errors import Busy, Refused
from lakebackup.storage import open_storage
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.backup.execute import QueueBackup
from lakebackup_jobs.queues.backup.listing import Listing
from lakebackup_jobs.queues.restore.restore_state import Done, RestoreState
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.upkeep import policies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


pytestmark = [pytest.mark.spark, pytest.mark.kafka]


# --- backups that were cut off


def test_a_backup_that_was_cut_off_is_ended_as_planned(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    social.send(social.delta, 0, "t1")
    social.full()
    own = social.send(social.delta)
    front = (social.delta, 0, 1)

    with cut_off(monkeypatch, Listing, "put"):
        social.backup("differential")
    left = read_draft(open_storage(str(social.place)), "social", QueueBackup)
    assert left is not None
    since = social.send(social.delta)
    social.config.write_text("engine: 5\n")
    found = social.backup("differential")
    assert found["ended"]["backup_id"] == left.backup_id
    assert social.stored(left.backup_id) == [front, own]
    # What came since is in a backup of its own, whatever was asked for.
    assert (found["kind"], found["parent"]) == ("differential", left.backup_id)
    assert social.stored(found["backup_id"]) == [since]
    configs = social.rows("SELECT path FROM files WHERE role = 'config' ORDER BY added_in")
    texts = [(social.place / file["path"]).read_text() for file in configs]
    assert texts == ["engine: 4\n", "engine: 4\n", "engine: 5\n"]
    assert len(social.rows("SELECT 1 AS one FROM backups WHERE source = 'social'")) == 3
    assert read_draft(open_storage(str(social.place)), "social", QueueBackup) is None
    assert not [path for path in social.tree() if "/seen/" in path]


def test_a_backup_that_was_cut_off_after_its_commit_is_not_taken_twice(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    social.send(social.delta, 0, "t1")
    full = social.full()
    social.send(social.delta)

    with cut_off(monkeypatch, QueueBackup, "finish"):
        social.backup("differential")
    found = social.backup("differential")
    ended = found.pop("ended")
    assert (ended["entries"], ended["carried"], ended["last_tid"]) == (2, 1, 2)
    assert (found["entries"], found["parent"]) == (0, ended["backup_id"])
    assert found.keys() == ended.keys() == full.keys()


@pytest.mark.long
def test_a_full_goes_on_when_its_snapshot_is_there_and_else_starts_over(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    social.send(social.delta)

    with cut_off(monkeypatch, backup_snapshot, "run"):
        social.full()
    social.send(social.delta)
    with cut_off(monkeypatch, Listing, "put"):
        social.full()
    left = read_draft(open_storage(str(social.place)), "social", QueueBackup)
    assert left is not None
    social.send(social.delta)
    social.config.write_text("engine: 5\n")
    social.schema.write_text(SCHEMA + "- {version: 2, tid: 9}\n")
    found = social.full()
    assert (found["backup_id"], found["last_tid"]) == (left.backup_id, 2)
    # The engine's files are those of the beginning.
    files = social.rows("SELECT path FROM files WHERE role IN ('config', 'schema') ORDER BY role")
    assert [(social.place / file["path"]).read_text() for file in files] == ["engine: 4\n", SCHEMA]
    assert social.rows("SELECT version FROM queue_schemas") == [{"version": 1}]
    snapshots = social.rows("SELECT backup_id FROM backups WHERE source = 'social.snapshot'")
    assert snapshots == [{"backup_id": found["snapshot"]}]
    assert social.stored(social.backup("differential")["backup_id"]) == [(social.delta, 0, 3)]


def test_the_snapshot_of_a_discarded_full_is_no_longer_held(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_off(monkeypatch, Listing, "put"):
        social.full()
    assert len(social.rows("SELECT backup_id FROM holds")) == 1
    with cut_off(monkeypatch, Workspace, "empty"):
        social.full(note="another one")
    assert social.rows("SELECT backup_id FROM holds") == []
    # The same command goes on, and holds it again. A person's hold stays.
    with cut_off(monkeypatch, Listing, "put"):
        social.full()
    snapshot = social.rows("SELECT backup_id FROM holds")[0]["backup_id"]
    policies.hold(str(social.place), None, snapshot, reason="for the auditors")
    # The engine has put another snapshot in place of that one.
    social.tell(0, dict.fromkeys([(social.delta, 0), (social.delta, 1), (social.journal, 0)], (0, 0)))
    assert social.full()["snapshot"] != snapshot
    reasons = social.rows(f"SELECT reason FROM holds WHERE backup_id = '{snapshot}'")
    assert reasons == [{"reason": "for the auditors"}]


def test_a_snapshot_that_a_prune_deleted_before_the_hold_is_taken_again(
    social: Social, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = backup_snapshot.run
    taken: list[str] = []

    def pruned_at_once(*arguments: Any, **named: Any) -> Any:
        told = whole(*arguments, **named)
        taken.append(told["backup_id"])
        if len(taken) == 1:
            writer = CatalogWriter(spark, str(social.place))
            writer.set_states(taken, "deleted", actor="prune", reason="redundancy")
        return told

    monkeypatch.setattr(backup_snapshot, "run", pruned_at_once)
    full = social.full()
    assert len(taken) == 2
    assert full["snapshot"] == taken[1]
    assert [row["backup_id"] for row in social.rows("SELECT backup_id FROM holds")] == taken[1:]
    assert social.rows("SELECT backup_id FROM unusable_backups") == []


# --- restores that are at work, were left, or are of another catalog


MODES = ("auto", "incremental", "differential")


def left_half_done(social: Social, monkeypatch: pytest.MonkeyPatch, modes: Sequence[str]) -> None:
    """A restore writes everything behind what its queues hold, and then dies; backups find it at work."""

    write = RestoreState.write

    def dies(self: RestoreState, record: Any) -> None:
        if not isinstance(record, Done):
            write(self, record)
            return
        for mode in modes:
            with pytest.raises(
                Busy, match=rf"Restore .* is writing into topic ({social.delta}|{social.journal})"
            ):
                social.backup(mode)
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(RestoreState, "write", dies)
        with pytest.raises(Cut):
            put_back(social, "put back")


def require_refused(social: Social, mode: str, *, dry_run: bool = False) -> None:
    """No backup begins while a restore is half done: what it leaves is the record of its failure."""

    def tree() -> set[str]:
        return {path for path in social.tree() if not path.startswith("catalog/failures/")}

    before = tree()
    with pytest.raises(Refused, match=r"Restore \S+ started to write into topic") as refused:
        social.backup(mode, dry_run=dry_run)
    assert "Run its command again" in refused.value.hint
    assert tree() == before


@pytest.mark.long
def test_no_backup_goes_on_from_a_half_done_restore(social: Social, monkeypatch: pytest.MonkeyPatch) -> None:
    full = social.full()
    sent = [social.send(social.delta), social.send(social.delta, 1)]
    child = social.backup("incremental")
    left_half_done(social, monkeypatch, MODES[:1])
    require_refused(social, "auto")
    require_refused(social, "incremental", dry_run=True)
    # The next backup goes on behind the restore once that is done: each message is stored once.
    restored = put_back(social, "put back")
    assert restored["resumed"]
    own = social.send(social.delta)
    found = social.backup("incremental")
    assert (found["restore"], found["parent"]) == (restored["restore_id"], child["backup_id"])
    assert social.stored(found["backup_id"]) == [own]
    again = social.backup("differential")
    assert again["parent"] == full["backup_id"]
    assert social.stored(again["backup_id"]) == ordered(*sent, own)


@pytest.mark.long
def test_a_new_full_ends_what_a_restore_left(social: Social, monkeypatch: pytest.MonkeyPatch) -> None:
    social.full()
    social.send(social.delta)
    social.backup("incremental")
    social.send(social.delta, 1, "left", "begin", tid=700)
    left_half_done(social, monkeypatch, MODES)
    for mode in MODES:
        for dry_run in (False, True):
            require_refused(social, mode, dry_run=dry_run)
    full = social.full()
    # What is before the watermark belongs to a history that was left.
    assert (full["last_tid"], full["open_transactions"]) == (1, 0)
    own = social.send(social.delta, tid=2)
    for mode in ("incremental", "differential"):
        found = social.backup(mode)
        assert (found["parent"], found["last_tid"]) == (full["backup_id"], 2)
        assert social.stored(found["backup_id"]) == [own]


@pytest.mark.long
def test_a_watermark_that_the_catalog_does_not_know_is_refused(social: Social) -> None:
    """Another copy of the destination was restored into these queues."""
    social.full()
    social.send(social.delta, 0, "t1", "begin", tid=90)
    social.backup("incremental")
    social.send(social.delta, tid=91)
    for partition in range(2):
        social.mark("r-elsewhere", 20, social.delta, partition)
    social.send(social.delta, 0, "t2", "begin", tid=21)
    count = len(social.rows("SELECT 1 AS one FROM backups"))
    for mode in ("incremental", "differential"):
        with pytest.raises(Refused, match=rf"{social.delta}\[[01]\] at offset [02]: .* restore r-elsewhere"):
            social.backup(mode)
    assert len(social.rows("SELECT 1 AS one FROM backups")) == count
    full = social.full()
    assert (full["last_tid"], social.open_at(full["backup_id"])) == (21, {"t2"})
    own = social.send(social.delta, 0, "t2", "commit", tid=22)
    found = social.backup("incremental")
    assert social.stored(found["backup_id"]) == [(social.delta, 0, 21), own]


@pytest.mark.long
def test_a_restored_engine_may_be_before_its_watermark(social: Social) -> None:
    """Its snapshot was taken before it had read anything of what the restore brought."""
    first = social.full()
    sent = social.send(social.delta)
    social.backup("incremental")
    restored = put_back(social, "put back")
    social.tell(0, {(social.delta, 0): (1, 1), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)})
    social.full()
    own = social.send(social.delta)
    for mode in ("incremental", "differential"):
        found = social.backup(mode)
        assert social.stored(found["backup_id"]) == [sent, own]
    assert restored["full"] == first["backup_id"]
    # A snapshot from before the restore is of the history that was left.
    social.tell(0, {(social.delta, 0): (0, 0), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)})
    social.full()
    with pytest.raises(Refused, match=restored["restore_id"]):
        social.backup("incremental")
