"""The life cycle that all kinds of backups share, with the smallest kind and with real ones.

tests/faults tests what each kind adds to it.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import expire_leases
from tests.support.life_cases import (
    EncryptedSnapshotCase,
    EncryptedTopicsCase,
    LifeCase,
    LinesCase,
    LocalTopicsCase,
    ManifestCase,
    SnapshotCase,
    SparkLinesCase,
    TopicsCase,
)
from tests.support.looks import select_rows

from lakebackup.errors import Busy, EnvironmentProblem, Refused
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.manifest import read_manifest
from lakebackup.store.writer import CatalogWriter

#: The kinds whose interrupted backups are resumed. Only cases that depend on the runner use the smallest kind
#: on Spark. Few cases use topics, since these take long.
RESUMED = (LinesCase, SnapshotCase)
LINES_ON_SPARK = pytest.param(SparkLinesCase, marks=pytest.mark.spark)
LOCAL_TOPICS = pytest.param(LocalTopicsCase, marks=pytest.mark.kafka)
ENCRYPTED_TOPICS = pytest.param(EncryptedTopicsCase, marks=pytest.mark.kafka)
TOPICS = pytest.param(TopicsCase, marks=[pytest.mark.spark, pytest.mark.kafka, pytest.mark.long])


def for_kinds(*kinds: Any) -> Any:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.KIND.__name__)


@pytest.fixture
def case(kind: type[LifeCase], request: pytest.FixtureRequest, tmp_path: Path) -> LifeCase:
    return kind(tmp_path, *map(request.getfixturevalue, kind.NEEDS))


@pytest.fixture
def no_session() -> None:
    """Takes the place of the fixture `spark` in cases that need no session."""


@for_kinds(*RESUMED, ManifestCase, LINES_ON_SPARK)
def test_nothing_new_makes_no_backup(case: LifeCase) -> None:
    assert case.run()
    case.assert_whole()
    backup_ids = case.ids()
    assert case.run() is None
    assert case.ids() == backup_ids


@for_kinds(*RESUMED, ManifestCase, LOCAL_TOPICS)
def test_a_failed_run_is_a_row_of_failures(case: LifeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source's status counts the failure until the next run succeeds. A dry run leaves no row, nor does a
    run that cannot get the lease."""

    def fails(*_: Any) -> Any:
        raise EnvironmentProblem("the disk is full\nby far", hint="Free some space.")

    with Lease.acquire(open_storage(str(case.root)), f"source-{case.NAME}", "other"), pytest.raises(Busy):
        case.run()
    with monkeypatch.context() as broken:
        broken.setattr(case.KIND, "copy", fails)
        with pytest.raises(EnvironmentProblem, match="the disk is full"):
            case.run()
        broken.setattr(CatalogWriter, "append", fails)
        with pytest.raises(EnvironmentProblem, match="the disk is full"):
            case.run()
    (row,) = select_rows(case.root, "SELECT * FROM failures")
    assert (row["source"], row["error"], row["exit_code"]) == (case.NAME, "EnvironmentProblem", 6)
    assert row["message"] == "the disk is full\nby far\nFree some space."
    assert row["started_at"] < row["at"]
    status = f"SELECT failed_runs FROM status WHERE source = '{case.NAME}'"
    if case.ids():
        assert select_rows(case.root, status) == [{"failed_runs": 1}]
    assert case.run()
    assert {status_row["failed_runs"] for status_row in select_rows(case.root, status)} == {0}


def test_the_next_backup_holds_what_is_new(tmp_path: Path) -> None:
    case = LinesCase(tmp_path)
    case.run()
    case.file.write_text("one\ntwo\nthree\nfour")
    assert (case.run() or {})["lines"] == [3, 4]
    case.assert_whole()
    assert {row["runner"] for row in select_rows(case.root, "SELECT runner FROM backups")} == {"local"}


@pytest.mark.long
@for_kinds(LinesCase, SnapshotCase, EncryptedSnapshotCase, ManifestCase)
def test_after_a_kill_at_any_step_the_next_run_completes_the_backup(
    kind: type[LifeCase], tmp_path: Path
) -> None:
    step, first = 1, kind(tmp_path / "first")
    backup_count = len(first.ids())
    while True:
        case = kind(tmp_path / f"at{step}")
        if case.killed(step) is None:
            break
        case.run()
        case.assert_whole()
        assert len(case.ids()) == backup_count + 1
        step += 1
    assert step > 8


