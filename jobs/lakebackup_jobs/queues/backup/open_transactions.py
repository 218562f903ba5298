"""What a backup of queues knows at its end: which transactions are open then, and the state that it restores.

The same statements run in this process or, where much was read, on Spark; no row of a transaction passes
through the driver there.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebackup.rows.queues import QueuePoint, QueuePosition
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup_jobs.lifecycle.tasks.rows import write_query
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.queues.transaction_scan import (
    TaskScans,
    behind_marks,
    give_scans,
    marks_of,
    read_ranges,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebackup.plan.queues.backup import QueuePlan, Tasks
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.tasks.rows import Written
    from lakebackup_jobs.lifecycle.workspace import Workspace
    from lakebackup_jobs.queues.backup.execute import InProgress
    from lakebackup_jobs.queues.transaction_scan import RangeScan

_GREATEST = 2**63 - 1


class Open:
    """The transactions that are open when a backup ends, once `tasks` have recorded what they found.

    `ranges`: what the ranges of the plan's tasks held; nothing of what a restore has left, where that is
    forgotten.
    """

    def __init__(self, work: Workspace, draft: InProgress, tasks: Tasks, reader: CatalogReader) -> None:
        plan, count = draft.plan, len(tasks)
        self.plan, self.tasks, self._uri = plan, count, work.storage.uri
        self._own = {"backup_id": draft.backup_id, "source": work.source}
        spark = None if work.runner == "local" else work.spark
        self._reader = reader if spark is None else reader.on(spark)
        found = [read_ranges(work.storage, work.source, draft.backup_id, task)[0] for task in range(count)]
        every = list(chain.from_iterable(found))
        self.ranges = behind_marks(list(chain.from_iterable(found[: len(plan.tasks)])))
        # After a restore that the plan does not know, nothing is open of what was open before it.
        self._parent = None if restored_to(plan, every) is not None else plan.open_at
        scans = TaskScans(self._uri, work.source, draft.backup_id, marks_of(every))
        give_scans(self._reader, spark, "queue_seen", scans, count)
        if plan.kind != "full":
            # Its chain has what the queues have deleted.
            self._reader.define("queue_unended", "queue_open", parent=self._parent)
            return
        reported = plan.snapshot_open
        self._reader.give(
            "queue_reported", pa.table({"transaction_id": pa.array(reported or (), pa.string())})
        )
        self._reader.give("queue_lows", _lows(plan))
        self._reader.define("queue_found", "queue_open", parent=self._parent)
        self._reader.define("queue_gone", "queue_open_gone")
        self._reader.define("queue_unended", "queue_open_reported", reported=reported is not None)

    @cached_property
    def count(self) -> int:
        """How many they are."""
        return int(self._reader.rows("queue_open_count")[0]["transactions"])

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
        rows = self._reader.rows("queue_open_lost") if self.plan.kind == "full" else []
        return (int(rows[0]["transactions"]) if rows else 0), [str(row["transaction_id"]) for row in rows]

    def suspects(self, path: str) -> int | None:
        """Write the ids of those whose end may be before what was read; returns the least tid of a message of
        theirs, None: there are none."""
        plan = self.plan
        known = plan.last_tid if plan.keep and plan.last_tid is not None else _GREATEST
        asked = {"parent": self._parent, "tid": known}
        if not write_ids(self._reader, self._uri, path, "queue_open_ids", **asked):
            return None
        return int(self._reader.rows("queue_open_oldest", parent=self._parent)[0]["tid"])

    def write(self, path: str) -> Written:
        """Write their rows of the catalog as a Parquet object."""
        schema = ARROW_SCHEMAS["queue_transactions"]
        return write_query(self._reader, self._uri, path, schema, "queue_open_rows", **self._own)

    def positions(self) -> list[QueuePosition]:
        """From where on each partition must be read to see whole what is open."""
        rows = self._reader.rows("queue_open_places") if self.count else []
        first = {(r["scope"], r["epoch"], r["region"]): int(r["first_position"]) for r in rows}
        tids = {(scope, epoch, region): tid for scope, epoch, region, tid in self.plan.tids}
        for place in marks_of(self.ranges):
            tids.pop(place, None)
        for one in self.ranges:
            if one.last_tid is not None:
                tids[one.place] = max(tids.get(one.place, 0), one.last_tid)
        places = [((p.scope, p.epoch, p.region), p.end_position) for p in self.plan.positions]
        return [
            QueuePosition(
                **self._own,
                **dict(zip(("scope", "epoch", "region"), place, strict=True)),
                no_transaction_position=min(first.get(place, end), end),
                last_tid=tids.get(place),
            )
            for place, end in places
        ]

    def point(self, snapshot_id: str | None) -> QueuePoint:
        """The state that the backup restores."""
        plan, ranges = self.plan, self.ranges
        first = [one.first_tid for one in ranges if one.first_tid is not None]
        return QueuePoint(
            **self._own,
            first_tid=min(first) if plan.keep and first else None,
            last_tid=last_tid(plan, ranges),
            snapshot_id=snapshot_id,
            restore_id=plan.restore_id,
            carried=sum(one.carried for one in ranges) if plan.keep else 0,
            open_transactions=self.count,
        )


def _lows(plan: QueuePlan) -> pa.Table:
    schema = pa.schema(
        [*((name, pa.string()) for name in ("scope", "epoch", "region")), ("low_position", pa.int64())]
    )
    rows = [{name: getattr(at, name) for name in schema.names} for at in plan.positions]
    return pa.Table.from_pylist(rows, schema)


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
