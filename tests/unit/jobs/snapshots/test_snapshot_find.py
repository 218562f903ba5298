"""Finding the folders of a snapshot by the command line and by their layout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakebackup.errors import NotFound, Refused
from lakebackup.formats.snapshots.tree import layout_of
from lakebackup.plan.snapshots.backup import choose
from lakebackup_jobs.snapshots.find import find, root_of

PLAIN = layout_of("plain")


def test_a_folder_has_the_last_name_of_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_snapshot_that_is_being_made_is_not_found(tmp_path: Path) -> None:
    tablet = tmp_path / "table-t" / "tablet-a.snapshots"
    for name in ("s1", "s2.tmp", "s3.deleted.tmp"):
        (tablet / name).mkdir(parents=True)
    (snapshot,) = find([str(tmp_path)], layout_of("yugabyte"), ())
    assert (snapshot.id, snapshot.unfinished) == ("s1", "")


@pytest.mark.parametrize("ending", ["tmp", "deleted.tmp"])
def test_a_snapshot_that_is_unfinished_in_a_tablet_is_not_chosen(tmp_path: Path, ending: str) -> None:
    """Its backup would lack the files of other tablets, and be called complete."""
    tablet_a, tablet_b = (tmp_path / "table-t" / f"tablet-{name}.snapshots" for name in "ab")
    for folder in (tablet_a / "s1", tablet_b / "s1", tablet_a / "s2", tablet_b / f"s2.{ending}"):
        folder.mkdir(parents=True)
    for number, name in enumerate(("s1", "s2")):
        os.utime(tablet_a / name, (number, number))
    os.utime(tablet_b / "s1", (0, 0))
    snapshots = find([str(tmp_path)], layout_of("yugabyte"), ())
    assert [s.id for s in choose(snapshots, ids=(), everything=False, newest=None)] == ["s1"]
    assert [s.id for s in choose(snapshots, ids=(), everything=True, newest=None)] == ["s1"]
    for candidates, ids in ((snapshots, ["s2"]), ([s for s in snapshots if s.id == "s2"], [])):
        with pytest.raises(Refused, match=rf"s2 is being made or deleted: .*s2\.{ending} is there"):
            choose(candidates, ids=ids, everything=False, newest=None)