@for_kinds(*RESUMED, EncryptedSnapshotCase, LINES_ON_SPARK, LOCAL_TOPICS, ENCRYPTED_TOPICS, TOPICS)
def test_a_backup_that_is_killed_many_times_ends_as_one_backup(case: LifeCase) -> None:
    """Each run continues the work of the previous one and dies at a later step."""
    earlier_ids, steps = case.ids(), {}
    for step in (*case.STATES, "put manifest.json"):
        steps[step] = case.killed(step)
        assert steps[step], f"never: {step}"
        assert case.ids() == earlier_ids, step
    data = case.data()
    for step in ("put rows of backups", "put complete", "delete begun.json"):
        steps[step] = case.killed(step)
        assert steps[step], f"never: {step}"
        assert (case.ids() == earlier_ids) == (step == "put rows of backups")
    # The run checks its leases right before each write that makes the backup exist.
    assert "put lease source" in steps["put manifest.json"][-3:]
    assert {"put lease source", "put lease catalog"} <= set(steps["put rows of backups"][-5:])
    summary = case.run()
    assert summary
    assert case.ids() == [*earlier_ids, summary["backup_id"]]
    assert case.data() == data, "what was done is not done again"
    case.assert_whole()


def test_a_backup_that_a_rebuild_left_unconfirmed_is_not_marked_complete(tmp_path: Path) -> None:
    """The backup was interrupted before its row was written. No restore uses it, so the next run backs up the
    same lines again."""
    case = LinesCase(tmp_path)
    assert case.killed("put rows of backups")
    (path,) = case.root.glob("notes/backups/*/manifest.json")
    storage = open_storage(str(case.root))
    backup = read_manifest(storage, str(path.relative_to(case.root))).backup
    CatalogWriter(None, str(case.root)).append([replace(backup, state="unconfirmed")], "rebuild")
    summary = case.run()
    assert summary
    assert summary["backup_id"] != backup.backup_id
    assert summary["lines"] == [0, 3]
    assert case.contents() == case.expected_contents()
    assert not storage.exists(layout.marker_path("notes", backup.backup_id, "complete"))
    assert not storage.exists(layout.in_progress_path("notes"))
    assert case.run() is None


def test_finished_tasks_are_not_repeated(tmp_path: Path) -> None:
    case = LinesCase(tmp_path)
    case.killed("put part #3")
    first_mtimes = case.data()
    case.run()
    mtimes = case.data()
    assert len(first_mtimes) == 3
    assert sum(mtimes[path] == mtime for path, mtime in first_mtimes.items()) == 2
    case.assert_whole()


@for_kinds(*RESUMED, EncryptedSnapshotCase, LOCAL_TOPICS, TOPICS)
def test_the_draft_of_another_request_is_discarded(case: LifeCase) -> None:
    earlier_ids = case.ids()
    case.killed("put manifest.json")
    (draft,) = {path.parent.parent.name for path in case.root.glob(f"{case.NAME}/backups/*/parts/*")} - {
        *earlier_ids
    }
    summary = case.run(**case.OTHER_REQUEST)
    assert summary
    assert summary["backup_id"] != draft
    assert case.ids() == [*earlier_ids, summary["backup_id"]]
    case.assert_whole()


@pytest.mark.parametrize("nth", [1, 2, 3])
@for_kinds(*RESUMED)
def test_a_draft_that_is_half_discarded_is_never_resumed(case: LifeCase, nth: int) -> None:
    """A part may remain whose data file is deleted. A run with the first request may not take the part for
    finished work."""
    case.killed("put manifest.json")
    assert case.killed(f"delete data #{nth}", **case.OTHER_REQUEST)
    assert case.run()
    case.assert_whole()


@for_kinds(*RESUMED, TOPICS)
def test_a_committed_unmarked_backup_is_returned_to_the_same_request(case: LifeCase) -> None:
    case.killed("put complete")
    committed_ids = case.ids()
    summary = case.run()
    assert summary
    assert summary["backup_id"] == committed_ids[-1]
    assert case.ids() == committed_ids
    case.assert_whole()


