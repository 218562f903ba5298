"""Which files a restore of a snapshot brings, asked of a real catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.given_snapshots import Given, GivenSnapshots
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.formats.snapshots.names import Limits
from lakebackup.plan.snapshots.restore import (
    SnapshotRestorePlan,
    SnapshotRestoreRequest,
    plan_restore,
    read_order,
    require_names,
    restore_digest,
)
from lakebackup.rows.upkeep import Check

FIRST = [
    Given(name="CURRENT", data=b"1", mtime_ms=1000),
    Given(name="000001.sst", data=b"one", mtime_ms=1000),
    Given(region="a2", name="000001.sst", data=b"two", mtime_ms=1000),
    Given(scope="t2", name="000001.sst", data=b"three", mtime_ms=1000),
]
SECOND = [
    Given(name="CURRENT", data=b"2", mtime_ms=2000),
    Given(name="000001.sst", data=b"one", mtime_ms=1000),
    Given(name="sub/000002.sst", data=b"four", mtime_ms=2000),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GivenSnapshots:
    made = GivenSnapshots(tmp_path_factory.mktemp("made"))
    made.backup(FIRST)
    made.backup(SECOND)
    return made


def plan(made: GivenSnapshots, **asked: Any) -> tuple[SnapshotRestorePlan, list[tuple[str, int]]]:
    found = plan_restore(SnapshotRestoreRequest(str(made.folder), "out", **asked), made.reader())
    rows = [row for batch in read_order(found) for row in batch.to_pylist()]
    return found, sorted((row["target"], int(row["path"].split("/")[2][-8:], 16)) for row in rows)


def test_the_newest_snapshot_at_or_before_a_time(made: GivenSnapshots) -> None:
    second = [("t1/a1/000001.sst", 1), ("t1/a1/CURRENT", 2), ("t1/a1/sub/000002.sst", 2)]
    assert plan(made)[1] == second
    assert plan(made, to_ts=2000)[1] == second
    found, files = plan(made, to_ts=1999)
    assert (found.end_ts, len(files), found.files, found.bytes) == (1000, 4, 4, 12)
    assert plan(made, backup=found.backup_id)[0] == found
    with pytest.raises(Refused, match=r"at or before 1970-01-01T00:00:00\.999"):
        plan(made, to_ts=999)


def test_tables_and_tablets_alone(made: GivenSnapshots) -> None:
    assert plan(made, to_ts=1000, tables=("t2",))[1] == [("t2/a1/000001.sst", 1)]
    assert plan(made, to_ts=1000, tablets=("a2",), form="yugabyte")[1] == [
        ("table-t1/tablet-a2/000001.sst", 1)
    ]
    assert plan(made, tables=("t1",), form="flat")[1][0] == ("000001.sst", 1)
    with pytest.raises(Refused, match="3 tablets"):
        plan(made, to_ts=1000, form="flat")
    with pytest.raises(NotFound, match=r"no files of a9, t9|no files of t9, a9") as told:
        plan(made, tables=("t1", "t9"), tablets=("a1", "a9"))
    assert "t1" in told.value.hint


def test_what_a_person_chose(made: GivenSnapshots) -> None:
    of = "SELECT * FROM snapshot_files WHERE"
    found, files = plan(made, select=f"{of} name LIKE '0%' AND added_in = 1")
    assert files == [("t1/a1/000001.sst", 1), ("t1/a2/000001.sst", 1), ("t2/a1/000001.sst", 1)]
    assert (found.backup_id, found.end_ts, found.source) == (None, None, "yb")
    key = "SELECT source, scope, region, name, added_in FROM snapshot_files"
    assert plan(made, select=f"{key} WHERE gone_in IS NULL")[1] == plan(made)[1]
    for select, why in (
        ("SELECT name FROM snapshot_files", "needs source, scope, region, added_in too"),
        (key.replace("added_in", "added_in + 7 AS added_in"), "rows that are not in `snapshot_files`"),
        ("SELECT * FROM files", "needs name"),
        ("DELETE FROM snapshot_files", "SELECT"),
    ):
        with pytest.raises(UsageProblem, match=why):
            plan(made, select=select)
    with pytest.raises(NotFound, match="chose no file"):
        plan(made, select=f"{of} name = 'nothing'")
    with pytest.raises(UsageProblem, match="files of yb"):
        plan(made, select=f"{of} added_in = 1", source="other")


def test_two_backups_files_of_one_name_are_refused(made: GivenSnapshots) -> None:
    select = "SELECT * FROM snapshot_files WHERE name = 'CURRENT'"
    found = plan_restore(SnapshotRestoreRequest(str(made.folder), "out", select=select), made.reader())
    with pytest.raises(Refused, match=r"'t1/a1/CURRENT': it comes twice"):
        require_names(found, Limits())


def test_the_same_files_are_the_same_restore_however_they_were_asked_for(made: GivenSnapshots) -> None:
    def digest(**asked: Any) -> str:
        found = plan_restore(SnapshotRestoreRequest(str(made.folder), "out", **asked), made.reader())
        return restore_digest(found)

    newest = digest()
    assert newest == digest(to_ts=5000) == digest(tables=("t1",))
    assert newest == digest(select="SELECT * FROM snapshot_files WHERE gone_in IS NULL")
    assert len({newest, digest(to_ts=1000), digest(form="yugabyte"), digest(form="flat")}) == 4


def test_a_backup_that_is_not_whole_is_passed_over_unless_it_is_named(tmp_path: Path) -> None:
    made = GivenSnapshots(tmp_path)
    names = [made.backup([Given(name="x", data=b"x", mtime_ms=1000 * number)]) for number in (1, 2)]

    def damaged(name: str, why: str) -> None:
        check = {"backup_id": name, "destination": made.destination, "mode": "restore", "detail": why}
        made.writer.append([filled(Check, at=1, outcome="damaged", **check)])

    damaged(names[1], "it is torn")
    found, _ = plan(made)
    assert found.backup_id == names[0]
    assert names[1] in found.notes[0]
    named, _ = plan(made, backup=names[1])
    assert named.damage == "trial: it is torn"
    damaged(names[0], "this too")
    with pytest.raises(Refused, match=f"the newest is {names[1]}"):
        plan(made)


def test_other_sources(tmp_path: Path) -> None:
    topics = MadeBackups(tmp_path / "topics")
    backup = topics.backup([[Record(0, 0)]])
    topics.flush()
    asked = SnapshotRestoreRequest(str(tmp_path / "topics"), "out")
    with pytest.raises(NotFound, match="no backup of a snapshot"):
        plan_restore(asked, topics.reader())
    for given in ({"source": "prod"}, {"backup": backup}):
        with pytest.raises(Refused, match="of another kind"):
            plan_restore(SnapshotRestoreRequest(str(tmp_path), "out", **given), topics.reader())
    with pytest.raises(NotFound, match="no source 'nobody'"):
        plan_restore(SnapshotRestoreRequest(str(tmp_path), "out", source="nobody"), topics.reader())
