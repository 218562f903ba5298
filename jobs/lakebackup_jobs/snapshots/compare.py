"""What is to be done for a snapshot: its listing beside the catalog, one SQL text on DuckDB or Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebackup.plan.snapshots.backup import LIGHT, OVERHEAD, Amount
from lakebackup.sql_engine.failures import task_errors
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.snapshots.splits import (
    ORDER,
    WRITTEN,
    SplitWriter,
    split_schema,
)
from lakebackup_jobs.snapshots.tasks.hash import HASHED, HashRows
from lakebackup_jobs.snapshots.tasks.list import COLUMNS, ListRows, list_units, listed_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.snapshots.backup import Snapshot, Unit
    from lakebackup.sql_engine.spark import SparkEngine
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.snapshots.backup import SnapshotRequest

# More files than this are listed by tasks, and compared on Spark.
HERE = 250_000
# So many bytes are hashed at once, without tasks of Spark's.
_HASHED_HERE = 64 << 20
_HASH_TASK = 256 << 20
_COMPARED = "snapshot_compared"


class Comparison(ABC):
    """What is to be done, while it is at hand; `amount`: how much it is."""

    amount: Amount

    def __init__(self, engine: CatalogReader | SparkEngine) -> None:
        self._engine = engine

    def unlike(self) -> list[str]:
        """Files whose SHA-256 alone differs from what is stored; the first, where they are many."""
        rows = self._engine.rows("snapshot_unlike") if self.amount.changes.get("unlike") else []
        return [f"{row['folder']}/{row['name']}" for row in rows]

    @abstractmethod
    def write_splits(self, writer: SplitWriter, tasks: int) -> None:
        """Write what each of so many tasks has to do."""


@contextmanager
def compare(
    request: SnapshotRequest,
    source: str,
    snapshot: Snapshot,
    reader: CatalogReader,
    session: Callable[[], SparkSession],
) -> Iterator[Comparison]:
    """List a snapshot and compare it with what the catalog has of its source. `session` is asked for one when
    the files are many. Raises Refused (what lies there cannot be backed up), EnvironmentProblem."""
    listed = list_few(snapshot.units, request.always)
    if listed is not None:
        here = _Here(request, source, listed, reader, session)
        if here.amount.rows <= HERE:  # more when the newest backup had far more files
            yield here
            return
    with ExitStack() as stack, task_errors():
        yield _OnSpark(request, source, snapshot.units, reader, session(), stack)


def list_few(units: Sequence[Unit], always: Sequence[str]) -> pa.Table | None:
    """The files in some folders; None when they are many."""
    batches, count = [], 0
    for batch in list_units(units, always):
        batches.append(batch)
        count += len(batch)
        if count > HERE:
            return None
    return pa.Table.from_batches(batches, listed_schema())


def counted(
    request: SnapshotRequest, units: Sequence[Unit], session: Callable[[], SparkSession]
) -> tuple[int, int]:
    """How many files some folders have, and bytes. Raises as `compare` does."""
    listed = list_few(units, ())
    if listed is not None:
        return len(listed), sum(listed.column("bytes").to_pylist())
    with task_errors():
        (row,) = _listing(request, units, session()).selectExpr("COUNT(*)", "SUM(bytes)").collect()
    return row[0], row[1]


def _listing(request: SnapshotRequest, units: Sequence[Unit], spark: SparkSession) -> DataFrame:
    """The files in some folders, found by tasks."""
    count = min(len(units), 16 * request.parallelism)
    groups = tuple(tuple(units[number::count]) for number in range(count))
    return ListRows(groups, request.always).over(spark, range(count), COLUMNS)


def _asked(request: SnapshotRequest, source: str) -> dict[str, Any]:
    return {"source": source, "copy_all": request.mode == "full", "find_same": request.find_same}


def _hashing(request: SnapshotRequest, source: str) -> dict[str, Any] | None:
    """What decides which files are hashed; None: none."""
    if request.mode == "full" or not (request.verify_unchanged or request.find_same):
        return None
    return {"source": source, "verify": request.verify_unchanged, "find_same": request.find_same}


class _Here(Comparison):
    """A listing in memory, compared by DuckDB."""

    def __init__(
        self,
        request: SnapshotRequest,
        source: str,
        listed: pa.Table,
        reader: CatalogReader,
        session: Callable[[], SparkSession],
    ) -> None:
        super().__init__(reader)
        self._request, self._reader, self._session = request, reader, session
        reader.give("snapshot_listed", listed)
        asked = _hashing(request, source)
        hashed = self._hash(reader.query("snapshot_to_hash", **asked).read_all()) if asked else None
        reader.give("snapshot_hashed", hashed or arrow_schema(HASHED).empty_table())
        reader.define(_COMPARED, "snapshot_changes", **_asked(request, source))
        self.amount = Amount.of(reader.rows("snapshot_totals", pack_below=request.pack_below))

    def write_splits(self, writer: SplitWriter, tasks: int) -> None:
        query = self._reader.query("snapshot_shares", tasks=tasks, overhead=OVERHEAD, light=LIGHT)
        rows = query.read_all().cast(split_schema()).sort_by([(name, "ascending") for name in ORDER])
        list(writer(rows.combine_chunks().to_batches()))

    def _hash(self, rows: pa.Table) -> pa.Table:
        size = sum(rows["bytes"].to_pylist())
        if size <= _HASHED_HERE:
            job = HashRows(self._request.bandwidth)
            return pa.Table.from_batches(job.rows(rows.to_batches()), arrow_schema(HASHED))
        from pyspark.sql.pandas.types import from_arrow_schema

        frame = self._session().createDataFrame(rows, from_arrow_schema(rows.schema))
        with task_errors():
            return _hashed(self._request, frame, size).toArrow().cast(arrow_schema(HASHED))


class _OnSpark(Comparison):
    """A listing that tasks make, compared by Spark."""

    def __init__(
        self,
        request: SnapshotRequest,
        source: str,
        units: Sequence[Unit],
        reader: CatalogReader,
        spark: SparkSession,
        stack: ExitStack,
    ) -> None:
        from lakebackup.sql_engine.spark import SparkEngine

        self._stack, self._spark = stack, SparkEngine(spark, reader.catalog_uri)
        super().__init__(engine := self._spark)
        self._keep("snapshot_listed", _listing(request, units, spark))
        asked = _hashing(request, source)
        if asked:
            rows = self._keep("snapshot_chosen", engine.query("snapshot_to_hash", **asked))
            size = sum(row[0] or 0 for row in rows.agg({"bytes": "sum"}).collect())
            self._keep("snapshot_hashed", _hashed(request, rows, size))
        else:
            engine.give("snapshot_hashed", arrow_schema(HASHED).empty_table())
        self._keep(_COMPARED, engine.query("snapshot_changes", **_asked(request, source)))
        self.amount = Amount.of(engine.rows("snapshot_totals", pack_below=request.pack_below))

    def write_splits(self, writer: SplitWriter, tasks: int) -> None:
        rows = self._spark.query("snapshot_shares", tasks=tasks, overhead=OVERHEAD, light=LIGHT)
        rows = rows.repartition(tasks, "task").sortWithinPartitions(*ORDER)
        rows.mapInArrow(writer, WRITTEN).collect()  # a row a task

    def _keep(self, relation: str, frame: DataFrame) -> DataFrame:
        """Rows that are asked for again and again are worked out once: a listing must not be made twice."""
        kept = frame.persist()
        self._stack.callback(kept.unpersist)
        kept.createOrReplaceTempView(relation)
        return kept


def _hashed(request: SnapshotRequest, rows: DataFrame, size: int) -> DataFrame:
    if request.bandwidth:  # no more tasks than share it
        rate = request.bandwidth / request.parallelism
        return rows.repartition(request.parallelism).mapInArrow(HashRows(rate), HASHED)
    tasks = max(2 * request.parallelism, size // _HASH_TASK)
    return rows.repartition(tasks).mapInArrow(HashRows(None), HASHED)
