"""Queries the JSON text of Debezium's messages with DuckDB, so that no event becomes a Python object."""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged, EnvironmentProblem

# The beginning of a message that may contain its schema. JsonConverter then writes two fields, and the event
# is in `payload`. A row may have columns of these names too, so _WRAPPED checks both fields.
_BEGINS_WITH_SCHEMA = r'^\s*\{\s*"schema"\s*:'
_INSIDE = re.compile(r"(?<=[\[\s])'/")

#: Begins and ends of transactions: offset, sent (ms), status, id, key (the id as events name it), own (ids
#: like PostgreSQL's), ts (ms), count. PostgreSQL's ids are followed by a position in its log, which differs
#: in each message. SQL Server's ids are positions in the log of one database, so another database may have
#: the same id.
ENDS = r"""
    SELECT "offset", sent, x[1] AS status, x[2] AS id,
        CASE WHEN regexp_matches(x[2], '^[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}$') AND x[5] LIKE '%.%.%'
            THEN x[2] || '@' || lower(split_part(x[5], '.', 1))
            ELSE regexp_replace(x[2], '^(\d+):\d+$', '\1') END AS key,
        regexp_matches(x[2], '^\d+:\d+$') AS own, TRY_CAST(x[3] AS BIGINT) AS ts,
        TRY_CAST(x[4] AS BIGINT) AS count
    FROM (
        SELECT "offset", "timestamp" AS sent,
            json_extract_string(value, [
                '/status', '/id', '/ts_ms', '/event_count', '/data_collections/0/data_collection'
            ]) AS x
        FROM records
    )
"""
#: Change events: offset, sent (ms), key, op, store, kind (of the connector), db, schema, name, snapshot,
#: transaction, transaction_db (SQL Server: the same with its database, as ENDS has it), sub, after,
#: source_ms; null where the event has no value. Each path costs time, so DIGESTS and `key_structures` query
#: what few events need.
EVENTS = r"""
    SELECT "offset", sent,
        CAST(key AS VARCHAR) AS key, x[1] AS op,
        x[2] AS store, x[11] AS kind, coalesce(nullif(x[4], ''), x[12]) AS db, x[3] AS schema,
        coalesce(x[5], x[13]) AS name,
        x[6] AS snapshot, regexp_replace(x[7], '^(\d+):\d+$', '\1') AS transaction,
        CASE WHEN x[11] = 'sqlserver'
            THEN x[7] || '@' || lower(split_part(x[4], '.', 1)) END AS transaction_db,
        TRY_CAST(x[8] AS INTEGER) AS sub, x[9] AS after, TRY_CAST(x[10] AS BIGINT) AS source_ms
    FROM (
        SELECT "offset", "timestamp" AS sent,
            CASE WHEN contains(key, '"payload"') AND json_keys(key) = ['schema', 'payload'] AND (
                    json_type(key, '$.schema.type') = 'VARCHAR'
                    OR (json_extract(key, '$.schema') = 'null' AND json_type(key, '$.payload') = 'OBJECT')
                ) THEN nullif(key->'$.payload', 'null')
                ELSE nullif(key->'$', 'null') END AS key,
            json_extract_string(value, [
                '/op', '/source/name', '/source/schema', '/source/db', '/source/table', '/source/snapshot',
                '/transaction/id', '/transaction/total_order', '/after', '/source/ts_ms', '/source/connector',
                '/source/keyspace', '/source/collection'
            ]) AS x
        FROM records
    )
"""
#: A digest that tells rows without a key apart: offset, digest.
DIGESTS = r"""
    SELECT "offset", left(md5(concat_ws('|', x[1], x[2], x[3], x[4], x[5], x[6], x[7])), 12) AS digest
    FROM (
        SELECT "offset",
            json_extract_string(value, [
                '/after', '/source/lsn', '/source/file', '/source/pos', '/source/row', '/source/change_lsn',
                '/source/event_serial_no'
            ]) AS x
        FROM records
    )
"""
_STRUCTURES = "SELECT CAST(json_structure(key) AS VARCHAR) AS structure FROM records"
# Expressions for the JSON text of a value, for the types that are common in keys.
_TEXTS = {
    **dict.fromkeys(("UBIGINT", "BIGINT"), r"-?\d{1,18}"),
    "VARCHAR": r'"[^"\\]*"',
    "BOOLEAN": "(?:true|false)",
}
# Whether JsonConverter wrapped a message that begins with a schema.
_WRAPPED = r"""
    SELECT json_keys(value) = ['schema', 'payload'] AND json_type(value, '$.payload') = 'OBJECT' AS wrapped
    FROM records
"""
_BAD = "SELECT NOT json_valid(value) OR NOT coalesce(json_valid(key), true) AS bad FROM records"


