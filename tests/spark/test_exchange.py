"""The catalog's rows written for other programs, and rows of other programs brought in."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.catalogs import backup_id, manifest, publish
from tests.support.command_line import quiet
from tests.support.disks import flip
from tests.support.looks import rows_of, seen

from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.recovery.imports import read_import
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.backups import Removal
from lakebackup.rows.tables import TABLES
from lakebackup.rows.upkeep import Audit
from lakebackup.sql_engine.delta.table import open_table
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
# Rows that say where and when this catalog itself was made, or what was done to it here.
OWN = {"migrations", "destinations", "audit"}


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
    return {table: rows_of(root, table) for table in TABLES if table not in OWN}


def removal_of(file: dict[str, Any]) -> Removal:
    of_file = ("source", "destination", "path", "backup_id", "scope", "epoch", "region", "bytes")
    return Removal(prune_id="p", at=1, reason="time", **{name: file[name] for name in of_file})


def take(spark: SparkSession, root: Path, **asked: Any) -> dict[str, Any]:
    request = ImportRequest(**{"destination": str(root), **asked})
    return catalog_import.run(request, spark=spark, reporter=quiet())


@pytest.mark.long
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_was_exported_comes_back_the_same(
    spark: SparkSession, root: Path, empty: Path, tmp_path: Path, form: Any
) -> None:
    out = tmp_path / "rows"
    CatalogWriter(None, str(root)).append(
        [removal_of(row) for row in seen(root, "SELECT * FROM files WHERE source = 'other'")]
    )
    told = catalog_export.run(ExportRequest(str(root), str(out), form=form), reporter=quiet())
    counts = {row["table"]: row["rows"] for row in told["tables"]}
    assert counts == {
        "backups": 3, "files": 8, "positions": 8, "scopes": 4, "removals": 2, "audit": 1, "destinations": 1,
    }  # fmt: skip
    planned = take(spark, empty, folder=str(out), dry_run=True)
    assert (planned["dry_run"], planned["backups"], planned["files"]) == (True, 3, 8)
    assert rows_of(empty, "backups") == []
    done = take(spark, empty, folder=str(out), trust_roots=(str(root),))
    assert (done["backups"], done["files"], done["positions"]) == (3, 8, 8)
    assert all_rows(empty) == all_rows(root)
    reader = CatalogReader.require(str(empty))
    assert list(reader.destinations().uris.values()) == [f"file://{root}"], "the data is where it was"
    own = CatalogReader.require(str(root))
    assert foreign_destinations(reader, open_storage(str(empty))) == own.destinations().uris.keys()
    assert foreign_destinations(own, open_storage(str(root))) == frozenset()
    for place in (root, empty):
        CatalogWriter(spark, str(place)).fold("removals")
    for place in (root, empty):
        again = take(spark, place, folder=str(out), trust_roots=(str(root),))
        assert again["backups"] == 0
    folded, held = all_rows(root), all_rows(empty)
    # Which prunes of the other destination are complete is not known there.
    assert (len(folded.pop("removals")), len(held.pop("removals"))) == (1, 2)
    assert folded == held
    assert len(rows_of(empty, "audit")) == 2
    before = {table: rows_of(empty, table) for table in (*all_rows(empty), "audit")}
    shutil.rmtree(empty / "catalog")
    assert rebuild(spark, str(empty)).states == {"complete": 3}
    assert {table: rows_of(empty, table) for table in before} == before
    assert take(spark, empty, folder=str(out), trust_roots=(str(root),))["backups"] == 0
    assert {table: rows_of(empty, table) for table in before} == before, "a rebuilt log knows no transactions"


@pytest.mark.long
def test_a_root_that_nobody_vouched_for_is_left_out(
    spark: SparkSession, root: Path, empty: Path, tmp_path: Path
) -> None:
    """Here, since Spark filters the rows. A forged row could name any folder for a destination."""
    out, said = tmp_path / "rows", io.StringIO()
    catalog_export.run(ExportRequest(str(root), str(out)), reporter=quiet())
    strange = str(tmp_path / "strange")
    with pytest.raises(UsageProblem, match="no repository of the export lies there"):
        take(spark, empty, folder=str(out), trust_roots=(strange,))
    aside = (root / "lakebackup.json").rename(root / "aside")
    with pytest.raises(Refused, match="does not prove"):
        take(spark, empty, folder=str(out), trust_roots=(str(root),))
    assert rows_of(empty, "backups") == []
    aside.rename(root / "lakebackup.json")
    request = ImportRequest(destination=str(empty), folder=str(out))
    done = catalog_import.run(request, spark=spark, reporter=Reporter(io.StringIO(), said))
    assert done["backups"] == 3
    assert f"repeated with --trust-root file://{root}" in said.getvalue()
    assert CatalogReader.require(str(empty)).destinations().uris == {}
    assert take(spark, empty, folder=str(out), trust_roots=(str(root),))["backups"] == 0
    assert list(CatalogReader.require(str(empty)).destinations().uris.values()) == [f"file://{root}"]


def test_an_export_holds_no_row_that_does_not_count_and_is_never_mixed(
    root: Path, empty_catalog: Path, tmp_path: Path
) -> None:
    shutil.rmtree(root / "catalog" / "backups")
    shutil.copytree(empty_catalog / "backups", root / "catalog" / "backups")
    told = catalog_export.run(ExportRequest(str(root), str(tmp_path / "rows")), reporter=quiet())
    assert {row["table"] for row in told["tables"]} == {"audit", "destinations"}
    with pytest.raises(Refused, match="already"):
        catalog_export.run(ExportRequest(str(root), str(tmp_path / "rows")), reporter=quiet())


def test_a_torn_export_is_not_taken(spark: SparkSession, root: Path, empty: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows"
    catalog_export.run(ExportRequest(str(root), str(out)), reporter=quiet())
    file = out / "files-0000.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"bytes":100', b'"bytes":101', 1))
    with pytest.raises(Damaged, match="files-0000"):
        take(spark, empty, folder=str(out))
    file.write_bytes(whole)
    (out / "lakebackup-export.json").unlink()
    with pytest.raises(NotFound, match="an incomplete one"):
        take(spark, empty, folder=str(out))
    assert rows_of(empty, "backups") == []


def test_a_damaged_catalog_is_not_exported(root: Path, tmp_path: Path) -> None:
    flip(next((root / "catalog" / "positions").glob("*.parquet")))
    with pytest.raises(Damaged, match="positions"):
        catalog_export.run(ExportRequest(str(root), str(tmp_path / "rows")), reporter=quiet())
    assert not (tmp_path / "rows" / "lakebackup-export.json").exists()


def test_an_export_that_the_catalog_contradicts_is_refused(
    spark: SparkSession, root: Path, empty: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows"
    catalog_export.run(ExportRequest(str(root), str(out)), reporter=quiet())
    storage, writer = open_storage(str(empty)), CatalogWriter(spark, str(empty))
    publish(storage, writer, manifest(1))  # the same id with other files
    before = all_rows(empty)
    with pytest.raises(
        Refused, match=rf"backups-0000.jsonl:\d: the catalog has backup {backup_id(1)} with another"
    ):
        take(spark, empty, folder=str(out))
    assert all_rows(empty) == before


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
    gone = {
        (row["path"], row["added_in"]): row["gone_in"]
        for row in open_table(f"file://{root}/catalog/departures").to_pyarrow_table().to_pylist()
    }
    files = open_table(f"file://{root}/catalog/files").to_pyarrow_table().to_pylist()
    return sorted(
        (row["path"], row["bytes"], row["added_in"], gone.get((row["path"], row["added_in"])))
        for row in files
    )


@pytest.mark.long
@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_manifests_of_another_program_become_lifetimes(
    spark: SparkSession, empty: Path, tmp_path: Path, again: bool
) -> None:
    form = "parquet"
    days = lines(tmp_path / f"days.{form}", snapshots(1, 2, 3))
    files = lines(tmp_path / f"files.{form}", listing(s1="a1 b1 c1", s2="a1 b2", s3="a1 b2 c1 d3"))
    done = take(spark, empty, given={"backups": days, "manifests": files}, source_kind="restic")
    assert (done["backups"], done["files"], done["departures"]) == (3, 6, 2)
    assert lifetimes(empty) == [
        ("home/a", 1, 1, None),
        ("home/b", 1, 1, 2),
        ("home/b", 2, 2, None),
        ("home/c", 1, 1, 2),
        ("home/c", 1, 3, None),
        ("home/d", 3, 3, None),
    ]
    reader = CatalogReader.require(str(empty))
    shown = reader.select(
        "SELECT number, kind, parent, base, files, bytes, source_kind, intact FROM backups ORDER BY number"
    )
    assert [tuple(row.values()) for row in shown.read_all().to_pylist()] == [
        (1, "full", None, "s1", 3, 3, "restic", True),
        (2, "full", "s1", "s2", 1, 2, "restic", True),
        (3, "full", "s2", "s3", 2, 4, "restic", True),
    ]
    # Two days on: only what is new is given, and what was there is known.
    more = lines(tmp_path / f"more.{form}", snapshots(4, 5))
    later = lines(tmp_path / f"later.{form}", listing(s4="a1 b2 c1", s5="a1 e5"))
    done = take(spark, empty, given={"backups": more, "manifests": later}, source_kind="restic")
    assert (done["backups"], done["files"], done["departures"]) == (2, 1, 3)
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
    for asked in ({"select": "SELECT path FROM files"}, {"source": "laptop", "topics": ("files",)}):
        with refused:
            plan_restore(RestoreRequest(str(empty), "dir:x", **asked), CatalogReader.require(str(empty)))
    with refused:
        prune.run(prune.PruneRequest(str(empty), source="laptop", delete=True), reporter=quiet())
    # The program has forgotten the first two, and has nothing new.
    left = {"backups": lines(tmp_path / f"left.{form}", snapshots(3, 4, 5))}
    done = take(spark, empty, given=left, source_kind="restic", mirror=True, dry_run=True)
    assert done["states"] == {"deleted": 2}
    done = take(spark, empty, given=left, source_kind="restic", mirror=True)
    assert (done["backups"], done["states"]) == (0, {"deleted": 2})
    reader = CatalogReader.require(str(empty))
    restorable = reader.select("SELECT to_ts FROM coverage WHERE status = 'restorable' ORDER BY to_ts")
    assert restorable.read_all()["to_ts"].to_pylist() == [3000, 4000, 5000]
    if not again:
        return
    before = all_rows(empty)
    assert (
        take(spark, empty, given={"backups": more, "manifests": later}, source_kind="restic")["backups"] == 0
    )
    every = lines(tmp_path / f"every.{form}", snapshots(1, 2, 3, 4, 5))
    assert (
        take(spark, empty, given={"backups": every, "manifests": later}, source_kind="restic")["backups"] == 0
    )
    assert all_rows(empty) == before
    shutil.rmtree(empty / "catalog")
    assert rebuild(spark, str(empty)).states == {"complete": 3, "deleted": 2}
    assert all_rows(empty) == before


@pytest.mark.long
def test_an_import_that_died_goes_on(
    spark: SparkSession, empty: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    given = {
        "backups": lines(tmp_path / "b.jsonl", snapshots(1, 2)),
        "manifests": lines(tmp_path / "m.jsonl", listing(s1="a1", s2="b1")),
    }

    def die(*_args: Any, **_options: Any) -> None:
        raise KeyboardInterrupt

    for step in ("write_import", "append"):
        with monkeypatch.context() as patch:
            patch.setattr(catalog_import, step, die)
            with pytest.raises(KeyboardInterrupt):
                take(spark, empty, given=given)
        assert rows_of(empty, "backups") == []
    assert take(spark, empty, given=given)["backups"] == 2
    assert lifetimes(empty) == [("home/a", 1, 1, 2), ("home/b", 1, 2, None)]
    (folder,) = (empty / "imports").iterdir()
    made = read_import(open_storage(str(empty)), folder.name)
    left = {str(path.relative_to(empty)) for path in folder.iterdir()}
    assert left == {f"imports/{folder.name}/import.json", *(chunk.path for chunk in made.chunks)}
