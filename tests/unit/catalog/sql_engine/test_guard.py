from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hostile import RELATIONS, statements

from lakebackup.errors import LakebackupError, UsageProblem
from lakebackup.sql_engine.duck import DuckEngine
from lakebackup.sql_engine.guard.allowed import ONLY_SPARK, SPARK, SYNTAX
from lakebackup.sql_engine.guard.check import check_select
from lakebackup.sql_engine.guard.dialect import SelectDialect
from lakebackup.sql_engine.guard.macros import all_macros
from lakebackup.sql_engine.limits import Limits
from lakebackup.store.writer import CatalogWriter

ATTACKS: list[dict[str, str]] = yaml.safe_load(Path(__file__).with_name("guard_attacks.yml").read_text())
FUNCTIONS: list[list[str]] = yaml.safe_load(Path(__file__).with_name("guard_functions.yml").read_text())
HOSTILE: list[str] = yaml.safe_load(Path(__file__).with_name("guard_hostile.yml").read_text())
LARGE = [pytest.param(sql, marks=pytest.mark.long) for sql in statements() if sql not in HOSTILE]
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
        connection.execute("; ".join(f"CREATE MACRO {macro}" for macro in all_macros()))
        connection.execute("SET TimeZone = 'UTC'; SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection


@pytest.mark.parametrize("case", ATTACKS, ids=lambda case: case["sql"][:60])
def test_an_attack_is_refused(case: dict[str, str]) -> None:
    with pytest.raises(UsageProblem, match=re.escape(case["why"])) as refused:
        check_select(case["sql"], RELATIONS)
    assert len(str(refused.value)) < 2000
    if case["why"] != "There is no SQL":
        assert is_shown(refused.value.message, case["sql"])


def is_shown(message: str, sql: str) -> bool:
    """Whether an error quotes a line of the person's own text and marks a part of it."""
    excerpt = re.search(r"\nline (\d+): (.*)\n( +)(\^+)$", message)
    if excerpt is None:
        return False
    line = re.split(r"[\r\n]", sql)[int(excerpt[1]) - 1]
    printable = "".join(character if character.isprintable() else " " for character in line)
    start = len(excerpt[3]) - len(f"line {excerpt[1]}: ")
    return excerpt[2] in printable and 0 <= start < start + len(excerpt[4]) <= len(excerpt[2])


@pytest.mark.parametrize("case", ALLOWED, ids=lambda case: case["sql"][:60])
def test_allowed_sql_runs_and_gives_the_expected_rows(
    case: dict[str, Any], duck: duckdb.DuckDBPyConnection
) -> None:
    checked = check_select(case["sql"], RELATIONS)
    assert list(checked.relations) == case.get("relations", ["files"])
    if case.get("engine") == "spark":
        with pytest.raises(UsageProblem, match="runs on Spark only"):
            checked.text("duckdb")
        return
    rows = duck.execute(checked.text("duckdb")).fetchall()
    if "rows" in case:
        assert [list(row) for row in rows] == case["rows"]
    assert checked.explained is case.get("explained", False)


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda case: case[0])
def test_a_function_gives_on_duckdb_what_it_gives_on_spark(
    case: list[str], duck: duckdb.DuckDBPyConnection
) -> None:
    checked = check_select(f"SELECT {case[0]} AS r FROM files", RELATIONS)
    if case[2:] == ["spark"]:
        with pytest.raises(UsageProblem, match="runs on Spark only"):
            checked.text("duckdb")
    else:
        assert plain(duck.execute(checked.text("duckdb")).fetchall()) == case[1]


def test_a_column_without_a_name_is_named_after_its_expression(duck: duckdb.DuckDBPyConnection) -> None:
    columns = "count(*), sum(bytes), 1, max(scope || 'x'), bytes, max(bytes) + 1 AS sum_bytes"
    text = check_select(f"SELECT {columns} FROM files GROUP BY ALL ORDER BY sum_bytes", RELATIONS)
    names = [column[0] for column in duck.execute(text.text("duckdb")).description or ()]
    assert names == ["count", "sum_bytes_", "_1", "max_scope_x", "bytes", "sum_bytes"]
    assert re.findall("AS `(.*?)`", text.text("spark")) == [*names[:4], "sum_bytes"]


def plain(rows: object) -> str:
    """The text of one value, in the form of guard_functions.yml."""
    text = re.sub(r"Decimal\('([^']*)'\)|, tzinfo=[^,)]*(?:\.utc|>)", r"\1", str(rows)).replace(
        "bytearray(b", "(b"
    )
    text = re.sub(r"(\d)\.0\b", r"\1", text)
    return text[2:-3] if text.startswith("[(") and text.endswith(",)]") else text


def test_every_allowed_function_and_syntax_is_tested() -> None:
    import sqlglot

    selects = [case["sql"] for case in ALLOWED] + [f"SELECT {case[0]} FROM files" for case in FUNCTIONS]
    text = " ".join(selects).lower()
    assert sorted(name for name in SPARK if not re.search(rf"(?<!\w){name}(?!\w)", text)) == []
    assert ONLY_SPARK <= SPARK
    node_types = {
        type(node).__name__
        for sql in selects
        if sql[:4] in ("SELE", "WITH", "(SEL")
        for node in sqlglot.parse_one(sql, dialect=SelectDialect).walk()
    }
    assert sorted(SYNTAX - node_types) == []


def test_a_function_of_duckdb_alone_runs_there() -> None:
    checked = check_select("SELECT strftime(at, '%Y') FROM files", RELATIONS)
    assert "STRFTIME" in checked.text("duckdb").upper()
    with pytest.raises(UsageProblem, match="strftime runs on DuckDB only"):
        checked.text("spark")