def ask(query: str, records: pa.RecordBatch, origin: str) -> pa.Table:
    """Run a query over records (offset, timestamp, key, value) of JSON text; returns its rows in their order.

    Raises Damaged for a record that is not JSON or that the query cannot read; the error names its offset.
    Raises EnvironmentProblem when DuckDB fails otherwise.
    """
    numbers = {name: records[name] for name in ("offset", "timestamp")}
    texts = pa.table({**numbers, **{name: _text(records, name, origin) for name in ("key", "value")}})
    wrapped = _wrapped(texts, origin)
    if not pc.any(wrapped).as_py():
        return _answer(query, texts, origin)
    inside = _answer(_INSIDE.sub("'/payload/", query), texts.filter(wrapped), origin)
    if pc.all(wrapped).as_py():
        return inside
    return pa.concat_tables([inside, _answer(query, texts.filter(pc.invert(wrapped)), origin)]).sort_by(
        "offset"
    )


def without_tombstones(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records that have a value. A converter may write a missing value as JSON's null."""
    valued = pc.fill_null(pc.not_equal(records["value"], b"null"), fill_value=False)
    return records if pc.all(valued).as_py() else records.filter(valued)


def key_structures(keys: pa.ChunkedArray, expected: str | None) -> pa.DictionaryArray:
    """The structure of each key (JSON text) as DuckDB returns it: names and types. Null: there is no key.

    Integers of all sizes may be one type. Nearly all keys of a partition have the structure `expected`, which
    a regular expression verifies in a fraction of the time.
    """
    texts = _array(keys)
    valid = texts.is_valid()
    if expected is not None and _have(texts, expected):
        return _one_structure(expected, valid)
    structures = pa.nulls(len(texts), pa.string())
    structures = pc.replace_with_mask(structures, valid, _structures(texts.drop_null()))
    return structures.dictionary_encode(null_encoding="encode")


def _have(keys: pa.Array, structure: str) -> bool:
    """Whether all keys certainly have a structure."""
    return bool(pc.all(pc.match_substring_regex(keys, _expression(structure))).as_py())


def _one_structure(structure: str, valid: pa.Array) -> pa.DictionaryArray:
    indices = pc.if_else(valid, pa.scalar(0, pa.int32()), pa.scalar(1, pa.int32()))
    values = [structure] if valid.true_count == len(valid) else [structure, None]
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))


def _structures(keys: pa.Array) -> pa.Array:
    return _array(_run(_STRUCTURES, pa.table({"key": keys}))["structure"])


def _array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@lru_cache(maxsize=1000)
def _expression(structure: str) -> str:
    """An expression that matches only keys of a structure, or none if the structure has an uncommon type."""
    columns = json.loads(structure)
    if not isinstance(columns, dict) or not all(
        isinstance(kind, str) and kind in _TEXTS for kind in columns.values()
    ):
        return "^$"
    parts = (f"{re.escape(json.dumps(name))}:{_TEXTS[kind]}" for name, kind in columns.items())
    return r"^\{" + ",".join(parts) + r"\}$"


def _wrapped(texts: pa.Table, origin: str) -> pa.ChunkedArray:
    """Whether each message contains its schema."""
    begins = pc.fill_null(pc.match_substring_regex(texts["value"], _BEGINS_WITH_SCHEMA), fill_value=False)
    if not pc.any(begins).as_py():
        return begins
    values = _answer(_WRAPPED, texts.filter(begins), origin)["wrapped"]
    return pc.replace_with_mask(
        begins.combine_chunks(), begins.combine_chunks(), pc.fill_null(values, False).combine_chunks()
    )


def _answer(query: str, texts: pa.Table, origin: str) -> pa.Table:
    try:
        return _run(query, texts)
    except duckdb.OutOfMemoryException as error:
        raise EnvironmentProblem(f"{origin}: DuckDB cannot read the events: {_words(error)}") from error
    except duckdb.Error as error:
        for index in range(len(texts)):
            try:
                _run(query, texts.slice(index, 1))
            except duckdb.Error as cause:
                offset = texts["offset"][index].as_py()
                if _run(_BAD, texts.slice(index, 1))["bad"][0].as_py():
                    raise Damaged(f"{origin} offset {offset} is not JSON.") from None
                raise Damaged(f"{origin} offset {offset} cannot be read: {_words(cause)}") from cause
        raise EnvironmentProblem(f"{origin}: DuckDB cannot read the events: {_words(error)}") from error


def _run(query: str, texts: pa.Table) -> pa.Table:
    with _base().cursor() as base:
        base.register("records", texts)
        return base.sql(query).to_arrow_table()


def _words(error: duckdb.Error) -> str:
    return re.sub(r"\s+", " ", str(error))[:300]


@cache
def _base() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1, "python_enable_replacements": False})


def _text(records: pa.RecordBatch, name: str, origin: str) -> pa.Array:
    try:
        return records[name].cast(pa.string())
    except pa.ArrowInvalid:
        values = zip(records["offset"].to_pylist(), records[name].to_pylist(), strict=True)
        bad = next(offset for offset, value in values if value is not None and not _is_text(value))
        raise Damaged(f"{origin} offset {bad}: its {name} is not UTF-8 text.") from None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
