"""A small log, restored by one Spark task without SQL, whose planning takes a cold command seconds.

`apply.Changes` does the same for any log, by SQL.
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
from lakebackup_jobs.logs.restore.splits import (
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
    from lakebackup_jobs.logs.restore.splits import LogSplits

#: The only file of changes.
FILE = "part-00000.parquet"
# As in a log's own rows: columns by which readers of a restored table choose files.
_OF_FILES = {"delta.dataSkippingStatsColumns": "table_id,start_ts,commit_ts"}


@dataclass(frozen=True, slots=True)
class _Small(Task):
    """What the task knows; `uri`: the folder that it writes to."""

    splits: LogSplits
    tables: Sequence[NamedTable]
    uri: str

    def changes(self, *, whole: bool = False) -> pa.Table:
        """The latest change of each key, columns CHANGES; `whole`: and the last truncation of each table.

        Raises Damaged when a committed value is missing from the log.
        """
        writes = _table(latest_of(self._read(WRITE)), WRITES)
        ends = last_of_tables(_table(self._read(ENDS), WRITES))
        values = _table(self._read(DEFAULT), VALUES)
        found = with_values(behind_ends(writes, ends), values)
        return named(pa.concat_tables([found, ends]) if whole else found, self.tables)

    def _read(self, kind: str) -> list[pa.RecordBatch]:
        job = ReadJob(self.splits, kind)
        return [batch for number in range(len(self.splits.paths.get(kind, ()))) for batch in job.rows(number)]


class WriteTable(_Small):
    """Writes the value of each key at the end of the span as a file of a Delta table, for a commit to add."""

    COLUMNS = "entries BIGINT, added STRING, error STRING"

    def run(self, number: int) -> Mapping[str, Any]:  # noqa: ARG002
        changes = self.changes()
        rows = changes.filter(pc.equal(changes["type"], PUTS)).select(arrow_schema(RESULT).names)
        storage = open_storage(self.uri, private=False)
        added = put_rows(storage, "", rows.sort_by(_in_order("table_id", "key")), _OF_FILES)
        return {"entries": len(rows), "added": added}


@dataclass(frozen=True, slots=True)
class WriteChanges(_Small):
    """Writes the latest change of each key as FILE."""

    COLUMNS = "entries BIGINT, error STRING"

    whole: bool

    def run(self, number: int) -> Mapping[str, Any]:  # noqa: ARG002
        rows = self.changes(whole=self.whole).sort_by(_in_order("db", "name", "key"))
        write_rows(open_storage(self.uri, private=False), FILE, rows.schema, rows.to_batches())
        return {"entries": len(rows)}


def last_of_tables(ends: pa.Table) -> pa.Table:
    """Of the truncations of tables the last of each, with the ts at which it was committed as start ts."""
    nothing = pa.nulls(len(ends), pa.binary())
    alike = ends.set_column(1, "key", pa.nulls(len(ends), pa.binary()).fill_null(b""))
    alike = alike.set_column(2, "value", nothing).set_column(3, "start_ts", ends["commit_ts"])
    return _table(latest_of(alike.to_batches()), WRITES)


def behind_ends(rows: pa.Table, ends: pa.Table) -> pa.Table:
    """Rows later than the last truncation of their table; `ends` has one row a table."""
    if not len(ends):
        return rows
    at = pc.index_in(rows["table_id"], ends["table_id"].combine_chunks())
    later: Any = pa.scalar(False)
    for name in reversed(LATER):
        mine, end = rows[name], ends[name].take(at)
        later = pc.or_(pc.greater(mine, end), pc.and_(pc.equal(mine, end), later))
    return rows.filter(pc.if_else(pc.is_null(at), True, later))


def with_values(rows: pa.Table, values: pa.Table) -> pa.Table:
    """Changes (WRITES) with the values that transactions wrote before they committed; none of a deletion."""
    found = rows["value"]
    if len(values):
        by = [*KEY, "start_ts"]
        rows = rows.join(values.group_by(by).aggregate([("value", "max")]), by, join_type="left outer")
        found = pc.coalesce(rows["value"], rows["value_max"])
    columns = arrow_schema(WRITES).names
    found = pc.if_else(pc.equal(rows["type"], DELETES), pa.scalar(None, pa.binary()), found)
    rows = rows.select(columns).set_column(columns.index("value"), "value", found)
    lost = rows.filter(pc.and_(pc.equal(rows["type"], PUTS), pc.is_null(found)))
    for row in lost.slice(0, 1).to_pylist():
        raise Damaged(LOST % (row["key"].hex(), row["table_id"], row["start_ts"], row["commit_ts"]))
    return rows


def named(rows: pa.Table, tables: Sequence[NamedTable]) -> pa.Table:
    """Rows as CHANGES, with the names of their tables; null: the log has none."""
    at = pc.index_in(rows["table_id"], pa.array([table.table_id for table in tables], pa.int64()))
    for name in ("db", "name"):
        names = pa.array([getattr(table, name) for table in tables], pa.string())
        rows = rows.append_column(name, names.take(at))
    return rows.select(arrow_schema(CHANGES).names)


def _table(batches: Sequence[pa.RecordBatch], columns: str) -> pa.Table:
    return pa.Table.from_batches(batches, arrow_schema(columns))


def _in_order(*columns: str) -> list[tuple[str, str]]:
    return [(column, "ascending") for column in columns]
