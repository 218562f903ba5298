"""Backups of snapshots: which files are copied, which are referenced, which are refused."""

from __future__ import annotations

import io
import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.chosen import mark_long
from tests.support.command_line import quiet
from tests.support.looks import select_rows
from tests.support.stored import stored_contents

from lakebackup.errors import EnvironmentProblem, NotFound, Refused, UsageProblem
from lakebackup.plan.snapshots import backup as plan
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.recovery.exchange import export
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import compare
from lakebackup_jobs.snapshots.request import SnapshotRequest
from lakebackup_jobs.snapshots.restore import run as restore_snapshot
from lakebackup_jobs.snapshots.tasks import copy as copy_task
from lakebackup_jobs.upkeep.import_catalog import ImportRequest
from lakebackup_jobs.upkeep.import_catalog import run as import_catalog
from lakebackup_jobs.upkeep.verify import VerifyRequest
from lakebackup_jobs.upkeep.verify import run as verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
HOUR = 3_600_000


class SnapshotBackups:
    """A tree to back up, and a destination for its backups."""

    def __init__(self, folder: Path, empty_catalog: Path) -> None:
        self.tree, self.destination = folder / "tree", folder / "backups"
        self.spark: SparkSession | None = None  # None: the backup runs without Spark
        shutil.copytree(empty_catalog, self.destination / "catalog")
        self.tree.mkdir()
        self.warnings = io.StringIO()
        self._snapshot_ms = 1_700_000_000_000

    @property
    def next_ms(self) -> int:
        """The time of the next snapshot."""
        return self._snapshot_ms + HOUR

    def add_file(self, name: str, content: bytes, *, ms: int = 1_600_000_000_000) -> Path:
        file = self.tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, ns=(ms * 1_000_000, ms * 1_000_000))
        return file

    def backup(self, **changes: Any) -> dict[str, Any]:
        self._snapshot_ms += HOUR
        options: dict[str, Any] = {
            "destination": str(self.destination),
            "paths": (str(self.tree),),
            "source": "db",
            "taken_at": self._snapshot_ms,
            **changes,
        }
        reporter = Reporter(io.StringIO(), self.warnings)
        return backup_snapshot.run(SnapshotRequest(**options), spark=self.spark, reporter=reporter)

    def rows(
        self, select: str = "SELECT * FROM snapshot_files WHERE gone_in IS NULL"
    ) -> list[dict[str, Any]]:
        return select_rows(self.destination, select)

    def contents(self) -> dict[str, bytes]:
        """The contents of the live files, read from the destination."""
        storage = open_storage(str(self.destination))
        return {row["name"]: stored_contents(storage, row) for row in self.rows()}

    def truth(self) -> dict[str, bytes]:
        files = [file for file in self.tree.rglob("*") if file.is_file()]
        return {str(file.relative_to(self.tree)): file.read_bytes() for file in files}

    def objects(self) -> set[str]:
        return {blob.path for blob in open_storage(str(self.destination)).list("db/")}


@pytest.fixture
def backups(tmp_path: Path, empty_catalog: Path) -> SnapshotBackups:
    return SnapshotBackups(tmp_path, empty_catalog)


WAYS = ["here", "tasks"]


