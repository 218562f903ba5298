"""Prunes of backups of snapshots: which objects go with which backups, and which are still needed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.catalogs import backup_id
from tests.support.command_line import quiet
from tests.support.given_snapshots import MadeSnapshots
from tests.support.looks import rows_of, select_rows

from lakebackup.errors import Refused, UsageProblem
from lakebackup.formats.snapshots.manifest_json import manifest_json
from lakebackup.plan.upkeep.prune import SnapshotsPrune, Statement
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.upkeep import Hold, Policy
from lakebackup.rules.retention import Limits
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.snapshots import import_manifest
from lakebackup_jobs.upkeep import export_catalog as catalog_export
from lakebackup_jobs.upkeep import import_catalog as catalog_import
from lakebackup_jobs.upkeep import prune

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLES = ("backups", "files", "scopes", "removals", "audit", "holds", "snapshot_files", "snapshot_departures")
# The files of one tablet in each snapshot.
SNAPSHOTS = [
    {"a": b"a", "b": b"b" * 5, "p": b"p" * 7, "q": b"q" * 9, "CURRENT": b"1"},
    {"a": b"a", "b": b"b" * 5, "p": b"p" * 7, "q": b"q" * 9, "c": b"cc", "CURRENT": b"2"},
    {"b": b"other", "p": b"p" * 7, "c": b"cc", "r": b"rrr", "s": b"ss", "CURRENT": b"3"},
    {"b": b"other", "c": b"cc", "s": b"ss", "r": b"rrr", "CURRENT": b"4"},
]
PACKED = {"p", "q", "r", "s"}


@pytest.fixture(scope="module")
def module_root(empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("snapshots ü")
    shutil.copytree(empty_catalog, root / "catalog")
    snapshots = MadeSnapshots(root, CatalogWriter(None, str(root)))
    for files in SNAPSHOTS:
        snapshots.back_up(files, packed=PACKED)
    return root


def run(root: Path, spark: SparkSession | None = None, **changes: Any) -> dict[str, Any]:
    request = prune.PruneRequest(destination=str(root), **changes)
    return prune.run(request, spark=spark, reporter=quiet())


def keep(root: Path, redundancy: int) -> None:
    writer = CatalogWriter(None, str(root))
    writer.record(Policy(source="tablets", at=9 - redundancy, actor="me", redundancy=redundancy))


def stored_objects(root: Path) -> set[str]:
    """Each object as the number of the backup that wrote it, and the file's name or `pack`."""
    names = set()
    for path in (root / "tablets" / "snapshots").rglob("*"):
        if path.is_file():
            number = int(path.relative_to(root / "tablets" / "snapshots").parts[0][-8:], 16)
            names.add(f"{number}/{'pack' if path.suffix == '.pack' else path.name}")
    return names


def resolved(root: Path, number: int, source: str = "tablets") -> dict[str, bytes]:
    """A snapshot by the rows of the catalog, read from the objects."""
    rows = select_rows(
        root,
        "SELECT name, path, position, bytes FROM snapshot_files "
        f"WHERE source = '{source}' AND added_in <= {number} AND (gone_in IS NULL OR gone_in > {number})",
    )
    storage = open_storage(str(root))
    return {row["name"]: storage.get(row["path"], start=row["position"], length=row["bytes"]) for row in rows}


def test_a_prune_without_delete_names_the_backups_and_deletes_nothing(root: Path) -> None:
    keep(root, 2)
    objects_before = stored_objects(root)
    report = run(root)
    assert [(b["backup_id"], b["reason"]) for b in report["backups"]] == [
        (backup_id(number), "redundancy") for number in (2, 1)
    ]
    # a, b and both CURRENT, each an object of its own; q's bytes stay in the pack that p is in.
    assert (report["files"], report["bytes"], report["of_files"]) == (4, 8, 10)
    assert report["tables"] == [{"table": "t1", "files": 4, "bytes": 8}]
    assert (report["held_back_files"], report["held_back_bytes"]) == (1, 9)
    assert stored_objects(root) == objects_before
    with pytest.raises(UsageProblem, match="tablets holds snapshots, which have no topics"):
        run(root, topics=("t1",))
    with pytest.raises(UsageProblem, match="tablets holds snapshots, which have no topics"):
        run(root, limits=Limits(keep_ms=5))


