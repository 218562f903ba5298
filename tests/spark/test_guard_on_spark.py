"""What the guard lets through says the same on Spark as on DuckDB (test_guard.py)."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lakebackup.sql_engine.guard import check_select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ALLOWED: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "unit" / "catalog" / "sql_engine" / "guard_allowed.yml").read_text()
)
VIEWS = {
    "files": "SELECT 'd' AS destination, \"a1/b'c\" AS path, 'b1' AS backup_id, 10L AS bytes, 0L AS min_ts, "
    "1000L AS max_ts, 't' AS scope, TIMESTAMP '2024-01-02 03:04:05.678' AS at",
    "backups": "SELECT 'b1' AS backup_id, 1L AS number, 'complete' AS state, 5L AS end_ts",
}


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    for name, text in VIEWS.items():
        own.sql(text).createOrReplaceTempView(name)
    yield own
    for name in VIEWS:
        own.catalog.dropTempView(name)


@pytest.mark.parametrize("case", ALLOWED, ids=lambda case: case["sql"][:60])
def test_what_is_allowed_runs_on_spark(case: dict[str, Any], session: SparkSession) -> None:
    relations = {name: session.table(name).columns for name in VIEWS}
    rows = [list(row) for row in session.sql(check_select(case["sql"], relations).spark).collect()]
    for row in rows:
        row[:] = [float(value) if isinstance(value, Decimal) else value for value in row]
    if "rows" in case:
        assert rows == case["rows"]
