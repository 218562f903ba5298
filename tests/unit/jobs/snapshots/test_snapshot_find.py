"""The folders of a snapshot, as they are named on the command line and by their layout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakebackup.errors import NotFound, Refused
from lakebackup.formats.snapshots.tree import layout_of
from lakebackup.plan.snapshots.backup import choose
from lakebackup_jobs.snapshots.find import find, root_of

PLAIN = layout_of("plain")


def test_a_folder_is_named_as_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "db" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("db/deep")
    monkeypatch.chdir(tmp_path / "db" / "deep")
    for text, name in (("..", "db"), (".", "deep"), ("../deep", "deep"), (str(tmp_path / "link"), "link")):
        assert root_of(text).name == name
        assert {unit.scope for snapshot in find([text], PLAIN, ()) for unit in snapshot.units} == {name}
    assert root_of(str(tmp_path / "link" / "..")) == (tmp_path / "db").resolve()
    with pytest.raises(NotFound, match="nowhere"):
        find(["nowhere"], PLAIN, ())


def test_a_sidecar_with_the_name_of_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "files" / "db").parent.mkdir()
    (tmp_path / "files" / "db").touch()
    with pytest.raises(Refused, match="the name of a table"):
        find([str(tmp_path / "db")], PLAIN, [("meta", str(tmp_path / "files" / "db"))])


def test_a_snapshot_that_is_being_made_is_left_alone(tmp_path: Path) -> None:
    tablet = tmp_path / "table-t" / "tablet-a.snapshots"
    for name in ("s1", "s2.tmp", "s3.deleted.tmp"):
        (tablet / name).mkdir(parents=True)
    (found,) = find([str(tmp_path)], layout_of("yugabyte"), ())
    assert (found.id, found.unfinished) == ("s1", "")


@pytest.mark.parametrize("ending", ["tmp", "deleted.tmp"])
def test_a_snapshot_that_is_whole_in_some_tablets_only_is_not_taken_for_one(
    tmp_path: Path, ending: str
) -> None:
    """A backup of it would lack the others' files, and be called complete."""
    one, other = (tmp_path / "table-t" / f"tablet-{name}.snapshots" for name in "ab")
    for folder in (one / "s1", other / "s1", one / "s2", other / f"s2.{ending}"):
        folder.mkdir(parents=True)
    for number, name in enumerate(("s1", "s2")):
        os.utime(one / name, (number, number))
    os.utime(other / "s1", (0, 0))
    found = find([str(tmp_path)], layout_of("yugabyte"), ())
    assert [s.id for s in choose(found, ids=(), everything=False, newest=None)] == ["s1"]
    assert [s.id for s in choose(found, ids=(), everything=True, newest=None)] == ["s1"]
    for some, ids in ((found, ["s2"]), ([s for s in found if s.id == "s2"], [])):
        with pytest.raises(Refused, match=rf"s2 is being made or deleted: .*s2\.{ending} is there"):
            choose(some, ids=ids, everything=False, newest=None)
