"""DuckDB's macros of Spark's functions bind each argument once, however often they use it."""

from __future__ import annotations

import duckdb
import pytest

from lakebackup.sql_engine.guard.check import check_select

_ROWS = (
    "(SELECT '2024-02-28' AS text, DATE '2024-02-29' AS day, TIMESTAMP '2024-02-29 13:14:15' AS time) AS t"
)


def _plan(connection: duckdb.DuckDBPyConnection, call: str) -> str:
    """DuckDB's plans of a call, before and after it is optimized."""
    connection.execute("SET explain_output = 'all'")
    text = check_select(f"SELECT {call} AS v FROM {_ROWS}", {}).text("duckdb")
    return "".join(plan for _, plan in connection.execute(f"EXPLAIN (FORMAT json) {text}").fetchall())


@pytest.mark.parametrize("argument", ["'2024-01-31'", "'2024-1-31'", "text", "day", "time"])
@pytest.mark.parametrize(
    "template",
    [
        "date_add(last_day({}), 1)",
        "add_months({}, 1)",
        "date_add({}, datediff({}, '2024-1-1'))",
        "date_add({}, CAST(months_between({}, TIMESTAMP '1969-12-31 23:59:59') AS INT))",
        "date_add({}, CAST(timestampdiff(YEAR, TIMESTAMP '1969-12-31 23:59:59', {}) AS INT))",
        "to_date(concat(CAST({} AS STRING), ''))",
    ],
)
def test_plan_of_nested_calls_grows_with_their_text(
    template: str, argument: str, connection: duckdb.DuckDBPyConnection
) -> None:
    calls = [argument]
    for _ in range(4):
        calls.append(template.replace("{}", calls[-1], 1).replace("{}", argument))
    sizes = [len(_plan(connection, call)) for call in calls]
    assert sizes[4] - sizes[3] < 2 * (sizes[2] - sizes[1]) + 1_000


@pytest.mark.parametrize(
    "clause",
    [
        "HAVING months_between(max(text), min(time)) < 1",
        "GROUP BY months_between(text, time) HAVING months_between(text, time) < 1",
        "GROUP BY months_between(text, time) ORDER BY months_between(text, time)",
        "GROUP BY ALL HAVING datediff(max(time), min(text)) > 0 ORDER BY datediff(max(time), min(text))",
    ],
)
def test_macros_of_several_arguments_work_in_every_clause(
    clause: str, connection: duckdb.DuckDBPyConnection
) -> None:
    sql = f"SELECT max(time) AS latest FROM {_ROWS} {clause}"
    assert len(connection.execute(check_select(sql, {}).text("duckdb")).fetchall()) == 1
