"""A synthetic catalog of millions of file rows over 2,000 backups: real tables, without the data files.

Each backup adds an equal number of files. Some tenths of them (`leaving`) have a row in departures within the
next 192 backups, so that questions for lifetimes have rows to read. Backups of topics still have these files.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
from tests.benchmarks import made_catalog
from tests.benchmarks.made_catalog import LOOSE, Part, selected

SOURCE = "made"
BACKUPS, PARTITIONS, FILES = 2_000, 10, 5  # FILES: of each partition in each backup
# All but the newest backups are laid out as `catalog optimize` does it, in slices of time and of topics.
SLICES = 20
TOPICS_A_SLICE = 10
START_MS, SPAN_MS = 1_780_000_000_000, 900_000

_ID = f"strftime(make_timestamp(({START_MS} + b * {SPAN_MS}) * 1000), '%Y%m%dT%H%M%SZ') || printf('-%08x', b)"
_FILES = f"""
SELECT 'd' AS destination,
  printf('{SOURCE}/%032x/topics/t%03d/partition=%d/t%03d+%d-%010d.data', t, t, p, t, p, seq) AS path,
  {_ID} AS backup_id, b AS added_in, '{SOURCE}' AS source, printf('t%03d', t) AS scope,
  printf('%032x', t) AS epoch, p::VARCHAR AS region, 'data' AS role, 'kafka-avro-2' AS format,
  'zstandard' AS codec, NULL AS key_id, 1000000 + h % 1000000 AS bytes, 3000000 + h % 3000000 AS raw_bytes,
  sha256(h::VARCHAR) AS sha256, 1000 AS entries, 'ms' AS ts_domain, least AS min_ts,
  least + {SPAN_MS // FILES - 1} AS max_ts, NULL AS min_begin_ts, NULL AS resolved_ts,
  seq * 1000 AS start_position, seq * 1000 + 1000 AS end_position, printf('%08x', h % 1000000) AS start_key,
  printf('%08x', 3000000000 + h % 1000000) AS end_key, 0 AS null_keys, 0 AS tombstones, NULL AS cf,
  NULL AS op, CASE WHEN b = 1 THEN 0 ELSE 1 END AS level, NULL AS parent, 0 AS generation,
  NULL AS keys_path, NULL AS keys_start, NULL AS keys_blocks, NULL AS min_tid, NULL AS max_tid, h, b
FROM (
  SELECT *, (b - 1) * {FILES} + k AS seq, {START_MS} + (b - 1) * {SPAN_MS} + k * {SPAN_MS // FILES} AS least,
    (hash(b * 1000003 + t * 1009 + p * 17 + k) >> 2)::BIGINT AS h
  FROM range($first, $beyond) AS _(b), range($from_topic, $to_topic) AS _(t),
    range({PARTITIONS}) AS _(p), range({FILES}) AS _(k)
)"""
_DEPARTURES = f"""
SELECT destination, path, backup_id, added_in, gone_in, source, scope, epoch, region, bytes, entries, sha256
FROM (SELECT *, added_in + 1 + (h // 10) % 192 AS gone_in FROM ({_FILES}) WHERE h % 10 >= 10 - $leaving)
WHERE gone_in BETWEEN $from_gone AND $to_gone"""
_MANIFEST = f"SELECT path, sha256, bytes, entries FROM ({_FILES})"  # a topic's files never depart
_POSITIONS = f"""
SELECT {_ID} AS backup_id, '{SOURCE}' AS source, printf('t%03d', t) AS scope, printf('%032x', t) AS epoch,
  p::VARCHAR AS region, (b - 1) * {FILES * 1000} AS start_position, b * {FILES * 1000} AS end_position,
  0 AS low_position, b * {FILES * 1000} AS high_position, NULL AS leader_epoch,
  {START_MS} + b * {SPAN_MS} AS ts, b
FROM range($first, $beyond) AS _(b), range($from_topic, $to_topic) AS _(t),
  range({PARTITIONS}) AS _(p)"""
_SCOPES = f"""
SELECT {_ID} AS backup_id, '{SOURCE}' AS source, printf('t%03d', t) AS scope, printf('%032x', t) AS epoch,
  {PARTITIONS} AS regions, '{{"cleanup.policy":"delete","retention.ms":"604800000"}}' AS settings,
  3 AS replication, 0 AS generation, b
FROM range($first, $beyond) AS _(b), range($from_topic, $to_topic) AS _(t)"""
_BACKUPS = f"""
SELECT {_ID} AS backup_id, b AS number, '{SOURCE}' AS source, 'kafka' AS source_kind, 'd' AS destination,
  CASE WHEN b = 1 THEN 'full' ELSE 'log' END AS kind, CASE WHEN b = 1 THEN 0 ELSE 1 END AS level,
  lag({_ID}) OVER (ORDER BY b) AS parent, first({_ID}) OVER (ORDER BY b) AS base, b - 1 AS chain_position,
  b AS place, CASE WHEN b > 1 THEN b - 1 END AS parent_place,
  0 AS branch, 'complete' AS state, 'ms' AS ts_domain,
  CASE WHEN b > 1 THEN {START_MS} + (b - 1) * {SPAN_MS} END AS start_ts, {START_MS} + b * {SPAN_MS} AS end_ts,
  ({START_MS} + b * {SPAN_MS}) * 1000 AS started_at, ({START_MS} + b * {SPAN_MS}) * 1000 AS finished_at,
  $to_topic::BIGINT * {PARTITIONS * FILES} AS files,
  $to_topic::BIGINT * {PARTITIONS * FILES} * 1500000 AS bytes,
  $to_topic::BIGINT * {PARTITIONS * FILES * 1000} AS entries, '' AS digest, 'read_committed' AS isolation,
  'zstandard' AS codec, 'bench@here' AS created_by, '0' AS tool, NULL AS note
FROM range(1, $beyond) AS _(b)"""
_TEXTS = {
    "files": _FILES, "departures": _DEPARTURES, "positions": _POSITIONS, "scopes": _SCOPES,
    "backups": _BACKUPS,
}  # fmt: skip


def backup_id(number: int) -> str:
    """Return the id of a backup."""
    row = duckdb.execute(f"SELECT {_ID} FROM range({number}, {number + 1}) AS _(b)").fetchone()
    assert row
    return str(row[0])


def parts(topics: int) -> Iterator[Part]:
    """Yield the tables' files as they are after `catalog optimize` and some more commits."""
    optimized = BACKUPS - LOOSE
    for number in range(SLICES):
        backup_range = 1 + number * optimized // SLICES, 1 + (number + 1) * optimized // SLICES
        for topic in range(0, topics, TOPICS_A_SLICE):
            yield Part("files", *backup_range, topic, min(topic + TOPICS_A_SLICE, topics))
            yield Part("positions", *backup_range, topic, min(topic + TOPICS_A_SLICE, topics))
        yield Part("departures", *backup_range, 0, topics)
    yield Part("scopes", 1, optimized + 1, 0, topics)
    yield Part("backups", 1, BACKUPS + 1, 0, topics)
    for table in ("files", "departures", "positions", "scopes"):
        yield Part(table, optimized + 1, BACKUPS + 1, 0, topics, loose=True)


def make(folder: Path, topics: int, leaving: int) -> int:
    """Make a catalog of `topics` * 100,000 file rows in `folder`. Returns the number of departures."""
    all_parts = list(parts(topics))
    counts = made_catalog.make(folder, all_parts, partial(rows_of, leaving=leaving), "b")
    return sum(count for part, count in zip(all_parts, counts, strict=True) if part.table == "departures")


def rows_of(connection: duckdb.DuckDBPyConnection, part: Part, leaving: int) -> duckdb.DuckDBPyRelation:
    """Return the rows of a part, in the columns of its table."""
    first = max(part.first - 193, 1) if part.table == "departures" else part.first
    departures = {"from_gone": part.first, "to_gone": part.beyond - 1, "leaving": leaving}
    topics = {"from_topic": part.from_topic, "to_topic": part.to_topic}
    return selected(connection, _TEXTS[part.table], first=first, beyond=part.beyond, **topics, **departures)


def copy_manifest(connection: duckdb.DuckDBPyConnection, number: int, topics: int, file: Path) -> None:
    """Write all files of a backup to a Parquet file, also those that earlier backups added."""
    bounds = {"first": 1, "beyond": number + 1, "from_topic": 0, "to_topic": topics}
    connection.sql(_MANIFEST, params=bounds).write_parquet(str(file))