@pytest.fixture
def way(request: pytest.FixtureRequest, backups: SnapshotBackups, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to list, compare and copy: in this process, and in Spark tasks."""
    if request.param == "tasks":
        backups.spark = request.getfixturevalue("spark")
        monkeypatch.setattr(compare, "MAX_LISTED_IN_PROCESS", 0)
        monkeypatch.setattr(compare, "_HASHED_HERE", 0)
        monkeypatch.setattr(plan, "_ONE_TASK", 0)
    return str(request.param)


@pytest.mark.parametrize("way", mark_long(WAYS, ["here"]), indirect=True)
def test_new_and_changed_files_are_copied_and_others_referenced(backups: SnapshotBackups, way: str) -> None:
    backups.add_file("CURRENT", b"1")
    backups.add_file("a.sst", b"aa")
    backups.add_file("b.sst", b"bb")
    backups.add_file("deep/er/c.sst", b"")
    backups.add_file("same size", b"11")
    first = backups.backup()
    assert (first["kind"], first["parent"], first["copied"], first["files"]) == ("full", None, 5, 5)
    assert backups.contents() == backups.truth()

    backups.add_file("CURRENT", b"1")
    backups.add_file("b.sst", b"bbb")
    backups.add_file("same size", b"22", ms=1_600_000_000_001)
    backups.add_file("d.sst", b"d")
    (backups.tree / "a.sst").unlink()
    second = backups.backup()
    assert (second["kind"], second["parent"]) == ("differential", first["backup_id"])
    counts = {name: second[name] for name in ("copied", "new", "changed", "again", "unchanged", "gone")}
    assert counts == {"copied": 4, "new": 1, "changed": 2, "again": 1, "unchanged": 1, "gone": 1}
    assert backups.contents() == backups.truth()
    (unchanged,) = [row for row in backups.rows() if row["name"] == "deep/er/c.sst"]
    # Its ctime was too new at the first backup, so the second has a row of it, which refers to the same
    # bytes.
    assert first["backup_id"] in unchanged["path"]

    (row,) = backups.rows(f"SELECT * FROM backups WHERE backup_id = '{second['backup_id']}'")
    assert (row["source_kind"], row["base"], row["place"], row["parent_place"]) == (
        SNAPSHOT, second["backup_id"], 2, None,
    )  # fmt: skip
    assert not [path for path in backups.objects() if {"plan", "progress"} & set(path.split("/"))]

    third = backups.backup(mode="full")
    assert (third["kind"], third["parent"], third["copied"]) == ("full", None, 5)
    assert {row["added_in"] for row in backups.rows()} == {3}
    assert backups.contents() == backups.truth()


@pytest.mark.parametrize("way", mark_long(WAYS, ["here"]), indirect=True)
def test_many_small_files_are_packed_and_hard_links_are_copied_once(
    backups: SnapshotBackups, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_task, "PACK_BYTES", 3_000)
    for number in range(300):
        backups.add_file(f"{number % 7}/f{number:03d}", os.urandom(number))
    for name in ("0/link", "other/link"):
        (backups.tree / name).parent.mkdir(exist_ok=True)
        os.link(backups.tree / "3/f003", backups.tree / name)
    backups.add_file("large", os.urandom(2 << 20))
    result = backups.backup()
    assert (result["files"], result["copied"]) == (303, 301)
    assert backups.contents() == backups.truth()
    links = [row for row in backups.rows() if row["links"] == 3]
    assert len(links) == 3
    assert len({(row["path"], row["position"]) for row in links}) == 1
    files = backups.rows("SELECT path, format, entries, bytes FROM files WHERE format IN ('file', 'pack')")
    assert [row["bytes"] for row in files if row["format"] == "file"] == [2 << 20]
    packs = [row for row in files if row["format"] == "pack"]
    assert (
        len(packs) > 10 or way == "tasks"
    )  # Spark's tasks are other processes, in which the size is not patched
    assert sum(row["entries"] for row in packs) == 300


def test_an_interrupted_prune_must_be_finished_before_a_backup(backups: SnapshotBackups) -> None:
    backups.add_file("a", b"a")
    backups.backup()
    storage = open_storage(str(backups.destination))
    prune_id = layout.new_backup_id(datetime.now(UTC))
    chunk = tombstones.Chunk(layout.removals_path(prune_id, 0, "00000000"), 1, 1, "00")
    prune = tombstones.Prune(prune_id, 0, "me", "db", "{}", (), (chunk,))
    tombstones.write_prune(storage, replace(prune, source="other"))
    backups.backup()
    storage.delete(layout.prune_path(prune_id))
    tombstones.write_prune(storage, prune)
    with pytest.raises(Refused, match=prune_id) as caught:
        backups.backup()
    assert "prune --delete" in caught.value.hint
    tombstones.finish(storage, prune_id)
    backups.backup()


def test_snapshots_in_the_tree_of_a_database(backups: SnapshotBackups) -> None:
    for number, snapshot in enumerate(["s1", "s2", "s3"]):
        for tablet in ("a", "b"):
            folder = f"table-t1/tablet-{tablet}.snapshots/{snapshot}"
            backups.add_file(f"{folder}/CURRENT", b"1")
            backups.add_file(f"{folder}/00001.sst", b"one")
            backups.add_file(f"{folder}/intents/0000{number}.sst", b"i")
            mtime = 1_600_000_000 + number
            os.utime(backups.tree / folder, (mtime, mtime))
        backups.add_file("table-t1/tablet-a/live.sst", b"not of a snapshot")
    tree: dict[str, Any] = {"layout": "yugabyte", "taken_at": None}
    first = backups.backup(**tree, snapshots=("s1",))
    assert (first["snapshot"], first["end_ts"], first["copied"]) == ("s1", 1_600_000_000_000, 6)
    dry_run = backups.backup(**tree, everything=True, dry_run=True)
    assert (dry_run["snapshots"], dry_run["copied"], dry_run["unchanged"]) == (["s2", "s3"], 4, 2)
    result = backups.backup(**tree, everything=True)
    assert [(backup["snapshot"], backup["copied"], backup["gone"]) for backup in result["backups"]] == [
        ("s2", 4, 2), ("s3", 4, 2),
    ]  # fmt: skip
    assert backups.backup(**tree, everything=True) == {"source": "db", "backups": []}
    assert {(row["scope"], row["region"]) for row in backups.rows()} == {("t1", "a"), ("t1", "b")}
    (scope,) = backups.rows("SELECT scope, regions, COUNT(*) AS backups FROM scopes GROUP BY scope, regions")
    assert scope == {"scope": "t1", "regions": 2, "backups": 3}
    with pytest.raises(UsageProblem, match=r"Snapshot s2 is of 2020-.* hold one of 2020-"):
        backups.backup(**tree, snapshots=("s2",))
    with pytest.raises(NotFound, match="no snapshot s9"):
        backups.backup(**tree, snapshots=("s9",))


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_hashes_find_hidden_changes_and_stored_files(backups: SnapshotBackups, way: str) -> None:
    backups.add_file("a", b"one")
    backups.add_file("b", b"two")
    backups.add_file("CURRENT", b"two")
    backups.backup()
    backups.add_file("a", b"eno")
    backups.add_file("moved", b"two", ms=1_600_000_000_007)
    backups.add_file("other", b"six")
    (backups.tree / "b").unlink()
    result = backups.backup(verify_unchanged=True, find_same=True, trust_mtime=True)
    # a and other are copied, and CURRENT always is.
    assert (result["copied"], result["new"], result["gone"], result["unchanged"]) == (3, 2, 1, 0)
    assert f"{backups.tree}/a has the size and time of the stored file" in backups.warnings.getvalue()
    rows = {row["name"]: row for row in backups.rows()}
    assert (rows["moved"]["added_in"], rows["moved"]["mtime_ms"]) == (2, 1_600_000_000_007)
    assert rows["moved"]["backup_id"] not in rows["moved"]["path"]
    assert backups.contents() == backups.truth()


def test_size_and_time_are_enough_with_trust_mtime(backups: SnapshotBackups) -> None:
    backups.add_file("a", b"one")
    backups.backup()
    backups.add_file("a", b"eno")
    backups.add_file("b", b"one")
    result = backups.backup(trust_mtime=True)
    assert (result["copied"], result["unchanged"]) == (1, 1)
    assert backups.contents() == {"a": b"one", "b": b"one"}


def test_sidecar_files_are_backed_up_with_a_snapshot(backups: SnapshotBackups, tmp_path: Path) -> None:
    backups.add_file("a", b"a")
    dump = tmp_path / "YSQLDump"
    dump.write_bytes(b"create table")
    backups.backup(sidecars=(("schema", str(dump)),))
    (row,) = backups.rows("SELECT * FROM snapshot_files WHERE role = 'schema'")
    assert (row["scope"], row["region"], row["name"], row["bytes"]) == ("-", "-", "YSQLDump", 12)
    assert backups.backup(sidecars=(("schema", str(dump)),))["unchanged"] == 2


def test_files_that_cannot_be_backed_up_are_refused_by_name(backups: SnapshotBackups, tmp_path: Path) -> None:
    backups.add_file("a", b"a")
    (backups.tree / "link").symlink_to("a")
    with pytest.raises(Refused, match=r"tree/link is a symbolic link"):
        backups.backup()
    (backups.tree / "link").unlink()
    os.mkfifo(backups.tree / "pipe")
    with pytest.raises(Refused, match=r"tree/pipe is a pipe"):
        backups.backup()
    (backups.tree / "pipe").unlink()
    Path(os.fsdecode(os.fsencode(backups.tree) + b"/\xff")).write_bytes(b"")
    with pytest.raises(Refused, match="is not UTF-8"):
        backups.backup()
    assert backups.rows() == []
    assert backups.objects() == set()
    with pytest.raises(NotFound, match="no folder"):
        backups.backup(paths=(str(tmp_path / "nowhere"),))
    with pytest.raises(NotFound, match="fits table-"):
        backups.backup(layout="yugabyte")


def test_a_file_that_changes_during_a_backup_fails_it(
    backups: SnapshotBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups.add_file("a", b"a")
    backups.add_file("b", b"b" * 3000)
    backups.backup()
    backups.add_file("c", b"c" * 3000)
    file, objects_before = backups.tree / "d", backups.objects()
    changes: dict[str, Callable[[], object]] = {
        "grows": lambda: backups.add_file("d", b"d" * 3001),
        "is touched": lambda: os.utime(file),
        "is replaced": lambda: backups.add_file("e", b"e" * 3000).rename(file),
        "vanishes": file.unlink,
        "becomes a link": lambda: (file.unlink(), file.symlink_to("b")),
    }
    for description, change in changes.items():
        backups.add_file("d", b"d" * 3000)
        with monkeypatch.context() as patch:
            patch.setattr(PlanShares, "batches", _with_action_before(PlanShares.batches, change))
            with pytest.raises(Refused, match=r"tree/d (changed|was there|is a symbolic link)"):
                backups.backup()
        assert len(backups.rows()) == 2, description
        assert backups.objects() == objects_before, description
    file.unlink()
    backups.backup()
    assert backups.contents() == backups.truth()


def _with_action_before(function: Callable[..., Any], action: Callable[[], object]) -> Callable[..., Any]:
    def wrapped(*values: Any) -> Any:
        action()
        return function(*values)

    return wrapped


def test_bandwidth_is_limited(backups: SnapshotBackups) -> None:
    backups.add_file("a", os.urandom(3 << 19))
    result = backups.backup(bandwidth=4 << 20)
    assert result["seconds"] >= 0.25
    assert backups.contents() == backups.truth()


def test_a_dry_run_writes_nothing(backups: SnapshotBackups) -> None:
    backups.add_file("a", b"aa")
    backups.add_file("b", b"b")
    paths_before = sorted(backups.destination.rglob("*"))
    assert backups.backup(dry_run=True)["copied_bytes"] == 3
    assert sorted(backups.destination.rglob("*")) == paths_before
    shutil.rmtree(backups.destination)
    assert backups.backup(dry_run=True)["copied"] == 2
    assert not backups.destination.exists()


def test_the_manifest_for_other_tools_is_written_beside_the_backup(
    backups: SnapshotBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups.add_file("a", b"aa")

    def failing(*_: object) -> str:
        raise EnvironmentProblem("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(backup_snapshot, "export_manifest", failing)
        assert backups.backup()["copied"] == 1
    assert "the manifest for other tools could not be written beside backup" in backups.warnings.getvalue()
    result = backups.backup()
    (path,) = [path for path in backups.objects() if Path(path).match("manifest-*.json")]
    manifest = json.loads(open_storage(str(backups.destination)).get(path))
    assert manifest["tree"]["-"]["a"]["size"] == 2
    assert result["backup_id"] in path


@pytest.mark.parametrize("way", ["tasks"], indirect=True)
def test_compressed_files_outlive_a_rebuild_and_an_import_and_are_restored_by_tasks(
    backups: SnapshotBackups, way: str, tmp_path: Path
) -> None:
    """The rows of a rebuilt or imported catalog say how each file is stored, in packs and alone."""
    assert way == "tasks"
    first_ms = backups.next_ms
    text = b"".join(b"%d: ten green bottles\n" % number for number in range(3000))
    for number in range(90):
        backups.add_file(f"d/{number}", text[:1000] + b"%d" % number if number % 2 else os.urandom(900))
    backups.add_file("large", text * 20)
    backups.backup(codec="none")
    backups.add_file("text", text)
    assert backups.backup(runner="spark")["copied"] == 1
    backups.backup(runner="spark", mode="full")
    rows = backups.rows()
    assert {row["codec"] for row in rows if row["path"].endswith(".pack")} == {"none", "zstd"}
    shutil.rmtree(backups.destination / "catalog")
    assert backups.spark
    assert rebuild(backups.spark, str(backups.destination)).problems == []
    assert backups.rows() == rows
    exported = open_storage(str(tmp_path / "exported"))
    export(CatalogReader(str(backups.destination)), exported, "jsonl", lambda *_: None)
    shutil.rmtree(backups.destination / "catalog")
    import_request = ImportRequest(str(backups.destination), folder=exported.uri)
    import_catalog(import_request, spark=backups.spark, reporter=quiet())
    assert backups.rows() == rows
    assert backups.contents() == backups.truth()
    for number, options in enumerate(({}, {"to_ts": first_ms})):
        request = SnapshotRestoreRequest(
            str(backups.destination), str(tmp_path / f"out{number}"), source="db", form="flat",
            runner="spark", **options,
        )  # fmt: skip
        restore_snapshot(request, spark=backups.spark, reporter=quiet())
    truth = backups.truth()
    for number, names in enumerate((truth.keys(), truth.keys() - {"text"})):
        folder = tmp_path / f"out{number}"
        assert {name: (folder / name).read_bytes() for name in names} == {n: truth[n] for n in names}
    request = VerifyRequest(str(backups.destination), mode="decode", runner="spark")
    report = verify(request, spark=backups.spark, reporter=quiet())
    assert not any(report[name] for name in ("damaged", "changed", "missing", "orphan"))
