"""Bounds that are taken from a WHERE clause to choose files: they skip most files, but no matching record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.made_backups import MadeBackups, Record

from lakebackup.plan.records import RecordFilter, Span, pushed_filter
from lakebackup.sql_engine.guard.check import check_select
from lakebackup.sql_engine.guard.macros import all_macros
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.query import record_query as ask

NEW_YEAR = 1_767_225_600_000


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("r.kafka_offset > 5 AND (7 >= kafka_offset)", RecordFilter(offset=Span(6, 7))),
        ("ts BETWEEN -1 AND 10 AND ts <> 5", RecordFilter(ts=Span(-1, 10))),
        ("ts = 5 AND ts > 7", RecordFilter(ts=Span(8, 5))),
        ("partition IN (4, 1)", RecordFilter(partition=Span(1, 4))),
        ("partition IN (4, 1, 1 + 1)", RecordFilter()),
        ("kafka_offset > 9223372036854775807 AND ts < 92233720368547758070", RecordFilter()),
        ("kafka_offset >= 1.5 OR ts > 1", RecordFilter()),
        ("NOT ts > 1", RecordFilter()),
        ("time >= TIMESTAMP '2026-01-01'", RecordFilter(ts=Span(NEW_YEAR))),
        ("time < '2026-01-01 00:00:01'", RecordFilter(ts=Span(0, NEW_YEAR + 999))),
        ("time > DATE '2026-01-01'", RecordFilter(ts=Span(NEW_YEAR + 1))),
        ("time <= '2026-01-01T01:00:00+01:00'", RecordFilter(ts=Span(0, NEW_YEAR))),
        ("time < current_timestamp()", RecordFilter()),
        ("key = 'a' AND 'b' = key", RecordFilter(keys=frozenset())),
        ("key IN ('a', 'b') AND key_hex IN ('62', '6g', 'FF')", RecordFilter(keys=frozenset({b"b"}))),
        ("key_hex = 'ff'", RecordFilter(keys=frozenset({b"\xff"}))),
        ("key LIKE 'ab_c%' AND startswith(key, 'a')", RecordFilter(prefix=b"ab")),
        ("key LIKE '%b' AND key ILIKE 'A%' AND lower(key) = 'a'", RecordFilter()),
        ("key NOT LIKE 'a%' AND kafka_offset NOT BETWEEN 1 AND 2 AND key NOT IN ('a')", RecordFilter()),
        ("key_hex IS NULL", RecordFilter(no_key=True)),
        ("key IS NULL AND key_hex IS NOT NULL AND value = 'x'", RecordFilter()),
        ("kafka_offset = ts AND key = value", RecordFilter()),
    ],
)  # fmt: skip
def test_bounds_are_taken_from_a_where_clause(condition: str, expected: RecordFilter) -> None:
    checked = check_select(f"SELECT key FROM records('orders') AS r WHERE {condition}", {}, records=True)
    assert pushed_filter(checked.spark, checked.records[0].relation) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1 FROM f LEFT JOIN records('o') AS r ON r.ts = 1 WHERE r.key = 'a'", None),
        ("SELECT 1 FROM f RIGHT JOIN records('o') AS r ON r.ts = 1 WHERE r.key = 'a'", None),
        ("SELECT 1 FROM records('o') AS r FULL JOIN f ON true WHERE r.key = 'a'", None),
        ("SELECT 1 FROM records('o') AS r LEFT JOIN f ON true WHERE r.key = 'a'", b"a"),
        ("SELECT 1 FROM f JOIN records('o') AS r ON true WHERE r.key = 'a'", b"a"),
        ("SELECT 1 FROM f, records('o') AS r WHERE key = 'a'", None),
        ("SELECT 1 FROM f, records('o') AS r WHERE f.key = 'a'", None),
        ("SELECT 1 FROM (SELECT key FROM records('o')) AS r WHERE r.key = 'a'", None),
        ("SELECT 1 FROM (SELECT key FROM records('o') WHERE key = 'a') AS r WHERE r.key = 'b'", b"a"),
        ("SELECT 1 FROM f WHERE EXISTS (SELECT 1 FROM records('o') AS r WHERE r.key = 'a')", b"a"),
        ("SELECT 1 FROM records('o') AS r UNION ALL SELECT 2 FROM f WHERE key = 'a'", None),
        ("SELECT count(*) FROM records('o') AS r GROUP BY key HAVING key = 'a'", None),
    ],
)
def test_bounds_are_taken_only_from_conditions_on_records(query: str, expected: bytes | None) -> None:
    checked = check_select(query, {"f": ["key", "x"]}, records=True)
    keys = pushed_filter(checked.spark, checked.records[0].relation).keys
    assert keys == (None if expected is None else frozenset({expected}))


KEYS = (
    None,
    b"",
    b"a",
    b"ab",
    b"b",
    b"a%",
    b"\xff",
    b"ab\xfe",
    "\u00e9".encode(),
    b"k" * 70 + b"1",
    b"k" * 70 + b"2",
)


def records(first: int, end: int, partition: int) -> list[Record]:
    """Records with timestamps that are out of order or missing. Each run of ten records has its own keys."""
    return [
        Record(
            partition,
            offset,
            -1 if offset % 13 == 0 else 1000 * (offset ^ 5),
            KEYS[(offset // 10 * 3 + offset % 3) % len(KEYS)],
            str(offset).encode(),
        )
        for offset in range(first, end)
        if offset % 17
    ]


@pytest.fixture(scope="module")
def catalog(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[CatalogReader, duckdb.DuckDBPyConnection]]:
    """A reader of backups of two chains, and a DuckDB connection with all of their records."""
    backups = MadeBackups(tmp_path_factory.mktemp("asked"))
    for first in range(0, 40, 10):
        backups.backup([records(first, first + 10, partition) for partition in range(2)], filters=first != 20)
    backups.backup([records(25, 50, 0), records(35, 50, 1)], full=True, low={0: 25, 1: 35})
    backups.backup([records(50, 60, 0)])
    reader = backups.reader()
    table = ask.select(reader, "SELECT * FROM records('orders')").rows.read_all()
    assert sorted(table["kafka_offset"].to_pylist()) == sorted(
        record.offset for partition, end in ((0, 60), (1, 50)) for record in records(0, end, partition)
    )
    with duckdb.connect(":memory:") as brute:
        brute.execute("SET TimeZone = 'UTC'")
        brute.execute("; ".join(f"CREATE MACRO {macro}" for macro in all_macros()))
        brute.register("records_1", table)
        yield reader, brute


numbers = st.integers(-3, 62)
hexes = st.sampled_from(["", "61", "ff", "6162", "FF", "6", "6g", (b"k" * 70 + b"2").hex(), "c3a9"])
texts = st.sampled_from(["", "a", "ab", "b", "a%", "x", "\u00e9", "k" * 70 + "1", "k" * 71])
patterns = st.sampled_from(["a%", "%", "ab", "_", "a_", "k%1", "\u00e9%", ""])
instants = st.sampled_from(
    ["1970-01-01", "1970-01-01 00:00:05", "1970-01-01 00:00:30.5", "1970-01-01T01:00:20+01:00", "2026-01-01"]
)
compare = st.sampled_from(["=", "<", "<=", ">", ">="])


def listed(values: st.SearchStrategy[Any], quoted: bool) -> st.SearchStrategy[str]:
    samples = st.lists(values, min_size=1, max_size=3)
    return samples.map(lambda sample: ", ".join(f"'{value}'" if quoted else str(value) for value in sample))


leaves = st.one_of(
    st.builds(
        "{} {} {}".format, st.sampled_from(["kafka_offset", "r.kafka_offset", "partition"]), compare, numbers
    ),
    st.builds("ts {} {}".format, compare, numbers.map(lambda n: 1000 * n)),
    st.builds("{} {} kafka_offset".format, numbers, compare),
    st.builds("kafka_offset BETWEEN {} AND {}".format, numbers, numbers),
    st.builds("{} IN ({})".format, st.sampled_from(["partition", "kafka_offset"]), listed(numbers, False)),
    st.builds("time {} TIMESTAMP '{}'".format, compare, instants),
    st.builds("key {} '{}'".format, st.sampled_from(["=", "=", "<", ">"]), texts),
    st.builds("key IN ({})".format, listed(texts, True)),
    st.builds("key {} '{}'".format, st.sampled_from(["LIKE", "NOT LIKE"]), patterns),
    st.builds("startswith(key, '{}')".format, texts),
    st.builds("key_hex = '{}'".format, hexes),
    st.builds("key_hex IN ({})".format, listed(hexes, True)),
    st.sampled_from(["key IS NULL", "key_hex IS NULL", "key IS NOT NULL", "time IS NULL", "value = '7'"]),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("{} AND {}".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)


@settings(max_examples=settings.default.max_examples // 2)
@given(condition=conditions)
def test_a_query_gives_what_reading_all_records_gives(
    catalog: tuple[CatalogReader, duckdb.DuckDBPyConnection], condition: str
) -> None:
    reader, brute = catalog
    sql = f"SELECT partition, kafka_offset, key_hex FROM records('orders') AS r WHERE {condition}"
    checked = check_select(sql, {}, records=True)
    expected = sorted(brute.execute(checked.duckdb).fetchall())
    rows = ask.select(reader, sql).rows.read_all().to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == expected
