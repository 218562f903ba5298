"""How far regions are: the newest mark of each, in Arrow, since there may be millions.

A capture task writes what it saw to one object in the backup's folder, which the fold reads; it is not a file
of the backup. Writing it again replaces it by the same.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakebackup.errors import Damaged, NotFound
from lakebackup.rules import layout
from lakebackup.storage import working
from lakebackup_jobs.lifecycle.tasks.rows import read_table, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakebackup.storage import Storage

#: marked: it had a mark; otherwise only events of it were seen.
SCHEMA = pa.schema(
    [
        pa.field("region", pa.int64(), nullable=False),
        pa.field("store", pa.string(), nullable=False),
        pa.field("resolved_ts", pa.int64(), nullable=False),
        pa.field("closed", pa.bool_(), nullable=False),
        pa.field("successors", pa.list_(pa.int64())),
        pa.field("marked", pa.bool_(), nullable=False),
    ]
)
_MANY = 200_000


def newest(rows: pa.Table) -> pa.Table:
    """Of each region's rows (SCHEMA) the last, with the greatest resolved_ts of them; ordered by region.

    A region that was closed stays so: what a feed sends again may come behind it.
    """
    regions = rows["region"].to_numpy()
    if not len(regions):
        return rows
    order = np.lexsort((rows["closed"].to_numpy(), regions))
    begins = np.flatnonzero(np.diff(regions[order], prepend=regions[order[0]] - 1))
    lasts = np.append(begins[1:], len(order)) - 1
    resolved = np.maximum.reduceat(rows["resolved_ts"].to_numpy()[order], begins)
    at = SCHEMA.get_field_index("resolved_ts")
    return rows.take(pa.array(order[lasts])).set_column(at, SCHEMA.field(at), pa.array(resolved))


class Marks:
    """Marks as they come, the newest of each region kept."""

    def __init__(self) -> None:
        self._held: list[pa.Table] = []
        self._count, self._limit = 0, _MANY
        self._stores: dict[int, str] = {}

    def add(self, marks: pa.RecordBatch) -> None:
        """More of them (`events.marks_schema()`), in the order of their partition."""
        if not len(marks):
            return
        marked = pa.array(np.ones(len(marks), bool))
        columns = [*(marks[name] for name in SCHEMA.names[:-1]), marked]
        self._held.append(pa.table(columns, schema=SCHEMA))
        self._count += len(marks)
        if self._count > self._limit:
            self._held = [newest(pa.concat_tables(self._held))]
            self._count = len(self._held[0])
            self._limit = _MANY + 2 * self._count

    def see(self, region: int, store: str) -> None:
        """An event of this region was seen."""
        self._stores[region] = store

    def table(self) -> pa.Table:
        """A row a region (SCHEMA); resolved_ts is 0 where there was no mark."""
        nothing = {"resolved_ts": 0, "closed": False, "marked": False}
        rows = [{"region": region, "store": store, **nothing} for region, store in self._stores.items()]
        seen = pa.Table.from_pylist(rows, SCHEMA)
        return newest(pa.concat_tables([seen, *self._held]))


def resolved(rows: pa.Table) -> dict[int, int]:
    """The resolved ts of each region that has a mark."""
    rows = rows.filter(rows["marked"])
    return dict(zip(rows["region"].to_pylist(), rows["resolved_ts"].to_pylist(), strict=True))


def put(
    storage: Storage, source: str, backup_id: str, task: int, rows: pa.Table, report: Mapping[str, Any]
) -> None:
    """Write what a capture task saw, and its report (JSON)."""
    schema = rows.schema.with_metadata({"told": json.dumps(report)})
    write_rows(storage, layout.marks_path(source, backup_id, task), schema, rows.to_batches())


def get(storage: Storage, source: str, backup_id: str, task: int) -> tuple[pa.Table, dict[str, Any]]:
    """What `put` wrote. Raises Damaged when it is missing or torn."""
    path = layout.marks_path(source, backup_id, task)
    try:
        rows = read_table(storage, path)
        report: dict[str, Any] = json.loads(rows.schema.metadata[b"told"])
    except (NotFound, pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise Damaged(
            f"{path}, the report of a task of an interrupted flush, is missing or torn.",
            hint=f"Delete the folder {layout.parts_folder(source, backup_id)}: the flush reads again.",
        ) from error
    return rows.replace_schema_metadata(), report


def clear(storage: Storage, source: str, backup_id: str) -> None:
    """Delete those objects; they are of no use once the backup is committed."""
    working.empty(storage, layout.marks_folder(source, backup_id))


def mappings(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows one by one, a batch of them in memory as objects."""
    for batch in rows.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()
