"""Exports of the catalog's rows for other programs, and imports of other programs' rows."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.support.catalogs import backup_id, manifest, publish
from tests.support.command_line import quiet
from tests.support.disks import flip
from tests.support.looks import rows_of, select_rows

from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.recovery.imports import read_import
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.backups import Removal
from lakebackup.rows.tables import TABLES
from lakebackup.rows.upkeep import Audit
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.deletion.executor import foreign_destinations
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.upkeep import export_catalog as catalog_export
from lakebackup_jobs.upkeep import import_catalog as catalog_import
from lakebackup_jobs.upkeep import prune
from lakebackup_jobs.upkeep.export_catalog import ExportRequest
from lakebackup_jobs.upkeep.import_catalog import ImportRequest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
# Tables about where and when this catalog was made, and about what was done to it.
LOCAL_TABLES = {"migrations", "destinations", "audit"}


@pytest.fixture
def root(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Path:
    """Three backups of two sources."""
    root = tmp_path / "here"
    shutil.copytree(empty_catalog, root / "catalog")
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    publish(storage, writer, manifest(1, topics=("orders", "payments")))
    publish(storage, writer, manifest(2))
    publish(storage, writer, manifest(4, base=4, source="other"))
    writer.append_audit(Audit(at=5, actor="me", action="look", subject="all", detail="{}"))
    return root


@pytest.fixture
def empty(empty_catalog: Path, tmp_path: Path) -> Path:
    shutil.copytree(empty_catalog, tmp_path / "there" / "catalog")
    return tmp_path / "there"


def all_rows(root: Path) -> dict[str, list[str]]:
    return {table: rows_of(root, table) for table in TABLES if table not in LOCAL_TABLES}


def removal_of(file: dict[str, Any]) -> Removal:
    columns = ("source", "destination", "path", "backup_id", "scope", "epoch", "region", "bytes")
    return Removal(prune_id="p", at=1, reason="time", **{name: file[name] for name in columns})


def import_rows(spark: SparkSession, root: Path, **options: Any) -> dict[str, Any]:
    request = ImportRequest(**{"destination": str(root), **options})
    return catalog_import.run(request, spark=spark, reporter=quiet())


@pytest.mark.long
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_import_restores_the_exported_rows(
    spark: SparkSession, root: Path, empty: Path, tmp_path: Path, form: Any
) -> None:
    folder = tmp_path / "rows"
    CatalogWriter(None, str(root)).append(
        [removal_of(row) for row in select_rows(root, "SELECT * FROM files WHERE source = 'other'")]
    )
    export_result = catalog_export.run(ExportRequest(str(root), str(folder), form=form), reporter=quiet())
    counts = {row["table"]: row["rows"] for row in export_result["tables"]}
    assert counts == {
        "backups": 3, "files": 8, "positions": 8, "scopes": 4, "removals": 2, "audit": 1, "destinations": 1,
    }  # fmt: skip
    dry_run = import_rows(spark, empty, folder=str(folder), dry_run=True)
    assert (dry_run["dry_run"], dry_run["backups"], dry_run["files"]) == (True, 3, 8)
    assert rows_of(empty, "backups") == []
    result = import_rows(spark, empty, folder=str(folder), trust_roots=(str(root),))
    assert (result["backups"], result["files"], result["positions"]) == (3, 8, 8)
    assert all_rows(empty) == all_rows(root)
    reader = CatalogReader.require(str(empty))
    assert list(reader.destinations().uris.values()) == [f"file://{root}"], "the data is where it was"
    root_reader = CatalogReader.require(str(root))
    assert foreign_destinations(reader, open_storage(str(empty))) == root_reader.destinations().uris.keys()
    assert foreign_destinations(root_reader, open_storage(str(root))) == frozenset()
    for repository in (root, empty):
        CatalogWriter(spark, str(repository)).fold("removals")
    for repository in (root, empty):
        second_result = import_rows(spark, repository, folder=str(folder), trust_roots=(str(root),))
        assert second_result["backups"] == 0
    root_rows, imported_rows = all_rows(root), all_rows(empty)
    # The importing catalog cannot know which prunes of the other destination are complete.
    assert (len(root_rows.pop("removals")), len(imported_rows.pop("removals"))) == (1, 2)
    assert root_rows == imported_rows
    assert len(rows_of(empty, "audit")) == 2
    rows_before = {table: rows_of(empty, table) for table in (*all_rows(empty), "audit")}
    shutil.rmtree(empty / "catalog")
    assert rebuild(spark, str(empty)).states == {"complete": 3}
    assert {table: rows_of(empty, table) for table in rows_before} == rows_before
    assert import_rows(spark, empty, folder=str(folder), trust_roots=(str(root),))["backups"] == 0
    assert {table: rows_of(empty, table) for table in rows_before} == rows_before, (
        "a rebuilt log knows no transactions"
    )


@pytest.mark.long
def test_an_untrusted_root_is_left_out(spark: SparkSession, root: Path, empty: Path, tmp_path: Path) -> None:
    """Uses Spark, which filters the rows. A forged row could name any folder as the root of a destination."""
    folder, notes = tmp_path / "rows", io.StringIO()
    catalog_export.run(ExportRequest(str(root), str(folder)), reporter=quiet())
    other_root = str(tmp_path / "strange")
    with pytest.raises(UsageProblem, match="no repository of the export lies there"):
        import_rows(spark, empty, folder=str(folder), trust_roots=(other_root,))
    moved_file = (root / "lakebackup.json").rename(root / "aside")
    with pytest.raises(Refused, match="does not prove"):
        import_rows(spark, empty, folder=str(folder), trust_roots=(str(root),))
    assert rows_of(empty, "backups") == []
    moved_file.rename(root / "lakebackup.json")
    request = ImportRequest(destination=str(empty), folder=str(folder))
    result = catalog_import.run(request, spark=spark, reporter=Reporter(io.StringIO(), notes))
    assert result["backups"] == 3
    assert f"repeated with --trust-root file://{root}" in notes.getvalue()
    assert CatalogReader.require(str(empty)).destinations().uris == {}
    assert import_rows(spark, empty, folder=str(folder), trust_roots=(str(root),))["backups"] == 0
    assert list(CatalogReader.require(str(empty)).destinations().uris.values()) == [f"file://{root}"]


def test_an_export_has_only_live_rows_and_never_joins_another(
    root: Path, empty_catalog: Path, tmp_path: Path
) -> None:
    shutil.rmtree(root / "catalog" / "backups")
    shutil.copytree(empty_catalog / "backups", root / "catalog" / "backups")
    result = catalog_export.run(ExportRequest(str(root), str(tmp_path / "rows")), reporter=quiet())
    assert {row["table"] for row in result["tables"]} == {"audit", "destinations"}
    with pytest.raises(Refused, match="already"):
        catalog_export.run(ExportRequest(str(root), str(tmp_path / "rows")), reporter=quiet())


def test_a_torn_export_is_refused(spark: SparkSession, root: Path, empty: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    catalog_export.run(ExportRequest(str(root), str(folder)), reporter=quiet())
    file = folder / "files-0000.jsonl"
    content = file.read_bytes()
    file.write_bytes(content.replace(b'"bytes":100', b'"bytes":101', 1))
    with pytest.raises(Damaged, match="files-0000"):
        import_rows(spark, empty, folder=str(folder))
    file.write_bytes(content)
    (folder / "lakebackup-export.json").unlink()
    with pytest.raises(NotFound, match="an incomplete one"):
        import_rows(spark, empty, folder=str(folder))
    assert rows_of(empty, "backups") == []


def test_a_damaged_catalog_is_not_exported(root: Path, tmp_path: Path) -> None:
    flip(next((root / "catalog" / "positions").glob("*.parquet")))
    with pytest.raises(Damaged, match="positions"):
        catalog_export.run(ExportRequest(str(root), str(tmp_path / "rows")), reporter=quiet())
    assert not (tmp_path / "rows" / "lakebackup-export.json").exists()


def test_an_export_that_the_catalog_contradicts_is_refused(
    spark: SparkSession, root: Path, empty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    catalog_export.run(ExportRequest(str(root), str(folder)), reporter=quiet())
    storage, writer = open_storage(str(empty)), CatalogWriter(spark, str(empty))
    publish(storage, writer, manifest(1))  # the same id with other files
    rows_before = all_rows(empty)
    with pytest.raises(
        Refused, match=rf"backups-0000.jsonl:\d: the catalog has backup {backup_id(1)} with another"
    ):
        import_rows(spark, empty, folder=str(folder))
    assert all_rows(empty) == rows_before


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def snapshots(*days: int) -> list[dict[str, Any]]:
    return [{"backup_id": f"s{day}", "source": "laptop", "end_ts": 1000 * day} for day in days]


def listing(**by_day: str) -> list[dict[str, Any]]:
    """`s1="a1 b1"`: on day 1 there were the files a and b, both in version 1."""
    return [
        {"backup_id": day, "path": f"/home/{file[0]}", "bytes": int(file[1:]), "max_ts": int(file[1:])}
        for day, files in by_day.items()
        for file in files.split()
    ]


def lifetimes(root: Path) -> list[tuple[Any, ...]]:
    gone_in = {
        (row["path"], row["added_in"]): row["gone_in"]
        for row in DeltaTable(str(root / "catalog" / "departures")).to_pyarrow_table().to_pylist()
    }
    files = DeltaTable(str(root / "catalog" / "files")).to_pyarrow_table().to_pylist()
    return sorted(
        (row["path"], row["bytes"], row["added_in"], gone_in.get((row["path"], row["added_in"])))
        for row in files
    )


@pytest.mark.long
@pytest.mark.parametrize("repeat", [False, True], ids=["once", "again"])
def test_manifests_of_another_program_become_lifetimes(
    spark: SparkSession, empty: Path, tmp_path: Path, repeat: bool
) -> None:
    form = "parquet"
    days = lines(tmp_path / f"days.{form}", snapshots(1, 2, 3))
    files = lines(tmp_path / f"files.{form}", listing(s1="a1 b1 c1", s2="a1 b2", s3="a1 b2 c1 d3"))
    paths = {"backups": days, "manifests": files}
    result = import_rows(spark, empty, input_paths=paths, source_kind="restic")
    assert (result["backups"], result["files"], result["departures"]) == (3, 6, 2)
    assert lifetimes(empty) == [
        ("home/a", 1, 1, None),
        ("home/b", 1, 1, 2),
        ("home/b", 2, 2, None),
        ("home/c", 1, 1, 2),
        ("home/c", 1, 3, None),
        ("home/d", 3, 3, None),
    ]
    reader = CatalogReader.require(str(empty))
    batches = reader.select(
        "SELECT number, kind, parent, base, files, bytes, source_kind, intact FROM backups ORDER BY number"
    )
    assert [tuple(row.values()) for row in batches.read_all().to_pylist()] == [
        (1, "full", None, "s1", 3, 3, "restic", True),
        (2, "full", "s1", "s2", 1, 2, "restic", True),
        (3, "full", "s2", "s3", 2, 4, "restic", True),
    ]
    # Two days later: the export has only the new days; the earlier files are known.
    new_days = lines(tmp_path / f"more.{form}", snapshots(4, 5))
    new_files = lines(tmp_path / f"later.{form}", listing(s4="a1 b2 c1", s5="a1 e5"))
    result = import_rows(
        spark, empty, input_paths={"backups": new_days, "manifests": new_files}, source_kind="restic"
    )
    assert (result["backups"], result["files"], result["departures"]) == (2, 1, 3)
    assert lifetimes(empty) == [
        ("home/a", 1, 1, None),
        ("home/b", 1, 1, 2),
        ("home/b", 2, 2, 5),
        ("home/c", 1, 1, 2),
        ("home/c", 1, 3, 5),
        ("home/d", 3, 3, 4),
        ("home/e", 5, 5, None),
    ]
    refused = pytest.raises(Refused, match=r"another program \(restic\)")
    for options in ({"select": "SELECT path FROM files"}, {"source": "laptop", "topics": ("files",)}):
        with refused:
            plan_restore(RestoreRequest(str(empty), "dir:x", **options), CatalogReader.require(str(empty)))
    with refused:
        prune.run(prune.PruneRequest(str(empty), source="laptop", delete=True), reporter=quiet())
    # The program has dropped the first two backups, and has nothing new.
    remaining = {"backups": lines(tmp_path / f"left.{form}", snapshots(3, 4, 5))}
    result = import_rows(spark, empty, input_paths=remaining, source_kind="restic", mirror=True, dry_run=True)
    assert result["states"] == {"deleted": 2}
    result = import_rows(spark, empty, input_paths=remaining, source_kind="restic", mirror=True)
    assert (result["backups"], result["states"]) == (0, {"deleted": 2})
    reader = CatalogReader.require(str(empty))
    restorable = reader.select("SELECT to_ts FROM coverage WHERE status = 'restorable' ORDER BY to_ts")
    assert restorable.read_all()["to_ts"].to_pylist() == [3000, 4000, 5000]
    if not repeat:
        return
    rows_before = all_rows(empty)
    paths = {"backups": new_days, "manifests": new_files}
    assert import_rows(spark, empty, input_paths=paths, source_kind="restic")["backups"] == 0
    all_days = lines(tmp_path / f"every.{form}", snapshots(1, 2, 3, 4, 5))
    paths = {"backups": all_days, "manifests": new_files}
    assert import_rows(spark, empty, input_paths=paths, source_kind="restic")["backups"] == 0
    assert all_rows(empty) == rows_before
    shutil.rmtree(empty / "catalog")
    assert rebuild(spark, str(empty)).states == {"complete": 3, "deleted": 2}
    assert all_rows(empty) == rows_before


@pytest.mark.long
def test_an_interrupted_import_is_resumed(
    spark: SparkSession, empty: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    listings = {
        "backups": lines(tmp_path / "b.jsonl", snapshots(1, 2)),
        "manifests": lines(tmp_path / "m.jsonl", listing(s1="a1", s2="b1")),
    }

    def die(*_args: Any, **_options: Any) -> None:
        raise KeyboardInterrupt

    for step in ("write_import", "append"):
        with monkeypatch.context() as patch:
            patch.setattr(catalog_import, step, die)
            with pytest.raises(KeyboardInterrupt):
                import_rows(spark, empty, input_paths=listings)
        assert rows_of(empty, "backups") == []
    assert import_rows(spark, empty, input_paths=listings)["backups"] == 2
    assert lifetimes(empty) == [("home/a", 1, 1, 2), ("home/b", 1, 2, None)]
    (folder,) = (empty / "imports").iterdir()
    import_record = read_import(open_storage(str(empty)), folder.name)
    paths = {str(path.relative_to(empty)) for path in folder.iterdir()}
    assert paths == {f"imports/{folder.name}/import.json", *(chunk.path for chunk in import_record.chunks)}
