from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebackup.errors import UsageProblem
from lakebackup.sql_engine.guard.allowed import FUNCTIONS, OPTIONS, SYNTAX
from lakebackup.sql_engine.guard.check import check_select

RELATIONS = {
    "files": ["destination", "path", "backup_id", "bytes", "min_ts", "max_ts", "scope", "at"],
    "backups": ["backup_id", "number", "state", "end_ts"],
}
ATTACKS: list[dict[str, str]] = yaml.safe_load(Path(__file__).with_name("guard_attacks.yml").read_text())
ALLOWED: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("guard_allowed.yml").read_text())


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB, locked down, with one row in each relation."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE files AS SELECT 'd' AS destination, 'a1/b''c' AS path, 'b1' AS backup_id, "
            "10::BIGINT AS bytes, 0::BIGINT AS min_ts, 1000::BIGINT AS max_ts, 't' AS scope, "
            "TIMESTAMP '2024-01-02 03:04:05.678' AS at"
        )
        connection.execute(
            "CREATE TABLE backups AS SELECT 'b1' AS backup_id, 1::BIGINT AS number, 'complete' AS state, "
            "5::BIGINT AS end_ts"
        )
        connection.execute("SET TimeZone = 'UTC'; SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection


@pytest.mark.parametrize("case", ATTACKS, ids=lambda case: case["sql"][:60])
def test_an_attack_is_refused(case: dict[str, str]) -> None:
    with pytest.raises(UsageProblem, match=re.escape(case["why"])) as refused:
        check_select(case["sql"], RELATIONS)
    assert len(str(refused.value)) < 2000


@pytest.mark.parametrize("case", ALLOWED, ids=lambda case: case["sql"][:60])
def test_what_is_allowed_runs_and_says_the_same(
    case: dict[str, Any], duck: duckdb.DuckDBPyConnection
) -> None:
    checked = check_select(case["sql"], RELATIONS)
    assert list(checked.relations) == case.get("relations", ["files"])
    rows = duck.execute(checked.duckdb).fetchall()
    if "rows" in case:
        assert [list(row) for row in rows] == case["rows"]
    assert check_select(checked.spark, RELATIONS) == checked, "writing it anew changes nothing more"


def test_every_allowed_function_and_syntax_is_shown_to_run() -> None:
    import sqlglot

    seen = {
        type(node).__name__
        for case in ALLOWED
        for node in sqlglot.parse_one(case["sql"], dialect="spark").walk()
    }
    assert sorted((SYNTAX | set(FUNCTIONS.values())) - seen) == []
    assert sorted(set(OPTIONS) - {"*"} - SYNTAX - set(FUNCTIONS.values())) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT " + "(" * 110 + "1" + ")" * 110,
        "SELECT " + "- " * 4000 + "1",
        "SELECT " + "NOT " * 4000 + "true",
        "SELECT " + "1 + " * 4000 + "1",
        "SELECT " + "abs(" * 2000 + "1" + ")" * 2000,
        "SELECT " + "CASE WHEN true THEN " * 1500 + "1" + " END" * 1500,
        "SELECT path FROM " + "(SELECT path FROM " * 1500 + "files" + ")" * 1500,
        "SELECT path FROM files" + " UNION ALL SELECT path FROM files" * 1500,
        "SELECT " + "[" * 4000,
        "SELECT " + "x." * 4000 + "x",
        "SELECT CAST(1 AS " + "ARRAY<" * 3000 + "INT" + ">" * 3000 + ")",
    ],
    ids=lambda sql: sql[:40],
)
def test_deep_nesting_is_a_usage_problem(sql: str) -> None:
    with pytest.raises(UsageProblem):
        check_select(sql, RELATIONS)


@pytest.mark.parametrize(
    "sql", ["SELECT '" + "x" * 70_000 + "'", "SELECT " + "1," * 10_000 + "1"], ids=["text", "list"]
)
def test_very_long_sql_is_refused(sql: str) -> None:
    with pytest.raises(UsageProblem, match="at most"):
        check_select(sql, RELATIONS)


def test_a_long_list_is_fine() -> None:
    names = ", ".join(f"'topic{number}'" for number in range(2000))
    assert "topic1999" in check_select(f"SELECT path FROM files WHERE scope IN ({names})", RELATIONS).spark


@settings(max_examples=3 * settings.default.max_examples)
@given(text=st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs"]), max_size=30))
def test_text_arrives_as_it_was_or_is_refused(text: str, duck: duckdb.DuckDBPyConnection) -> None:
    text = text.replace('"', "'")
    try:
        checked = check_select(f'SELECT "{text}"', RELATIONS)
    except UsageProblem:
        assert "\\" in text or "${" in text
        return
    meant = re.sub(r"\\(.)", lambda escape: {"n": "\n", "r": "\r", "t": "\t"}.get(escape[1], escape[1]), text)
    assert duck.execute(checked.duckdb).fetchall() == [(meant,)]


_WORDS = """
SELECT FROM WHERE WITH AS ( ) , . * files backups path bytes a b 'x' 1 1.5 + - / = <> < AND OR NOT IN EXISTS
BETWEEN LIKE IS NULL CASE WHEN THEN ELSE END JOIN LEFT ON USING UNION ALL EXCEPT INTERSECT GROUP BY ORDER
LIMIT OVER PARTITION INTERVAL DAY CAST INT count sum upper reflect explode LATERAL VIEW VALUES TABLE PIVOT
TABLESAMPLE :p ? ; /*+ */ -- ` " { } [ ] DISTINCT HAVING OFFSET FILTER ROWS CURRENT ROW UNBOUNDED PRECEDING
VERSION OF STRUCT ARRAY > -> => :: @ $ ! ~ ^ & | || |> INTO SET DELETE INSERT text.`/etc/passwd` delta.`/x`
IDENTIFIER TRANSFORM RLIKE
"""
WORDS = _WORDS.split()
STARTS = ["SELECT", "SELECT path FROM files", "SELECT path FROM files WHERE", "WITH a AS (", ""]
# Names are always written in quotes, so outside of quotes these can only be syntax.
DANGEROUS = re.compile(
    r"(?<![`\"\w])(reflect|explode|transform|lateral|values|pivot|tablesample|identifier|version|struct|array|into"
    r"|insert|delete|set|table)\b|[`']/|--|/\*|;|[$?:{\[]"
)


@settings(max_examples=15 * settings.default.max_examples)
@given(st.lists(st.sampled_from(WORDS), max_size=25), st.sampled_from(STARTS))
def test_any_words_are_checked_or_refused_and_nothing_else_happens(words: list[str], start: str) -> None:
    try:
        checked = check_select(f"{start} {' '.join(words)}", RELATIONS)
    except UsageProblem:
        return
    assert set(checked.relations) <= set(RELATIONS)
    for text in (checked.spark, checked.duckdb):
        assert not DANGEROUS.search(re.sub(r"'[^']*'", "", text).lower())