@pytest.mark.long
def test_a_held_backup_in_the_middle_keeps_its_own_objects(root: Path, session: SparkSession | None) -> None:
    keep(root, 1)
    CatalogWriter(None, str(root)).record(
        Hold(backup_id=backup_id(2), source="tablets", at=5, actor="me", reason="law")
    )
    run(root, session, delete=True)
    assert stored_objects(root) == {
        "1/a", "1/b", "1/pack", "2/c", "2/CURRENT", "3/b", "3/pack", "4/CURRENT",
    }  # fmt: skip
    for number in (2, 4):
        assert resolved(root, number) == SNAPSHOTS[number - 1]
    assert {row["reason"] for row in select_rows(root, "SELECT reason FROM removals")} == {"expired"}
    # After its release the newest backup still needs c, which it wrote.
    CatalogWriter(None, str(root)).record(
        Hold(backup_id=backup_id(2), source="tablets", at=6, actor="me", reason="law", released=True)
    )
    run(root, session, delete=True)
    assert stored_objects(root) == {"2/c", "3/b", "3/pack", "4/CURRENT"}
    assert resolved(root, 4) == SNAPSHOTS[3]


def test_the_proof_stops_a_prune_of_needed_objects(
    root: Path, session: SparkSession | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is wrong: it removes everything that the deleted backups wrote."""
    keep(root, 2)
    objects_before = stored_objects(root)
    everything = Statement("prune_removals", {"source": "tablets"})
    monkeypatch.setattr(SnapshotsPrune, "removals", everything)
    with pytest.raises(
        Refused, match=r"backup number 3 of tablets has 2 files in objects that would be gone"
    ):
        run(root, session, delete=True)
    assert stored_objects(root) == objects_before
    assert not list(open_storage(str(root)).list("prunes/"))


@pytest.mark.long
@pytest.mark.spark
def test_rows_are_exported_and_imported_into_another_catalog(
    root: Path, spark: SparkSession, empty_catalog: Path, tmp_path: Path
) -> None:
    other_root = tmp_path / "other"
    shutil.copytree(empty_catalog, other_root / "catalog")
    rows = str(tmp_path / "rows")
    export_request = catalog_export.ExportRequest(destination=str(root), folder=rows, form="parquet")
    catalog_export.run(export_request, reporter=quiet())
    request = catalog_import.ImportRequest(destination=str(other_root), folder=rows)
    result = catalog_import.run(request, spark=spark, reporter=quiet())
    assert (result["backups"], result["snapshot_files"], result["snapshot_departures"]) == (4, 12, 7)
    for table in ("backups", "files", "snapshot_files", "snapshot_departures"):
        assert rows_of(other_root, table) == rows_of(root, table)


@pytest.mark.long
@pytest.mark.spark
def test_objects_that_another_source_needs_stay(root: Path, spark: SparkSession, tmp_path: Path) -> None:
    """The manifest of the second snapshot is imported as another source, which a rebuild still knows."""
    manifest = tmp_path / "manifest.json"
    reader = CatalogReader.require(str(root))
    manifest.write_text("".join(manifest_json(reader, backup_id(2))), encoding="utf-8")
    request = import_manifest.ManifestRequest(destination=str(root), file=manifest, source="copy")
    import_manifest.run(request, reporter=quiet())
    keep(root, 1)
    run(root, spark, delete=True, source="tablets")
    assert stored_objects(root) == {
        "1/a", "1/b", "1/pack", "2/c", "2/CURRENT", "3/b", "3/pack", "4/CURRENT",
    }  # fmt: skip
    rows_before = {table: rows_of(root, table) for table in TABLES}
    shutil.rmtree(root / "catalog")
    assert rebuild(spark, str(root)).problems == []
    assert {table: rows_of(root, table) for table in TABLES} == rows_before
    for number in (2, 4):
        assert resolved(root, number) == SNAPSHOTS[number - 1]
    assert resolved(root, 1, "copy") == SNAPSHOTS[1]


@pytest.mark.spark
def test_a_snapshot_after_a_lost_one_is_unconfirmed(root: Path, spark: SparkSession) -> None:
    (listing,) = (root / "tablets" / "backups" / backup_id(2) / "listing").glob("*.files.parquet")
    listing.write_bytes(listing.read_bytes()[:-1])
    select = "SELECT * FROM snapshot_files WHERE added_in <> 2 ORDER BY name, added_in"
    departure = {"gone_in": None, "gone_by": None}  # these went with the second
    remaining_rows = [row | (departure if row["gone_in"] == 2 else {}) for row in select_rows(root, select)]
    shutil.rmtree(root / "catalog")
    rebuilt = rebuild(spark, str(root))
    assert [text for text in rebuilt.problems if "is not as it was written" in text]
    assert [text for text in rebuilt.problems if "Backup number 2 of tablets is missing" in text]
    assert select_rows(root, "SELECT number, state FROM backups ORDER BY number") == [
        {"number": 1, "state": "complete"},
        {"number": 3, "state": "unconfirmed"},
        {"number": 4, "state": "unconfirmed"},
    ]
    assert resolved(root, 1) == SNAPSHOTS[0]
    assert select_rows(root, select) == remaining_rows
