"""Restores a small log by one task without SQL: in this process, or on a cluster that runs already.

Planning SQL takes seconds in a cold process. `apply.Changes` does the same for any log, with SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakebackup.encryption.objects import BackupKey
from lakebackup.errors import Damaged
from lakebackup.formats.logs.events import DEFAULT, DELETES, PUT_TYPE, WRITE
from lakebackup.plan.logs.restore import LogRestorePlan, NamedTable
from lakebackup.sql_engine.delta.dataset import rows_of
from lakebackup.sql_engine.delta.new_table import create_table
from lakebackup.sql_engine.delta.table import put_rows
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.lifecycle.tasks.task import Task, run_all
from lakebackup_jobs.logs.restore.content import LogContent
from lakebackup_jobs.logs.restore.shares import (
    CHANGES,
    ENDS,
    KEY,
    LATER,
    LOST,
    RESULT,
    VALUES,
    WRITES,
    LogShares,
    ReadJob,
    latest_of,
)
from lakebackup_jobs.targets.staged_changes import PATHS, SealChanges

#: The name of the only file that WriteChanges writes.
FILE = "part-00000.parquet"
# The columns by whose statistics readers of a restored table skip files.
_STATISTICS = {"delta.dataSkippingStatsColumns": "table_id,start_ts,commit_ts"}


@dataclass(frozen=True, slots=True)
class _SmallRestore(Task):
    """The task that restores a small log. `uri`: the folder that it writes to."""

    shares: LogShares
    plan: LogRestorePlan
    uri: str

    def final_rows(self) -> pa.Table:
        """The rows at the end of the span (RESULT)."""
        changes = self.changes()
        rows = changes.filter(pc.equal(changes["type"], PUT_TYPE)).select(arrow_schema(RESULT).names)
        if self.shares.full is None:
            return rows
        ends = last_of_tables(_table(self._read(ENDS), WRITES))
        below = behind_ends(full_rows(self.shares.full, self.plan), ends)
        below = below.join(changes.select([*KEY]), [*KEY], join_type="left anti")
        return pa.concat_tables([with_names(below, self.plan.tables, RESULT), rows])

    def changes(self, *, with_truncates: bool = False) -> pa.Table:
        """The latest change of each key (CHANGES). With `with_truncates`, also the last truncation of each
        table.

        Raises Damaged when a committed value is missing from the log.
        """
        writes = _table(latest_of(self._read(WRITE)), WRITES)
        ends = last_of_tables(_table(self._read(ENDS), WRITES))
        values = _table(self._read(DEFAULT), VALUES)
        changes = with_values(behind_ends(writes, ends), values)
        return with_names(
            pa.concat_tables([changes, ends]) if with_truncates else changes, self.plan.tables, CHANGES
        )

    def sorted_changes(self, *, with_truncates: bool) -> pa.Table:
        """The rows of a file of changes (CHANGES), sorted by table and key."""
        if self.shares.full is None:
            rows = self.changes(with_truncates=with_truncates)
        else:
            rows = self.final_rows()
            rows = rows.append_column("type", pa.repeat(pa.scalar(PUT_TYPE), len(rows)))
        return rows.sort_by(_in_order("db", "name", "key"))

    def has_ends(self) -> bool:
        """Whether a table was truncated in the span."""
        return any(len(batch) for batch in self._read(ENDS))

    def _read(self, kind: str) -> list[pa.RecordBatch]:
        job = ReadJob(self.shares, kind)
        return [
            batch for number in range(len(self.shares.shares.get(kind, ()))) for batch in job.rows(number)
        ]


class WriteTable(_SmallRestore):
    """Writes the rows at the end of the span as a file of a Delta table; a commit has to add it."""

    COLUMNS = "entries BIGINT, added STRING, error STRING"

    def run(self, number: int) -> Mapping[str, Any]:  # noqa: ARG002
        rows = self.final_rows()
        storage = open_storage(self.uri, private=False)
        added = put_rows(storage, "", rows.sort_by(_in_order("table_id", "key")), _STATISTICS)
        return {"entries": len(rows), "added": added}


@dataclass(frozen=True, slots=True)
class WriteChanges(_SmallRestore):
    """Writes the latest change of each key as FILE; with a full, its rows too."""

    COLUMNS = "entries BIGINT, error STRING"

    with_truncates: bool

    def run(self, number: int) -> Mapping[str, Any]:  # noqa: ARG002
        rows = self.sorted_changes(with_truncates=self.with_truncates)
        write_rows(open_storage(self.uri, private=False), FILE, rows.schema, rows.to_batches())
        return {"entries": len(rows)}


@dataclass(frozen=True, slots=True)
class SealSmallChanges(_SmallRestore):
    """Writes the same rows, without those of truncations, as an encrypted object below `folder`."""

    COLUMNS = f"{PATHS}, error STRING"

    folder: str
    key: BackupKey

    def run(self, number: int) -> Mapping[str, Any]:  # noqa: ARG002
        seal = SealChanges(self.uri, self.folder, self.key, CHANGES)
        return {"path": seal.write(self.sorted_changes(with_truncates=False).to_batches())}


@dataclass(frozen=True, slots=True)
class SmallChanges(LogContent):
    """A log's changes within a span, found by one task."""

    @property
    def spark(self) -> SparkSession:
        raise RuntimeError("A small log is restored without SQL.")

    def rows(self) -> DataFrame:
        raise NotImplementedError

    def changes_to(self, rows: DataFrame) -> DataFrame:
        raise NotImplementedError

    def create(self, path: str) -> bool:
        (result,) = run_all(WriteTable(self.shares, self.plan, path), range(1), self.cluster)
        info = {**self.commit, "operationMetrics": {"numOutputRows": str(result.entries)}}
        create_table(open_storage(path, private=False), arrow_schema(RESULT), [result.added], info)
        return True

    def empties_tables(self) -> bool:
        return _SmallRestore(self.shares, self.plan, "").has_ends()

    def write_files(self, path: str, *, with_truncates: bool = True) -> dict[str, int]:
        storage = open_storage(path)
        for entry in list(storage.list("")):
            storage.delete(entry.path)
        job = WriteChanges(self.shares, self.plan, path, with_truncates)
        (result,) = run_all(job, range(1), self.cluster)
        return {"entries": result.entries}

    def seal_files(self, uri: str, folder: str, key: BackupKey) -> list[str]:
        job = SealSmallChanges(self.shares, self.plan, uri, folder, key)
        return [row.path for row in run_all(job, range(1), self.cluster)]


