"""The JSON text of Debezium's messages, read by DuckDB: no Python object is made of an event."""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa

from lakebackup.errors import Damaged, EnvironmentProblem

# The ids of PostgreSQL's transactions have a place in its log behind them, another one in every message.

#: id, key (as events name it), offset, ts (ms), count: the ends of transactions.
ENDS = r"""
    SELECT "offset", id, regexp_replace(id, '^(\d+):\d+$', '\1') AS key, CAST(ts AS BIGINT) AS ts,
        CAST(n AS BIGINT) AS count
    FROM (
        SELECT "offset", j->>'$.id' AS id, j->>'$.ts_ms' AS ts, j->>'$.event_count' AS n, j->>'$.status' AS st
        FROM (SELECT "offset", coalesce(value->'$.payload', value) AS j FROM records)
    )
    WHERE st = 'END'
    ORDER BY "offset"
"""
#: offset, key, op, store, db, name, snapshot, transaction, sub, after: change events; null what is not there.
EVENTS = r"""
    SELECT "offset", CAST(key AS VARCHAR) AS key, x[1] AS op, x[2] AS store, coalesce(x[3], x[4], '') AS db,
        x[5] AS name, x[6] AS snapshot, regexp_replace(x[7], '^(\d+):\d+$', '\1') AS transaction,
        CAST(x[8] AS INTEGER) AS sub, x[9] AS after
    FROM (
        SELECT "offset", CASE WHEN wrapped IS NULL THEN key->'$' ELSE key->'$.payload' END AS key,
            json_extract_string(coalesce(wrapped, value), [
                '$.op', '$.source.name', '$.source.schema', '$.source.db', '$.source.table',
                '$.source.snapshot', '$.transaction.id', '$.transaction.total_order', '$.after'
            ]) AS x
        FROM (SELECT *, value->'$.payload' AS wrapped FROM records)
    )
    ORDER BY "offset"
"""
_BAD = 'SELECT min("offset") FROM records WHERE NOT json_valid(value) OR NOT coalesce(json_valid(key), true)'


def ask(query: str, records: pa.RecordBatch, where: str) -> pa.Table:
    """The answer over records (offset, key, value) of JSON text; raises Damaged naming one that is not."""
    texts = {"offset": records["offset"]}
    for name in ("key", "value"):
        try:
            texts[name] = records[name].cast(pa.string())
        except pa.ArrowInvalid:
            bad = next(
                i for i, v in enumerate(records[name].to_pylist()) if v is not None and not _is_text(v)
            )
            raise Damaged(f"{where} offset {records['offset'][bad]}: its {name} is no UTF-8 text.") from None
    with duckdb.connect(config={"threads": 1, "python_enable_replacements": False}) as base:
        base.register("records", pa.table(texts))
        try:
            return base.sql(query).to_arrow_table()
        except duckdb.Error as problem:
            [(bad,)] = base.sql(_BAD).fetchall()
            if bad is not None:
                raise Damaged(f"{where} offset {bad} is no JSON.") from None
            text = re.sub(r"\s+", " ", str(problem))[:300]
            raise EnvironmentProblem(f"{where}: DuckDB cannot read the events: {text}") from problem


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
