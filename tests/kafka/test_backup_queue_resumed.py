"""Backups of an engine's queues after interrupted backups, and after restores into the same queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.lives import read_draft
from tests.support.social import SCHEMA, Cut, Social, cut_off, ordered, restore

from lakebackup.errors import Busy, Refused
from lakebackup.storage import open_storage
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.backup.execute import QueueBackup
from lakebackup_jobs.queues.backup.listing import Listing
from lakebackup_jobs.queues.restore.restore_state import CompletedRestore, RestoreState
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.upkeep import policies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


pytestmark = [pytest.mark.spark, pytest.mark.kafka]


# --- interrupted backups


def test_an_interrupted_backup_is_completed_as_planned(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    social.send(social.delta, 0, "t1")
    social.full()
    message = social.send(social.delta)
    carried_message = (social.delta, 0, 1)

    with cut_off(monkeypatch, Listing, "write_rows"):
        social.backup("differential")
    draft = read_draft(open_storage(str(social.repo)), "social", QueueBackup)
    assert draft is not None
    later_message = social.send(social.delta)
    social.config.write_text("engine: 5\n")
    next_backup = social.backup("differential")
    assert next_backup["ended"]["backup_id"] == draft.backup_id
    assert social.stored_messages(draft.backup_id) == [carried_message, message]
    # Messages since the interruption go into a backup of their own, whatever mode was requested.
    assert (next_backup["kind"], next_backup["parent"]) == ("differential", draft.backup_id)
    assert social.stored_messages(next_backup["backup_id"]) == [later_message]
    configs = social.rows("SELECT path FROM files WHERE role = 'config' ORDER BY added_in")
    texts = [(social.repo / file["path"]).read_text() for file in configs]
    assert texts == ["engine: 4\n", "engine: 4\n", "engine: 5\n"]
    assert len(social.rows("SELECT 1 AS one FROM backups WHERE source = 'social'")) == 3
    assert read_draft(open_storage(str(social.repo)), "social", QueueBackup) is None
    assert not [path for path in social.tree() if "/seen/" in path]


def test_a_backup_interrupted_after_its_commit_is_not_repeated(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    social.send(social.delta, 0, "t1")
    full = social.full()
    social.send(social.delta)

    with cut_off(monkeypatch, QueueBackup, "finish"):
        social.backup("differential")
    next_backup = social.backup("differential")
    completed = next_backup.pop("ended")
    assert (completed["entries"], completed["carried"], completed["last_tid"]) == (2, 1, 2)
    assert (next_backup["entries"], next_backup["parent"]) == (0, completed["backup_id"])
    assert next_backup.keys() == completed.keys() == full.keys()


@pytest.mark.long
def test_an_interrupted_full_resumes_once_its_snapshot_is_backed_up(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    social.send(social.delta)

    with cut_off(monkeypatch, backup_snapshot, "run"):
        social.full()
    social.send(social.delta)
    with cut_off(monkeypatch, Listing, "write_rows"):
        social.full()
    draft = read_draft(open_storage(str(social.repo)), "social", QueueBackup)
    assert draft is not None
    social.send(social.delta)
    social.config.write_text("engine: 5\n")
    social.schema.write_text(SCHEMA + "- {version: 2, tid: 9}\n")
    full = social.full()
    assert (full["backup_id"], full["last_tid"]) == (draft.backup_id, 2)
    # The resumed backup holds the engine's files as they were when it began.
    files = social.rows("SELECT path FROM files WHERE role IN ('config', 'schema') ORDER BY role")
    assert [(social.repo / file["path"]).read_text() for file in files] == ["engine: 4\n", SCHEMA]
    assert social.rows("SELECT version FROM queue_schemas") == [{"version": 1}]
    snapshots = social.rows("SELECT backup_id FROM backups WHERE source = 'social.snapshot'")
    assert snapshots == [{"backup_id": full["snapshot"]}]
    assert social.stored_messages(social.backup("differential")["backup_id"]) == [(social.delta, 0, 3)]


def test_the_snapshot_of_a_discarded_full_is_no_longer_held(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_off(monkeypatch, Listing, "write_rows"):
        social.full()
    assert len(social.rows("SELECT backup_id FROM holds")) == 1
    with cut_off(monkeypatch, Workspace, "empty"):
        social.full(note="another one")
    assert social.rows("SELECT backup_id FROM holds") == []
    # The same command resumes and holds the snapshot again. A person's hold stays.
    with cut_off(monkeypatch, Listing, "write_rows"):
        social.full()
    snapshot = social.rows("SELECT backup_id FROM holds")[0]["backup_id"]
    policies.hold(str(social.repo), None, snapshot, reason="for the auditors")
    # The engine has replaced the snapshot.
    social.write_snapshot_json(
        0, dict.fromkeys([(social.delta, 0), (social.delta, 1), (social.journal, 0)], (0, 0))
    )
    assert social.full()["snapshot"] != snapshot
    reasons = social.rows(f"SELECT reason FROM holds WHERE backup_id = '{snapshot}'")
    assert reasons == [{"reason": "for the auditors"}]


def test_a_snapshot_that_a_prune_deletes_before_the_hold_is_backed_up_again(
    social: Social, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_snapshot_backup = backup_snapshot.run
    snapshot_ids: list[str] = []

    def run_and_prune_first(*arguments: Any, **keywords: Any) -> Any:
        snapshot = run_snapshot_backup(*arguments, **keywords)
        snapshot_ids.append(snapshot["backup_id"])
        if len(snapshot_ids) == 1:
            writer = CatalogWriter(spark, str(social.repo))
            writer.set_states(snapshot_ids, "deleted", actor="prune", reason="redundancy")
        return snapshot

    monkeypatch.setattr(backup_snapshot, "run", run_and_prune_first)
    full = social.full()
    assert len(snapshot_ids) == 2
    assert full["snapshot"] == snapshot_ids[1]
    assert [row["backup_id"] for row in social.rows("SELECT backup_id FROM holds")] == snapshot_ids[1:]
    assert social.rows("SELECT backup_id FROM unusable_backups") == []


# --- restores that run, were interrupted, or belong to another catalog


MODES = ("auto", "incremental", "differential")


def interrupt_restore(social: Social, monkeypatch: pytest.MonkeyPatch, modes: Sequence[str]) -> None:
    """Run a restore that appends all messages to its queues and then dies.

    Before it dies, backups in `modes` must be refused because it is writing.
    """

    write = RestoreState.write

    def write_or_die(state: RestoreState, record: Any) -> None:
        if not isinstance(record, CompletedRestore):
            write(state, record)
            return
        for mode in modes:
            with pytest.raises(
                Busy, match=rf"Restore .* is writing into topic ({social.delta}|{social.journal})"
            ):
                social.backup(mode)
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(RestoreState, "write", write_or_die)
        with pytest.raises(Cut):
            restore(social, "put back")


def require_refused(social: Social, mode: str, *, dry_run: bool = False) -> None:
    """No backup begins while a restore is unfinished. A refused run writes nothing but its failure record."""

    def objects() -> set[str]:
        return {path for path in social.tree() if not path.startswith("catalog/failures/")}

    objects_before = objects()
    with pytest.raises(Refused, match=r"Restore \S+ started to write into topic") as refused:
        social.backup(mode, dry_run=dry_run)
    assert "Run its command again" in refused.value.hint
    assert objects() == objects_before


@pytest.mark.long
def test_no_backup_continues_an_unfinished_restore(social: Social, monkeypatch: pytest.MonkeyPatch) -> None:
    full = social.full()
    messages = [social.send(social.delta), social.send(social.delta, 1)]
    first_incremental = social.backup("incremental")
    interrupt_restore(social, monkeypatch, MODES[:1])
    require_refused(social, "auto")
    require_refused(social, "incremental", dry_run=True)
    # Once the restore is complete, the next backup continues after it and stores each message once.
    restored = restore(social, "put back")
    assert restored["resumed"]
    message = social.send(social.delta)
    incremental = social.backup("incremental")
    assert (incremental["restore"], incremental["parent"]) == (
        restored["restore_id"],
        first_incremental["backup_id"],
    )
    assert social.stored_messages(incremental["backup_id"]) == [message]
    differential = social.backup("differential")
    assert differential["parent"] == full["backup_id"]
    assert social.stored_messages(differential["backup_id"]) == ordered(*messages, message)


@pytest.mark.long
def test_only_a_full_is_possible_after_an_abandoned_restore(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    social.full()
    social.send(social.delta)
    social.backup("incremental")
    social.send(social.delta, 1, "left", "begin", tid=700)
    interrupt_restore(social, monkeypatch, MODES)
    for mode in MODES:
        for dry_run in (False, True):
            require_refused(social, mode, dry_run=dry_run)
    full = social.full()
    # Messages before the watermark belong to an abandoned history.
    assert (full["last_tid"], full["open_transactions"]) == (1, 0)
    message = social.send(social.delta, tid=2)
    for mode in ("incremental", "differential"):
        backup = social.backup(mode)
        assert (backup["parent"], backup["last_tid"]) == (full["backup_id"], 2)
        assert social.stored_messages(backup["backup_id"]) == [message]


@pytest.mark.long
def test_a_watermark_that_the_catalog_does_not_know_is_refused(social: Social) -> None:
    """A restore from another copy of the repository wrote into these queues."""
    social.full()
    social.send(social.delta, 0, "t1", "begin", tid=90)
    social.backup("incremental")
    social.send(social.delta, tid=91)
    for partition in range(2):
        social.mark("r-elsewhere", 20, social.delta, partition)
    social.send(social.delta, 0, "t2", "begin", tid=21)
    backup_count = len(social.rows("SELECT 1 AS one FROM backups"))
    for mode in ("incremental", "differential"):
        with pytest.raises(Refused, match=rf"{social.delta}\[[01]\] at offset [02]: .* restore r-elsewhere"):
            social.backup(mode)
    assert len(social.rows("SELECT 1 AS one FROM backups")) == backup_count
    full = social.full()
    assert (full["last_tid"], social.open_at(full["backup_id"])) == (21, {"t2"})
    message = social.send(social.delta, 0, "t2", "commit", tid=22)
    incremental = social.backup("incremental")
    assert social.stored_messages(incremental["backup_id"]) == [(social.delta, 0, 21), message]


@pytest.mark.long
def test_a_snapshot_of_a_restored_engine_may_end_before_the_watermark(social: Social) -> None:
    """The engine took its snapshot before it had read any message of the restore."""
    first_full = social.full()
    message = social.send(social.delta)
    social.backup("incremental")
    restored = restore(social, "put back")
    social.write_snapshot_json(
        0, {(social.delta, 0): (1, 1), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}
    )
    social.full()
    later_message = social.send(social.delta)
    for mode in ("incremental", "differential"):
        backup = social.backup(mode)
        assert social.stored_messages(backup["backup_id"]) == [message, later_message]
    assert restored["full"] == first_full["backup_id"]
    # A snapshot from before the restore belongs to the abandoned history.
    social.write_snapshot_json(
        0, {(social.delta, 0): (0, 0), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}
    )
    social.full()
    with pytest.raises(Refused, match=restored["restore_id"]):
        social.backup("incremental")
