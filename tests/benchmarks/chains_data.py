"""A synthetic catalog of chains of 168 backups, a week each: real tables, without the data files.

Each week begins with a full on Sunday. Each other day begins with a backup of level 1, and each other hour
has one of level 2. In two of four weeks the backups of level 1 are cumulative. In every second week the last
hour has no backup: instead, the level 2 backups of one day are merged into one of level 1.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import duckdb
from tests.benchmarks import made_catalog
from tests.benchmarks.made_catalog import LOOSE, Part, pool, selected

SOURCE, EPOCH = "made", "0123456789abcdef" * 2
TOPICS, PARTITIONS = 5, 20  # a file of each partition in each backup
CHAIN, DAY, HOUR_MS = 168, 24, 3_600_000
MERGED_DAY = 3
KEPT_HOURS = 168  # the topics' retention
BACKUPS_A_FILE = 2_000

# h: the backup was taken at the end of this hour, counted from 0. f: it adds what came after this hour.
_RUNS = f"""
SELECT n, c, i, h, m,
  CASE WHEN i = 0 THEN greatest(h - {KEPT_HOURS}, -1) WHEN m THEN c * {CHAIN} + {MERGED_DAY * DAY}
    WHEN i % {DAY} > 0 THEN h - 1 WHEN c % 4 < 2 THEN h - {DAY} ELSE c * {CHAIN} END AS f
FROM (
  SELECT n, c, i, m, c * {CHAIN} + CASE WHEN m THEN {MERGED_DAY * DAY + DAY - 1} ELSE i END AS h
  FROM (
    SELECT n, (n - 1) // {CHAIN} AS c, (n - 1) % {CHAIN} AS i, n % {CHAIN} = 0 AND n // {CHAIN} % 2 = 1 AS m
    FROM range($first, $beyond) AS _(n)
  )
)"""
_ID = "printf('20260101T000000Z-%08x', {n})"
_BACKUPS = f"""
SELECT {_ID.format(n="n")} AS backup_id, n AS number, '{SOURCE}' AS source, 'kafka' AS source_kind,
  'd' AS destination,
  CASE WHEN i = 0 THEN 'full' WHEN m OR (i % {DAY} = 0 AND c % 4 >= 2) THEN 'cumulative' ELSE 'differential'
    END AS kind,
  CASE WHEN i = 0 THEN 0 WHEN m OR i % {DAY} = 0 THEN 1 ELSE 2 END AS level,
  CASE WHEN i > 0 THEN {_ID.format(n="f + 1")} END AS parent,
  {_ID.format(n=f"c * {CHAIN} + 1")} AS base, i AS chain_position, h + 1 AS place,
  CASE WHEN i > 0 THEN f + 1 END AS parent_place, 0 AS branch, 'complete' AS state, 'ms' AS ts_domain,
  CASE WHEN i > 0 THEN $start + (f + 1) * {HOUR_MS} END AS start_ts, $start + (h + 1) * {HOUR_MS} AS end_ts,
  ($start + n * {HOUR_MS}) * 1000 AS started_at, ($start + n * {HOUR_MS}) * 1000 AS finished_at,
  {TOPICS * PARTITIONS} AS files, {TOPICS * PARTITIONS} * 1500000 AS bytes,
  (h - f) * {TOPICS * PARTITIONS * 1000} AS entries, '' AS digest, 'read_committed' AS isolation,
  'zstandard' AS codec, 'bench@here' AS created_by, '0' AS tool, NULL AS note
FROM ({_RUNS})"""
_PARTITIONS = f"""
SELECT *, (hash(n * 1009 + t * 31 + p) >> 2)::BIGINT AS r
FROM ({_RUNS}), range($from_topic, $to_topic) AS _(t), range({PARTITIONS}) AS _(p)"""
_FILES = f"""
SELECT 'd' AS destination,
  printf('{SOURCE}/{EPOCH}/topics/t%03d/partition=%d/t%03d+%d-%010d.data', t, p, t, p, n) AS path,
  {_ID.format(n="n")} AS backup_id, n AS added_in, '{SOURCE}' AS source, printf('t%03d', t) AS scope,
  '{EPOCH}' AS epoch, p::VARCHAR AS region, 'data' AS role, 'kafka-avro-2' AS format, 'zstandard' AS codec,
  NULL AS key_id, 1000000 + r % 1000000 AS bytes, 3000000 + r % 3000000 AS raw_bytes,
  sha256(r::VARCHAR) AS sha256, (h - f) * 1000 AS entries, 'ms' AS ts_domain,
  $start + (f + 1) * {HOUR_MS} AS min_ts, $start + (h + 1) * {HOUR_MS} - 1 AS max_ts, NULL AS min_begin_ts,
  NULL AS resolved_ts, (f + 1) * 1000 AS start_position, (h + 1) * 1000 AS end_position, NULL AS start_key,
  NULL AS end_key, 0 AS null_keys, 0 AS tombstones, NULL AS cf, NULL AS op,
  CASE WHEN i = 0 THEN 0 WHEN m OR i % {DAY} = 0 THEN 1 ELSE 2 END AS level, NULL AS parent, 0 AS generation,
  NULL AS keys_path, NULL AS keys_start, NULL AS keys_blocks, NULL AS min_tid, NULL AS max_tid, n
