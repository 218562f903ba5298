# ruff: noqa: E501 - values are in one piece
"""On DuckDB, functions return what Spark returned, as tests/sql/functions records it, or DuckDB leaves the call to
Spark."""

from __future__ import annotations

import json

import duckdb
import pytest
from tests.support.edge_arguments import calls
from tests.support.function_answers import DIFFERENCES, FOLDER, duckdb_answer, equal_answers, recorded

RECORDED = recorded()
# SELECTs that are known to differ, by template.
DIFFERENT: dict[str, list[str]] = json.loads((FOLDER / DIFFERENCES).read_text("utf-8"))


@pytest.mark.parametrize("template", RECORDED)
def test_duckdb_answers_as_spark_did_or_leaves_it_to_spark(
    template: str, connection: duckdb.DuckDBPyConnection
) -> None:
    """Makes each call once, in turn with values and with columns."""
    selects = [forms[number % 2] for number, forms in enumerate(_forms(template))]
    _check_answers(connection, template, selects)


@pytest.mark.long
@pytest.mark.parametrize("template", RECORDED)
def test_each_call_is_answered_with_values_and_with_columns(
    template: str, connection: duckdb.DuckDBPyConnection
) -> None:
    for number in (0, 1):
        _check_answers(connection, template, [forms[number] for forms in _forms(template)])


def _forms(template: str) -> list[tuple[str, str]]:
    return [(f"SELECT {call} AS v", of_columns) for call, of_columns in calls(template)]


def _check_answers(connection: duckdb.DuckDBPyConnection, template: str, selects: list[str]) -> None:
    differing = []
    for select, by_spark in zip(selects, RECORDED[template], strict=True):
        answer = duckdb_answer(connection, select)
        if answer != "spark" and not equal_answers(answer, by_spark):
            differing.append((select, by_spark, answer))
    known_differences = DIFFERENT.get(template, [])
    assert [select for select, *_ in differing] == [
        select for select in selects if select in known_differences
    ], differing
