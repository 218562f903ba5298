"""The life that every kind of backup has, shown with the smallest kind and with real ones.

What the kinds add of their own is tested with them: see tests/faults.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import expire_leases
from tests.support.life_cases import (
    LifeCase,
    LinesCase,
    LocalTopicsCase,
    ManifestCase,
    SnapshotCase,
    SparkLinesCase,
    TopicsCase,
)
from tests.support.looks import seen

from lakebackup.errors import Busy, EnvironmentProblem, Refused
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.manifest import read_manifest
from lakebackup.store.writer import CatalogWriter

#: Those whose interrupted backups are resumed. On Spark the smallest has the cases that depend on the runner,
#: and topics mostly take too long.
RESUMED = (LinesCase, SnapshotCase)
LINES_ON_SPARK = pytest.param(SparkLinesCase, marks=pytest.mark.spark)
TOPICS_HERE = pytest.param(LocalTopicsCase, marks=pytest.mark.kafka)
TOPICS = pytest.param(TopicsCase, marks=[pytest.mark.spark, pytest.mark.kafka, pytest.mark.long])


def of(*kinds: Any) -> Any:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.KIND.__name__)


@pytest.fixture
def case(kind: type[LifeCase], request: pytest.FixtureRequest, tmp_path: Path) -> LifeCase:
    return kind(tmp_path, *map(request.getfixturevalue, kind.NEEDS))


@pytest.fixture
def no_session() -> None:
    """In the place of `spark`."""


@of(*RESUMED, ManifestCase, LINES_ON_SPARK)
def test_nothing_new_makes_no_backup(case: LifeCase) -> None:
    assert case.run()
    case.assert_whole()
    before = case.ids()
    assert case.run() is None
    assert case.ids() == before


@of(*RESUMED, ManifestCase, TOPICS_HERE)
def test_a_run_that_ends_in_an_error_leaves_a_row_of_it(
    case: LifeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the next one succeeds the source's status counts it. A dry run leaves none, nor does one that is
    kept from working."""

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
    (row,) = seen(case.root, "SELECT * FROM failures")
    assert (row["source"], row["error"], row["exit_code"]) == (case.NAME, "EnvironmentProblem", 6)
    assert row["message"] == "the disk is full\nby far\nFree some space."
    assert row["started_at"] < row["at"]
    status = f"SELECT failed_runs FROM status WHERE source = '{case.NAME}'"
    if case.ids():
        assert seen(case.root, status) == [{"failed_runs": 1}]
    assert case.run()
    assert {one["failed_runs"] for one in seen(case.root, status)} == {0}


def test_the_next_backup_holds_what_is_new(tmp_path: Path) -> None:
    case = LinesCase(tmp_path)
    case.run()
    case.file.write_text("one\ntwo\nthree\nfour")
    assert (case.run() or {})["lines"] == [3, 4]
    case.assert_whole()
    assert {row["runner"] for row in seen(case.root, "SELECT runner FROM backups")} == {"local"}


@pytest.mark.long
@of(LinesCase, SnapshotCase, ManifestCase)
def test_killed_at_every_step_the_next_run_makes_it_whole(kind: type[LifeCase], tmp_path: Path) -> None:
    step, first = 1, kind(tmp_path / "first")
    before = len(first.ids())
    while True:
        case = kind(tmp_path / f"at{step}")
        if case.killed(step) is None:
            break
        case.run()
        case.assert_whole()
        assert len(case.ids()) == before + 1
        step += 1
    assert step > 8


@of(*RESUMED, LINES_ON_SPARK, TOPICS_HERE, TOPICS)
def test_killed_again_and_again_it_ends_as_one_backup(case: LifeCase) -> None:
    """Each run continues the work of the one before and dies at a later step."""
    before, taken = case.ids(), {}
    for step in (*case.STATES, "put manifest.json"):
        taken[step] = case.killed(step)
        assert taken[step], f"never: {step}"
        assert case.ids() == before, step
    data = case.data()
    for step in ("put rows of backups", "put complete", "delete begun.json"):
        taken[step] = case.killed(step)
        assert taken[step], f"never: {step}"
        assert (case.ids() == before) == (step == "put rows of backups")
    # Before what makes it exist the run looks whether the leases are still its own.
    assert "put lease source" in taken["put manifest.json"][-3:]
    assert {"put lease source", "put lease catalog"} <= set(taken["put rows of backups"][-5:])
    done = case.run()
    assert done
    assert case.ids() == [*before, done["backup_id"]]
    assert case.data() == data, "what was done is not done again"
    case.assert_whole()


def test_a_backup_that_a_rebuild_left_unconfirmed_is_not_called_complete(tmp_path: Path) -> None:
    """It was interrupted before its row; nothing restores it, so the next run takes the same again."""
    case = LinesCase(tmp_path)
    assert case.killed("put rows of backups")
    (path,) = case.root.glob("notes/backups/*/manifest.json")
    storage = open_storage(str(case.root))
    left = read_manifest(storage, str(path.relative_to(case.root))).backup
    CatalogWriter(None, str(case.root)).append([replace(left, state="unconfirmed")], "rebuild")
    done = case.run()
    assert done
    assert done["backup_id"] != left.backup_id
    assert done["lines"] == [0, 3]
    assert case.contents() == case.wanted()
    assert not storage.exists(layout.marker_path("notes", left.backup_id, "complete"))
    assert not storage.exists(layout.in_progress_path("notes"))
    assert case.run() is None