@for_kinds(*RESUMED)
def test_a_committed_unmarked_backup_is_marked_by_another_request(case: LifeCase) -> None:
    case.killed("put complete")
    assert case.run(**case.OTHER_REQUEST) is None
    case.assert_whole()


@for_kinds(*RESUMED, LOCAL_TOPICS, TOPICS)
def test_a_stalled_run_that_lost_its_lease_makes_no_second_backup(
    case: LifeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run takes the lease over and commits the backup. The first run deletes nothing and makes no
    second backup."""
    copy = case.KIND.copy
    backup_count = len(case.ids())

    def stalled(source: Any, draft: Any) -> Any:
        copy(source, draft)  # a draft of topics is resumed only when one of its tasks is finished
        monkeypatch.setattr(case.KIND, "copy", copy)
        expire_leases(case.root)
        summary = case.run()
        assert summary
        assert summary["backup_id"] == draft.backup_id
        return copy(source, draft)

    monkeypatch.setattr(case.KIND, "copy", stalled)
    with pytest.raises(Busy):
        case.run()
    assert len(case.ids()) == backup_count + 1
    case.assert_whole()


@for_kinds(*RESUMED, TOPICS)
def test_a_stalled_run_does_not_commit_a_draft_that_another_run_discarded(
    case: LifeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, earlier_ids, summaries = case.KIND.copy, case.ids(), []

    def stalled(source: Any, draft: Any) -> Any:
        totals = copy(source, draft)
        monkeypatch.setattr(case.KIND, "copy", copy)
        expire_leases(case.root)
        summaries.append(case.run(**case.OTHER_REQUEST))
        return totals

    monkeypatch.setattr(case.KIND, "copy", stalled)
    with pytest.raises(Busy):
        case.run()
    assert case.ids() == [*earlier_ids, *(summary["backup_id"] for summary in summaries)]
    case.assert_whole()


@for_kinds(*RESUMED, TOPICS)
def test_a_blocked_draft_that_another_run_committed_meanwhile_stays(
    case: LifeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = case.KIND.resume_blocker
    backup_count = len(case.ids())
    case.killed("put manifest.json")

    def commit_meanwhile(source: Any, draft: Any) -> str | None:
        monkeypatch.setattr(case.KIND, "resume_blocker", blocker)
        monkeypatch.setattr(Lease, "renew", lambda _: None)
        expire_leases(case.root)
        case.run()
        return "another note is asked for"

    monkeypatch.setattr(case.KIND, "resume_blocker", commit_meanwhile)
    assert case.run()
    case.assert_whole()
    assert len(case.ids()) == backup_count + 1


@for_kinds(*RESUMED, TOPICS)
def test_a_run_that_lost_its_lease_discards_nothing(case: LifeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    case.killed("put manifest.json")
    mtimes = case.data()

    def lost(_: Lease) -> None:
        raise Busy("taken over")

    monkeypatch.setattr(Lease, "renew", lost)
    with pytest.raises(Busy):
        case.run(**case.OTHER_REQUEST)
    assert case.data() == mtimes


def test_a_copy_that_differs_from_its_plan_is_refused(tmp_path: Path) -> None:
    case = LinesCase(tmp_path)
    case.file.write_text("one\ntorn\nthree")
    with pytest.raises(Refused):
        case.run()
    assert not list(case.root.glob("notes/**/*.*"))
    case.file.write_text("one\ntwo\nthree")
    assert case.run()
    case.assert_whole()


@for_kinds(*RESUMED, ManifestCase)
def test_a_catalog_without_the_stored_backups_is_refused(case: LifeCase, tmp_path: Path) -> None:
    """The catalog is deleted, or replaced by that of another destination."""
    other_case = LinesCase(tmp_path / "other")
    case.run()
    for source in (None, other_case.root / "catalog"):
        shutil.rmtree(case.root / "catalog")
        if source:
            shutil.copytree(source, case.root / "catalog")
        with pytest.raises(Refused):
            case.run()


@for_kinds(*RESUMED, ManifestCase)
def test_a_second_concurrent_run_is_refused(case: LifeCase) -> None:
    with (
        Lease.acquire(open_storage(str(case.root)), f"source-{case.NAME}", "someone"),
        pytest.raises(Busy, match="someone"),
    ):
        case.run()
