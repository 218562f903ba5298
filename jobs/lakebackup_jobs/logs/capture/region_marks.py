"""The newest mark of each region of a feed. In Arrow, as there may be millions of regions.

A capture task writes its marks and its report to one object in the backup's folder, which the fold reads. The
object is not a file of the backup. A second attempt replaces it by the same contents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from lakebackup.errors import Damaged, NotFound
from lakebackup.rules import layout
from lakebackup.storage import Storage, working
from lakebackup_jobs.lifecycle.tasks.rows import read_table, write_rows

#: marked: the region had a mark. Otherwise only events of it were read.
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
    """The last row (SCHEMA) of each region, with the greatest resolved_ts of its rows; ordered by region.

    A closed region stays closed, because a feed may repeat older marks after the one that closed it.
    """
    regions = rows["region"].to_numpy()
    if not len(regions):
        return rows
    order = np.lexsort((rows["closed"].to_numpy(), regions))
    starts = np.flatnonzero(np.diff(regions[order], prepend=regions[order[0]] - 1))
    lasts = np.append(starts[1:], len(order)) - 1
    resolved = np.maximum.reduceat(rows["resolved_ts"].to_numpy()[order], starts)
    index = SCHEMA.get_field_index("resolved_ts")
    return rows.take(pa.array(order[lasts])).set_column(index, SCHEMA.field(index), pa.array(resolved))


class Marks:
    """Collects marks in bounded memory: only the newest mark of each region has to stay."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._count, self._limit = 0, _MANY
        self._stores: dict[int, str] = {}

    def add(self, marks: pa.RecordBatch) -> None:
        """Add marks (`events.marks_schema()`), in the order of their partition."""
        if not len(marks):
            return
        marked = pa.array(np.ones(len(marks), bool))
        columns = [*(marks[name] for name in SCHEMA.names[:-1]), marked]
        self._tables.append(pa.table(columns, schema=SCHEMA))
        self._count += len(marks)
        if self._count > self._limit:
            self._tables = [newest(pa.concat_tables(self._tables))]
            self._count = len(self._tables[0])
            self._limit = _MANY + 2 * self._count

    def see(self, region: int, store: str) -> None:
        """Record that there was an event of a region, which `store` sent."""
        self._stores[region] = store

    def table(self) -> pa.Table:
        """One row (SCHEMA) for each region; resolved_ts is 0 where there was no mark."""
        no_mark = {"resolved_ts": 0, "closed": False, "marked": False}
        rows = [{"region": region, "store": store, **no_mark} for region, store in self._stores.items()]
        regions_with_events = pa.Table.from_pylist(rows, SCHEMA)
        return newest(pa.concat_tables([regions_with_events, *self._tables]))


def resolved(rows: pa.Table) -> dict[int, int]:
    """The resolved ts of each region that has a mark."""
    rows = rows.filter(rows["marked"])
    return dict(zip(rows["region"].to_pylist(), rows["resolved_ts"].to_pylist(), strict=True))


def write_report(
    storage: Storage, source: str, backup_id: str, task: int, rows: pa.Table, report: Mapping[str, Any]
) -> None:
    """Write the marks of a capture task, and its report (JSON values)."""
    schema = rows.schema.with_metadata({"told": json.dumps(report)})
    write_rows(storage, layout.marks_path(source, backup_id, task), schema, rows.to_batches())


def read_report(storage: Storage, source: str, backup_id: str, task: int) -> tuple[pa.Table, dict[str, Any]]:
    """The marks and the report that `write_report` wrote. Raises Damaged when the object is missing or
    torn."""
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
    """Delete the objects of a backup that `write_report` wrote. Nothing reads them once the backup is
    committed."""
    working.empty(storage, layout.marks_folder(source, backup_id))


def mappings(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows one by one, as mappings; only one batch at a time is in memory as Python objects."""
    for batch in rows.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()
