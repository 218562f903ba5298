"""The SELECTs whose results can be restored as records, their topic, and the order of the records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakebackup.errors import UsageProblem
from lakebackup.plan.records import RecordFilter, RecordsPlan
from lakebackup.plan.topics.record_select import counting, order_of, require_columns
from lakebackup.plan.topics.request import RestoreRequest, stands_for
from lakebackup.sql_engine.guard.records import RecordsCall

NEEDED = {"partition": "int", "key": "string", "value": "string"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": "string", "value": "string"}, "does not return partition"),
        ({"partition": "int", "value": "string"}, "does not return key"),
        ({"partition": "int", "key": "string"}, "does not return value"),
        ({**NEEDED, "topic": "string"}, "topic, which no record has"),
        ({**NEEDED, "KEY": "string"}, "key more than once"),
        ({**NEEDED, "partition": "string"}, "partition as STRING"),
        ({**NEEDED, "value": "double"}, "value as DOUBLE"),
        ({**NEEDED, "headers": "array<string>"}, "headers as ARRAY<STRING>"),
        ({**NEEDED, "ts": "string"}, "ts as STRING"),
    ],
)
def test_results_that_are_no_records_are_refused(columns: dict[str, str], message: str) -> None:
    with pytest.raises(UsageProblem) as raised:
        require_columns(columns, by_key=False)
    assert message in raised.value.message


def test_results_that_are_records_are_accepted() -> None:
    require_columns(NEEDED, by_key=False)
    optional_columns = {"headers": "string", "ts": "timestamp", "kafka_offset": "bigint"}
    require_columns({**NEEDED, "value": "binary", "key": "void", **optional_columns}, by_key=False)
    require_columns({"key": "string", "value": "string"}, by_key=True)


@pytest.mark.parametrize(
    ("sql", "order"),
    [
        ("SELECT partition, upper(key) AS key FROM records('a') AS r WHERE r.key <> 'x'", "source"),
        ("SELECT partition FROM records('a') ORDER BY ts", "query"),
        ("SELECT r.partition, r.kafka_offset FROM records('a') r JOIN files f ON true", "kafka_offset"),
        ("SELECT partition, max(kafka_offset) AS kafka_offset FROM records('a') GROUP BY 1", "kafka_offset"),
        ("SELECT partition FROM records('a') WHERE key IN (SELECT scope FROM files)", "unknown"),
        ("SELECT partition, lag(key) OVER (ORDER BY ts) AS key FROM records('a')", "unknown"),
        ("SELECT DISTINCT partition FROM records('a')", "unknown"),
        ("SELECT partition FROM records('a') LIMIT 5", "unknown"),
        ("SELECT partition FROM records('a') UNION ALL SELECT partition FROM records('b')", "unknown"),
        ("WITH c AS (SELECT * FROM records('a')) SELECT partition FROM c", "unknown"),
    ],
)
def test_the_order_of_the_records_of_a_partition(sql: str, order: str) -> None:
    assert order_of(sql) == order


def test_left_out_records_are_counted_unless_records_are_joined() -> None:
    left_out_count = "SUM(CASE WHEN key = 'x' THEN 0 ELSE 1 END) AS left_out"
    assert left_out_count in counting("SELECT partition FROM records('p/a', '-2h') WHERE key = 'x'", "a")
    joined = counting("SELECT b.key FROM records('b') b JOIN records('a') a ON b.key = a.key", "a")
    assert "RECORDS('a')" in joined
    assert "CAST(NULL AS BIGINT) AS left_out" in joined


def plan_of(scope: str) -> RecordsPlan:
    return RecordsPlan(RecordsCall("records_1", scope, None, ()), "lab", scope, None, None, RecordFilter())


def test_the_result_stands_for_the_only_topic_or_the_one_that_is_named() -> None:
    request = RestoreRequest("d", target="dir:x", records="SELECT")
    plan_a, plan_b = plan_of("a"), plan_of("b")
    assert stands_for(request, [plan_a, plan_a]) is plan_a
    assert stands_for(replace(request, topics=("b",)), [plan_a, plan_b]) is plan_b
    with pytest.raises(UsageProblem, match="reads a, b"):
        stands_for(request, [plan_a, plan_b])
    with pytest.raises(UsageProblem, match="reads a"):
        stands_for(replace(request, topics=("c",)), [plan_a])
    with pytest.raises(UsageProblem, match="reads no records"):
        stands_for(request, [])


@pytest.mark.parametrize(
    "flag", [{"to_ts": 0}, {"select": "SELECT"}, {"groups": ("g",)}, {"continued": True}]
)
def test_flags_that_also_choose_records_are_refused(flag: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem, match="exclude each other"):
        stands_for(replace(RestoreRequest("d", target="dir:x", records="SELECT"), **flag), [plan_of("a")])
