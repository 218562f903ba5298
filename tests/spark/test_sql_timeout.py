"""`sql --timeout` on Spark: the query's jobs are cancelled. Long: the limit itself is tested on DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.made_backups import MadeBackups

from lakebackup.errors import TimedOut

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands

pytestmark = pytest.mark.spark

LONG = """
    WITH a AS (SELECT 1 AS x UNION ALL SELECT count(*) FROM files),
         b AS (SELECT p.x + q.x + r.x + s.x AS x FROM a p CROSS JOIN a q CROSS JOIN a r CROSS JOIN a s),
         c AS (SELECT p.x + q.x + r.x + s.x AS x FROM b p CROSS JOIN b q CROSS JOIN b r CROSS JOIN b s)
    SELECT count(*) AS n FROM c p CROSS JOIN c q WHERE p.x + q.x <> 5
"""


@pytest.mark.long
def test_time_is_bounded_on_spark(spark: SparkSession, tmp_path: Path, cli: Commands) -> None:
    MadeBackups(tmp_path).flush()
    asked = ["sql", LONG, "--from", str(tmp_path), "--engine", "spark", "--timeout", "5s"]
    assert "within 5 s" in cli.fails(TimedOut.exit_code, *asked)
    assert spark.sql("SELECT 1 AS x").collect()[0]["x"] == 1
