"""The catalog's tables on both engines: commits, visibility, and merges of small files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta.tables import DeltaTable
from tests.support.catalogs import APPEND_MANY, backup_id, manifest, publish, put_sidecar
from tests.support.command_line import quiet
from tests.support.disks import flip

from lakebackup.errors import Busy, Damaged, NotFound, Refused, UsageProblem
from lakebackup.rows.tables import TABLES, as_row, spark_columns
from lakebackup.rows.upkeep import Audit, Check, Migration
from lakebackup.rules import layout
from lakebackup.sql_engine import spark as spark_engine
from lakebackup.sql_engine.delta import dataset
from lakebackup.sql_engine.delta.dataset import rows_of as dataset_rows
from lakebackup.sql_engine.delta.table import append, live_paths, open_table
from lakebackup.sql_engine.spark import SparkEngine, batches_of
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease, break_lease
from lakebackup.store.plan_file import write_plan_file
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.upkeep import optimize as catalog_optimize
from lakebackup_jobs.upkeep.optimize import OptimizeRequest, run
from lakebackup_sql import names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A destination with a catalog without rows; its name needs quotes in SQL and in paths."""
    root = tmp_path_factory.mktemp("it's a `place` ü")
    assert CatalogWriter(None, str(root)).migrate() == len(names("migrations"))
    return root


@pytest.fixture
def root(empty: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(empty, tmp_path / empty.name))


def reader_of(root: Path) -> CatalogReader:
    return CatalogReader.require(str(root))


@pytest.mark.long
def test_tables_have_the_properties_that_readers_need(spark: SparkSession, root: Path) -> None:
    for table in layout_tables(root):
        delta_table = open_table(f"file://{root}/catalog/{table}")
        protocol = delta_table.protocol()
        assert protocol.min_reader_version == 1
        assert not protocol.reader_features
        settings = delta_table.metadata().configuration
        assert settings["delta.enableDeletionVectors"] == "false"
        expected = spark.createDataFrame([], spark_columns(table)).schema
        schema = SparkEngine(spark, f"file://{root}/catalog").table(table).schema
        assert [(f.name, f.dataType) for f in schema] == [(f.name, f.dataType) for f in expected]
        assert all(field.metadata.get("comment") for field in schema)
        nullable = {field.name: field.nullable for field in delta_table.schema().fields}
        assert nullable == {field.name: field.nullable for field in expected}


def layout_tables(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / "catalog").glob("*/_delta_log"))


def test_both_engines_see_a_committed_backup(spark: SparkSession, root: Path) -> None:
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    first = publish(storage, writer, manifest(1))
    publish(storage, writer, manifest(2, topics=("orders", "payments")))
    reader, engine = reader_of(root), SparkEngine(spark, writer.catalog_uri)
    assert [row["number"] for row in reader.rows("list_backups", source=None)] == [2, 1]
    assert [row.number for row in engine.query("list_backups", source=None).collect()] == [2, 1]
    files = reader.query("list_files", backup_id=backup_id(2)).read_all()
    assert files.num_rows == 4
    assert engine.query("list_files", backup_id=backup_id(2)).count() == 4
    backup_row = reader.first_row("show_backup", backup_id=backup_id(1))
    assert backup_row is not None
    assert backup_row | as_row(first.backup) == backup_row
    assert backup_row["intact"] is True
    assert reader.destinations().uris == {destination_id(storage): f"file://{root}"}
    history = DeltaTable.forPath(spark, f"{writer.catalog_uri}/backups").history()  # Delta's own package
    assert history.where("operation = 'WRITE'").count() == 2


def test_small_tables_are_reread_after_a_commit(spark: SparkSession, root: Path) -> None:
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    publish(storage, writer, manifest(1))
    engine = SparkEngine(spark, writer.catalog_uri)
    frame = engine.query("list_backups", source=None)
    assert [row.number for row in frame.collect()] == [1]
    assert "FileScan" not in frame._jdf.queryExecution().toString()
    publish(storage, writer, manifest(2))
    frame = engine.query("list_backups", source=None)
    assert [row.number for row in frame.collect()] == [2, 1]
    assert dict(frame.dtypes)["end_time"] == "timestamp"
    publish(storage, writer, manifest(3))
    for number in (2, 3):
        assert spark.sql("SELECT max(number) AS number FROM backups").collect()[0].number == number
        engine.register(["backups"])
    writer.set_states([backup_id(3)], "deleted", actor="test", reason="test")
    states = {row.number: row.state for row in engine.query("list_backups", source=None).collect()}
    assert states == {1: "complete", 2: "complete", 3: "deleted"}


