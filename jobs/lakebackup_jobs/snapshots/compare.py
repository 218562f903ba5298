"""What is to be done for a snapshot: its listing beside the catalog, one SQL text on DuckDB or Spark."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebackup.formats.snapshots.tree import layout_of
from lakebackup.plan.snapshots.backup import LIGHT, OVERHEAD, Amount
from lakebackup.sql_engine.failures import task_errors
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.snapshots.source import FOLDER
from lakebackup_jobs.snapshots.splits import ORDER, WRITTEN
from lakebackup_jobs.snapshots.tasks.hash import HASHED, HashRows
from lakebackup_jobs.snapshots.tasks.list import COLUMNS, ListRows, list_units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.snapshots.backup import Snapshot, Unit
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.selection import Selection
    from lakebackup_jobs.snapshots.backup import SnapshotRequest
    from lakebackup_jobs.snapshots.splits import SplitWriter

# More files than this are listed by tasks, and compared on Spark.
HERE = 250_000
# More bytes than this are hashed by tasks: below it, threads are done before Spark has started its tasks.
_HASHED_HERE = 4 << 30
_HASHERS = min(8, os.cpu_count() or 2)
# So many files a thread hashes at a time.
_HASH_ROWS = 64
_HASH_TASK = 256 << 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is to be done: `compared` has the rows of snapshot_changes, `amount` is how much it is."""

    compared: Selection
    amount: Amount

    def unlike(self) -> list[str]:
        """Files whose SHA-256 alone differs from what is stored; the first, where they are many."""
        rows = self.compared.rows("snapshot_unlike") if self.amount.changes.get("unlike") else []
        return [f"{row['folder']}/{row['name']}" for row in rows]

    def write_splits(self, writer: SplitWriter, tasks: int) -> None:
        """Write what each of so many tasks has to do."""

        def spread(rows: DataFrame) -> DataFrame:
            return rows.repartition(tasks, "task").sortWithinPartitions(*ORDER)

        self.compared.map(
            writer, WRITTEN, "snapshot_shares", spread=spread, tasks=tasks, overhead=OVERHEAD, light=LIGHT
        )


def compare(
    request: SnapshotRequest,
    source: str,
    snapshot: Snapshot,
    reader: CatalogReader,
    session: Callable[[], SparkSession],
) -> Comparison:
    """List a snapshot and compare it with what the catalog has of its source. `session` is asked for one when
    there is much to list, hash or compare, unless `--runner local` is asked for.

    Raises Refused (what lies there cannot be backed up), EnvironmentProblem, TooLarge (for DuckDB).
    """
    hashing = {
        "source": source,
        "verify": request.verify_unchanged,
        "find_same": request.find_same,
        "trust_mtime": request.trust_mtime,
    }
    if request.mode == "full":
        hashing |= {"verify": False, "find_same": False, "trust_mtime": True}
    here = request.runner == "local"
    linked = layout_of(request.layout).has_snapshot
    listed = list_few(snapshot.units, request.always, most=None if here else HERE, linked=linked)
    if listed is not None:
        reader.give("snapshot_listed", listed)
        rows = reader.query("snapshot_to_hash", **hashing).read_all()
        if here or sum(rows["bytes"].to_pylist()) <= _HASHED_HERE:
            reader.give("snapshot_hashed", _hashed_here(request, rows))
            found = _compared(request, source, reader)
            if here or found.amount.rows <= HERE:  # more when the newest backup had far more files
                return found
    spark = session()
    reader = reader.on(spark)
    with task_errors():
        _keep("snapshot_listed", _listing(request, snapshot.units, spark))
        chosen = _keep("snapshot_chosen", reader.frame("snapshot_to_hash", **hashing))
        size = sum(row[0] or 0 for row in chosen.agg({"bytes": "sum"}).collect())
        _keep("snapshot_hashed", _hashed(request, chosen, size))
    return _compared(request, source, reader)


def _compared(request: SnapshotRequest, source: str, reader: CatalogReader) -> Comparison:
    copy_all = request.mode == "full"
    compared = reader.choose(
        "snapshot_compared",
        "snapshot_changes",
        source=source,
        copy_all=copy_all,
        find_same=request.find_same,
        trust_mtime=request.trust_mtime,
    )
    return Comparison(compared, Amount.of(compared.rows("snapshot_totals", pack_below=request.pack_below)))


def _keep(relation: str, frame: DataFrame) -> DataFrame:
    """Give rows of tasks a name; they are computed once, since a listing must not be made twice."""
    kept = frame.localCheckpoint()
    kept.createOrReplaceTempView(relation)
    return kept


def list_few(
    units: Sequence[Unit], always: Sequence[str], *, most: int | None = HERE, linked: bool = False
) -> pa.Table | None:
    """What is in some folders, as `list_units` has it; None when it is more than `most`."""
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
    """How many files some folders have, and bytes. Raises as `compare` does."""
    listed = list_few(units, (), most=None if request.runner == "local" else HERE)
    if listed is not None:
        files = sum(role != FOLDER for role in listed.column("role").to_pylist())
        return files, sum(listed.column("bytes").to_pylist())
    with task_errors():
        rows = _listing(request, units, session()).where(f"role <> '{FOLDER}'")
        (row,) = rows.selectExpr("COUNT(*)", "COALESCE(SUM(bytes), 0)").collect()
    return row[0], row[1]


def _listing(request: SnapshotRequest, units: Sequence[Unit], spark: SparkSession) -> DataFrame:
    """What is in some folders, listed by tasks."""
    count = min(len(units), 16 * request.parallelism)
    groups = tuple(tuple(units[number::count]) for number in range(count))
    linked = layout_of(request.layout).has_snapshot
    return ListRows(groups, request.always, linked).over(spark, range(count), COLUMNS)


def _hashed_here(request: SnapshotRequest, rows: pa.Table) -> pa.Table:
    """What `HashRows` makes of some rows, by threads of this process."""
    hasher = HashRows(request.bandwidth and request.bandwidth / _HASHERS)
    with ThreadPoolExecutor(_HASHERS) as pool:
        parts = list(
            pool.map(lambda batch: list(hasher.rows([batch])), rows.to_batches(max_chunksize=_HASH_ROWS))
        )
    return pa.Table.from_batches([batch for part in parts for batch in part], arrow_schema(HASHED))


def _hashed(request: SnapshotRequest, rows: DataFrame, size: int) -> DataFrame:
    if request.bandwidth:  # no more tasks than share it
        rate = request.bandwidth / request.parallelism
        return rows.repartition(request.parallelism).mapInArrow(HashRows(rate), HASHED)
    tasks = max(2 * request.parallelism, size // _HASH_TASK)
    return rows.repartition(tasks).mapInArrow(HashRows(None), HASHED)
