"""Queries of an earlier catalog, on both engines, beside the present one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from tests.support.catalogs import backup_id, manifest, publish

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.rows.backups import Removal
from lakebackup.rows.tables import TABLES
from lakebackup.sql_engine.spark import SparkEngine
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    Ask = Callable[[str, int | None], list[tuple[object, ...]]]

pytestmark = pytest.mark.spark

FORGOTTEN = """
SELECT f.path, r.reason, r.prune_id
FROM files AS f JOIN now_removals AS r ON r.destination = f.destination AND r.path = f.path
ORDER BY f.path
"""


def current_us() -> int:
    """The current time in µs, between two commits: their times are milliseconds."""
    time.sleep(0.005)
    now_us = time.time_ns() // 1000
    time.sleep(0.005)
    return now_us


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int | str]:
    """Two backups, then a prune of the first one's files; with the instants between them."""
    root = tmp_path_factory.mktemp("it's a `place` ü")
    empty_us = current_us()
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    writer.migrate()
    migrated_us = current_us()
    publish(storage, writer, manifest(1))
    first_us = current_us()
    publish(storage, writer, manifest(2))
    second_us = current_us()
    rows = CatalogReader.require(str(root)).rows("list_files", backup_id=backup_id(1))
    columns = ("destination", "path", "source", "scope", "epoch", "region", "bytes", "backup_id")
    writer.append(
        [
            Removal(prune_id="p1", at=second_us, reason="time", **{name: row[name] for name in columns})
            for row in rows
        ]
    )
    return {
        "root": str(root), "before": empty_us, "made": migrated_us, "first": first_us,
        "second": second_us, "pruned": current_us(),
    }  # fmt: skip


@pytest.fixture(params=["duckdb", "spark"])
def ask(request: pytest.FixtureRequest, catalog: dict[str, int | str], spark: SparkSession) -> Ask:
    root = str(catalog["root"])

    def on_duckdb(sql: str, as_of: int | None) -> list[tuple[object, ...]]:
        batches = CatalogReader.require(root, as_of=as_of).select(sql)
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    def on_spark(sql: str, as_of: int | None) -> list[tuple[object, ...]]:
        return [
            tuple(row) for row in SparkEngine(spark, f"{root}/catalog", as_of=as_of).select(sql).collect()
        ]

    return on_duckdb if request.param == "duckdb" else on_spark


@pytest.mark.parametrize(
    ("instant", "backups", "files"), [("made", 0, 0), ("first", 1, 2), ("second", 2, 4), ("pruned", 2, 2)]
)
def test_rows_are_those_of_the_instant(
    instant: str, backups: int, files: int, ask: Ask, catalog: dict[str, int | str]
) -> None:
    query = "SELECT (SELECT count(*) FROM backups), (SELECT count(*) FROM files)"
    assert ask(query, int(catalog[instant])) == [(backups, files)]


def test_files_can_be_joined_with_later_removals(ask: Ask, catalog: dict[str, int | str]) -> None:
    rows = ask(FORGOTTEN, int(catalog["second"]))
    assert [row[1:] for row in rows] == [("time", "p1"), ("time", "p1")]
    assert ask("SELECT count(*) FROM now_files", int(catalog["first"])) == [(2,)]
    # A view of views, joined with its present version.
    query = "SELECT t.backups, n.backups AS later FROM chains AS t JOIN now_chains AS n USING (base)"
    assert ask(query, int(catalog["first"])) == [(1, 2)]


def test_ages_are_relative_to_the_instant(ask: Ask, catalog: dict[str, int | str]) -> None:
    ages = (
        "SELECT DISTINCT t.age_ms + t.finished_at DIV 1000, n.age_ms > t.age_ms "
        "FROM last_success AS t JOIN now_last_success AS n USING (backup_id)"
    )
    assert ask(ages, int(catalog["second"])) == [(int(catalog["second"]) // 1000, True)]


def test_now_relations_need_as_of(ask: Ask) -> None:
    with pytest.raises(UsageProblem, match="no relation now_files"):
        ask("SELECT * FROM now_files", None)


def test_an_instant_before_the_catalog_is_refused(ask: Ask, catalog: dict[str, int | str]) -> None:
    with pytest.raises(NotFound, match="was not made yet at 2"):
        ask("SELECT * FROM files", int(catalog["before"]))


def test_versions_are_those_of_the_instant(catalog: dict[str, int | str]) -> None:
    root = str(catalog["root"])
    versions = {i: CatalogReader.require(root, as_of=int(catalog[i])).versions() for i in ("made", "second")}
    assert set(versions["second"]) == set(TABLES)
    assert versions["second"]["backups"] == versions["made"]["backups"] + 2
    assert versions["second"]["removals"] == versions["made"]["removals"]
    present = CatalogReader.require(root).versions()
    assert present["removals"] == versions["second"]["removals"] + 1


def test_queries_are_recorded(catalog: dict[str, int | str], spark: SparkSession) -> None:
    root = str(catalog["root"])
    reader, engine = CatalogReader.require(root), SparkEngine(spark, f"{root}/catalog")
    reader.rows("list_files", backup_id="b")
    reader.select("SELECT count(*) AS n FROM files")
    engine.rows("list_files", backup_id="b")
    engine.select("SELECT count(*) AS n FROM files")
    assert [entry[1:] for entry in reader.queries] == [entry[1:] for entry in engine.queries]
    assert [(entry.engine, entry.name, entry.parameters) for entry in reader.queries] == [
        ("duckdb", "list_files", {"backup_id": "b"}),
        ("duckdb", "select", {}),
    ]


@pytest.mark.long
def test_all_views_can_be_registered(catalog: dict[str, int | str], spark: SparkSession) -> None:
    SparkEngine(spark, f"{catalog['root']}/catalog").register()
    assert spark.sql("SELECT count(*) FROM restore_points WHERE scope = 'orders'").collect() == [(2,)]


@pytest.mark.long
def test_a_vacuumed_version_is_reported(ask: Ask, catalog: dict[str, int | str], spark: SparkSession) -> None:
    """The last test of this file: it deletes older versions of the table."""
    uri = f"{catalog['root']}/catalog/backups"
    rows = spark.read.format("delta").load(uri)
    rows.write.format("delta").mode("overwrite").save(uri)
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert ask("SELECT count(*) FROM backups", None) == [(2,)]
    with pytest.raises(NotFound, match="not kept any more"):
        ask("SELECT count(*) FROM backups", int(catalog["first"]))