def last_of_tables(ends: pa.Table) -> pa.Table:
    """The last truncation (WRITES) of each table, with its commit ts also as start ts."""
    nulls = pa.nulls(len(ends), pa.binary())
    truncations = ends.set_column(1, "key", pa.nulls(len(ends), pa.binary()).fill_null(b""))
    truncations = truncations.set_column(2, "value", nulls).set_column(3, "start_ts", ends["commit_ts"])
    return _table(latest_of(truncations.to_batches()), WRITES)


def behind_ends(rows: pa.Table, ends: pa.Table) -> pa.Table:
    """The rows that are later than the last truncation of their table. `ends`: one row for each table."""
    if not len(ends):
        return rows
    indices = pc.index_in(rows["table_id"], ends["table_id"].combine_chunks())
    is_later: Any = pa.scalar(False)
    for name in reversed(LATER):
        row_value, end_value = rows[name], ends[name].take(indices)
        is_later = pc.or_(pc.greater(row_value, end_value), pc.and_(pc.equal(row_value, end_value), is_later))
    return rows.filter(pc.if_else(pc.is_null(indices), True, is_later))


def with_values(rows: pa.Table, values: pa.Table) -> pa.Table:
    """Add to changes (WRITES) the values (VALUES) that their transactions prewrote; a deletion has none.

    Raises Damaged when the value of a put is missing.
    """
    value = rows["value"]
    if len(values):
        join_columns = [*KEY, "start_ts"]
        rows = rows.join(
            values.group_by(join_columns).aggregate([("value", "max")]), join_columns, join_type="left outer"
        )
        value = pc.coalesce(rows["value"], rows["value_max"])
    columns = arrow_schema(WRITES).names
    value = pc.if_else(pc.equal(rows["type"], DELETES), pa.scalar(None, pa.binary()), value)
    rows = rows.select(columns).set_column(columns.index("value"), "value", value)
    missing = rows.filter(pc.and_(pc.equal(rows["type"], PUT_TYPE), pc.is_null(value)))
    for row in missing.slice(0, 1).to_pylist():
        raise Damaged(LOST % (row["key"].hex(), row["table_id"], row["start_ts"], row["commit_ts"]))
    return rows


def full_rows(uri: str, plan: LogRestorePlan) -> pa.Table:
    """The rows of the full at `uri` that are within the restore's tables and keys, without names."""
    rows = rows_of(uri)
    rows = rows.select([name for name in arrow_schema(RESULT).names if name not in ("db", "name")])
    tables = pa.array(plan.without if plan.only is None else plan.only, pa.int64())
    is_named = pc.is_in(rows["table_id"], tables)
    mask = pc.invert(is_named) if plan.only is None else is_named
    if first_key := plan.parameters["first_key"]:
        mask = pc.and_(mask, pc.greater_equal(rows["key"], bytes.fromhex(first_key)))
    if beyond_key := plan.parameters["beyond_key"]:
        mask = pc.and_(mask, pc.less(rows["key"], bytes.fromhex(beyond_key)))
    return rows.filter(mask)


def with_names(rows: pa.Table, tables: Sequence[NamedTable], columns: str) -> pa.Table:
    """Add the names of the rows' tables; returns `columns` (RESULT or CHANGES). Null: the log has no name."""
    indices = pc.index_in(rows["table_id"], pa.array([table.table_id for table in tables], pa.int64()))
    for name in ("db", "name"):
        names = pa.array([getattr(table, name) for table in tables], pa.string())
        rows = rows.append_column(name, names.take(indices))
    return rows.select(arrow_schema(columns).names)


def _table(batches: Sequence[pa.RecordBatch], columns: str) -> pa.Table:
    return pa.Table.from_batches(batches, arrow_schema(columns))


def _in_order(*columns: str) -> list[tuple[str, str]]:
    return [(column, "ascending") for column in columns]
