"""The transactions that are open at the end of a backup of queues, and the state that the backup restores.

SQL queries over the transactions that the tasks have recorded determine both. The same queries run in this
process or, after large backups, on Spark, where no row of a transaction passes through the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

import pyarrow as pa

from lakebackup.plan.queues.backup import QueuePlan, Tasks
from lakebackup.rows.queues import QueuePoint, QueuePosition
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.tasks.rows import RowObject, write_query
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.backup.draft import InProgress
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.queues.transaction_scan import (
    RangeScan,
    TaskScans,
    behind_marks,
    marks_of,
    read_ranges,
    with_scans,
)

_GREATEST = 2**63 - 1


class Open:
    """The transactions that are open when a backup ends, from what its `tasks` have recorded.

    `ranges`: the totals of the ranges of the plan's tasks. Messages that a restore
    has made void do not count.
    """

    def __init__(self, work: Workspace, draft: InProgress, tasks: Tasks, reader: CatalogReader) -> None:
        plan, count = draft.plan, len(tasks)
        self.plan, self.tasks, self._uri = plan, count, work.storage.uri
        self._backup_columns = {"backup_id": draft.backup_id, "source": work.source}
        spark = work.task_session
        self._reader = reader if spark is None else reader.with_spark(spark)
        task_ranges = [
            read_ranges(work.storage, work.source, draft.backup_id, task)[0] for task in range(count)
        ]
        all_ranges = list(chain.from_iterable(task_ranges))
        self.ranges = behind_marks(list(chain.from_iterable(task_ranges[: len(plan.tasks)])))
        # A transaction that was open before a restore that the plan does not know is not open after it.
        self._parent = None if restored_to(plan, all_ranges) is not None else plan.open_at
        scans = TaskScans(self._uri, work.source, draft.backup_id, marks_of(all_ranges))
        reader = with_scans(self._reader, spark, "queue_seen", scans, count)
        if plan.kind != "full":
            # The backups before it hold the messages that the queues have deleted.
            self._reader = reader.with_query("queue_unended", "queue_open", parent=self._parent)
            return
        reported_ids = plan.snapshot_open
        reported = pa.table({"transaction_id": pa.array(reported_ids or (), pa.string())})
        reader = reader.with_rows("queue_reported", reported).with_rows("queue_lows", _lows(plan))
        reader = reader.with_query("queue_found", "queue_open", parent=self._parent)
        reader = reader.with_query("queue_gone", "queue_open_gone")
        self._reader = reader.with_query(
            "queue_unended", "queue_open_reported", reported=reported_ids is not None
        )

    @cached_property
    def count(self) -> int:
        """The number of open transactions."""
        return int(self._reader.rows("queue_open_count")[0]["transactions"])

    def unlike(self) -> list[str]:
        """Return some transactions that the engine reports as open and that are not open in the queues."""
        return [str(row["transaction_id"]) for row in self._reader.rows("queue_reported_unlike")]

    def early(self) -> str | None:
        """Describe an open transaction with a message before all positions that the engine reports for open
        transactions; None: there is none."""
        for row in self._reader.rows("queue_open_early"):
            location = f"offset {row['first_position']} of topic {row['scope']}, partition {row['region']}"
            return f"transaction {row['transaction_id']} has one at {location}"
        return None

    def lost(self) -> tuple[int, list[str]]:
        """Return how many transactions are open and cannot be continued, since messages of theirs are gone
        from the queues; and some of their ids."""
        rows = self._reader.rows("queue_open_lost") if self.plan.kind == "full" else []
        return (int(rows[0]["transactions"]) if rows else 0), [str(row["transaction_id"]) for row in rows]

    def suspects(self, path: str) -> int | None:
        """Write the ids of the transactions whose end may be before the offsets that were read.

        Returns the least tid of their messages; None: there are no such transactions.
        """
        plan = self.plan
        parent_tid = plan.last_tid if plan.keep and plan.last_tid is not None else _GREATEST
        parameters = {"parent": self._parent, "tid": parent_tid}
        if not write_ids(self._reader, self._uri, path, "queue_open_ids", **parameters):
            return None
        return int(self._reader.rows("queue_open_oldest", parent=self._parent)[0]["tid"])

    def write(self, path: str) -> RowObject:
        """Write the catalog rows of the open transactions as a Parquet object."""
        schema = ARROW_SCHEMAS["queue_transactions"]
        return write_query(self._reader, self._uri, path, schema, "queue_open_rows", **self._backup_columns)

    def positions(self) -> list[QueuePosition]:
        """Return for each partition the offset from which it must be read to see all messages of open
        transactions, and its greatest tid."""
        rows = self._reader.rows("queue_open_places") if self.count else []
        first = {(r["scope"], r["epoch"], r["region"]): int(r["first_position"]) for r in rows}
        tids = {(scope, epoch, region): tid for scope, epoch, region, tid in self.plan.tids}
        for partition in marks_of(self.ranges):
            tids.pop(partition, None)
        for scan in self.ranges:
            if scan.last_tid is not None:
                tids[scan.key] = max(tids.get(scan.key, 0), scan.last_tid)
        ends = [((p.scope, p.epoch, p.region), p.end_position) for p in self.plan.positions]
        return [
            QueuePosition(
                **self._backup_columns,
                **dict(zip(("scope", "epoch", "region"), partition, strict=True)),
                no_transaction_position=min(first.get(partition, end), end),
                last_tid=tids.get(partition),
            )
            for partition, end in ends
        ]

    def point(self, snapshot_id: str | None) -> QueuePoint:
        """Return the state that the backup restores."""
        plan, ranges = self.plan, self.ranges
        first_tids = [scan.first_tid for scan in ranges if scan.first_tid is not None]
        return QueuePoint(
            **self._backup_columns,
            first_tid=min(first_tids) if plan.keep and first_tids else None,
            last_tid=last_tid(plan, ranges),
            snapshot_id=snapshot_id,
            restore_id=plan.restore_id,
            carried=sum(scan.carried for scan in ranges) if plan.keep else 0,
            open_transactions=self.count,
        )


def _lows(plan: QueuePlan) -> pa.Table:
    schema = pa.schema(
        [*((name, pa.string()) for name in ("scope", "epoch", "region")), ("low_position", pa.int64())]
    )
    rows = [{name: getattr(position, name) for name in schema.names} for position in plan.positions]
    return pa.Table.from_pylist(rows, schema)


def restored_to(plan: QueuePlan, ranges: Iterable[RangeScan]) -> int | None:
    """Return the greatest tid that the engine was restored to by restores that the plan does not know.

    0: the tid is unknown. None: there was no such restore, so the engine continues the state that the plan
    begins with.
    """
    restores = [scan for scan in ranges if scan.watermark is not None and scan.restore_id != plan.restore_id]
    return max((scan.restored_tid or 0 for scan in restores), default=None) if not plan.keep else None


def last_tid(plan: QueuePlan, ranges: Sequence[RangeScan]) -> int:
    """Return the tid up to which the backup restores everything."""
    if plan.snapshot_tid is not None:
        return plan.snapshot_tid
    tids = [scan.last_tid for scan in ranges if scan.last_tid is not None]
    restored_tid = restored_to(plan, ranges)
    return max([*tids, (plan.last_tid or 0) if restored_tid is None else restored_tid])
