"""The life that every kind of backup has, shown with the smallest one: no JVM, a few seconds.

What the kinds add of their own is tested with them: see tests/faults.
"""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import Killed, expire_leases, watched
from tests.support.line_source import Lines, LinesRequest, run
from tests.support.made_backups import MadeBackups

from lakebackup.errors import Busy, Refused
from lakebackup.rules import layout
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.progress import Reporter

if TYPE_CHECKING:
    from pathlib import Path

LINES = ["one", "two", "three"]


class Place:
    """A destination with an empty catalog, and a file of lines."""

    def __init__(self, folder: Path) -> None:
        self.root, self.file = folder / "backups", folder / "notes.txt"
        MadeBackups(self.root)
        self.file.write_text("\n".join(LINES))
        self.folder, self.kills = folder, 0

    def run(self, **changes: Any) -> dict[str, Any] | None:
        request = LinesRequest(**{"destination": str(self.root), "file": self.file, **changes})
        return run(request, Reporter(io.StringIO(), io.StringIO()))

    def killed(self, step: int | str, **changes: Any) -> list[str] | None:
        """Steps of a run that dies before one; None: it came to its end without it."""
        self.kills += 1
        with watched(self.folder / f"steps{self.kills}", kill_at=step) as steps:
            try:
                self.run(**changes)
            except Killed:
                expire_leases(self.root)
                return steps.taken()
        return None

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = CatalogReader(str(self.root)).select(sql).read_all().to_pylist()
        return found

    def contents(self) -> list[str]:
        """The lines that the catalog has, as they are stored."""
        rows = self.rows("SELECT path FROM files ORDER BY start_position")
        return [(self.root / row["path"]).read_text() for row in rows]

    def assert_whole(self) -> None:
        """Every line once, every object named, every backup marked, nothing left to do."""
        assert self.contents() == self.file.read_text().split("\n")
        named = {row["path"] for row in self.rows("SELECT path FROM files")}
        assert {str(path.relative_to(self.root)) for path in self.root.glob("notes/**/*.data")} == named
        for row in self.rows("SELECT backup_id FROM backups"):
            assert (self.root / layout.marker_path("notes", row["backup_id"], "complete")).exists()
        assert not (self.root / layout.in_progress_path("notes")).exists()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_nothing_new_makes_no_backup(place: Place) -> None:
    first = place.run()
    assert first
    assert first["lines"] == [0, 3]
    assert place.run() is None
    place.file.write_text("\n".join([*LINES, "four"]))
    second = place.run()
    assert second
    assert second["lines"] == [3, 4]
    place.assert_whole()


def test_killed_at_every_step_and_resumed(place: Place, tmp_path: Path) -> None:
    step = 1
    while True:
        other = Place(tmp_path / f"at{step}")
        if other.killed(step) is None:
            break
        again = other.run()
        assert again is None or again["lines"] == [0, 3]
        other.assert_whole()
        assert len(other.rows("SELECT 1 FROM backups")) == 1
        step += 1
    assert step > 8


def test_tasks_that_were_done_are_not_done_again(place: Place) -> None:
    place.killed("put part #3")
    before = {path: path.stat().st_mtime_ns for path in place.root.glob("notes/lines/*/*.data")}
    assert len(before) == 3
    done = place.run()
    assert done
    after = {path: path.stat().st_mtime_ns for path in place.root.glob("notes/lines/*/*.data")}
    assert sum(after[path] == at for path, at in before.items()) == 2
    place.assert_whole()


def test_what_is_asked_for_in_another_way_is_discarded(place: Place) -> None:
    place.killed("put manifest.json", note="first")
    done = place.run(note="second")
    assert done
    assert [row["note"] for row in place.rows("SELECT note FROM backups")] == ["second"]
    place.assert_whole()


def test_killed_while_discarding_and_never_resumed(place: Place, tmp_path: Path) -> None:
    """A part may be there whose file is gone: who asks as the first did may not take it for done."""
    for nth in (1, 2, 3):
        other = Place(tmp_path / f"at{nth}")
        other.killed("put manifest.json", note="first")
        assert other.killed(f"delete data #{nth}", note="second")
        done = other.run(note="first")
        assert done
        other.assert_whole()


def test_committed_but_unmarked_is_returned_to_who_asked_for_it(place: Place) -> None:
    place.killed("put complete")
    (backup,) = place.rows("SELECT backup_id FROM backups")
    done = place.run()
    assert done
    assert done["backup_id"] == backup["backup_id"]
    place.assert_whole()


def test_committed_but_unmarked_is_marked_for_another_request(place: Place) -> None:
    place.killed("put complete", note="first")
    assert place.run(note="second") is None
    place.assert_whole()


def test_a_lease_that_was_lost_while_a_run_stalled(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run took over and made the backup exist: the first deletes nothing, and leaves no second."""
    copy = Lines.copy

    def stalled(source: Lines, draft: Any) -> Any:
        monkeypatch.setattr(Lines, "copy", copy)
        expire_leases(place.root)
        taken_over = place.run()
        assert taken_over
        assert taken_over["backup_id"] == draft.backup_id
        return copy(source, draft)

    monkeypatch.setattr(Lines, "copy", stalled)
    with pytest.raises(Busy):
        place.run()
    place.assert_whole()


def test_a_blocked_one_that_another_run_committed_meanwhile_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.killed("put manifest.json")
    blocker = Lines.resume_blocker

    def other_run(source: Lines, draft: Any) -> str | None:
        monkeypatch.setattr(Lines, "resume_blocker", blocker)
        monkeypatch.setattr(Lease, "renew", lambda _: None)
        expire_leases(place.root)
        place.run()
        return "another note is asked for"

    monkeypatch.setattr(Lines, "resume_blocker", other_run)
    done = place.run()
    assert done
    place.assert_whole()
    assert len(place.rows("SELECT 1 FROM backups")) == 1


def test_a_run_that_lost_its_lease_discards_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.killed("put manifest.json", note="first")
    files = sorted(place.root.glob("notes/lines/*/*.data"))

    def lost(_: Lease) -> None:
        raise Busy("taken over")

    monkeypatch.setattr(Lease, "renew", lost)
    with pytest.raises(Busy):
        place.run(note="second")
    assert [path for path in files if path.exists()] == files


def test_what_was_read_is_not_what_was_planned(place: Place) -> None:
    place.file.write_text("one\ntorn\nthree")
    with pytest.raises(Refused):
        place.run()
    assert not list(place.root.glob("notes/**/*.*"))
    place.file.write_text("\n".join(LINES))
    assert place.run()
    place.assert_whole()


def test_a_catalog_that_lacks_the_backups_that_are_there(place: Place, tmp_path: Path) -> None:
    """An empty one in place of the used one, and that of another destination."""
    place.run()
    other = Place(tmp_path / "other")
    for source in (None, other.root / "catalog"):
        shutil.rmtree(place.root / "catalog")
        if source:
            shutil.copytree(source, place.root / "catalog")
        with pytest.raises(Refused):
            place.run()


def test_two_runs_at_once(place: Place) -> None:
    storage = CatalogReader(str(place.root)).home
    with Lease.acquire(storage, "source-notes", "me"), pytest.raises(Busy):
        place.run()
