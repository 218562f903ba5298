"""Archives taken in, asked with SQL, restored and written; a chain of topics as an archive and back."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.archives import Doc, read_archive, touch, write_backup, write_cbb
from tests.support.catalogs import backup_id
from tests.support.command_line import quiet
from tests.support.looks import seen
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import Busy, Damaged, NotFound, Refused, UsageProblem
from lakebackup.plan.topics.request import only_source
from lakebackup.requests import Request
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.archives import export as archive_export
from lakebackup_jobs.archives import import_archive as archive_import
from lakebackup_jobs.archives import restore as archive_restore
from lakebackup_jobs.archives.export import ArchiveExportRequest
from lakebackup_jobs.archives.import_archive import ArchiveImportRequest
from lakebackup_jobs.archives.restore import ArchiveRestoreRequest
from lakebackup_jobs.lifecycle.atomic_dir import Staged
from lakebackup_jobs.lifecycle.deletion.lock import recorded_restore
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.upkeep import prune, verify
from lakebackup_jobs.upkeep.prune import PruneRequest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FULL, MONDAY, TUESDAY, WEDNESDAY = (f"2014-02-0{day}T020000Z" for day in (2, 3, 4, 5))


class Desk:
    """A destination that archives go into and come out of."""

    def __init__(self, spark: SparkSession, tmp_path: Path, empty_catalog: Path) -> None:
        self.spark, self.at, self.tmp = spark, tmp_path / "backups", tmp_path
        shutil.copytree(empty_catalog, self.at / "catalog")

    def take(self, archive: Path, **asked: Any) -> dict[str, Any]:
        request = ArchiveImportRequest(**{"destination": str(self.at), "folder": str(archive), **asked})
        return archive_import.run(request, spark=self.spark, reporter=quiet())

    def restore(self, what: str | None = None, **asked: Any) -> tuple[dict[str, Any], Path]:
        folder = self.tmp / f"documents-{len(list(self.tmp.iterdir()))}"
        request = ArchiveRestoreRequest(
            **{"destination": str(self.at), "folder": str(folder), "what": what, **asked}
        )
        return archive_restore.run(request, spark=self.spark, reporter=quiet()), folder

    def export(self, what: str | None = None, **asked: Any) -> tuple[dict[str, Any], Path]:
        return export(self.spark, self.at, self.tmp, what, **asked)

    def ask(self, sql: str) -> list[dict[str, Any]]:
        return seen(self.at, sql)


def export(
    spark: SparkSession, at: Path, tmp: Path, what: str | None = None, **asked: Any
) -> tuple[dict[str, Any], Path]:
    folder = tmp / f"archive-{len(list(tmp.iterdir()))}"
    request = ArchiveExportRequest(**{"destination": str(at), "folder": str(folder), "what": what, **asked})
    return archive_export.run(request, spark=spark, reporter=quiet()), folder


@pytest.fixture
def desk(spark: SparkSession, tmp_path: Path, empty_catalog: Path) -> Desk:
    return Desk(spark, tmp_path, empty_catalog)


def documents(folder: Path, bucket: str = "default") -> dict[str, Any]:
    lines = [
        json.loads(line)
        for path in sorted((folder / f"bucket-{bucket}").glob("docs-*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert len({row["key"] for row in lines}) == len(lines)
    return {row["key"]: row["value"] for row in lines}


def week(root: Path) -> None:
    """A full backup, a differential one, a cumulative one that stands in for it, a differential one."""
    write_backup(
        root, FULL, "full", [Doc(b"a", b"1", 1), Doc(b"b", b"1", 2), Doc(b"x", b"1", 1, vbucket=7)],
        design='{"v": 1}', user="eve", retention_policy="14 days",
    )  # fmt: skip
    write_backup(root, FULL, "full", [Doc(b"z", b'{"n": 1}', 1)], bucket="other", user="eve")
    write_backup(root, MONDAY, "diff", [Doc(b"a", b"2", 3)], chain=FULL, design='{"v": 2}')
    write_backup(root, TUESDAY, "accu", [Doc(b"a", b"2", 3), Doc(b"c", b"1", 4)], chain=FULL)
    write_backup(root, WEDNESDAY, "diff", [Doc(b"b", None, 5), Doc(b"a", b"3", 6)], chain=FULL)


def test_an_archive_is_taken_in_asked_with_sql_restored_and_written_again(desk: Desk, tmp_path: Path) -> None:
    week(tmp_path / "archive")
    planned = desk.take(tmp_path / "archive", source="shop", dry_run=True)
    assert (planned["dry_run"], planned["imported"], desk.ask("SELECT * FROM backups")) == (True, 4, [])
    done = desk.take(tmp_path / "archive", source="shop")
    assert (done["imported"], done["known"], done["entries"]) == (4, 0, 9)
    assert desk.take(tmp_path / "archive", source="shop")["imported"] == 0

    rows = desk.ask("SELECT kind, level, created_by, note, intact FROM backups ORDER BY number")
    assert [(r["kind"], r["level"], r["created_by"], r["intact"]) for r in rows] == [
        ("full", 0, "eve", True), ("differential", 1, "", True), ("cumulative", 1, "", True),
        ("differential", 1, "", True),
    ]  # fmt: skip
    (said,) = desk.ask(
        "SELECT get_json_object(note, '$.buckets.default.retention_policy') AS policy FROM backups "
        "WHERE number = 1"
    )
    assert said == {"policy": "14 days"}
    held = desk.ask(
        "SELECT start_position, end_position FROM positions "
        "WHERE scope = 'default' AND region = '0' ORDER BY ts"
    )
    assert [tuple(row.values()) for row in held] == [(0, 3), (3, 4), (3, 5), (5, 7)]
    with pytest.raises(Refused, match="made by another program"):
        only_source(CatalogReader.require(str(desk.at)), "shop")
    whole = verify.run(verify.VerifyRequest(str(desk.at)), spark=desk.spark, reporter=quiet())
    assert whole["ok"] >= 4 * 3 + 2, "three files beside each node, and designs"
    assert (whole["missing"], whole["changed"], whole["damaged"], whole["orphan"]) == (0, 0, 0, 0)

    dry, _ = desk.restore("shop", dry_run=True)
    assert [b["kind"] for b in dry["backups"]] == ["full", "cumulative", "differential"]
    done, folder = desk.restore("shop")
    assert documents(folder) == {"a": 3, "c": 1, "x": 1}
    assert documents(folder, "other") == {"z": {"n": 1}}
    assert (folder / "bucket-default" / "design.json").read_text() == '{"v": 1}', (
        "Monday's is not needed any more"
    )
    assert done["documents"] == 4
    assert desk.ask("SELECT state, entries FROM restores") == [{"state": "complete", "entries": 4}]
    _, folder = desk.restore(to_ts=done["backups"][0]["end_ts"] + 86_400_000, buckets=("default",))
    assert documents(folder) == {"a": 2, "b": 1, "x": 1}
    assert json.loads((folder / "bucket-default" / "design.json").read_text()) == {"v": 2}
    _, folder = desk.restore(from_ts=done["backups"][0]["end_ts"])
    assert documents(folder) == {"a": 3, "c": 1}

    told, out = desk.export("shop")
    assert told["files"] == 4 * 3 + 1, "three files beside each node, and one design"
    found = read_archive(out)
    assert found.modes == ["full", "accu", "diff"]
    assert {key: doc[0] for (_, key), doc in found.docs["default"].items()} == {
        b"a": b"3",
        b"c": b"1",
        b"x": b"1",
    }
    assert found.designs == {"bucket-default": '{"v": 1}'}


@pytest.mark.long
def test_what_no_restore_takes_any_more_is_pruned_whole(desk: Desk, tmp_path: Path) -> None:
    week(tmp_path / "archive")
    desk.take(tmp_path / "archive", source="shop")
    request = prune.PruneRequest(str(desk.at), days=7, delete=True)
    done = prune.run(request, spark=desk.spark, reporter=quiet())
    states = desk.ask("SELECT state FROM backups ORDER BY number")
    assert [row["state"] for row in states] == ["complete", "deleted", "complete", "complete"]
    (gone,) = done["backups"]
    assert (gone["kind"], gone["reason"], done["files"]) == ("differential", "superseded", gone["files"])
    gone_files = desk.ask(f"SELECT path FROM removals WHERE backup_id = '{gone['backup_id']}'")
    assert len(gone_files) == gone["files"] > 0
    assert not [row["path"] for row in gone_files if (desk.at / row["path"]).exists()]
    assert documents(desk.restore("shop")[1]) == {"a": 3, "c": 1, "x": 1}


def test_the_older_layout_is_restored_whole_or_not_at_all(desk: Desk, tmp_path: Path) -> None:
    root = tmp_path / "old"
    path = write_cbb(root / "bucket-b" / "node-n" / "data-0000.cbb", [Doc(b"a", b"1"), Doc(b"a", b"2")], 2004)
    write_cbb(root / "bucket-b" / "node-n" / "data-0001.cbb", [Doc(b"b", b"1"), Doc(b"c", None)], 2004)
    (root / "bucket-b" / "design.json").write_text("[]")
    touch(path, 1_390_000_000)
    assert desk.take(root)["imported"] == 1
    touch(path, 1_400_000_000)
    assert (desk.take(root)["imported"], desk.ask("SELECT * FROM positions")) == (0, [])
    for asked in ({"to_ts": 2**42}, {"from_ts": 0}):
        with pytest.raises(Refused, match="restored whole"):
            desk.restore(**asked)
    assert documents(desk.restore()[1], "b") == {"a": 2, "b": 1}
    _, out = desk.export()
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()) == [
        "bucket-b/design.json", "bucket-b/node-n/data-0000.cbb", "bucket-b/node-n/data-0001.cbb",
    ]  # fmt: skip


def test_nothing_is_written_of_an_archive_that_is_not_whole(desk: Desk, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    week(root)
    path = next(root.glob(f"*/{WEDNESDAY}-diff/*/*/data-0000.cbb"))
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(Damaged, match=WEDNESDAY):
        desk.take(root)
    assert sorted(found.name for found in desk.at.iterdir()) == ["catalog"]
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageProblem, match="symbolic link"):
        desk.take(root)
    path.unlink()
    desk.take(root)
    stored = next((desk.at / "shop" / "archive").rglob("data-0000.cbb"))
    content = stored.read_bytes()
    stored.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for again in (desk.restore, desk.export):
        with pytest.raises(Damaged, match="SHA-256"):
            again()


# --- topics


@pytest.fixture
def topics(tmp_path: Path) -> MadeBackups:
    made = MadeBackups(tmp_path / "backups")
    made.backup(
        [[Record(0, n, 10 + n, b"k%d" % n, b"v%d" % n) for n in range(5)], [Record(1, 0, 9, b"z", b"1")]]
    )
    made.backup([[Record(0, 5, 20, b"k1", None), Record(0, 8, 21, b"k2", b"w", (("h", b"1"),))]])
    made.backup([[Record(1, 1, 30, None, b"no key")]])
    made.flush()
    return made


def test_a_chain_of_topics_is_an_archive(spark: SparkSession, topics: MadeBackups, tmp_path: Path) -> None:
    told, out = export(spark, topics.folder, tmp_path, target_bytes=1)
    assert (told["entries"], told["without_key"], told["without_headers"]) == (9, 1, 1)
    found = read_archive(out)
    assert found.modes == ["full", "diff", "diff"]
    assert {place: doc[:2] for place, doc in found.docs["orders"].items()} == {
        (0, b"k0"): (b"v0", 10_000_000), (0, b"k2"): (b"w", 21_000_000), (0, b"k3"): (b"v3", 13_000_000),
        (0, b"k4"): (b"v4", 14_000_000), (1, b"z"): (b"1", 9_000_000), (1, b"1-1"): (b"no key", 30_000_000),
    }  # fmt: skip
    assert len(list(out.glob("*/*-full/bucket-orders/node-prod/data-*.cbb"))) == 2
    meta = [json.loads(path.read_text()) for path in sorted(out.glob("*/*/*/*/meta.json"))]
    assert [len(one["baselines"]) for one in meta] == [0, 2, 3]
    assert {one["user"] for one in meta} == {"test"}
    with pytest.raises(Refused, match="already"):
        archive_export.run(ArchiveExportRequest(str(topics.folder), str(out)), spark=spark, reporter=quiet())
    first, out = export(spark, topics.folder, tmp_path, "20260101T000001")
    assert (first["entries"], read_archive(out).modes) == (6, ["full"])
    with pytest.raises(NotFound, match="nowhere"):
        export(spark, topics.folder, tmp_path, buckets=("nowhere",))
    with pytest.raises(Refused, match="topics, not buckets"):
        archive_restore.run(
            ArchiveRestoreRequest(str(topics.folder), str(tmp_path / "o")), spark=spark, reporter=quiet()
        )


def test_no_prune_comes_between_what_is_read_and_its_end(
    spark: SparkSession, topics: MadeBackups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    at = str(topics.folder)
    finish = Staged.finish

    def meanwhile(staged: Staged, changed: Any) -> None:
        with pytest.raises(Busy, match="writes an archive"):
            prune.run(PruneRequest(at), reporter=quiet())
        finish(staged, changed)

    monkeypatch.setattr(Staged, "finish", meanwhile)
    export(spark, topics.folder, tmp_path)
    assert prune.run(PruneRequest(at), reporter=quiet())["backups"] == []
    reader = CatalogReader.require(at)
    (row,) = reader.select("SELECT state, entries, target FROM restores").read_all().to_pylist()
    assert (row["state"], row["entries"], row["target"][:9]) == ("complete", 9, "archive:/")
    archive_export.chain_of(reader, "prod")
    CatalogWriter(spark, at).set_states([backup_id(3)], "deleted", actor="me", reason="old")
    work = Workspace(Request(at), "", quiet(), spark)
    with (
        pytest.raises(Busy, match="A prune of prod came in"),
        recorded_restore(work, reader, source="prod", target="t", selection="s"),
    ):
        pytest.fail("what it would read may be gone")
    assert CatalogReader.require(at).one("open_restores")["state"] == "failed"  # type: ignore[index]


def test_a_damaged_data_file_gives_no_archive(
    spark: SparkSession, topics: MadeBackups, tmp_path: Path
) -> None:
    file = min(topics.folder.rglob("*.data"))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(Damaged, match="sha256"):
        export(spark, topics.folder, tmp_path)
    left = list(next(tmp_path.glob("archive-*")).iterdir())
    assert [path.name for path in left] == [".partial"]
