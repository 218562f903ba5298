"""records('topic') in FROM, and calls that only resemble it."""

from __future__ import annotations

import pytest

from lakebackup.errors import UsageProblem
from lakebackup.sql_engine.guard.check import check_select
from lakebackup.sql_engine.guard.records import COLUMNS

FILES = {"files": ["path", "bytes"]}


@pytest.mark.parametrize(
    ("sql", "topics", "columns"),
    [
        ("SELECT kafka_offset FROM records('o') WHERE key = 'a'", ["o"], {"key", "kafka_offset"}),
        ("SELECT count(*) FROM RECORDS('o', '-2h')", ["o"], {"kafka_offset"}),
        ("SELECT r.* FROM records('o') AS r", ["o"], set(COLUMNS)),
        ("SELECT a FROM records('o') AS r(a, b)", ["o"], set(COLUMNS)),
        ("SELECT a.ts FROM records('o') a JOIN records('p') b USING (key)", ["o", "p"], {"ts", "key"}),
        ("WITH c AS (SELECT path FROM records('o')) SELECT 1 FROM c", ["o"], {"path"}),
        ("SELECT path FROM files WHERE path IN (SELECT path FROM records('o'))", ["o"], {"path"}),
        ("SELECT key AS records_1 FROM records('o') ORDER BY kafka_offset", ["o"], {"key", "kafka_offset"}),
    ],
)  # fmt: skip
def test_records_is_a_relation(sql: str, topics: list[str], columns: set[str]) -> None:
    checked = check_select(sql, FILES, records=True)
    assert [call.topic for call in checked.records] == topics
    assert {column for call in checked.records for column in call.columns} == columns
    assert set(checked.relations) <= {"files"}
    for text in (checked.spark, checked.duckdb):
        assert "records(" not in text.lower()
        assert all(call.relation in text for call in checked.records)


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("SELECT key FROM records()", "takes one text or two"),
        ("SELECT key FROM records('a', 'b', 'c')", "takes one text or two"),
        ("SELECT key FROM records(1)", "takes one text or two"),
        ("SELECT key FROM records(NULL)", "takes one text or two"),
        ("SELECT key FROM records(concat('a', 'b'))", "takes one text or two"),
        ("SELECT key FROM records((SELECT path FROM files))", "takes one text or two"),
        ("SELECT key FROM records(topic => 'a')", "takes one text or two"),
        ("SELECT key FROM x.records('a')", "not allowed"),
        ("SELECT key FROM records('a') TABLESAMPLE (5 PERCENT)", "not allowed"),
        ("SELECT key FROM LATERAL records('a')", "no column key"),
        ("SELECT key FROM TABLE(records('a'))", "may not be run"),
        ("SELECT key FROM files LATERAL VIEW records('a') x AS key", "no function records"),
        ("SELECT records('a') FROM files", "no function records"),
        ("SELECT key FROM range('a')", "no column key"),
        ("SELECT key FROM read_csv('/etc/passwd')", "may not be run|not allowed"),
        ("SELECT key FROM records_1", "no relation records_1"),
        ("SELECT records_1.key FROM records('a')", "no relation records_1"),
        ("SELECT kye FROM records('a')", "no column kye"),
        ("SELECT key FROM records('a') AS r WHERE records.key = 'a'", "no relation records"),
    ],
)
def test_invalid_calls_of_records_are_refused(sql: str, complaint: str) -> None:
    with pytest.raises(UsageProblem, match=complaint):
        check_select(sql, FILES, records=True)


def test_records_is_refused_where_nothing_can_answer_it() -> None:
    with pytest.raises(UsageProblem, match="cannot be asked here"):
        check_select("SELECT path FROM records('orders')", FILES)
