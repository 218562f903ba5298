"""Lists a snapshot and compares the listing with the catalog, to find which files a backup has to copy.

This process lists, hashes and compares while that is little work. Above the limits below, Spark does it.
DuckDB and Spark run the same SQL. Either way the outcome is a value and a plan file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakebackup.formats.snapshots.tree import layout_of
from lakebackup.plan.snapshots.backup import FILE_COST, ROW_COST, Amount, Snapshot, Unit
from lakebackup.sql_engine.failures import task_errors
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.lifecycle.tasks.plan_shares import Share, weighed
from lakebackup_jobs.snapshots.request import SnapshotRequest
from lakebackup_jobs.snapshots.source import FOLDER
from lakebackup_jobs.snapshots.tasks.hash import HASHED, HashRows
from lakebackup_jobs.snapshots.tasks.list import COLUMNS, ListRows, list_units

# Above this number of files, Spark tasks list them and Spark compares them.
MAX_LISTED_IN_PROCESS = 250_000
# Above this number of bytes, Spark tasks hash the files. Below it, threads are done before Spark has started.
_HASHED_HERE = 4 << 30
_HASH_THREADS = min(8, os.cpu_count() or 2)
# How many files a thread hashes at a time.
_HASH_ROWS = 64
_HASH_TASK_BYTES = 256 << 20
# The hard links of one file agree in these columns.
_FILE = ("first_scope", "first_region", "first_name")


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a snapshot differs from what the catalog has of its source.

    `amount`: what there is to do. `unlike`: the first paths of files of which only the SHA-256 differs from
    what is stored, as many as the query snapshot_unlike returns. `file`: what the tasks work on, rows of the
    query snapshot_work.
    """

    amount: Amount
    unlike: tuple[str, ...]
    file: PlanFile

    def shares(self, parallelism: int) -> list[Share]:
        """Divide the work into the shares of the tasks; none if there is nothing to do."""
        tasks = self.amount.tasks(parallelism)
        if not tasks:
            return []
        size = -(-self.amount.cost // tasks)
        return weighed(self.file.batches(columns=[*_FILE, "cost"]), size, weight="cost", together=_FILE)


def compare(
    request: SnapshotRequest,
    source: str,
    snapshot: Snapshot,
    reader: CatalogReader,
    session: Callable[[], SparkSession],
) -> Comparison:
    """List a snapshot and compare it with what the catalog has of its source.

    `session` returns a Spark session. It is called when there is much to list, hash or compare, but never
    with `--runner local`. Raises Refused (the snapshot holds something that cannot be backed up),
    EnvironmentProblem, TooLarge (for DuckDB).
    """
    hashing = {
        "source": source,
        "verify": request.verify_unchanged,
        "find_same": request.find_same,
        "trust_mtime": request.trust_mtime,
    }
    if request.mode == "full":
        hashing |= {"verify": False, "find_same": False, "trust_mtime": True}
    local_only = request.runner == "local"
    linked = layout_of(request.layout).has_snapshot
    listed = list_few(
        snapshot.units, request.always, most=None if local_only else MAX_LISTED_IN_PROCESS, linked=linked
    )
    if listed is not None:
        in_process = reader.with_rows("snapshot_listed", listed)
        rows = in_process.query("snapshot_to_hash", **hashing).read_all()
        if local_only or sum(rows["bytes"].to_pylist()) <= _HASHED_HERE:
            in_process = in_process.with_rows("snapshot_hashed", _hash_in_threads(request, rows))
            return _query_comparison(request, source, in_process)
    spark = session()
    reader = reader.with_spark(spark)
    with task_errors():
        # Without a checkpoint, each query would list and hash the files again.
        files = _list_in_tasks(request, snapshot.units, spark).localCheckpoint()
        reader = reader.with_rows("snapshot_listed", files)
        to_hash = reader.frame("snapshot_to_hash", **hashing).localCheckpoint()
        size = sum(row[0] or 0 for row in to_hash.agg({"bytes": "sum"}).collect())
        hashes = _hash_in_tasks(request, to_hash, size).localCheckpoint()
        reader = reader.with_rows("snapshot_hashed", hashes)
    return _query_comparison(request, source, reader)


def _query_comparison(request: SnapshotRequest, source: str, reader: CatalogReader) -> Comparison:
    copy_all = request.mode == "full"
    compared = reader.with_query(
        "snapshot_compared",
        "snapshot_changes",
        source=source,
        copy_all=copy_all,
        find_same=request.find_same,
        trust_mtime=request.trust_mtime,
    )
    amount = Amount.of(compared.rows("snapshot_totals", pack_below=request.pack_below))
    unlike = compared.rows("snapshot_unlike") if amount.changes.get("unlike") else []
    paths = tuple(f"{row['folder']}/{row['name']}" for row in unlike)
    return Comparison(amount, paths, compared.plan_file("snapshot_work", overhead=FILE_COST, light=ROW_COST))


def list_few(
    units: Sequence[Unit],
    always: Sequence[str],
    *,
    most: int | None = MAX_LISTED_IN_PROCESS,
    linked: bool = False,
) -> pa.Table | None:
    """Return what is in some folders, as rows of `list_units`; None when there are more than `most`."""
    batches, count = [], 0
    for batch in list_units(units, always, linked=linked):
        batches.append(batch)
        count += len(batch)
        if most is not None and count > most:
            return None
    return pa.Table.from_batches(batches, arrow_schema(COLUMNS))


def counted(
    request: SnapshotRequest, units: Sequence[Unit], session: Callable[[], SparkSession]
) -> tuple[int, int]:
    """Return the number of files in some folders, and their bytes. Raises what `compare` raises."""
    listed = list_few(units, (), most=None if request.runner == "local" else MAX_LISTED_IN_PROCESS)
    if listed is not None:
        files = sum(role != FOLDER for role in listed.column("role").to_pylist())
        return files, sum(listed.column("bytes").to_pylist())
    with task_errors():
        rows = _list_in_tasks(request, units, session()).where(f"role <> '{FOLDER}'")
        (row,) = rows.selectExpr("COUNT(*)", "COALESCE(SUM(bytes), 0)").collect()
    return row[0], row[1]


def _list_in_tasks(request: SnapshotRequest, units: Sequence[Unit], spark: SparkSession) -> DataFrame:
    """List some folders in Spark tasks."""
    count = min(len(units), 16 * request.parallelism)
    groups = tuple(tuple(units[number::count]) for number in range(count))
    linked = layout_of(request.layout).has_snapshot
    return ListRows(groups, request.always, linked).over(spark, range(count), COLUMNS)


def _hash_in_threads(request: SnapshotRequest, rows: pa.Table) -> pa.Table:
    """Run `HashRows` over some rows in threads of this process."""
    hasher = HashRows(request.bandwidth and request.bandwidth / _HASH_THREADS)
    with ThreadPoolExecutor(_HASH_THREADS) as pool:
        parts = list(
            pool.map(lambda batch: list(hasher.rows([batch])), rows.to_batches(max_chunksize=_HASH_ROWS))
        )
    return pa.Table.from_batches([batch for part in parts for batch in part], arrow_schema(HASHED))


def _hash_in_tasks(request: SnapshotRequest, rows: DataFrame, size: int) -> DataFrame:
    if request.bandwidth:  # each task has an equal share of it
        rate = request.bandwidth / request.parallelism
        return rows.repartition(request.parallelism).mapInArrow(HashRows(rate), HASHED)
    tasks = max(2 * request.parallelism, size // _HASH_TASK_BYTES)
    return rows.repartition(tasks).mapInArrow(HashRows(None), HASHED)
