"""Backups of snapshots: what is copied, what is referred to, what is refused."""

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
from tests.support.chosen import chosen
from tests.support.looks import seen

from lakebackup.errors import EnvironmentProblem, NotFound, Refused, UsageProblem
from lakebackup.plan.snapshots import backup as plan
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import compare
from lakebackup_jobs.snapshots.backup import SnapshotRequest
from lakebackup_jobs.snapshots.tasks import copy as copy_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
HOUR = 3_600_000


class Place:
    """A tree to back up and a destination for it."""

    def __init__(self, folder: Path, empty_catalog: Path) -> None:
        self.tree, self.destination = folder / "tree", folder / "backups"
        self.spark: SparkSession | None = None  # a backup that needs none has none
        shutil.copytree(empty_catalog, self.destination / "catalog")
        self.tree.mkdir()
        self.warnings = io.StringIO()
        self._at = 1_700_000_000_000

    def put(self, name: str, content: bytes, *, ms: int = 1_600_000_000_000) -> Path:
        file = self.tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, ns=(ms * 1_000_000, ms * 1_000_000))
        return file

    def backup(self, **changes: Any) -> dict[str, Any]:
        self._at += HOUR
        asked: dict[str, Any] = {
            "destination": str(self.destination),
            "paths": (str(self.tree),),
            "source": "db",
            "taken_at": self._at,
            **changes,
        }
        reporter = Reporter(io.StringIO(), self.warnings)
        return backup_snapshot.run(SnapshotRequest(**asked), spark=self.spark, reporter=reporter)

    def rows(
        self, select: str = "SELECT * FROM snapshot_files WHERE gone_in IS NULL"
    ) -> list[dict[str, Any]]:
        return seen(self.destination, select)

    def contents(self) -> dict[str, bytes]:
        """The live files, as the destination has them."""
        storage = open_storage(str(self.destination))
        return {
            row["name"]: storage.get(row["path"], start=row["position"], length=row["bytes"])
            for row in self.rows()
        }

    def truth(self) -> dict[str, bytes]:
        files = [file for file in self.tree.rglob("*") if file.is_file()]
        return {str(file.relative_to(self.tree)): file.read_bytes() for file in files}

    def objects(self) -> set[str]:
        return {found.path for found in open_storage(str(self.destination)).list("db/")}


@pytest.fixture
def place(tmp_path: Path, empty_catalog: Path) -> Place:
    return Place(tmp_path, empty_catalog)


WAYS = ["here", "tasks"]


