"""A backup of queues as the lifecycle takes it: its tasks are run, what is open is worked out, and the rows
beside the messages are written.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from lakebackup.errors import NotFound, Refused
from lakebackup.formats.queues import snapshot_json
from lakebackup.plan.queues import backup as planning
from lakebackup.rows.base import QUEUES
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar
from lakebackup.store.manifest import Manifest
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.run import backup_row, result_of
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number, next_sequences
from lakebackup_jobs.lifecycle.tasks.part import Parts, parts_of, run_tasks
from lakebackup_jobs.lifecycle.tasks.totals import Totals, totals
from lakebackup_jobs.queues.backup import open_transactions as ending
from lakebackup_jobs.queues.backup.copy_task import QueueCopyJob
from lakebackup_jobs.queues.backup.full_snapshot import FullSnapshot
from lakebackup_jobs.queues.backup.request import CONFIG, SCHEMA, keep_files
from lakebackup_jobs.queues.backup.resume import InProgress
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.topics.resume import discard_files, tasks_done

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebackup.formats.queues.schema_history import Version
    from lakebackup.plan.queues.backup import QueuePlan
    from lakebackup.rows.backups import Backup, DataFile
    from lakebackup.rows.queues import QueuePoint
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.workspace import Workspace
    from lakebackup_jobs.queues.backup.planner import QueuePlanner
    from lakebackup_jobs.queues.backup.request import Files, QueueRequest
    from lakebackup_jobs.queues.transaction_scan import RangeScan

ISOLATION = "read_committed"


class QueueBackup(Source[InProgress]):
    """The queues of one engine."""

    DRAFT = TypeAdapter(InProgress)

    def __init__(self, workspace: Workspace, planner: QueuePlanner) -> None:
        super().__init__(workspace)
        self.planner = planner
        self.snapshots = FullSnapshot(planner.request, workspace)
        self._point: Mapping[str, Any] = {}
        self._parts = 0

    @property
    def request(self) -> QueueRequest:
        return self.planner.request

    def plan(self) -> InProgress:
        now, work = datetime.now(UTC), self.workspace
        reader = work.existing()
        backup_id = layout.new_backup_id(now)
        plan = self.planner.plan(backup_id, reader)
        self.planner.require_there(plan)
        for note in plan.notes:
            work.reporter.note(note)
        for gap in plan.lost:
            work.reporter.warning(f"{planning.describe(gap)} before their backup")
        sequences = next_sequences(reader, work.source, plan.scopes) if plan.keep and reader else {}
        return InProgress(
            backup_id=backup_id,
            number=latest_number(reader, work.source) + 1 if reader else 1,
            started_at=micros(now),
            plan=plan,
            asked=self.planner.asked(plan),
            first=[(topic, region, number) for (topic, region), number in sequences.items()],
        )

    def resume_blocker(self, draft: InProgress) -> str | None:
        work, reader = self.workspace, self.workspace.reader()
        return draft.blocker(
            self.planner.asked(draft.plan),
            latest_number(reader, work.source) + 1,
            self.planner.continuation(reader),
            self.planner.regions,
            self.snapshots.found(draft, reader),
            tasks_done(work, draft.backup_id),
        )

    def is_asked_for(self, draft: InProgress) -> bool:
        return draft.asked == self.planner.asked(draft.plan)

    def copy(self, draft: InProgress) -> Totals:
        """Read what has not been read yet, and write the rows beside the messages.

        The engine's files are those of now; those of a backup that was interrupted are as they were.
        """
        work, plan, reader = self.workspace, draft.plan, self.workspace.reader()
        files = keep_files(work.storage, work.source, draft.backup_id, self.planner.files)
        found, tasks, made = self._read(draft, reader)
        ranges = ending.ranges_of(work.storage, work.source, draft.backup_id, len(plan.tasks))
        if plan.snapshot_tid is not None:
            self._require_true(plan.snapshot_tid, ranges, found)
        self._warn_of_schema(ranges, files.versions)
        self._warn_of_lost(found)
        snapshot_id = self.snapshots.take(draft, reader) if plan.kind == "full" else None
        self.lease.renew()
        point = ending.point_row(plan, work.source, draft.backup_id, ranges, snapshot_id, found.count)
        rows = self._list(draft, found, ranges, tasks, point, files)
        made.add([SimpleNamespace(**totals(tasks, rows), error=None)])
        self._point, self._parts = asdict(point), tasks + 1
        return made

    def manifest(self, draft: InProgress, totals: Totals) -> Manifest:
        plan = draft.plan
        backup = backup_row(
            self.workspace,
            draft,
            totals,
            plan.parent,
            source_kind=QUEUES,
            kind=plan.kind,
            level=plan.level,
            start_ts=plan.end_ts - 1 if plan.start_ts is None else plan.start_ts,
            end_ts=plan.end_ts,
            isolation=ISOLATION,
            codec=self.request.codec,
            note=self.request.note,
        )
        return Manifest(
            backup=backup, positions=plan.positions, scopes=plan.scopes, gaps=plan.lost, parts=self._parts
        )

    def discard(self, draft: InProgress) -> int:
        work = self.workspace
        if snapshot_id := self.snapshots.found(draft, work.reader()):
            # First: without the record nothing shows that the hold is of no use.
            self.snapshots.release(snapshot_id, draft)
        places = {(s.epoch, s.scope, s.region) for task in draft.plan.tasks for s in task}
        count = discard_files(work, draft.backup_id, places, draft.first) if draft.plan.keep else 0
        work.empty(layout.queue_files_folder(work.source, draft.backup_id))
        return count

    def finish(self, draft: InProgress) -> None:
        """What its tasks recorded is no longer needed."""
        self.workspace.empty(layout.seen_folder(self.workspace.source, draft.backup_id))

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:
        point = self._point or self.workspace.reader().rows("queue_parent", backup_id=draft.backup_id)[0]
        return result_of(backup, summary(draft.plan, backup.source) | {"snapshot": point["snapshot_id"]}) | {
            name: point[name] for name in ("last_tid", "carried", "open_transactions")
        }

    def _read(self, draft: InProgress, reader: CatalogReader) -> tuple[ending.Open, int, Totals]:
        """Do the tasks; what is open afterwards, how many tasks they were and what they wrote."""
        plan, made = draft.plan, Totals()
        carried = None
        if plan.open_at and any(r.start < r.own_from for task in plan.tasks for r in task):
            carried = f"{layout.seen_folder(self.workspace.source, draft.backup_id)}carried.parquet"
            write_ids(reader, self.workspace.storage.uri, carried, "queue_carried", backup_id=plan.open_at)
        self.workspace.reporter.start(plan.offsets, None, "backup")
        self._do(draft, plan.tasks, range(len(plan.tasks)), carried, plan.keep, made)
        found = self._open(draft, plan.tasks, reader)
        if not plan.look_back or not found.count:
            return found, len(plan.tasks), made
        path = f"{layout.seen_folder(self.workspace.source, draft.backup_id)}candidates.parquet"
        oldest = found.suspects(path)
        if oldest is None:
            return found, len(plan.tasks), made
        back = self._back(plan, oldest, reader)
        tasks = (*plan.tasks, *back)
        self.workspace.reporter.start(planning.offsets_of(back), None, "look for ends of transactions")
        self._do(draft, tasks, range(len(plan.tasks), len(tasks)), path, False, made)
        return (
            self._open(draft, tasks, self.workspace.reader()),
            len(tasks),
            made,
        )

    def _back(
        self, plan: QueuePlan, oldest: int, reader: CatalogReader
    ) -> tuple[tuple[planning.QueueRange, ...], ...]:
        """Where ends of transactions with messages from tid `oldest` on may be, if it is still there."""
        rows = reader.rows("queue_open_since", source=self.workspace.source, tid=oldest)
        lows = {(r["scope"], r["epoch"], r["region"]): int(r["end_position"]) for r in rows}
        for at in self.planner.cluster.positions(self.planner.topics, ISOLATION)[1]:
            place = at.scope, at.epoch, at.region
            lows[place] = max(lows.get(place, 0), at.low)
        return planning.from_lows(plan.look_back, lows)

    def _open(
        self, draft: InProgress, tasks: tuple[tuple[planning.QueueRange, ...], ...], reader: CatalogReader
    ) -> ending.Open:
        spark = None if planning.are_little(tasks) else self.workspace.spark
        return ending.Open(
            self.workspace.storage,
            self.workspace.source,
            draft.backup_id,
            len(tasks),
            draft.plan,
            reader,
            spark,
        )

    def _do(
        self,
        draft: InProgress,
        tasks: tuple[tuple[planning.QueueRange, ...], ...],
        numbers: range,
        carried: str | None,
        keep: bool,
        made: Totals,
    ) -> None:
        request, plan = self.request, draft.plan
        if not numbers:
            return
        work = self.workspace
        job = QueueCopyJob(
            **parts_of(work, draft, plan.level, plan.parent),
            client=dict(request.kafka),
            isolation=ISOLATION,
            codec=request.codec,
            compression_level=request.compression_level,
            target_bytes=request.target_bytes,
            tasks=tasks,
            sequences={(topic, region): number for topic, region, number in draft.first},
            names=request.names,
            carried=carried,
            keep=keep,
            watermarks=frozenset(plan.watermarks),
            skipped=self.planner.skipped,
        )
        made.merge(
            run_tasks(work, job, numbers, here=planning.are_little(tasks[number] for number in numbers))
        )
        work.reporter.update(made.entries, made.bytes)

    def _require_true(self, tid: int, ranges: Sequence[RangeScan], found: ending.Open) -> None:
        """Refused when the queues contradict snapshot.json."""
        for one in ranges:
            place = f"topic {one.scope}, partition {one.region}"
            snapshot_json.require_true(
                tid, self.planner.report.where, one.last_tid, place, one.last_tid_position
            )
        early = found.early()
        if early:
            raise Refused(
                f"{self.planner.report.where}: max_no_transaction_pos is behind a message of an open "
                f"transaction: {early}, and is not ended.",
                hint="What depends on this snapshot would lose messages. Take another one.",
            )
        unlike = found.unlike()
        if unlike:
            raise Refused(
                f"{self.planner.report.where} lists transaction {unlike[0]} as open, and in the queues it is "
                "not: it has no message before the snapshot's positions, or it was ended there.",
                hint="What depends on this snapshot would lose or repeat messages. Take another one.",
            )

    def _warn_of_schema(self, ranges: Sequence[RangeScan], versions: Sequence[Version]) -> None:
        first = min((one.first_tid for one in ranges if one.first_tid is not None), default=None)
        if versions and first is not None and first < versions[0].tid:
            self.workspace.reporter.warning(
                f"there are messages from tid {first} on, and {self.request.schema} has no version "
                f"before tid {versions[0].tid}"
            )

    def _warn_of_lost(self, found: ending.Open) -> None:
        count, some = found.lost()
        if count:
            self.workspace.reporter.warning(
                f"{count} transactions are open and have messages that the queues hold no more, such as "
                f"{some[0]}: no backup of this full continues them"
            )

    # --- what is published

    def _list(
        self,
        draft: InProgress,
        found: ending.Open,
        ranges: Sequence[RangeScan],
        tasks: int,
        point: QueuePoint,
        files: Files,
    ) -> list[DataFile]:
        """The rows beside those of the messages, put once: an earlier attempt's, if it came so far."""
        storage, source, backup_id = self.workspace.storage, self.workspace.source, draft.backup_id
        part = layout.parts_path(source, backup_id, tasks)
        try:
            return sidecar.read_part(storage, part)
        except NotFound:
            pass
        plan = draft.plan
        parts = Parts(**parts_of(self.workspace, draft, plan.level, plan.parent))
        listing = ending.Listing(parts, plan.end_ts)
        count = found.count
        positions = ending.position_rows(plan, source, backup_id, ranges, found.places() if count else {})
        listing.add("queue_points", ending.put_rows(storage, source, backup_id, "queue_points", [point]))
        listing.add(
            "queue_positions", ending.put_rows(storage, source, backup_id, "queue_positions", positions)
        )
        if count:
            path = ending.listing_path(source, backup_id, "queue_transactions")
            listing.add("queue_transactions", found.write(path))
        if files.versions:
            rows = ending.schema_rows(source, backup_id, files.versions)
            listing.add("queue_schemas", ending.put_rows(storage, source, backup_id, "queue_schemas", rows))
        if files.config is not None:
            listing.file(layout.queue_file_path(source, backup_id, CONFIG), "config", files.config)
        if files.schema is not None:
            listing.file(layout.queue_file_path(source, backup_id, SCHEMA), "schema", files.schema)
        return sidecar.write_part(storage, part, listing.rows)


def summary(plan: QueuePlan, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "kind": plan.kind,
        "parent": plan.parent.backup_id if plan.parent else None,
        "restore": plan.restore_id,
        "topics": len(plan.scopes),
        "partitions": len(plan.positions),
        "offsets": plan.offsets,
        "end_ts": plan.end_ts,
        "gaps": len(plan.lost),
    }
