"""The rows of a small log in this process, as `apply` has Spark compute them of any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged
from lakebackup.formats.logs.events import DEFAULT, PUTS, TRUNCATES, WRITE
from lakebackup_jobs.logs.restore.splits import ENDS, latest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from lakebackup.plan.logs.restore import LogRestorePlan
    from lakebackup_jobs.logs.restore.splits import LogSplits

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SmallLog:
    """A log's changes within a span, at whose start there was nothing."""

    splits: LogSplits
    plan: LogRestorePlan

    def rows(self) -> pa.Table:
        """The latest committed value of each key at the end of the span: the columns of `apply.RESULT`.

        Raises Damaged when a committed value is missing from the log.
        """
        import pyarrow as pa

        names = {table.table_id: {"db": table.db, "name": table.name} for table in self.plan.tables}
        values, emptied = self._values(), self._emptied()
        found = [
            {**row, **names.get(row["table_id"], {}), "value": _value(row, values)}
            for batch in latest_of(list(self.splits.batches(WRITE)))
            for row in batch.to_pylist()
            if _later(row) > emptied.get(row["table_id"], ()) and row["type"] == PUTS
        ]
        return pa.Table.from_pylist(found, _schema())

    def _values(self) -> Mapping[tuple[int, bytes, int], bytes]:
        """The values that were prewritten, by their table, key and transaction."""
        return {
            (row["table_id"], row["key"], row["start_ts"]): row["value"]
            for row in self._records(DEFAULT)
            if row["value"] is not None
        }

    def _emptied(self) -> Mapping[int, tuple[int, ...]]:
        """When each table was last truncated."""
        found: dict[int, tuple[int, ...]] = {}
        for row in self._records(ENDS):
            if row["type"] == TRUNCATES:
                found[row["table_id"]] = max(found.get(row["table_id"], ()), _later(row))
        return found

    def _records(self, kind: str) -> Iterator[_Row]:
        for batch in self.splits.batches(kind):
            yield from batch.to_pylist()


def _later(row: _Row) -> tuple[int, ...]:
    return row["commit_ts"], row["seq"], row["sub"]


def _value(row: _Row, values: Mapping[tuple[int, bytes, int], bytes]) -> bytes:
    value: bytes | None = row["value"]
    if value is None:
        value = values.get((row["table_id"], row["key"], row["start_ts"]))
    if value is None:
        raise Damaged(
            f"The value of key {row['key'].hex()} of table {row['table_id']}, written by the transaction of "
            f"start ts {row['start_ts']} and committed at {row['commit_ts']}, is not in the log."
        )
    return value


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("table_id", pa.int64()),
            ("db", pa.string()),
            ("name", pa.string()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("start_ts", pa.int64()),
            ("commit_ts", pa.int64()),
            ("seq", pa.int64()),
            ("sub", pa.int32()),
        ]
    )
