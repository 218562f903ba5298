"""Restores a small log by one Spark task without SQL, because planning SQL takes seconds in a cold process.

`apply.Changes` does the same for any log, with SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged
from lakebackup.formats.logs.events import DEFAULT, DELETES, PUTS, WRITE
from lakebackup.sql_engine.delta.table import put_rows
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.logs.restore.shares import (
    CHANGES,
    ENDS,
    KEY,
    LATER,
    LOST,
    RESULT,
    VALUES,
    WRITES,
    ReadJob,
    latest_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebackup.plan.logs.restore import NamedTable
    from lakebackup_jobs.logs.restore.shares import LogShares

#: The name of the only file that WriteChanges writes.
FILE = "part-00000.parquet"
# The columns by whose statistics readers of a restored table skip files.
_STATISTICS = {"delta.dataSkippingStatsColumns": "table_id,start_ts,commit_ts"}


@dataclass(frozen=True, slots=True)
class _SmallRestore(Task):
    """The task that restores a small log. `uri`: the folder that it writes to."""

    shares: LogShares
    tables: Sequence[NamedTable]
    uri: str

    def changes(self, *, whole: bool = False) -> pa.Table:
        """The latest change of each key (CHANGES). With `whole`, also the last truncation of each table.

        Raises Damaged when a committed value is missing from the log.
        """
        writes = _table(latest_of(self._read(WRITE)), WRITES)
        ends = last_of_tables(_table(self._read(ENDS), WRITES))
        values = _table(self._read(DEFAULT), VALUES)
        changes = with_values(behind_ends(writes, ends), values)
        return named(pa.concat_tables([changes, ends]) if whole else changes, self.tables)

    def _read(self, kind: str) -> list[pa.RecordBatch]:
        job = ReadJob(self.shares, kind)
        return [
            batch for number in range(len(self.shares.shares.get(kind, ()))) for batch in job.rows(number)
        ]


class WriteTable(_SmallRestore):
    """Writes the rows at the end of the span as a file of a Delta table; a commit has to add it."""

    COLUMNS = "entries BIGINT, added STRING, error STRING"

    def run(self, number: int) -> Mapping[str, Any]:  # noqa: ARG002
        changes = self.changes()
        rows = changes.filter(pc.equal(changes["type"], PUTS)).select(arrow_schema(RESULT).names)
        storage = open_storage(self.uri, private=False)
        added = put_rows(storage, "", rows.sort_by(_in_order("table_id", "key")), _STATISTICS)
        return {"entries": len(rows), "added": added}


@dataclass(frozen=True, slots=True)
class WriteChanges(_SmallRestore):
    """Writes the latest change of each key as FILE."""

    COLUMNS = "entries BIGINT, error STRING"

    whole: bool

    def run(self, number: int) -> Mapping[str, Any]:  # noqa: ARG002
        rows = self.changes(whole=self.whole).sort_by(_in_order("db", "name", "key"))
        write_rows(open_storage(self.uri, private=False), FILE, rows.schema, rows.to_batches())
        return {"entries": len(rows)}


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
    missing = rows.filter(pc.and_(pc.equal(rows["type"], PUTS), pc.is_null(value)))
    for row in missing.slice(0, 1).to_pylist():
        raise Damaged(LOST % (row["key"].hex(), row["table_id"], row["start_ts"], row["commit_ts"]))
    return rows


def named(rows: pa.Table, tables: Sequence[NamedTable]) -> pa.Table:
    """Add the names of the rows' tables; returns columns CHANGES. Null: the log has no name."""
    indices = pc.index_in(rows["table_id"], pa.array([table.table_id for table in tables], pa.int64()))
    for name in ("db", "name"):
        names = pa.array([getattr(table, name) for table in tables], pa.string())
        rows = rows.append_column(name, names.take(indices))
    return rows.select(arrow_schema(CHANGES).names)


def _table(batches: Sequence[pa.RecordBatch], columns: str) -> pa.Table:
    return pa.Table.from_batches(batches, arrow_schema(columns))


def _in_order(*columns: str) -> list[tuple[str, str]]:
    return [(column, "ascending") for column in columns]
