"""The files that a restore of a snapshot reads, planned from a real catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.given_snapshots import FileContent, GivenSnapshots
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
    FileContent(name="CURRENT", data=b"1", mtime_ms=1000),
    FileContent(name="000001.sst", data=b"one", mtime_ms=1000),
    FileContent(region="a2", name="000001.sst", data=b"two", mtime_ms=1000),
    FileContent(scope="t2", name="000001.sst", data=b"three", mtime_ms=1000),
]
SECOND = [
    FileContent(name="CURRENT", data=b"2", mtime_ms=2000),
    FileContent(name="000001.sst", data=b"one", mtime_ms=1000),
    FileContent(name="sub/000002.sst", data=b"four", mtime_ms=2000),
]


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> GivenSnapshots:
    repository = GivenSnapshots(tmp_path_factory.mktemp("made"))
    repository.backup(FIRST)
    repository.backup(SECOND)
    return repository


def plan(snapshots: GivenSnapshots, **options: Any) -> tuple[SnapshotRestorePlan, list[tuple[str, int]]]:
    restore_plan = plan_restore(
        SnapshotRestoreRequest(str(snapshots.folder), "out", **options), snapshots.reader()
    )
    rows = [row for batch in read_order(restore_plan) for row in batch.to_pylist()]
    return restore_plan, sorted((row["target"], int(row["path"].split("/")[2][-8:], 16)) for row in rows)


def test_the_newest_snapshot_at_or_before_a_time(snapshots: GivenSnapshots) -> None:
    second = [("t1/a1/000001.sst", 1), ("t1/a1/CURRENT", 2), ("t1/a1/sub/000002.sst", 2)]
    assert plan(snapshots)[1] == second
    assert plan(snapshots, to_ts=2000)[1] == second
    restore_plan, files = plan(snapshots, to_ts=1999)
    assert (restore_plan.end_ts, len(files), restore_plan.files, restore_plan.bytes) == (1000, 4, 4, 12)
    assert plan(snapshots, backup=restore_plan.backup_id)[0] == restore_plan
    with pytest.raises(Refused, match=r"at or before 1970-01-01T00:00:00\.999"):
        plan(snapshots, to_ts=999)


def test_a_restore_of_some_tables_and_tablets(snapshots: GivenSnapshots) -> None:
    assert plan(snapshots, to_ts=1000, tables=("t2",))[1] == [("t2/a1/000001.sst", 1)]
    assert plan(snapshots, to_ts=1000, tablets=("a2",), form="yugabyte")[1] == [
        ("table-t1/tablet-a2/000001.sst", 1)
    ]
    assert plan(snapshots, tables=("t1",), form="flat")[1][0] == ("000001.sst", 1)
    with pytest.raises(Refused, match="3 tablets"):
        plan(snapshots, to_ts=1000, form="flat")
    with pytest.raises(NotFound, match=r"no files of a9, t9|no files of t9, a9") as refused:
        plan(snapshots, tables=("t1", "t9"), tablets=("a1", "a9"))
    assert "t1" in refused.value.hint


def test_a_restore_of_selected_files(snapshots: GivenSnapshots) -> None:
    select_all = "SELECT * FROM snapshot_files WHERE"
    restore_plan, files = plan(snapshots, select=f"{select_all} name LIKE '0%' AND added_in = 1")
    assert files == [("t1/a1/000001.sst", 1), ("t1/a2/000001.sst", 1), ("t2/a1/000001.sst", 1)]
    assert (restore_plan.backup_id, restore_plan.end_ts, restore_plan.source) == (None, None, "yb")
    select_key = "SELECT source, scope, region, name, added_in FROM snapshot_files"
    assert plan(snapshots, select=f"{select_key} WHERE gone_in IS NULL")[1] == plan(snapshots)[1]
    for select, complaint in (
        ("SELECT name FROM snapshot_files", "needs source, scope, region, added_in too"),
        (select_key.replace("added_in", "added_in + 7 AS added_in"), "rows that are not in `snapshot_files`"),
        ("SELECT * FROM files", "needs name"),
        ("DELETE FROM snapshot_files", "SELECT"),
    ):
        with pytest.raises(UsageProblem, match=complaint):
            plan(snapshots, select=select)
    with pytest.raises(NotFound, match="chose no file"):
        plan(snapshots, select=f"{select_all} name = 'nothing'")
    with pytest.raises(UsageProblem, match="files of yb"):
        plan(snapshots, select=f"{select_all} added_in = 1", source="other")


def test_files_of_two_backups_with_one_name_are_refused(snapshots: GivenSnapshots) -> None:
    select = "SELECT * FROM snapshot_files WHERE name = 'CURRENT'"
    restore_plan = plan_restore(
        SnapshotRestoreRequest(str(snapshots.folder), "out", select=select), snapshots.reader()
    )
    with pytest.raises(Refused, match=r"'t1/a1/CURRENT': it comes twice"):
        require_names(restore_plan, snapshots.reader(), Limits())


def test_the_digest_depends_on_the_restored_files_not_on_the_request(snapshots: GivenSnapshots) -> None:
    def digest(**options: Any) -> str:
        restore_plan = plan_restore(
            SnapshotRestoreRequest(str(snapshots.folder), "out", **options), snapshots.reader()
        )
        return restore_digest(restore_plan)

    newest = digest()
    assert newest == digest(to_ts=5000) == digest(tables=("t1",))
    assert newest == digest(select="SELECT * FROM snapshot_files WHERE gone_in IS NULL")
    assert len({newest, digest(to_ts=1000), digest(form="yugabyte"), digest(form="flat")}) == 4


def test_a_damaged_backup_is_skipped_unless_it_is_named(tmp_path: Path) -> None:
    snapshots = GivenSnapshots(tmp_path)
    names = [
        snapshots.backup([FileContent(name="x", data=b"x", mtime_ms=1000 * number)]) for number in (1, 2)
    ]

    def add_damage(name: str, detail: str) -> None:
        check = {"backup_id": name, "destination": snapshots.destination, "mode": "restore", "detail": detail}
        snapshots.writer.append([filled(Check, at=1, outcome="damaged", **check)])

    add_damage(names[1], "it is torn")
    restore_plan, _ = plan(snapshots)
    assert restore_plan.backup_id == names[0]
    assert names[1] in restore_plan.notes[0]
    named_plan, _ = plan(snapshots, backup=names[1])
    assert named_plan.damage == "trial: it is torn"
    add_damage(names[0], "this too")
    with pytest.raises(Refused, match=f"the newest is {names[1]}"):
        plan(snapshots)


def test_backups_of_other_sources_are_refused(tmp_path: Path) -> None:
    topics = MadeBackups(tmp_path / "topics")
    backup = topics.backup([[Record(0, 0)]])
    topics.flush()
    request = SnapshotRestoreRequest(str(tmp_path / "topics"), "out")
    with pytest.raises(NotFound, match="no backup of a snapshot"):
        plan_restore(request, topics.reader())
    for options in ({"source": "prod"}, {"backup": backup}):
        with pytest.raises(Refused, match="of another kind"):
            plan_restore(SnapshotRestoreRequest(str(tmp_path), "out", **options), topics.reader())
    with pytest.raises(NotFound, match="no source 'nobody'"):
        plan_restore(SnapshotRestoreRequest(str(tmp_path), "out", source="nobody"), topics.reader())
