"""What a task of a restore into topics does when it is run again, without a broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.made_backups import MadeBackups, Record

from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.plan.topics.restore import RestorePlan
from lakebackup_jobs.lifecycle.tasks.splits import begun, write_splits


def backed_up(folder: Path) -> MadeBackups:
    made = MadeBackups(folder)
    made.backup([[Record(0, n) for n in range(3)], [Record(0, n) for n in range(3, 5)]])
    return made


def planned(made: MadeBackups) -> RestorePlan:
    request = RestoreRequest(str(made.folder), "kafka://b:1", topics=("orders",))
    return replace(plan_restore(request, made.reader()), at=made.number)


def test_a_newer_backup_changes_nothing_about_a_restore_that_is_resumed(tmp_path: Path) -> None:
    """Where the newer one ended the translations ended too, and --continue left out what lay between."""
    made = backed_up(tmp_path)
    first = replace(planned(made), until={("orders", "1"): 7})
    assert begun(made.storage, "restores/r/", first) is None
    splits = write_splits(made.storage, first, "restores/r/")
    made.backup([[Record(0, n) for n in range(5, 9)]])
    now = planned(made)
    assert now.ends == {("orders", "0"): 9}
    found = begun(made.storage, "restores/r/", now)
    assert found is not None
    assert (found.ends, found.until, found.at) == ({("orders", "0"): 5}, first.until, 1)
    assert (found.topics, found.begins, found.entries) == (first.topics, first.begins, 5)
    assert write_splits(made.storage, found, "restores/r/") == splits
    # Of a run that kept nothing beside its splits, nobody knows where they end.
    made.storage.delete("restores/r/plan/kept.json")
    found = begun(made.storage, "restores/r/", now)
    assert found is not None
    assert (found.begins, found.ends) == ({}, {})