FROM ({_PARTITIONS})"""
_POSITIONS = f"""
SELECT {_ID.format(n="n")} AS backup_id, '{SOURCE}' AS source, printf('t%03d', t) AS scope,
  '{EPOCH}' AS epoch, p::VARCHAR AS region, (f + 1) * 1000 AS start_position, (h + 1) * 1000 AS end_position,
  greatest(h - {KEPT_HOURS}, 0) * 1000 AS low_position, (h + 1) * 1000 AS high_position, NULL AS leader_epoch,
  $start + (h + 1) * {HOUR_MS} AS ts, n
FROM ({_PARTITIONS})"""
_SCOPES = f"""
SELECT {_ID.format(n="n")} AS backup_id, '{SOURCE}' AS source, printf('t%03d', t) AS scope,
  '{EPOCH}' AS epoch, {PARTITIONS} AS regions,
  '{{"cleanup.policy":"delete","retention.ms":"{KEPT_HOURS * HOUR_MS}"}}' AS settings,
  3 AS replication, 0 AS generation, n
FROM ({_RUNS}), range($from_topic, $to_topic) AS _(t)"""
_TEXTS = {"backups": _BACKUPS, "files": _FILES, "positions": _POSITIONS, "scopes": _SCOPES}


def parts(backups: int) -> Iterator[Part]:
    """Yield the tables' files as they are after `catalog optimize` and some more commits."""
    first_loose = max(1, backups - LOOSE + 1)
    for first in range(1, first_loose, BACKUPS_A_FILE):
        beyond = min(first + BACKUPS_A_FILE, first_loose)
        for table in ("files", "positions"):
            yield from (Part(table, first, beyond, topic, topic + 1) for topic in range(TOPICS))
    for first in range(1, first_loose, 10 * BACKUPS_A_FILE):
        yield Part("scopes", first, min(first + 10 * BACKUPS_A_FILE, first_loose), 0, TOPICS)
    yield Part("backups", 1, backups + 1)
    for table in ("files", "positions", "scopes"):
        yield Part(table, first_loose, backups + 1, 0, TOPICS, loose=True)


def make(folder: Path, backups: int) -> None:
    """Make the catalog in `folder`. Its files `end` and `backups` hold the newest backup's time (ms) and the
    number of backups."""
    end = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    rows = partial(rows_of, start=end - backups * HOUR_MS)
    made_catalog.make(folder, list(parts(backups)), rows, "n")
    (folder / "end").write_text(str(end), "utf-8")
    (folder / "backups").write_text(str(backups), "utf-8")


def make_manifests(folder: Path, backups: int) -> None:
    """Write the same rows as JSON: `backups.jsonl`, and for each backup a manifest with one file per line."""
    end = int((folder / "end").read_text("utf-8"))
    (folder / "manifests").mkdir()
    chain_starts = range(1, backups + 1, CHAIN)
    with pool() as workers:
        list(workers.map(partial(_manifests, folder, end - backups * HOUR_MS, backups), chain_starts))
    with duckdb.connect(":memory:") as connection:
        rows = rows_of(connection, Part("backups", 1, backups + 1), end - backups * HOUR_MS)
        with (folder / "backups.jsonl").open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in rows.to_arrow_table().to_pylist())


def rows_of(connection: duckdb.DuckDBPyConnection, part: Part, start: int) -> duckdb.DuckDBPyRelation:
    """Return the rows of a part, in the columns of its table."""
    topics = {"from_topic": part.from_topic, "to_topic": part.to_topic}
    parameters = {"first": part.first, "beyond": part.beyond, "start": start, **topics}
    return selected(connection, _TEXTS[part.table], **parameters)


def _manifests(folder: Path, start: int, backups: int, first: int) -> None:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        rows = rows_of(connection, Part("files", first, min(first + CHAIN, backups + 1), 0, TOPICS), start)
        text = "SELECT backup_id, to_json(_) FROM (SELECT * EXCLUDE (n) FROM files) AS _ ORDER BY 1"
        backup_lines = rows.query("files", text).fetchall()
    for backup_id, group in groupby(backup_lines, key=itemgetter(0)):
        lines = "".join(f"{line}\n" for _, line in group)
        (folder / "manifests" / f"{backup_id}.jsonl").write_text(lines, "utf-8")
