"""The files that a backup takes for unchanged, with real files and a real catalog, without Java."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.looks import select_rows

from lakebackup.errors import Refused
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots.import_manifest import ManifestRequest
from lakebackup_jobs.snapshots.import_manifest import run as import_manifest
from lakebackup_jobs.snapshots.request import SnapshotRequest
from lakebackup_jobs.snapshots.restore import run as restore
from lakebackup_jobs.snapshots.tasks import list as list_task
from lakebackup_jobs.upkeep.verify import VerifyRequest
from lakebackup_jobs.upkeep.verify import run as verify

HOUR = 3_600_000


class Tree:
    """A folder that is backed up again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.target = folder / "tree", folder / "backups", folder / "restored"
        self.folder.mkdir()
        self.warnings = io.StringIO()
        self._clock_ms = 1_700_000_000_000

    def backup(self, **changes: Any) -> dict[str, Any]:
        self._clock_ms += HOUR
        request: dict[str, Any] = {
            "destination": str(self.root),
            "paths": (str(self.folder),),
            "source": "db",
            "taken_at": self._clock_ms,
            "runner": "local",
            **changes,
        }
        return backup_snapshot.run(
            SnapshotRequest(**request), reporter=Reporter(io.StringIO(), self.warnings)
        )

    def restored(self) -> dict[str, bytes]:
        self._clock_ms += 1
        target = self.target / str(self._clock_ms)
        restore(
            SnapshotRestoreRequest(destination=str(self.root), source="db", folder=str(target)),
            reporter=Reporter(io.StringIO(), self.warnings),
        )
        return {path.name: path.read_bytes() for path in target.rglob("*") if path.is_file()}

    def objects(self) -> int:
        return sum(1 for path in (self.root / "db" / "snapshots").rglob("*") if path.is_file())


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    # A file counts as settled at once. A write in the same tick is a test of its own.
    monkeypatch.setattr(list_task, "_RACY_NS", -60_000_000_000)
    return Tree(tmp_path)


def write_file(path: Path, data: bytes, mtime_ns: int = 1_600_000_000_123_456_789) -> None:
    path.write_bytes(data)
    os.utime(path, ns=(mtime_ns, mtime_ns))


def counts(result: dict[str, Any]) -> dict[str, int]:
    return {name: result[name] for name in ("copied", "new", "changed", "unchanged", "gone")}


UNCHANGED = {"copied": 0, "new": 0, "changed": 0, "unchanged": 2, "gone": 0}
CHANGED = {"copied": 1, "new": 0, "changed": 1, "unchanged": 1, "gone": 0}


def test_contents_that_changed_under_the_same_size_and_time_are_copied(tree: Tree) -> None:
    write_file(tree.folder / "img", b"a" * 1000)
    write_file(tree.folder / "rest", b"r" * 1000)
    tree.backup()
    write_file(tree.folder / "img", b"b" * 1000)
    assert counts(tree.backup()) == CHANGED
    assert tree.restored() == {"img": b"b" * 1000, "rest": b"r" * 1000}
    assert counts(tree.backup()) == UNCHANGED
    assert tree.warnings.getvalue() == ""


def test_a_file_that_another_replaced_under_the_same_size_and_time_is_copied(tree: Tree) -> None:
    write_file(tree.folder / "img", b"a" * 1000)
    write_file(tree.folder / "rest", b"r" * 1000)
    tree.backup()
    write_file(tree.folder.parent / "other", b"b" * 1000)
    (tree.folder.parent / "other").rename(tree.folder / "img")
    assert counts(tree.backup()) == CHANGED
    assert tree.restored()["img"] == b"b" * 1000


def test_a_link_a_move_and_new_permissions_copy_nothing(tree: Tree) -> None:
    for name in ("img", "rest"):
        write_file(tree.folder / name, name.encode() * 1000)
    tree.backup()
    objects = tree.objects()
    os.link(tree.folder / "img", tree.folder.parent / "beside")
    (tree.folder / "rest").chmod(0o600)
    assert counts(tree.backup()) == UNCHANGED
    live = "SELECT name, mode, backup_id FROM snapshot_files WHERE gone_in IS NULL ORDER BY name"
    second = select_rows(tree.root, live)
    assert [row["mode"] for row in second] == [(tree.folder / "img").stat().st_mode & 0o777, 0o600]
    # The new inode and ctime are on record: nothing is read again, and no row is added.
    assert counts(tree.backup()) == UNCHANGED
    assert select_rows(tree.root, live) == second
    assert tree.objects() == objects
    assert tree.restored() == {"img": b"img" * 1000, "rest": b"rest" * 1000}