def test_nothing_is_visible_before_the_row_of_backups(spark: SparkSession, root: Path) -> None:
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    publish(storage, writer, manifest(1))
    content_by_path = {
        path: path.read_bytes() for path in (root / "catalog" / "backups").rglob("*") if path.is_file()
    }
    publish(storage, writer, manifest(2))
    shutil.rmtree(root / "catalog" / "backups")  # as if the last append had not happened
    for path, content in content_by_path.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    reader = reader_of(root)
    for view in ("backups", "files", "positions", "scopes", "restore_points"):
        rows = reader.select(f"SELECT DISTINCT backup_id FROM {view}").read_all().to_pylist()
        assert rows == [{"backup_id": backup_id(1)}], view
    assert len(dataset_rows(f"file://{root}/catalog/positions")) == 4
    assert {
        row["next_sequence"] for row in reader.rows("next_sequence", source="prod", since=0, scopes=None)
    } == {2}


@pytest.mark.long
def test_a_repeated_commit_adds_nothing(spark: SparkSession, root: Path) -> None:
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    stored_manifest = publish(storage, writer, manifest(1))
    writer.commit_backup(storage, stored_manifest, source_lease=None)
    CatalogWriter(spark, str(root)).commit_backup(storage, stored_manifest, source_lease=None)
    for table, count in (("files", 2), ("positions", 2), ("scopes", 1), ("backups", 1), ("destinations", 1)):
        assert SparkEngine(spark, writer.catalog_uri).table(table).count() == count, table
        assert len(dataset_rows(f"file://{root}/catalog/{table}")) == count, table


def test_a_run_that_lost_its_lease_does_not_publish(spark: SparkSession, root: Path) -> None:
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    with Lease.acquire(storage, "source-prod", "a slow run") as lease:
        stored_manifest = put_sidecar(storage, manifest(1))
        break_lease(storage, "source-prod", "it seemed dead")
        with pytest.raises(Busy, match="it seemed dead"):
            writer.commit_backup(storage, stored_manifest, source_lease=lease)
    assert reader_of(root).rows("list_backups", source=None) == []
    with Lease.acquire(storage, "source-prod", "the next run") as lease:
        writer.commit_backup(storage, stored_manifest, source_lease=lease)
    assert len(reader_of(root).rows("list_backups", source=None)) == 1


def test_a_catalog_elsewhere_knows_where_the_destination_is(
    spark: SparkSession, empty: Path, tmp_path: Path
) -> None:
    catalog = Path(shutil.copytree(empty / "catalog", tmp_path / "tables"))
    writer = CatalogWriter(spark, str(tmp_path / "data"), str(catalog))
    storage = open_storage(str(tmp_path / "data"))
    publish(storage, writer, manifest(1))
    reader = CatalogReader.require(str(tmp_path / "other"), str(catalog))
    assert reader.destinations().uris == {destination_id(storage): f"file://{tmp_path}/data"}


def test_both_writers_refuse_a_row_that_breaks_a_constraint(spark: SparkSession, root: Path) -> None:
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    backup_manifest, parts = manifest(1)
    wrong = replace(backup_manifest, positions=[replace(backup_manifest.positions[0], start_position=11)])
    with pytest.raises(UsageProblem, match="position_order"):
        writer.commit_backup(storage, put_sidecar(storage, (wrong, parts)), source_lease=None)
    bad = [replace(parts[0][0], path="../outside")]
    frame = spark.createDataFrame([tuple(as_row(row).values()) for row in bad], spark_columns("files"))
    with pytest.raises(Exception, match="path_relative"):
        writer.append_frame("files", frame)
    assert reader_of(root).rows("list_backups", source=None) == []


