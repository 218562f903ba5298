"""The JSON text of Debezium's messages, read by DuckDB: no Python object is made of an event."""

from __future__ import annotations

import re
from functools import cache

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged, EnvironmentProblem

# How messages with their schema begin, as JsonConverter writes them; the event is in `payload` then.
_WRAPPED = '{"schema":'
_INSIDE = re.compile(r"(?<=[\[\s])'/")
# The ids of PostgreSQL's transactions are followed by a position in its log, another one in every message.

#: Begins and ends: offset, sent (ms), status, key (as events name it), own (ids like PostgreSQL's), ts (ms),
#: count.
ENDS = r"""
    SELECT "offset", sent, x[1] AS status, regexp_replace(x[2], '^(\d+):\d+$', '\1') AS key,
        regexp_matches(x[2], '^\d+:\d+$') AS own, CAST(x[3] AS BIGINT) AS ts, CAST(x[4] AS BIGINT) AS count
    FROM (
        SELECT "offset", "timestamp" AS sent,
            json_extract_string(value, ['/status', '/id', '/ts_ms', '/event_count']) AS x
        FROM records
    )
"""
#: offset, sent (ms), key, op, store, db, name, snapshot, transaction, sub, after, source_ms: change events;
#: null what is not there.
EVENTS = r"""
    SELECT "offset", sent,
        CAST(key AS VARCHAR) AS key, x[1] AS op, x[2] AS store, coalesce(x[3], x[4], '') AS db,
        x[5] AS name, x[6] AS snapshot, regexp_replace(x[7], '^(\d+):\d+$', '\1') AS transaction,
        CAST(x[8] AS INTEGER) AS sub, x[9] AS after, TRY_CAST(x[10] AS BIGINT) AS source_ms
    FROM (
        SELECT "offset", "timestamp" AS sent,
            CASE WHEN starts_with(key, '{"schema":') THEN key->'$.payload' ELSE key->'$' END AS key,
            json_extract_string(value, [
                '/op', '/source/name', '/source/schema', '/source/db', '/source/table', '/source/snapshot',
                '/transaction/id', '/transaction/total_order', '/after', '/source/ts_ms'
            ]) AS x
        FROM records
    )
"""
_BAD = 'SELECT min("offset") FROM records WHERE NOT json_valid(value) OR NOT coalesce(json_valid(key), true)'


def ask(query: str, records: pa.RecordBatch, where: str) -> pa.Table:
    """The answer over records (offset, timestamp, key, value) of JSON text, in their order.

    Raises Damaged, naming the offset of one that is none.
    """
    numbers = {name: records[name] for name in ("offset", "timestamp")}
    texts = pa.table({**numbers, **{name: _text(records, name, where) for name in ("key", "value")}})
    wrapped = pc.starts_with(texts["value"], _WRAPPED)
    if not pc.any(wrapped).as_py():
        return _answer(query, texts, where)
    inside = _answer(_INSIDE.sub("'/payload/", query), texts.filter(wrapped), where)
    if pc.all(wrapped).as_py():
        return inside
    return pa.concat_tables([inside, _answer(query, texts.filter(pc.invert(wrapped)), where)]).sort_by(
        "offset"
    )


def _answer(query: str, texts: pa.Table, where: str) -> pa.Table:
    with _base().cursor() as base:
        base.register("records", texts)
        try:
            return base.sql(query).to_arrow_table()
        except duckdb.Error as problem:
            [(bad,)] = base.sql(_BAD).fetchall()
            if bad is not None:
                raise Damaged(f"{where} offset {bad} is not JSON.") from None
            text = re.sub(r"\s+", " ", str(problem))[:300]
            raise EnvironmentProblem(f"{where}: DuckDB cannot read the events: {text}") from problem


@cache
def _base() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1, "python_enable_replacements": False})


def _text(records: pa.RecordBatch, name: str, where: str) -> pa.Array:
    try:
        return records[name].cast(pa.string())
    except pa.ArrowInvalid:
        found = zip(records["offset"].to_pylist(), records[name].to_pylist(), strict=True)
        bad = next(offset for offset, value in found if value is not None and not _is_text(value))
        raise Damaged(f"{where} offset {bad}: its {name} is not UTF-8 text.") from None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
