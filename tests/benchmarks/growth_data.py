"""Synthetic catalogs after long use: a log's regions, and backups whose files were deleted.

Their tables are real and as commits leave them: no rows are folded.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
from tests.benchmarks import chains_data
from tests.benchmarks.made_catalog import pool

from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine.delta.change import set_states
from lakebackup.sql_engine.delta.table import commit, write_rows
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter

REGIONS, FLUSHES_A_DAY = 10_000, 288
REMOVALS_A_FILE = 50_000
_FLUSHES = """
SELECT printf('20260101T000000Z-%08x', n) AS backup_id, n AS number, 'prod' AS source,
  'changes' AS source_kind, 'd' AS destination, 'log' AS kind, 1 AS level, NULL AS parent,
  '20260101T000000Z-00000001' AS base,
  n - 1 AS chain_position, n AS place, CASE WHEN n > 1 THEN n - 1 END AS parent_place, 0 AS branch,
  'complete' AS state, 'ms' AS ts_domain, (n - 1) * 300000 AS start_ts, n * 300000 AS end_ts,
  n * 300000000 AS started_at, n * 300000000 AS finished_at, 1 AS files, 1 AS bytes, 1 AS entries,
  '' AS digest, 'read_committed' AS isolation, 'zstandard' AS codec, 'bench@here' AS created_by, '0' AS tool,
  NULL AS note, NULL AS runner
FROM range(1, $beyond) AS _(n)"""
_REGIONS = """
SELECT printf('20260101T000000Z-%08x', n) AS backup_id, n AS number, 'prod' AS source, r::VARCHAR AS region,
  (r % 3)::VARCHAR AS store, n * 300000 + r % 1000 AS resolved_ts, false AS closed, NULL AS successors
FROM range($first, $beyond) AS _(n), range($regions) AS _(r)"""
_REMOVALS = """
SELECT 'p' || added_in // 24 AS prune_id, added_in AS at, source, destination, path, backup_id, scope, epoch,
  region, bytes, 'window' AS reason, NULL AS files
FROM given"""


def make_log(folder: Path, days: int) -> None:
    """Make the catalog of a log task with 10,000 regions that flushed every five minutes for `days`."""
    writer = CatalogWriter(None, str(folder))
    writer.migrate()
    writer.register_home()
    flushes = days * FLUSHES_A_DAY
    with pool() as workers:
        added = list(workers.map(_flush, [writer.catalog_uri] * flushes, range(1, flushes + 1)))
    commit(open_storage(writer.catalog_uri), "log_regions", added, "all")
    with duckdb.connect(":memory:") as connection:
        rows = connection.sql(_FLUSHES, params={"beyond": flushes + 1}).to_arrow_table()
    storage = open_storage(writer.catalog_uri)
    added_file = write_rows(storage, "backups", rows.cast(ARROW_SCHEMAS["backups"]))
    commit(storage, "backups", [added_file], "all")


def _flush(catalog_uri: str, number: int) -> str:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        parameters = {"first": number, "beyond": number + 1, "regions": REGIONS}
        rows = connection.sql(_REGIONS, params=parameters).to_arrow_table()
    return write_rows(open_storage(catalog_uri), "log_regions", rows.cast(ARROW_SCHEMAS["log_regions"]))


def make_pruned(folder: Path, backups: int, pruned: int) -> None:
    """Make the chains of chains_data, in which a policy has deleted the first `pruned` backups."""
    chains_data.make(folder, backups)
    reader = CatalogReader(str(folder))
    pruned_files = reader.select(
        "SELECT source, destination, path, backup_id, scope, epoch, region, bytes, added_in "
        f"FROM files WHERE added_in <= {pruned}"
    ).read_all()
    storage = open_storage(f"{folder}/catalog")
    with duckdb.connect(":memory:") as connection:
        connection.register("given", pruned_files)
        rows: pa.Table = connection.sql(_REMOVALS).to_arrow_table().cast(ARROW_SCHEMAS["removals"])
    parts = (rows.slice(start, REMOVALS_A_FILE) for start in range(0, len(rows), REMOVALS_A_FILE))
    added = [write_rows(storage, "removals", part) for part in parts]
    commit(storage, "removals", added, "all")
    deleted = sorted(set(pruned_files["backup_id"].to_pylist()))
    for start in range(0, len(deleted), 1000):
        set_states(storage, deleted[start : start + 1000], "deleted")