def test_size_and_time_are_enough_where_they_are_trusted(tree: Tree) -> None:
    write_file(tree.folder / "img", b"a" * 1000)
    write_file(tree.folder / "rest", b"r" * 1000)
    tree.backup()
    write_file(tree.folder / "img", b"b" * 1000)
    assert counts(tree.backup(trust_mtime=True)) == UNCHANGED
    assert counts(tree.backup()) == CHANGED


def test_a_second_write_in_the_tick_of_the_first_is_copied(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that ticks once an hour gives both writes one ctime, as a real clock does to a fast writer."""
    monkeypatch.undo()
    list_entries = list_task._entries
    tick = time.time_ns()

    def coarse(unit: Any) -> Any:
        for name, stat in list_entries(unit):
            values = {key: getattr(stat, key) for key in dir(stat) if key.startswith("st_")}
            yield name, type("Stat", (), {**values, "st_ctime_ns": tick})()

    monkeypatch.setattr(list_task, "_entries", coarse)
    # The limit is as long as the tick, however long the machine takes for the first backup.
    monkeypatch.setattr(list_task, "_RACY_NS", HOUR * 1_000_000)
    write_file(tree.folder / "img", b"a" * 1000)
    write_file(tree.folder / "rest", b"r" * 1000)
    tree.backup()
    write_file(tree.folder / "img", b"b" * 1000)
    assert counts(tree.backup()) == CHANGED
    assert tree.restored()["img"] == b"b" * 1000


def test_the_first_backup_after_an_upgrade_reads_all_and_copies_what_changed(tree: Tree) -> None:
    """Rows of an older version have neither inode nor ctime."""
    write_file(tree.folder / "img", b"a" * 1000)
    write_file(tree.folder / "rest", b"r" * 1000)
    manifest = tree.folder.parent / "manifest.json"
    tree.backup()
    (exported,) = (tree.root / "db" / "backups").glob("*/manifest-*.json")
    entries = json.loads(exported.read_text())
    manifest.write_text(json.dumps(entries))
    tree._clock_ms += HOUR
    import_manifest(
        ManifestRequest(destination=str(tree.root), file=manifest, source="db", taken_at=tree._clock_ms),
        reporter=Reporter(io.StringIO(), tree.warnings),
    )
    write_file(tree.folder / "img", b"b" * 1000)
    assert counts(tree.backup()) == CHANGED
    assert tree.restored() == {"img": b"b" * 1000, "rest": b"r" * 1000}
    assert counts(tree.backup()) == UNCHANGED


def test_a_checkpoint_of_hard_links_is_read_no_further(tree: Tree) -> None:
    """Each checkpoint changes the ctime of all its files. A file that another replaced has another inode."""
    live = tree.folder.parent / "live"
    live.mkdir()
    for name in ("1.sst", "2.sst"):
        write_file(live / name, name.encode() * 1000)

    def checkpoint(name: str) -> None:
        (tree.folder / name).mkdir()
        for file in live.iterdir():
            os.link(file, tree.folder / name / file.name)

    options = {"layout": "{snapshot}/{name}", "taken_at": None}
    checkpoint("s1")
    tree.backup(**options)
    checkpoint("s2")
    preview = tree.backup(**options, dry_run=True)
    assert counts(preview) == UNCHANGED
    assert counts(tree.backup(**options)) == UNCHANGED
    assert [row["added_in"] for row in select_rows(tree.root, "SELECT added_in FROM snapshot_files")] == [
        1,
        1,
    ]
    (live / "1.sst").unlink()
    write_file(live / "1.sst", b"X.sst" * 1000)
    checkpoint("s3")
    assert counts(tree.backup(**options)) == CHANGED
    assert tree.restored() == {"1.sst": b"X.sst" * 1000, "2.sst": b"2.sst" * 1000}


FAR = {
    "far": 10_413_792_000_000_000_000,  # 2300
    "farther": 300_000_000_000_000_000_000,  # 11476
    "before": -500_000_000,
    "long before": -20_000_000_000_000_000_000,  # 1336
}


def test_times_before_1970_and_after_2262_are_backed_up_and_restored(tree: Tree) -> None:
    for name, mtime_ns in FAR.items():
        write_file(tree.folder / name, name.encode(), mtime_ns)
    mtimes = {path.name: path.stat().st_mtime_ns // 1_000_000 for path in tree.folder.iterdir()}
    assert tree.backup()["copied"] == len(FAR)
    assert tree.backup()["unchanged"] == len(FAR)
    write_file(tree.folder / "before", b"other!", FAR["before"])
    assert tree.backup()["changed"] == 1
    tree.restored()
    (target,) = tree.target.iterdir()
    restored = {path.name: path for path in target.rglob("*") if path.is_file()}
    assert {name: path.stat().st_mtime_ns // 1_000_000 for name, path in restored.items()} == mtimes
    assert restored["before"].read_bytes() == b"other!"
    rows = select_rows(tree.root, "SELECT name, mtime FROM snapshot_files WHERE gone_in IS NULL")
    times = {row["name"]: row["mtime"] for row in rows}
    assert times["before"].isoformat().startswith("1969-12-31T23:59:59.5")
    assert times["far"].year == 2300
    assert (times["farther"] is None) == (mtimes["farther"] > 253_402_300_799_999)


def test_a_time_that_no_catalog_holds_is_refused_by_name(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    list_entries = list_task._entries

    def far(unit: Any) -> Any:
        for name, stat in list_entries(unit):
            values = {key: getattr(stat, key) for key in dir(stat) if key.startswith("st_")}
            yield name, type("Stat", (), {**values, "st_mtime_ns": (1 << 63) * 1_000_000})()

    monkeypatch.setattr(list_task, "_entries", far)
    write_file(tree.folder / "img", b"a")
    with pytest.raises(Refused, match=r"tree/ was last changed 9223372036854775808 ms after 1970"):
        tree.backup()


def test_a_lost_object_is_noticed_and_copied_again(tree: Tree) -> None:
    write_file(tree.folder / "img", b"a" * 1000)
    write_file(tree.folder / "rest", b"r" * 1000)
    tree.backup()
    (lost,) = (tree.root / "db" / "snapshots").rglob("img.zst")
    lost.unlink()
    intact = "SELECT number, intact FROM backups ORDER BY number"
    points = "SELECT number, newest FROM restore_points ORDER BY number"
    result = tree.backup()
    assert (result["again"], result["copied"], result["unchanged"]) == (1, 1, 1)
    assert "img.zst is missing" in tree.warnings.getvalue()
    assert select_rows(tree.root, intact) == [{"number": 1, "intact": False}, {"number": 2, "intact": True}]
    assert select_rows(tree.root, points) == [{"number": 2, "newest": True}]
    assert tree.restored() == {"img": b"a" * 1000, "rest": b"r" * 1000}
    assert select_rows(tree.root, "SELECT status, verified_at FROM status") == [
        {"status": "DAMAGED", "verified_at": None}
    ]


@pytest.mark.long
def test_no_view_offers_a_backup_that_verify_found_damaged(tree: Tree) -> None:
    write_file(tree.folder / "img", b"a" * 1000)
    tree.backup()
    (object_,) = (tree.root / "db" / "snapshots").rglob("img.zst")
    content = object_.read_bytes()
    object_.chmod(0o600)
    object_.write_bytes(b"x" * len(content))

    def offered() -> list[list[dict[str, Any]]]:
        return [
            select_rows(tree.root, "SELECT number FROM backups WHERE intact"),
            select_rows(tree.root, "SELECT number FROM restore_points"),
            select_rows(tree.root, "SELECT scope FROM rpo WHERE restorable_ts IS NOT NULL"),
            select_rows(tree.root, "SELECT source FROM last_success"),
            select_rows(tree.root, "SELECT backup_id FROM status WHERE backup_id IS NOT NULL"),
        ]

    assert [len(rows) for rows in offered()] == [1] * 5
    verify(VerifyRequest(destination=str(tree.root)), reporter=Reporter(io.StringIO(), tree.warnings))
    assert [len(rows) for rows in offered()] == [0] * 5
    # After the object is put back and verified, the backup is intact again.
    object_.write_bytes(content)
    verify(VerifyRequest(destination=str(tree.root)), reporter=Reporter(io.StringIO(), tree.warnings))
    assert [len(rows) for rows in offered()] == [1] * 5