def test_tasks_that_were_done_are_not_done_again(tmp_path: Path) -> None:
    case = LinesCase(tmp_path)
    case.killed("put part #3")
    before = case.data()
    case.run()
    after = case.data()
    assert len(before) == 3
    assert sum(after[path] == at for path, at in before.items()) == 2
    case.assert_whole()


@of(*RESUMED, TOPICS_HERE, TOPICS)
def test_what_another_request_left_is_discarded(case: LifeCase) -> None:
    before = case.ids()
    case.killed("put manifest.json")
    (draft,) = {path.parent.parent.name for path in case.root.glob(f"{case.NAME}/backups/*/parts/*")} - {
        *before
    }
    done = case.run(**case.OTHER)
    assert done
    assert done["backup_id"] != draft
    assert case.ids() == [*before, done["backup_id"]]
    case.assert_whole()


@pytest.mark.parametrize("nth", [1, 2, 3])
@of(*RESUMED)
def test_killed_while_discarding_and_never_resumed(case: LifeCase, nth: int) -> None:
    """A part may be there whose file is gone: who asks as the first did may not take it for done."""
    case.killed("put manifest.json")
    assert case.killed(f"delete data #{nth}", **case.OTHER)
    assert case.run()
    case.assert_whole()


@of(*RESUMED, TOPICS)
def test_committed_but_unmarked_is_returned_to_who_asked_for_it(case: LifeCase) -> None:
    case.killed("put complete")
    committed = case.ids()
    done = case.run()
    assert done
    assert done["backup_id"] == committed[-1]
    assert case.ids() == committed
    case.assert_whole()


@of(*RESUMED)
def test_committed_but_unmarked_is_marked_for_another_request(case: LifeCase) -> None:
    case.killed("put complete")
    assert case.run(**case.OTHER) is None
    case.assert_whole()


@of(*RESUMED, TOPICS_HERE, TOPICS)
def test_a_lease_that_was_lost_while_a_run_stalled(case: LifeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run took over and made the backup exist: the first deletes nothing, and leaves no second."""
    copy = case.KIND.copy
    before = len(case.ids())

    def stalled(source: Any, draft: Any) -> Any:
        copy(source, draft)  # of topics nothing is resumed before a task is done
        monkeypatch.setattr(case.KIND, "copy", copy)
        expire_leases(case.root)
        taken_over = case.run()
        assert taken_over
        assert taken_over["backup_id"] == draft.backup_id
        return copy(source, draft)

    monkeypatch.setattr(case.KIND, "copy", stalled)
    with pytest.raises(Busy):
        case.run()
    assert len(case.ids()) == before + 1
    case.assert_whole()


@of(*RESUMED, TOPICS)
def test_a_run_that_stalled_shows_nothing_of_what_another_has_discarded(
    case: LifeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, before, others = case.KIND.copy, case.ids(), []

    def stalled(source: Any, draft: Any) -> Any:
        totals = copy(source, draft)
        monkeypatch.setattr(case.KIND, "copy", copy)
        expire_leases(case.root)
        others.append(case.run(**case.OTHER))
        return totals

    monkeypatch.setattr(case.KIND, "copy", stalled)
    with pytest.raises(Busy):
        case.run()
    assert case.ids() == [*before, *(other["backup_id"] for other in others)]
    case.assert_whole()


@of(*RESUMED, TOPICS)
def test_a_blocked_one_that_another_run_committed_meanwhile_stays(
    case: LifeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = case.KIND.resume_blocker
    before = len(case.ids())
    case.killed("put manifest.json")

    def other_run(source: Any, draft: Any) -> str | None:
        monkeypatch.setattr(case.KIND, "resume_blocker", blocker)
        monkeypatch.setattr(Lease, "renew", lambda _: None)
        expire_leases(case.root)
        case.run()
        return "another note is asked for"

    monkeypatch.setattr(case.KIND, "resume_blocker", other_run)
    assert case.run()
    case.assert_whole()
    assert len(case.ids()) == before + 1


@of(*RESUMED, TOPICS)
def test_a_run_that_lost_its_lease_discards_nothing(case: LifeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    case.killed("put manifest.json")
    before = case.data()

    def lost(_: Lease) -> None:
        raise Busy("taken over")

    monkeypatch.setattr(Lease, "renew", lost)
    with pytest.raises(Busy):
        case.run(**case.OTHER)
    assert case.data() == before


def test_what_was_read_is_not_what_was_planned(tmp_path: Path) -> None:
    case = LinesCase(tmp_path)
    case.file.write_text("one\ntorn\nthree")
    with pytest.raises(Refused):
        case.run()
    assert not list(case.root.glob("notes/**/*.*"))
    case.file.write_text("one\ntwo\nthree")
    assert case.run()
    case.assert_whole()


@of(*RESUMED, ManifestCase)
def test_a_catalog_that_lacks_the_backups_that_are_there(case: LifeCase, tmp_path: Path) -> None:
    """An empty one in place of the used one, and that of another destination."""
    other = LinesCase(tmp_path / "other")
    case.run()
    for source in (None, other.root / "catalog"):
        shutil.rmtree(case.root / "catalog")
        if source:
            shutil.copytree(source, case.root / "catalog")
        with pytest.raises(Refused):
            case.run()


@of(*RESUMED, ManifestCase)
def test_two_runs_at_once(case: LifeCase) -> None:
    with (
        Lease.acquire(open_storage(str(case.root)), f"source-{case.NAME}", "someone"),
        pytest.raises(Busy, match="someone"),
    ):
        case.run()
