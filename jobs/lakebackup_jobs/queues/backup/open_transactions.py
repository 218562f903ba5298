"""What a backup of queues knows at its end: which transactions are open then, and its rows of the catalog.

The same statements run in this process or, where much was read, on Spark; no row of a transaction passes
through the driver there.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from lakebackup.rows.queues import QueuePoint, QueuePosition, QueueSchema
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import open_storage
from lakebackup.store.delta_append import LISTED
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.queues.transaction_scan import (
    SCAN_COLUMNS,
    SCAN_SCHEMA,
    behind_marks,
    marks_of,
    read_ranges,
    read_scans,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.formats.queues.schema_history import Version
    from lakebackup.plan.queues.backup import QueuePlan
    from lakebackup.rows.backups import DataFile
    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.tasks.part import Parts
    from lakebackup_jobs.queues.transaction_scan import RangeScan

Table = Literal["queue_points", "queue_positions", "queue_transactions", "queue_schemas"]
_GREATEST = 2**63 - 1
_WRITTEN = "path STRING, bytes BIGINT, rows BIGINT, sha256 STRING"


@dataclass(frozen=True, slots=True)
class Object:
    """An object in the destination that holds `rows` rows of a table."""

    path: str
    bytes: int
    rows: int
    sha256: str


class Open:
    """The transactions that are open when a backup ends, once `tasks` have recorded what they found."""

    def __init__(
        self,
        storage: Storage,
        source: str,
        backup_id: str,
        tasks: int,
        plan: QueuePlan,
        reader: CatalogReader,
        spark: SparkSession | None,
    ) -> None:
        """`spark` None: all of it is done in this process."""
        self._storage, self._source, self._backup_id = storage, source, backup_id
        self._plan = plan
        self._reader = reader if spark is None else reader.on(spark)
        ranges = _ranges(storage, source, backup_id, tasks)
        marks = marks_of(ranges)
        # After a restore that the plan does not know, nothing is open of what was open before it.
        self._parent = None if restored_to(plan, ranges) is not None else plan.open_at
        if spark is None:
            batches = list(read_scans(storage, source, backup_id, range(tasks), marks))
            reader.give("queue_seen", pa.Table.from_batches(batches, SCAN_SCHEMA))
        else:
            rows = ScanRows(storage.uri, source, backup_id, marks)
            rows.over(spark, range(tasks), SCAN_COLUMNS).createOrReplaceTempView("queue_seen")
        reported = plan.snapshot_open
        self._reader.give(
            "queue_reported", pa.table({"transaction_id": pa.array(reported or (), pa.string())})
        )
        self._reader.give("queue_lows", _lows(plan))
        self._reader.define("queue_found", "queue_open", parent=self._parent)
        # The chain of a backup that depends on another has what the queues have deleted.
        self._reader.define("queue_gone", "queue_open_gone", whole=plan.kind == "full")
        self._reader.define("queue_unended", "queue_open_reported", reported=reported is not None)

    @cached_property
    def count(self) -> int:
        """How many they are."""
        return int(self._reader.rows("queue_open_count")[0]["transactions"])

    def places(self) -> dict[tuple[str, str, str], int]:
        """Of each partition that has messages of one, where the first is."""
        rows = self._reader.rows("queue_open_places")
        return {(r["scope"], r["epoch"], r["region"]): int(r["first_position"]) for r in rows}

    def unlike(self) -> list[str]:
        """Some that the engine reports as open, and that are not open in the queues."""
        return [str(row["transaction_id"]) for row in self._reader.rows("queue_reported_unlike")]

    def early(self) -> str | None:
        """Where one has a message before all that the engine reports of them; None: nowhere."""
        for row in self._reader.rows("queue_open_early"):
            place = f"offset {row['first_position']} of topic {row['scope']}, partition {row['region']}"
            return f"transaction {row['transaction_id']} has one at {place}"
        return None

    def lost(self) -> tuple[int, list[str]]:
        """How many were open and cannot be continued, and some of them."""
        rows = self._reader.rows("queue_open_lost")
        return (int(rows[0]["transactions"]) if rows else 0), [str(row["transaction_id"]) for row in rows]

    def suspects(self, path: str) -> int | None:
        """Write the ids of those whose end may be before what was read; returns the least tid of a message of
        theirs, None: there are none."""
        plan = self._plan
        known = plan.last_tid if plan.keep and plan.last_tid is not None else _GREATEST
        uri = self._storage.uri
        if not write_ids(self._reader, uri, path, "queue_open_ids", parent=self._parent, tid=known):
            return None
        return int(self._reader.rows("queue_open_oldest", parent=self._parent)[0]["tid"])

    def write(self, path: str) -> Object:
        """Write their rows of the catalog, one at least, as a Parquet object."""
        (found,) = self._reader.map(
            RowsWriter(self._storage.uri, path),
            _WRITTEN,
            "queue_open_rows",
            spread=lambda rows: rows.coalesce(1),
            backup_id=self._backup_id,
            source=self._source,
        )
        return Object(**found)


def _lows(plan: QueuePlan) -> pa.Table:
    schema = pa.schema(
        [*((name, pa.string()) for name in ("scope", "epoch", "region")), ("low_position", pa.int64())]
    )
    rows = [{name: getattr(at, name) for name in schema.names} for at in plan.positions]
    return pa.Table.from_pylist(rows, schema)


@dataclass(frozen=True, slots=True)
class ScanRows(PerNumber):
    """The transactions in the ranges of a task."""

    uri: str
    source: str
    backup_id: str
    marks: Mapping[tuple[str, str, str], int]

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        return read_scans(open_storage(self.uri), self.source, self.backup_id, [number], self.marks)


@dataclass(frozen=True, slots=True)
class RowsWriter:
    """Over rows of queue_transactions, in one task: writes an object and returns a row of _WRITTEN."""

    uri: str
    path: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = ARROW_SCHEMAS["queue_transactions"]
        found = (pa.Table.from_batches([b]).select(schema.names).cast(schema) for b in batches)
        rows = chain.from_iterable(table.to_batches() for table in found)
        size, count, sha256 = write_rows(open_storage(self.uri), self.path, schema, rows)
        yield pa.RecordBatch.from_pydict(
            {"path": [self.path], "bytes": [size], "rows": [count], "sha256": [sha256]}
        )


def ranges_of(storage: Storage, source: str, backup_id: str, tasks: int) -> list[RangeScan]:
    """What the ranges of all tasks held; nothing of what a restore has left, where that is forgotten."""
    return behind_marks(_ranges(storage, source, backup_id, tasks))


def _ranges(storage: Storage, source: str, backup_id: str, tasks: int) -> list[RangeScan]:
    return [one for task in range(tasks) for one in read_ranges(storage, source, backup_id, task).ranges]


def restored_to(plan: QueuePlan, ranges: Iterable[RangeScan]) -> int | None:
    """To which tid the engine was restored by restores that the plan does not know, 0: unknown; None: by
    none. The state that the plan begins with was left then."""
    by = [one for one in ranges if one.watermark is not None and one.restore_id != plan.restore_id]
    return max((one.restored_tid or 0 for one in by), default=None) if not plan.keep else None


def last_tid(plan: QueuePlan, ranges: Sequence[RangeScan]) -> int:
    """The tid up to which the backup restores everything."""
    if plan.snapshot_tid is not None:
        return plan.snapshot_tid
    seen = [one.last_tid for one in ranges if one.last_tid is not None]
    restored = restored_to(plan, ranges)
    return max([*seen, (plan.last_tid or 0) if restored is None else restored])


def position_rows(
    plan: QueuePlan,
    source: str,
    backup_id: str,
    ranges: Sequence[RangeScan],
    open_from: Mapping[tuple[str, str, str], int],
) -> list[QueuePosition]:
    """From where on each partition must be read to see whole what is open."""
    tids = {(scope, epoch, region): tid for scope, epoch, region, tid in plan.tids}
    for place in marks_of(ranges):
        tids.pop(place, None)
    for one in ranges:
        if one.last_tid is not None:
            tids[one.place] = max(tids.get(one.place, 0), one.last_tid)
    return [
        QueuePosition(
            backup_id=backup_id,
            source=source,
            scope=p.scope,
            epoch=p.epoch,
            region=p.region,
            no_transaction_position=min(
                open_from.get((p.scope, p.epoch, p.region), p.end_position), p.end_position
            ),
            last_tid=tids.get((p.scope, p.epoch, p.region)),
        )
        for p in plan.positions
    ]


def point_row(
    plan: QueuePlan,
    source: str,
    backup_id: str,
    ranges: Sequence[RangeScan],
    snapshot_id: str | None,
    open_transactions: int,
) -> QueuePoint:
    """The state that the backup restores."""
    first = [one.first_tid for one in ranges if one.first_tid is not None]
    return QueuePoint(
        backup_id=backup_id,
        source=source,
        first_tid=min(first) if plan.keep and first else None,
        last_tid=last_tid(plan, ranges),
        snapshot_id=snapshot_id,
        restore_id=plan.restore_id,
        carried=sum(one.carried for one in ranges) if plan.keep else 0,
        open_transactions=open_transactions,
    )


def schema_rows(source: str, backup_id: str, versions: Iterable[Version]) -> list[QueueSchema]:
    """The versions of the schema, as the backup found them."""
    return [
        QueueSchema(
            backup_id=backup_id,
            source=source,
            version=one.version,
            from_tid=one.tid,
            change=one.change,
            definition=one.schema,
        )
        for one in versions
    ]


def listing_path(source: str, backup_id: str, table: Table) -> str:
    """A place for rows of a table; another one each time."""
    attempt = secrets.token_hex(4)
    return f"{layout.backup_folder(source, backup_id)}listing/{LISTED[table]}-{attempt}.parquet"


def put_rows(
    storage: Storage,
    source: str,
    backup_id: str,
    table: Table,
    rows: Sequence[QueuePoint | QueuePosition | QueueSchema],
) -> Object:
    """Put rows that are few as an object."""
    schema = ARROW_SCHEMAS[table]
    path = listing_path(source, backup_id, table)
    batch = pa.RecordBatch.from_pylist([as_row(row) for row in rows], schema)
    size, count, sha256 = write_rows(storage, path, schema, [batch])
    return Object(path, size, count, sha256)


class Listing:
    """The rows of `files` beside the messages: files of the engine and objects of rows."""

    def __init__(self, parts: Parts, end_ts: int) -> None:
        self._parts, self._end_ts = parts, end_ts
        self.rows: list[DataFile] = []

    def add(self, table: Table, put: Object) -> None:
        """An object of rows; one without rows is left out."""
        if put.rows:
            self.rows.append(self._parts.listing(table, put.path, put.bytes, put.sha256))

    def file(self, path: str, role: Literal["config", "schema"], data: bytes) -> None:
        """A file of the engine."""
        self.rows.append(
            self._parts.row(
                path=path,
                scope="-",
                epoch="-",
                region="-",
                role=role,
                format="file",
                codec="null",
                bytes=len(data),
                raw_bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                entries=0,
                min_ts=self._end_ts,
                max_ts=self._end_ts,
                start_position=0,
                end_position=1,
            )
        )
