"""The catalog's files with a flipped bit, or cut: both engines raise an error and never return other rows."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tests.support.chosen import mark_long
from tests.support.disks import flip

from lakebackup.errors import Damaged
from lakebackup.rows.tables import ARROW_SCHEMAS, columns
from lakebackup.sql_engine.delta.table import commit, open_table, write_rows
from lakebackup.sql_engine.duck import DuckEngine
from lakebackup.sql_engine.spark import SparkEngine
from lakebackup.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Rows = list[tuple[Any, ...]]
TABLES = sorted(set(ARROW_SCHEMAS) - {"migrations"})
READ_BY_SPARK = ("audit", "backups", "files")  # Spark reads all tables in the same way, and more slowly
DAMAGED = [*(("us", table) for table in TABLES), *(("spark", table) for table in READ_BY_SPARK)]


def some_rows(table: str, count: int = 40, first: int = 0) -> pa.Table:
    """Rows that satisfy every constraint: later columns have greater numbers, and place is at most number."""
    schema = ARROW_SCHEMAS[table]
    number = schema.get_field_index("number")
    words = {column.name: column.choices for column in columns(table) if column.choices}
    values_by_column = {
        field.name: [
            words[field.name][row % len(words[field.name])] if field.name in words
            else f"{field.name}-{row}" if field.type == pa.string()
            else row % 2 == 0 if field.type == pa.bool_()
            else (number if field.name == "place" else index) + row
            for row in range(first, first + count)
        ]
        for index, field in enumerate(schema)
    }  # fmt: skip
    return pa.Table.from_pydict(values_by_column, schema=schema)


def on_duckdb(uri: str, table: str) -> Rows:
    rows = DuckEngine(uri).run(f"SELECT * FROM raw_{table}", (f"raw_{table}",), {}).read_all()
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def data_file(folder: Path) -> Path:
    (uri,) = open_table(f"file://{folder}").file_uris()
    return folder / uri.rpartition("/")[2]


@pytest.fixture(scope="module")
def catalog(empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with rows in each table, in files that lakebackup wrote."""
    folder = tmp_path_factory.mktemp("damaged") / "catalog"
    shutil.copytree(empty_catalog, folder)
    storage = open_storage(str(folder))
    for table in TABLES:
        assert commit(storage, table, [write_rows(storage, table, some_rows(table))], "t")
    return folder


@pytest.fixture(scope="module")
def rewritten(catalog: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some tables with the same rows in files that Spark wrote, as after compaction of the catalog."""
    folder = tmp_path_factory.mktemp("rewritten") / "catalog"
    shutil.copytree(catalog, folder)
    for table in READ_BY_SPARK:
        rows = spark.read.format("delta").load(f"{folder}/{table}").coalesce(1)
        rows.write.format("delta").mode("overwrite").save(f"{folder}/{table}")
    return folder


@pytest.mark.parametrize(
    ("writer", "table"),
    mark_long(DAMAGED, [("us", "files"), ("us", "gaps"), ("us", "policies")]),
)
def test_a_flipped_bit_in_a_data_file_is_an_error(
    writer: str, table: str, catalog: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    folder: Path = catalog if writer == "us" else request.getfixturevalue("rewritten")
    file = data_file(folder / table)
    content, size = file.read_bytes(), file.stat().st_size
    truth = sorted(tuple(row.values()) for row in some_rows(table).to_pylist())
    assert on_duckdb(f"file://{folder}", table) == truth
    for offset in [4, size // 2, size - 20, *random.Random(table).sample(range(size), 10)]:
        flip(file, offset)
        with pytest.raises(Damaged, match="damaged"):
            on_duckdb(f"file://{folder}", table)
        file.write_bytes(content)
    if table not in READ_BY_SPARK:
        return
    engine, errors = SparkEngine(spark, f"file://{folder}"), 0
    for offset in (100, size // 2, size - 20):
        flip(file, offset)
        try:  # Spark reads, and verifies, only the parts of a file that it needs
            assert sorted(map(tuple, engine.table(table).collect())) == truth
        except (PySparkException, Py4JError):
            errors += 1
        file.write_bytes(content)
    assert errors >= 2
    assert sorted(map(tuple, engine.table(table).collect())) == truth


def cut(file: Path, sevenths: int = 4) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) * sevenths // 7])


def log(folder: Path) -> Path:
    """The newest commit of a table."""
    return max((folder / "files" / "_delta_log").glob("*.json"))


def empty_file(file: Path) -> None:
    file.write_bytes(b"")


def flipped_digit(file: Path) -> None:
    """The file is still JSON and a commit: only numbers of rows and bounds differ."""
    data = file.read_bytes()
    offset = data.index(b"numRecords") + 14
    file.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])


@pytest.mark.parametrize("damage", [cut, empty_file, flipped_digit])
def test_a_damaged_log_is_an_error(
    damage: Callable[[Path], None], catalog: Path, spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "catalog"  # a folder that Spark has not seen: it caches logs
    shutil.copytree(catalog, folder)
    damage(log(folder))
    with pytest.raises(Damaged):
        on_duckdb(f"file://{folder}", "files")
    if damage is cut:  # cut at several positions
        for sevenths in (6, 5, 3, 2, 1):
            shutil.copyfile(log(catalog), log(folder))
            cut(log(folder), sevenths)
            with pytest.raises(Damaged):
                on_duckdb(f"file://{folder}", "files")
    if damage is not empty_file:  # for Delta an empty commit is valid; jobs plan on DuckDB, which refuses it
        with pytest.raises(Damaged, match="damaged"):
            SparkEngine(spark, f"file://{folder}").table("files").collect()


@pytest.fixture(scope="module")
def with_checkpoint(catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog of one table, with so many commits that its log has a checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoint") / "catalog"
    shutil.copytree(catalog / "audit", folder / "audit")
    storage = open_storage(str(folder))
    for number in range(25):
        rows = write_rows(storage, "audit", some_rows("audit", 1, 100 + number))
        assert commit(storage, "audit", [rows], f"t{number}")
    assert len(on_duckdb(f"file://{folder}", "audit")) == 65
    return folder


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_checkpoint_is_an_error(
    damage: Callable[[Path], None], with_checkpoint: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "catalog"
    shutil.copytree(with_checkpoint, folder)
    damage(max((folder / "audit" / "_delta_log").glob("*.checkpoint.parquet")))
    with pytest.raises(Damaged):
        on_duckdb(f"file://{folder}", "audit")
