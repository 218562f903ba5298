"""Archives: imported, queried with SQL, restored and exported; a chain of topics exported as an archive."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.archives import Doc, read_archive, touch, write_backup, write_cbb
from tests.support.command_line import quiet
from tests.support.looks import select_rows
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import Busy, Damaged, NotFound, Refused, UsageProblem
from lakebackup.plan.topics.request import only_source
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.archives import export as archive_export
from lakebackup_jobs.archives import import_archive as archive_import
from lakebackup_jobs.archives import restore as archive_restore
from lakebackup_jobs.archives.export import ArchiveExportRequest
from lakebackup_jobs.archives.import_archive import ArchiveImportRequest
from lakebackup_jobs.archives.restore import ArchiveRestoreRequest
from lakebackup_jobs.lifecycle.atomic_dir import StagedFolder
from lakebackup_jobs.upkeep import prune, verify
from lakebackup_jobs.upkeep.prune import PruneRequest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FULL, MONDAY, TUESDAY, WEDNESDAY = (f"2014-02-0{day}T020000Z" for day in (2, 3, 4, 5))


class ArchiveLab:
    """A destination for imports and exports of archives."""

    def __init__(self, spark: SparkSession, tmp_path: Path, empty_catalog: Path) -> None:
        self.spark, self.root, self.tmp = spark, tmp_path / "backups", tmp_path
        shutil.copytree(empty_catalog, self.root / "catalog")

    def import_archive(self, archive: Path, **options: Any) -> dict[str, Any]:
        request = ArchiveImportRequest(**{"destination": str(self.root), "folder": str(archive), **options})
        return archive_import.run(request, spark=self.spark, reporter=quiet())

    def restore(self, source_or_backup: str | None = None, **options: Any) -> tuple[dict[str, Any], Path]:
        folder = self.tmp / f"documents-{len(list(self.tmp.iterdir()))}"
        request = ArchiveRestoreRequest(
            **{"destination": str(self.root), "folder": str(folder), "what": source_or_backup, **options}
        )
        return archive_restore.run(request, spark=self.spark, reporter=quiet()), folder

    def export(self, source_or_backup: str | None = None, **options: Any) -> tuple[dict[str, Any], Path]:
        return export(self.spark, self.root, self.tmp, source_or_backup, **options)

    def ask(self, sql: str) -> list[dict[str, Any]]:
        return select_rows(self.root, sql)


def export(
    spark: SparkSession, root: Path, tmp: Path, source_or_backup: str | None = None, **options: Any
) -> tuple[dict[str, Any], Path]:
    folder = tmp / f"archive-{len(list(tmp.iterdir()))}"
    request = ArchiveExportRequest(
        **{"destination": str(root), "folder": str(folder), "what": source_or_backup, **options}
    )
    return archive_export.run(request, spark=spark, reporter=quiet()), folder


@pytest.fixture
def archive_lab(spark: SparkSession, tmp_path: Path, empty_catalog: Path) -> ArchiveLab:
    return ArchiveLab(spark, tmp_path, empty_catalog)


def documents(folder: Path, bucket: str = "default") -> dict[str, Any]:
    lines = [
        json.loads(line)
        for path in sorted((folder / f"bucket-{bucket}").glob("docs-*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert len({row["key"] for row in lines}) == len(lines)
    return {row["key"]: row["value"] for row in lines}


def week(root: Path) -> None:
    """A full backup, a differential one, a cumulative one that replaces it, and a differential one."""
    write_backup(
        root, FULL, "full", [Doc(b"a", b"1", 1), Doc(b"b", b"1", 2), Doc(b"x", b"1", 1, vbucket=7)],
        design='{"v": 1}', user="eve", retention_policy="14 days",
    )  # fmt: skip
    write_backup(root, FULL, "full", [Doc(b"z", b'{"n": 1}', 1)], bucket="other", user="eve")
    write_backup(root, MONDAY, "diff", [Doc(b"a", b"2", 3)], chain=FULL, design='{"v": 2}')
    write_backup(root, TUESDAY, "accu", [Doc(b"a", b"2", 3), Doc(b"c", b"1", 4)], chain=FULL)
    write_backup(root, WEDNESDAY, "diff", [Doc(b"b", None, 5), Doc(b"a", b"3", 6)], chain=FULL)


def test_an_archive_is_imported_queried_restored_and_exported(
    archive_lab: ArchiveLab, tmp_path: Path
) -> None:
    week(tmp_path / "archive")
    import_plan = archive_lab.import_archive(tmp_path / "archive", source="shop", dry_run=True)
    assert (import_plan["dry_run"], import_plan["imported"], archive_lab.ask("SELECT * FROM backups")) == (
        True,
        4,
        [],
    )
    result = archive_lab.import_archive(tmp_path / "archive", source="shop")
    assert (result["imported"], result["known"], result["entries"]) == (4, 0, 9)
    assert archive_lab.import_archive(tmp_path / "archive", source="shop")["imported"] == 0

    rows = archive_lab.ask("SELECT kind, level, created_by, note, intact FROM backups ORDER BY number")
    assert [(r["kind"], r["level"], r["created_by"], r["intact"]) for r in rows] == [
        ("full", 0, "eve", True), ("differential", 1, "", True), ("cumulative", 1, "", True),
        ("differential", 1, "", True),
    ]  # fmt: skip
    (note,) = archive_lab.ask(
        "SELECT get_json_object(note, '$.buckets.default.retention_policy') AS policy FROM backups "
        "WHERE number = 1"
    )
    assert note == {"policy": "14 days"}
    positions = archive_lab.ask(
        "SELECT start_position, end_position FROM positions "
        "WHERE scope = 'default' AND region = '0' ORDER BY ts"
    )
    assert [tuple(row.values()) for row in positions] == [(0, 3), (3, 4), (3, 5), (5, 7)]
    with pytest.raises(Refused, match="made by another program"):
        only_source(CatalogReader.require(str(archive_lab.root)), "shop")
    verify_result = verify.run(
        verify.VerifyRequest(str(archive_lab.root)), spark=archive_lab.spark, reporter=quiet()
    )
    assert verify_result["ok"] >= 4 * 3 + 2, "three files beside each node, and designs"
    assert (
        verify_result["missing"],
        verify_result["changed"],
        verify_result["damaged"],
        verify_result["orphan"],
    ) == (0, 0, 0, 0)

    dry_run, _ = archive_lab.restore("shop", dry_run=True)
    assert [b["kind"] for b in dry_run["backups"]] == ["full", "cumulative", "differential"]
    result, folder = archive_lab.restore("shop")
    assert documents(folder) == {"a": 3, "c": 1, "x": 1}
    assert documents(folder, "other") == {"z": {"n": 1}}
    assert (folder / "bucket-default" / "design.json").read_text() == '{"v": 1}', (
        "Monday's is not needed any more"
    )
    assert result["documents"] == 4
    assert archive_lab.ask("SELECT state, entries FROM restores") == [{"state": "complete", "entries": 4}]
    _, folder = archive_lab.restore(to_ts=result["backups"][0]["end_ts"] + 86_400_000, buckets=("default",))
    assert documents(folder) == {"a": 2, "b": 1, "x": 1}
    assert json.loads((folder / "bucket-default" / "design.json").read_text()) == {"v": 2}
    _, folder = archive_lab.restore(from_ts=result["backups"][0]["end_ts"])
    assert documents(folder) == {"a": 3, "c": 1}

    export_result, exported = archive_lab.export("shop")
    assert export_result["files"] == 4 * 3 + 1, "three files beside each node, and one design"
    archive = read_archive(exported)
    assert archive.modes == ["full", "accu", "diff"]
    assert {key: doc[0] for (_, key), doc in archive.docs["default"].items()} == {
        b"a": b"3",
        b"c": b"1",
        b"x": b"1",
    }
    assert archive.designs == {"bucket-default": '{"v": 1}'}


@pytest.mark.long
def test_backups_that_no_restore_needs_are_pruned_whole(archive_lab: ArchiveLab, tmp_path: Path) -> None:
    week(tmp_path / "archive")
    archive_lab.import_archive(tmp_path / "archive", source="shop")
    request = prune.PruneRequest(str(archive_lab.root), days=7, delete=True)
    result = prune.run(request, spark=archive_lab.spark, reporter=quiet())
    states = archive_lab.ask("SELECT state FROM backups ORDER BY number")
    assert [row["state"] for row in states] == ["complete", "deleted", "complete", "complete"]
    (pruned_backup,) = result["backups"]
    assert (pruned_backup["kind"], pruned_backup["reason"], result["files"]) == (
        "differential",
        "superseded",
        pruned_backup["files"],
    )
    removals = archive_lab.ask(f"SELECT path FROM removals WHERE backup_id = '{pruned_backup['backup_id']}'")
    assert len(removals) == pruned_backup["files"] > 0
    assert not [row["path"] for row in removals if (archive_lab.root / row["path"]).exists()]
    assert documents(archive_lab.restore("shop")[1]) == {"a": 3, "c": 1, "x": 1}


def test_the_older_layout_is_restored_whole_or_not_at_all(archive_lab: ArchiveLab, tmp_path: Path) -> None:
    root = tmp_path / "old"
    path = write_cbb(root / "bucket-b" / "node-n" / "data-0000.cbb", [Doc(b"a", b"1"), Doc(b"a", b"2")], 2004)
    write_cbb(root / "bucket-b" / "node-n" / "data-0001.cbb", [Doc(b"b", b"1"), Doc(b"c", None)], 2004)
    (root / "bucket-b" / "design.json").write_text("[]")
    touch(path, 1_390_000_000)
    assert archive_lab.import_archive(root)["imported"] == 1
    touch(path, 1_400_000_000)
    assert (archive_lab.import_archive(root)["imported"], archive_lab.ask("SELECT * FROM positions")) == (
        0,
        [],
    )
    for options in ({"to_ts": 2**42}, {"from_ts": 0}):
        with pytest.raises(Refused, match="restored whole"):
            archive_lab.restore(**options)
    assert documents(archive_lab.restore()[1], "b") == {"a": 2, "b": 1}
    _, exported = archive_lab.export()
    assert sorted(str(p.relative_to(exported)) for p in exported.rglob("*") if p.is_file()) == [
        "bucket-b/design.json", "bucket-b/node-n/data-0000.cbb", "bucket-b/node-n/data-0001.cbb",
    ]  # fmt: skip


def test_nothing_is_written_from_a_damaged_archive(archive_lab: ArchiveLab, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    week(root)
    path = next(root.glob(f"*/{WEDNESDAY}-diff/*/*/data-0000.cbb"))
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(Damaged, match=WEDNESDAY):
        archive_lab.import_archive(root)
    assert sorted(entry.name for entry in archive_lab.root.iterdir()) == ["catalog"]
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageProblem, match="symbolic link"):
        archive_lab.import_archive(root)
    path.unlink()
    archive_lab.import_archive(root)
    stored_file = next((archive_lab.root / "shop" / "archive").rglob("data-0000.cbb"))
    content = stored_file.read_bytes()
    stored_file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for action in (archive_lab.restore, archive_lab.export):
        with pytest.raises(Damaged, match="SHA-256"):
            action()


# --- topics


@pytest.fixture
def topics(tmp_path: Path) -> MadeBackups:
    backups = MadeBackups(tmp_path / "backups")
    backups.backup(
        [[Record(0, n, 10 + n, b"k%d" % n, b"v%d" % n) for n in range(5)], [Record(1, 0, 9, b"z", b"1")]]
    )
    backups.backup([[Record(0, 5, 20, b"k1", None), Record(0, 8, 21, b"k2", b"w", (("h", b"1"),))]])
    backups.backup([[Record(1, 1, 30, None, b"no key")]])
    backups.flush()
    return backups


def test_a_chain_of_topics_is_exported_as_an_archive(
    spark: SparkSession, topics: MadeBackups, tmp_path: Path
) -> None:
    result, exported = export(spark, topics.folder, tmp_path, target_bytes=1)
    assert (result["entries"], result["without_key"], result["without_headers"]) == (9, 1, 1)
    archive = read_archive(exported)
    assert archive.modes == ["full", "diff", "diff"]
    assert {document_key: doc[:2] for document_key, doc in archive.docs["orders"].items()} == {
        (0, b"k0"): (b"v0", 10_000_000), (0, b"k2"): (b"w", 21_000_000), (0, b"k3"): (b"v3", 13_000_000),
        (0, b"k4"): (b"v4", 14_000_000), (1, b"z"): (b"1", 9_000_000), (1, b"1-1"): (b"no key", 30_000_000),
    }  # fmt: skip
    assert len(list(exported.glob("*/*-full/bucket-orders/node-prod/data-*.cbb"))) == 2
    meta = [json.loads(path.read_text()) for path in sorted(exported.glob("*/*/*/*/meta.json"))]
    assert [len(fields["baselines"]) for fields in meta] == [0, 2, 3]
    assert {fields["user"] for fields in meta} == {"test"}
    with pytest.raises(Refused, match="already"):
        archive_export.run(
            ArchiveExportRequest(str(topics.folder), str(exported)), spark=spark, reporter=quiet()
        )
    first, exported = export(spark, topics.folder, tmp_path, "20260101T000001")
    assert (first["entries"], read_archive(exported).modes) == (6, ["full"])
    with pytest.raises(NotFound, match="nowhere"):
        export(spark, topics.folder, tmp_path, buckets=("nowhere",))
    with pytest.raises(Refused, match="topics, not buckets"):
        archive_restore.run(
            ArchiveRestoreRequest(str(topics.folder), str(tmp_path / "o")), spark=spark, reporter=quiet()
        )


def test_no_prune_runs_during_an_export(
    spark: SparkSession, topics: MadeBackups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = str(topics.folder)
    finish = StagedFolder.finish

    def prune_then_finish(staged: StagedFolder, changed: Any) -> None:
        with pytest.raises(Busy, match="writes an archive"):
            prune.run(PruneRequest(root), reporter=quiet())
        finish(staged, changed)

    monkeypatch.setattr(StagedFolder, "finish", prune_then_finish)
    export(spark, topics.folder, tmp_path)
    assert prune.run(PruneRequest(root), reporter=quiet())["backups"] == []
    reader = CatalogReader.require(root)
    (row,) = reader.select("SELECT state, entries, target FROM restores").read_all().to_pylist()
    assert (row["state"], row["entries"], row["target"][:9]) == ("complete", 9, "archive:/")
    archive_export.chain_of(reader, "prod")


def test_a_damaged_data_file_stops_an_export(
    spark: SparkSession, topics: MadeBackups, tmp_path: Path
) -> None:
    file = min(topics.folder.rglob("*.data"))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(Damaged, match="sha256"):
        export(spark, topics.folder, tmp_path)
    leftovers = list(next(tmp_path.glob("archive-*")).iterdir())
    assert [path.name for path in leftovers] == [".partial"]