def test_a_state_changes_with_an_entry_in_the_audit_log(spark: SparkSession, root: Path) -> None:
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    for number in (1, 2, 3):
        publish(storage, writer, manifest(number))
    writer.set_states([backup_id(2)], "out_of_sync", actor="me", reason="the log was cut")
    reader = reader_of(root)
    states = {
        row["number"]: (row["state"], row["intact"]) for row in reader.rows("list_backups", source=None)
    }
    assert states == {1: ("complete", True), 2: ("out_of_sync", False), 3: ("complete", False)}
    latest = reader.first_row("latest_backup", source="prod", level=None)
    assert latest is not None
    assert latest["number"] == 1
    (entry,) = storage.list("audit/")
    assert json.loads(storage.get(entry.path))["subject"] == backup_id(2)
    assert [row["action"] for row in reader.select("SELECT action FROM audit").read_all().to_pylist()] == [
        "set_state"
    ]


def test_states_change_together_and_can_be_supposed_first(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    for number in (1, 2, 3):
        publish(storage, writer, manifest(number))
    lost = (backup_id(3), backup_id(2))
    reader = reader_of(root)
    supposed = reader.supposing(dict.fromkeys(lost, "out_of_sync"))
    for catalog, expected in ((supposed, 1), (reader, 3)):
        latest = catalog.first_row("latest_backup", source="prod", level=None)
        assert latest is not None
        assert latest["number"] == expected

    def fail(*_: object, **__: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr("lakebackup.store.writer.set_states", fail)
        with pytest.raises(InterruptedError):
            writer.set_states(lost, "out_of_sync", actor="me", reason="the log was cut")
    # The audit log has it already, newest first: a catalog rebuilt from it has no backup without its parent.
    subjects = [json.loads(storage.get(entry.path))["subject"] for entry in storage.list("audit/")]
    assert subjects == list(lost)
    assert states(root) == {1: "complete", 2: "complete", 3: "complete"}
    writer.set_states(lost, "out_of_sync", actor="me", reason="the log was cut")
    assert states(root) == {1: "complete", 2: "out_of_sync", 3: "out_of_sync"}


@pytest.mark.long
def test_a_change_of_states_leaves_other_files_as_they_are(spark: SparkSession, root: Path) -> None:
    storage, writer = open_storage(str(root)), CatalogWriter(None, str(root))
    for number in (1, 2):
        publish(storage, writer, manifest(number))
    uri = f"{root}/catalog/backups"
    table_before = open_table(uri)
    writer.set_states([backup_id(2), "of nobody"], "deleted", actor="me", reason="test")
    table_after = open_table(uri)
    (unchanged_file,) = set(live_paths(table_before)) & set(live_paths(table_after))
    assert len(live_paths(table_after)) == 2
    for frame in (
        SparkEngine(spark, writer.catalog_uri).table("backups"),
        spark.read.format("delta").load(uri),
    ):
        assert {row.number: row.state for row in frame.collect()} == {1: "complete", 2: "deleted"}
    old_version = spark.read.format("delta").option("versionAsOf", table_before.version()).load(uri)
    assert {row.number: row.state for row in old_version.collect()} == {1: "complete", 2: "complete"}
    writer.set_states(["of nobody"], "deleted", actor="me", reason="test")
    assert open_table(uri).version() == table_after.version()
    torn = root / "catalog" / "backups" / Path(unchanged_file).name
    torn.write_bytes(torn.read_bytes()[:-9] + b"torn " * 2)
    with pytest.raises(Damaged):
        writer.set_states([backup_id(1)], "deleted", actor="me", reason="test")


def test_a_derived_reader_on_spark_reads_other_rows_also_through_views(
    spark: SparkSession, root: Path
) -> None:
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    for number in (1, 2, 3):
        publish(storage, writer, manifest(number))
    reader = reader_of(root).with_spark(spark)

    def newest(reader: CatalogReader) -> int:
        row = reader.first_row("latest_backup", source="prod", level=None)
        return int(row["number"]) if row else 0

    assert newest(reader) == 3
    supposed = reader.supposing({backup_id(3): "out_of_sync"})
    assert [newest(each) for each in (supposed, reader, supposed)] == [2, 3, 2]
    second_reader = reader_of(root).with_spark(spark)  # the session's names are those of both readers
    assert [newest(each) for each in (second_reader, supposed, reader)] == [3, 2, 3]


def test_a_plan_that_spark_streams_is_read_by_duckdb(spark: SparkSession, root: Path) -> None:
    rows = spark.sql(
        "SELECT 'orders' AS scope, 'e' AS epoch, CAST(id % 2 AS STRING) AS region, id AS bytes, "
        "7 AS raw_bytes, 1 AS entries, id AS start_position, id + 1 AS end_position, 0 AS min_ts, "
        "id AS max_ts FROM range(3)"
    )
    file = write_plan_file([batches_of(rows)])
    for reader in (reader_of(root), reader_of(root).with_spark(spark)):
        summary = reader.with_rows("selected", file).rows("selected_summary")
        assert [(row["region"], row["files"], row["max_ts"]) for row in summary] == [("0", 2, 2), ("1", 1, 1)]


def test_a_reader_on_spark_reads_few_rows_with_duckdb(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "_SMALL_FILES", 0)  # each table is scanned, and its rows count
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    for number in (1, 2):
        publish(storage, writer, manifest(number))
    rows_on_duckdb = reader_of(root).rows("list_files", backup_id=backup_id(1))
    assert rows_on_duckdb
    for most_rows, engine in ((1000, "duckdb"), (0, "spark")):
        monkeypatch.setattr(spark_engine, "_DUCKDB_ROWS", most_rows)
        reader = reader_of(root).with_spark(spark)
        assert reader.rows("list_files", backup_id=backup_id(1)) == rows_on_duckdb
        batches = reader.query("list_files", backup_id=backup_id(1)).read_all()
        assert batches["path"].to_pylist() == [row["path"] for row in rows_on_duckdb]
        derived = reader.with_query("chain_points", "topic_points", source="prod", scopes="orders")
        assert [row["scope"] for row in derived.rows("restore_coverage", source="prod")] == ["orders"]
        assert {query.engine for query in reader.queries} == {engine}


def states(root: Path) -> dict[int, str]:
    return {row["number"]: row["state"] for row in reader_of(root).rows("list_backups", source=None)}


def test_audit_and_check_rows_are_appended_once(spark: SparkSession, root: Path) -> None:
    writer = CatalogWriter(spark, str(root))
    entry = Audit(at=1, actor="me", action="looked", subject="x", detail="{}")
    check = Check(check_id="c", at=1, backup_id=None, destination="d", path="p", mode="stat", outcome="ok")
    writer.append([entry, check], "once")
    writer.append([entry, check], "once")
    writer.append_frame(
        "checks", spark.createDataFrame([tuple(as_row(check).values())], spark_columns("checks"))
    )
    reader = reader_of(root)
    assert reader.select("SELECT count(*) AS n FROM audit").read_all().to_pylist() == [{"n": 1}]
    assert reader.select("SELECT count(*) AS n FROM checks").read_all().to_pylist() == [{"n": 2}]


def test_an_unknown_schema_version_is_refused(spark: SparkSession, root: Path) -> None:
    storage = open_storage(str(root / "catalog"))
    append(storage, "migrations", [Migration(version=99, name="0099_later", applied_at=1)], "later")
    with pytest.raises(UsageProblem, match=rf"schema version 99.*versions up to {len(names('migrations'))}"):
        CatalogReader.open(str(root))
    with pytest.raises(UsageProblem, match="schema version 99"):
        CatalogWriter(spark, str(root)).migrate()


def test_a_newer_destination_is_refused(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    with pytest.raises(NotFound):
        destination_id(storage, create=False)
    assert destination_id(storage) == destination_id(storage)
    storage.put(layout.ROOT_FILE, b'{"format": 2, "destination": "x"}')
    with pytest.raises(UsageProblem, match="format version 2"):
        destination_id(storage)
    storage.put(layout.ROOT_FILE, b'{"format"')
    with pytest.raises(Damaged, match=r"lakebackup\.json"):
        destination_id(storage)


@pytest.mark.parametrize(
    ("processes", "each"), [(3, 5), pytest.param(4, 25, marks=pytest.mark.long, id="many")]
)
def test_appends_of_several_processes_all_succeed(root: Path, processes: int, each: int) -> None:
    catalog = str(root / "catalog")
    command = [sys.executable, "-c", APPEND_MANY, catalog]
    workers = [subprocess.Popen([*command, str(process), str(each)]) for process in range(processes)]
    assert [worker.wait(240) for worker in workers] == [0] * processes
    table = dataset_rows(f"file://{catalog}/audit")
    rows = zip(table["actor"].to_pylist(), table["at"].to_pylist(), strict=True)
    assert len(set(rows)) == len(table) == processes * each


def test_duckdb_skips_files_by_the_statistics_of_the_log(spark: SparkSession, root: Path) -> None:
    import pyarrow.dataset as ds

    from lakebackup.sql_engine.delta.dataset import dataset

    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    for number in range(1, 6):
        publish(storage, writer, manifest(number))
    uri = f"file://{root}/catalog/files"
    table = dataset(uri, open_table(uri))
    late = (ds.field("scope") == "orders") & (ds.field("min_ts") <= 5999) & (ds.field("max_ts") > 5000)
    assert len(list(table.get_fragments())) == 5
    assert len(list(table.get_fragments(late))) == 1
    uri = f"file://{root}/catalog/positions"
    small = dataset(uri, open_table(uri))
    assert len(list(small.get_fragments(ds.field("backup_id") == backup_id(3)))) == 1


def rows_of(root: Path) -> dict[str, list[str]]:
    reader = CatalogReader.require(str(root))
    relations = ("backups", "files", "positions", "scopes", "log_regions")
    return {
        r: sorted(map(str, reader.select(f"SELECT * FROM {r}").read_all().to_pylist())) for r in relations
    }


@pytest.mark.parametrize(
    "tables",
    [pytest.param(tuple(TABLES), id="all", marks=pytest.mark.long), pytest.param(("files",), id="one")],
)
def test_optimize_merges_files_and_deletes_old_ones(
    empty_catalog: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tables: tuple[str, ...],
) -> None:
    monkeypatch.setattr(catalog_optimize, "TABLES", tables)
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    storage, writer = open_storage(str(tmp_path)), CatalogWriter(None, str(tmp_path))
    for number in range(1, 4):
        publish(storage, writer, manifest(number))
    rows_before = rows_of(tmp_path)
    folder = tmp_path / "catalog" / "files"
    old = [path for path in folder.iterdir() if path.suffix == ".parquet"]
    for path in old:  # as if written nine days ago; one by a run that never committed
        os.utime(path, (time.time() - 9 * 86_400,) * 2)
    stray = folder / f"part-{'0' * 32}-{'0' * 64}.parquet"
    stray.write_bytes(b"of nobody")
    os.utime(stray, (time.time() - 9 * 86_400,) * 2)
    silent = quiet()
    with pytest.raises(Refused, match="7 days"):
        run(OptimizeRequest(str(tmp_path), retain_ms=86_400_000), reporter=silent)
    dry_run = run(OptimizeRequest(str(tmp_path), dry_run=True), reporter=silent)
    assert stray.exists()
    result = run(OptimizeRequest(str(tmp_path)), reporter=silent)
    (files,) = (row for row in result["tables"] if row["table"] == "files")
    assert (files["files"], files["files_after"]) == (3, 1)
    assert dry_run["files"] == result["files"] > result["files_after"]
    assert not stray.exists()
    assert all(path.exists() for path in old), "taken out just now: readers of the version before still may"
    assert rows_of(tmp_path) == rows_before
    merged_files = set(live_paths(open_table(f"file://{folder}")))
    publish(storage, writer, manifest(4))
    assert len(rows_of(tmp_path)["backups"]) == 4

    (merged_file,) = set(live_paths(open_table(f"file://{folder}"))) & merged_files
    flip(folder / merged_file)
    with pytest.raises(Damaged):
        rows_of(tmp_path)