@pytest.mark.parametrize(
    ("sql", "message", "mark", "hint"),
    [
        (
            "SELECT path,\n  pth\nFROM files",
            "There is no column pth.",
            "line 2:   pth\n          ^^^",
            "path",
        ),
        ("SELECT path FROM fils", "There is no relation fils.", "FROM fils\n" + " " * 25 + "^^^^", "files"),
        ("SELECT uper(path) FROM files", "There is no function uper.", "\n" + " " * 15 + "^^^^", "upper"),
        ("SELECT path FROM files WHERE (bytes > 1", "The SQL cannot be read here", "^", "Spark SQL"),
        ("EXPLAIN SELECT pth FROM files", "There is no column pth.", "\n" + " " * 23 + "^^^", "path"),
        ("DESCRIBE fils", "There is no relation fils.", "\n" + " " * 17 + "^^^^", "files"),
        ("SELECT repeat('x', 2000000) FROM files", "at most 1,000,000", "^" * 7, "SELECT"),
    ],
)
def test_an_error_marks_its_position(sql: str, message: str, mark: str, hint: str) -> None:
    with pytest.raises(UsageProblem, match=re.escape(message)) as refused:
        check_select(sql, RELATIONS)
    assert mark in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("sql", "marked"),
    [
        ("SELECT path FROM files WHERE bytes > '-1d'", "'-1d'"),
        ("SELECT f.path FROM files f WHERE bytes > 'f'", "'f'"),
        ("SELECT CAST(path AS INT) FROM files", "CAST(path AS INT)"),
        ("SELECT CAST('a.parquet' AS INT) FROM files", "'a.parquet'"),
        ("SELECT CAST(if(id = 900000, 'a.parquet', '1') AS INT) FROM range(1000000)", "'a.parquet'"),
        ("SELECT sum(path) FROM files", "sum"),
        ("SELECT CAST(if(id = 900000, 'x', '1') AS INT) FROM range(1000000)", "'x'"),
        ("SELECT split('a', '[')", "split"),
        ("SELECT sum('a' + path)\nFROM files", "SELECT sum('a' + path)"),
    ],
)
def test_an_error_of_duckdb_marks_its_position(sql: str, marked: str, tmp_path: Path) -> None:
    CatalogWriter(None, str(tmp_path)).migrate()
    engine = DuckEngine(f"{tmp_path}/catalog")
    bindings = {"files": engine.keep_rows(pa.table({"path": ["a1/b'c"], "bytes": [10]}))}
    with pytest.raises(UsageProblem) as refused:
        engine.select(check_select(sql, RELATIONS), bindings).read_all()
    quoted, mark = refused.value.message.splitlines()[-2:]
    assert quoted[mark.index("^") : len(mark)] == marked


def test_describe_shows_columns_and_their_types() -> None:
    from lakebackup.sql_engine.duck import view_columns

    text = check_select("DESCRIBE backups", view_columns()).duckdb
    assert "('backup_id', 'STRING')" in text
    assert "('kafka_offset', 'BIGINT')" in check_select("DESC records", {}, records=True).duckdb


@pytest.mark.parametrize("sql", [*HOSTILE, *LARGE])
def test_hostile_sql_ends_in_bounded_time(sql: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It ends with an answer or with one of our errors, in bounded time and memory."""
    from lakebackup.sql_engine import limits

    monkeypatch.setattr(limits, "BYTES", 512 << 20)
    engine = DuckEngine(str(tmp_path))
    row = {name: ["a1/b'c"] for name in RELATIONS["files"]} | {"bytes": [10]}
    files = pa.table(row | {"at": pa.array([0], pa.timestamp("us"))})
    bindings = {"files": engine.keep_rows(files)}
    start = time.process_time()
    try:
        checked = check_select(sql, RELATIONS)
        with Limits(engine.interrupt, seconds=0.3).running():
            for batch in engine.select(checked, bindings):
                del batch
    except LakebackupError:
        pass
    assert time.process_time() - start < 8


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


def test_a_long_list_is_allowed() -> None:
    names = ", ".join(f"'topic{number}'" for number in range(2000))
    assert "topic1999" in check_select(f"SELECT path FROM files WHERE scope IN ({names})", RELATIONS).spark


@settings(max_examples=3 * settings.default.max_examples)
@given(text=st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs"]), max_size=30))
def test_text_is_passed_unchanged_or_refused(text: str, duck: duckdb.DuckDBPyConnection) -> None:
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
    r"(?<![`\"\w])(reflect|tablesample|identifier|version|into|insert|delete|set|table)\b|[`']/|--|/\*|;|[$?]"
)


@settings(max_examples=15 * settings.default.max_examples)
@given(st.lists(st.sampled_from(WORDS), max_size=25), st.sampled_from(STARTS))
def test_random_words_are_safe_or_refused(words: list[str], start: str) -> None:
    try:
        checked = check_select(f"{start} {' '.join(words)}", RELATIONS)
    except UsageProblem:
        return
    assert set(checked.relations) <= set(RELATIONS)
    for text in (checked.spark, checked.duckdb):
        assert not DANGEROUS.search(re.sub(r"'[^']*'", "", text).lower())


def test_functions_that_duckdb_lacks_are_created_for_a_select_that_calls_one(tmp_path: Path) -> None:
    CatalogWriter(None, str(tmp_path)).migrate()
    for _ in range(2):
        engine = DuckEngine(f"{tmp_path}/catalog")
        for sql in (
            "SELECT count(*) AS found FROM files",
            "SELECT PMOD(count(*) - 3, 3) AS found FROM files",
        ):
            (row,) = engine.select(check_select(sql, RELATIONS)).read_all().to_pylist()
            assert row == {"found": 0}