@pytest.fixture
def way(request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to list, compare and copy: in this process, and in tasks of Spark's."""
    if request.param == "tasks":
        place.spark = request.getfixturevalue("spark")
        monkeypatch.setattr(compare, "HERE", 0)
        monkeypatch.setattr(compare, "_HASHED_HERE", 0)
        monkeypatch.setattr(plan, "_ONE_TASK", 0)
    return str(request.param)


@pytest.mark.parametrize("way", chosen(WAYS, ["here"]), indirect=True)
def test_what_is_new_and_changed_is_copied_and_the_rest_is_referred_to(place: Place, way: str) -> None:
    place.put("CURRENT", b"1")
    place.put("a.sst", b"aa")
    place.put("b.sst", b"bb")
    place.put("deep/er/c.sst", b"")
    place.put("same size", b"11")
    first = place.backup()
    assert (first["kind"], first["parent"], first["copied"], first["files"]) == ("full", None, 5, 5)
    assert place.contents() == place.truth()

    place.put("CURRENT", b"1")
    place.put("b.sst", b"bbb")
    place.put("same size", b"22", ms=1_600_000_000_001)
    place.put("d.sst", b"d")
    (place.tree / "a.sst").unlink()
    second = place.backup()
    assert (second["kind"], second["parent"]) == ("differential", first["backup_id"])
    counts = {name: second[name] for name in ("copied", "new", "changed", "again", "unchanged", "gone")}
    assert counts == {"copied": 4, "new": 1, "changed": 2, "again": 1, "unchanged": 1, "gone": 1}
    assert place.contents() == place.truth()
    (unchanged,) = [row for row in place.rows() if row["name"] == "deep/er/c.sst"]
    # Where its ctime was too new for the first, it has a row of the second, which refers to the same bytes.
    assert first["backup_id"] in unchanged["path"]

    (row,) = place.rows(f"SELECT * FROM backups WHERE backup_id = '{second['backup_id']}'")
    assert (row["source_kind"], row["base"], row["place"], row["parent_place"]) == (
        SNAPSHOT, second["backup_id"], 2, None,
    )  # fmt: skip
    assert not [path for path in place.objects() if {"work", "progress"} & set(path.split("/"))]

    third = place.backup(mode="full")
    assert (third["kind"], third["parent"], third["copied"]) == ("full", None, 5)
    assert {row["added_in"] for row in place.rows()} == {3}
    assert place.contents() == place.truth()


@pytest.mark.parametrize("way", chosen(WAYS, ["here"]), indirect=True)
def test_many_small_files_are_packed_and_hard_links_are_copied_once(
    place: Place, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_task, "PACK_BYTES", 3_000)
    for number in range(300):
        place.put(f"{number % 7}/f{number:03d}", os.urandom(number))
    for name in ("0/link", "other/link"):
        (place.tree / name).parent.mkdir(exist_ok=True)
        os.link(place.tree / "3/f003", place.tree / name)
    place.put("large", os.urandom(2 << 20))
    made = place.backup()
    assert (made["files"], made["copied"]) == (303, 301)
    assert place.contents() == place.truth()
    links = [row for row in place.rows() if row["links"] == 3]
    assert len(links) == 3
    assert len({(row["path"], row["position"]) for row in links}) == 1
    files = place.rows("SELECT path, format, entries, bytes FROM files WHERE format IN ('file', 'pack')")
    assert [row["bytes"] for row in files if row["format"] == "file"] == [2 << 20]
    packs = [row for row in files if row["format"] == "pack"]
    assert len(packs) > 10 or way == "tasks"  # those are other processes, with the size as it is
    assert sum(row["entries"] for row in packs) == 300


def test_a_prune_that_was_cut_off_before_the_catalog_knew_of_it_is_ended_first(place: Place) -> None:
    place.put("a", b"a")
    place.backup()
    storage = open_storage(str(place.destination))
    prune_id = layout.new_backup_id(datetime.now(UTC))
    chunk = tombstones.Chunk(layout.removals_path(prune_id, 0, "00000000"), 1, 1, "00")
    prune = tombstones.Prune(prune_id, 0, "me", "db", "{}", (), (chunk,))
    tombstones.write_prune(storage, replace(prune, source="other"))
    place.backup()
    storage.delete(layout.prune_path(prune_id))
    tombstones.write_prune(storage, prune)
    with pytest.raises(Refused, match=prune_id) as caught:
        place.backup()
    assert "prune --delete" in caught.value.hint
    tombstones.finish(storage, prune_id)
    place.backup()


def test_the_tree_of_a_database(place: Place) -> None:
    for number, snapshot in enumerate(["s1", "s2", "s3"]):
        for tablet in ("a", "b"):
            folder = f"table-t1/tablet-{tablet}.snapshots/{snapshot}"
            place.put(f"{folder}/CURRENT", b"1")
            place.put(f"{folder}/00001.sst", b"one")
            place.put(f"{folder}/intents/0000{number}.sst", b"i")
            at = 1_600_000_000 + number
            os.utime(place.tree / folder, (at, at))
        place.put("table-t1/tablet-a/live.sst", b"not of a snapshot")
    tree: dict[str, Any] = {"layout": "yugabyte", "taken_at": None}
    first = place.backup(**tree, snapshots=("s1",))
    assert (first["snapshot"], first["end_ts"], first["copied"]) == ("s1", 1_600_000_000_000, 6)
    foreseen = place.backup(**tree, everything=True, dry_run=True)
    assert (foreseen["snapshots"], foreseen["copied"], foreseen["unchanged"]) == (["s2", "s3"], 4, 2)
    rest = place.backup(**tree, everything=True)
    assert [(one["snapshot"], one["copied"], one["gone"]) for one in rest["backups"]] == [
        ("s2", 4, 2), ("s3", 4, 2),
    ]  # fmt: skip
    assert place.backup(**tree, everything=True) == {"source": "db", "backups": []}
    assert {(row["scope"], row["region"]) for row in place.rows()} == {("t1", "a"), ("t1", "b")}
    (scope,) = place.rows("SELECT scope, regions, COUNT(*) AS backups FROM scopes GROUP BY scope, regions")
    assert scope == {"scope": "t1", "regions": 2, "backups": 3}
    with pytest.raises(UsageProblem, match=r"Snapshot s2 is of 2020-.* hold one of 2020-"):
        place.backup(**tree, snapshots=("s2",))
    with pytest.raises(NotFound, match="no snapshot s9"):
        place.backup(**tree, snapshots=("s9",))


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_a_hash_tells_what_changed_unseen_and_what_is_stored_already(place: Place, way: str) -> None:
    place.put("a", b"one")
    place.put("b", b"two")
    place.put("CURRENT", b"two")
    place.backup()
    place.put("a", b"eno")
    place.put("moved", b"two", ms=1_600_000_000_007)
    place.put("other", b"six")
    (place.tree / "b").unlink()
    made = place.backup(verify_unchanged=True, find_same=True, trust_mtime=True)
    # a, other, and CURRENT as ever.
    assert (made["copied"], made["new"], made["gone"], made["unchanged"]) == (3, 2, 1, 0)
    assert f"{place.tree}/a has the size and time of the stored file" in place.warnings.getvalue()
    rows = {row["name"]: row for row in place.rows()}
    assert (rows["moved"]["added_in"], rows["moved"]["mtime_ms"]) == (2, 1_600_000_000_007)
    assert rows["moved"]["backup_id"] not in rows["moved"]["path"]
    assert place.contents() == place.truth()


def test_size_and_time_are_enough_with_trust_mtime(place: Place) -> None:
    place.put("a", b"one")
    place.backup()
    place.put("a", b"eno")
    place.put("b", b"one")
    made = place.backup(trust_mtime=True)
    assert (made["copied"], made["unchanged"]) == (1, 1)
    assert place.contents() == {"a": b"one", "b": b"one"}


def test_files_beside_a_snapshot_go_with_it(place: Place, tmp_path: Path) -> None:
    place.put("a", b"a")
    dump = tmp_path / "YSQLDump"
    dump.write_bytes(b"create table")
    place.backup(sidecars=(("schema", str(dump)),))
    (row,) = place.rows("SELECT * FROM snapshot_files WHERE role = 'schema'")
    assert (row["scope"], row["region"], row["name"], row["bytes"]) == ("-", "-", "YSQLDump", 12)
    assert place.backup(sidecars=(("schema", str(dump)),))["unchanged"] == 2


def test_what_cannot_be_backed_up_is_refused_by_name(place: Place, tmp_path: Path) -> None:
    place.put("a", b"a")
    (place.tree / "link").symlink_to("a")
    with pytest.raises(Refused, match=r"tree/link is a symbolic link"):
        place.backup()
    (place.tree / "link").unlink()
    os.mkfifo(place.tree / "pipe")
    with pytest.raises(Refused, match=r"tree/pipe is a pipe"):
        place.backup()
    (place.tree / "pipe").unlink()
    Path(os.fsdecode(os.fsencode(place.tree) + b"/\xff")).write_bytes(b"")
    with pytest.raises(Refused, match="is not UTF-8"):
        place.backup()
    assert place.rows() == []
    assert place.objects() == set()
    with pytest.raises(NotFound, match="no folder"):
        place.backup(paths=(str(tmp_path / "nowhere"),))
    with pytest.raises(NotFound, match="fits table-"):
        place.backup(layout="yugabyte")


def test_a_file_that_changes_meanwhile_fails_the_backup(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.put("a", b"a")
    place.put("b", b"b" * 3000)
    place.backup()
    place.put("c", b"c" * 3000)
    file, before = place.tree / "d", place.objects()
    changes: dict[str, Callable[[], object]] = {
        "grows": lambda: place.put("d", b"d" * 3001),
        "is touched": lambda: os.utime(file),
        "is replaced": lambda: place.put("e", b"e" * 3000).rename(file),
        "vanishes": file.unlink,
        "becomes a link": lambda: (file.unlink(), file.symlink_to("b")),
    }
    for what, change in changes.items():
        place.put("d", b"d" * 3000)
        with monkeypatch.context() as patch:
            patch.setattr(copy_task, "read_rows", _before(copy_task.read_rows, change))
            with pytest.raises(Refused, match=r"tree/d (changed|was there|is a symbolic link)"):
                place.backup()
        assert len(place.rows()) == 2, what
        assert place.objects() == before, what
    file.unlink()
    place.backup()
    assert place.contents() == place.truth()


def _before(function: Callable[..., Any], act: Callable[[], object]) -> Callable[..., Any]:
    def wrapped(*values: Any) -> Any:
        act()
        return function(*values)

    return wrapped


def test_no_faster_than_allowed(place: Place) -> None:
    place.put("a", os.urandom(3 << 19))
    made = place.backup(bandwidth=4 << 20)
    assert made["seconds"] >= 0.25
    assert place.contents() == place.truth()


def test_a_dry_run_writes_nothing(place: Place) -> None:
    place.put("a", b"aa")
    place.put("b", b"b")
    before = sorted(place.destination.rglob("*"))
    assert place.backup(dry_run=True)["copied_bytes"] == 3
    assert sorted(place.destination.rglob("*")) == before
    shutil.rmtree(place.destination)
    assert place.backup(dry_run=True)["copied"] == 2
    assert not place.destination.exists()


def test_the_manifest_for_other_tools_is_beside_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put("a", b"aa")

    def failing(*_: object) -> str:
        raise EnvironmentProblem("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(backup_snapshot, "export_manifest", failing)
        assert place.backup()["copied"] == 1
    assert "the manifest for other tools could not be written beside backup" in place.warnings.getvalue()
    made = place.backup()
    (path,) = [path for path in place.objects() if Path(path).match("manifest-*.json")]
    told = json.loads(open_storage(str(place.destination)).get(path))
    assert told["tree"]["-"]["a"]["size"] == 2
    assert made["backup_id"] in path
