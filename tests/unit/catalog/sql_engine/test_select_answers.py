"""SELECTs return on DuckDB what they returned on Spark, or DuckDB leaves them to Spark.

tests/sql/selects records Spark's answers. The tests need no JVM and take a few seconds.
"""

from __future__ import annotations

import duckdb
import pytest
from tests.support.select_answers import duckdb_answer, recorded, same_rows, selects

SELECTS = selects()
RECORDED = recorded()
# Only the engines know the types of these columns. Spark casts the texts to numbers, DuckDB the other way.
DIFFERENT = {"SELECT id AS x FROM codes UNION ALL SELECT id FROM regions"}


@pytest.mark.parametrize("select", SELECTS)
def test_duckdb_answers_as_spark_did_or_leaves_it_to_spark(
    select: str, connection: duckdb.DuckDBPyConnection
) -> None:
    answer = duckdb_answer(connection, SELECTS[select])
    assert (answer == "spark" or same_rows(select, answer, RECORDED[select])) != (select in DIFFERENT), answer


def test_most_selects_need_no_spark(connection: duckdb.DuckDBPyConnection) -> None:
    left_to_spark = [select for select in SELECTS if duckdb_answer(connection, SELECTS[select]) == "spark"]
    assert len(left_to_spark) < len(SELECTS) / 3
