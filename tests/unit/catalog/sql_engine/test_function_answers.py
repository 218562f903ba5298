# ruff: noqa: E501 - values are in one piece
"""Functions give on DuckDB what Spark gave, which is recorded in tests/sql/functions; or DuckDB leaves them to
Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb
import pytest
from tests.support.edge_arguments import calls
from tests.support.function_answers import DIFFERENCES, FOLDER, duckdb_answer, recorded, same

from lakebackup.sql_engine.guard.macros import all_macros

RECORDED = recorded()
# SELECTs that are known to differ, by template: values that Python cannot hold, so that no answer of Spark is recorded
# (years before 1 and after 9999), and what docs/records.md names.
DIFFERENT: dict[str, list[str]] = json.loads((FOLDER / DIFFERENCES).read_text("utf-8"))


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("; ".join(f"CREATE MACRO {macro}" for macro in all_macros()))
        connection.execute("SET TimeZone = 'UTC'; SET enable_external_access = false")
        yield connection


@pytest.mark.parametrize("template", RECORDED)
def test_duckdb_answers_as_spark_did_or_leaves_it_to_spark(
    template: str, connection: duckdb.DuckDBPyConnection
) -> None:
    differing = []
    for (call, of_columns), by_spark in zip(calls(template), RECORDED[template], strict=True):
        for select in (f"SELECT {call} AS v", of_columns):
            answer = duckdb_answer(connection, select)
            if answer != "spark" and not same(answer, by_spark):
                differing.append((select, by_spark, answer))
    assert [select for select, *_ in differing] == DIFFERENT.get(template, []), differing
