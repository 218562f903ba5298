"""A backup of queues as the lifecycle takes it: its tasks are run, what is open is worked out, and the rows
beside the messages are written.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from lakebackup.errors import Refused
from lakebackup.formats.queues import snapshot_json
from lakebackup.plan.queues import backup as planning
from lakebackup.plan.queues.backup import QueuePlan  # noqa: TC001 - read by pydantic
from lakebackup.plan.topics.forks import BackupEnd
from lakebackup.rows.base import QUEUES
from lakebackup.rows.queues import QueueSchema
from lakebackup.rules import layout
from lakebackup.store.manifest import Manifest
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.run import backup_row, result_of
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number, next_sequences
from lakebackup_jobs.lifecycle.tasks.part import Parts, parts_of, run_tasks
from lakebackup_jobs.lifecycle.tasks.runner import of_messages
from lakebackup_jobs.lifecycle.tasks.totals import Totals, totals
from lakebackup_jobs.queues.backup.copy_task import QueueCopyJob
from lakebackup_jobs.queues.backup.full_snapshot import FullSnapshot
from lakebackup_jobs.queues.backup.listing import Listing
from lakebackup_jobs.queues.backup.open_transactions import Open
from lakebackup_jobs.queues.backup.request import CONFIG, SCHEMA, keep_files
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.topics.resume import discard_files, tasks_done, unread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebackup.formats.queues.schema_history import Version
    from lakebackup.plan.queues.backup import Tasks
    from lakebackup.rows.backups import Backup, DataFile
    from lakebackup.rows.queues import QueuePoint
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.workspace import Workspace
    from lakebackup_jobs.queues.backup.planner import QueuePlanner
    from lakebackup_jobs.queues.backup.request import Files, QueueRequest

ISOLATION = "read_committed"


@dataclass(frozen=True, slots=True)
class InProgress:
    """What a backup is going to be; `started_at` in us. `asked`: what makes two requests the same backup.

    `first`: (topic, partition, first number of a file) where the catalog had files already.
    """

    backup_id: str
    number: int
    started_at: int
    plan: QueuePlan
    asked: dict[str, Any]
    first: list[tuple[str, str, int]]

    @property
    def note(self) -> str:
        """By which the backup of a full's snapshot is found again."""
        return f"for the full {self.backup_id} of its queues"


class QueueBackup(Source[InProgress]):
    """The queues of one engine.

    A resumed backup is completed as it was planned: it counts once, whatever came to the queues meanwhile. A
    full is resumed only when its snapshot is backed up already, and no other is there by now; else its
    positions would not be those of that snapshot.
    """

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

    @property
    def reader(self) -> CatalogReader:
        """The catalog as the run found it."""
        return self.planner.catalog or self.workspace.reader()

    def plan(self) -> InProgress:
        now, work, reader = datetime.now(UTC), self.workspace, self.planner.catalog
        backup_id = layout.new_backup_id(now)
        plan = self.planner.plan(backup_id)
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
        work, plan, reader = self.workspace, draft.plan, self.reader
        if plan.kind == "full" and self.snapshots.found(draft, reader) is None:
            return "its snapshot was not backed up yet"
        if latest_number(reader, work.source) + 1 != draft.number:
            return "another backup was taken since"
        asked = self.planner.asked(plan)
        if asked.get("snapshot_is") != draft.asked.get("snapshot_is"):
            return "the engine's snapshot is another one now"
        if asked != draft.asked:
            return "its options are different now"
        now = self.planner.continuation()
        parent = now.parent.backup_id if now.parent else None
        if now.restore_id != plan.restore_id or (plan.parent and parent != plan.parent.backup_id):
            return "the next backup depends on another one now"
        ends = (
            BackupEnd(0, p.scope, p.epoch, p.region, p.end_position, p.leader_epoch) for p in plan.positions
        )
        if self.planner.cuts(ends):
            return "its queues were cut back since, and have other messages there"
        done = tasks_done(work, draft.backup_id)
        rest = (span for task, spans in enumerate(plan.tasks) if task not in done for span in spans)
        return unread(rest, self.planner.regions)

    def is_asked_for(self, draft: InProgress) -> bool:
        return draft.asked == self.planner.asked(draft.plan)

    def copy(self, draft: InProgress) -> Totals:
        """Read what has not been read yet, and write the rows beside the messages.

        The engine's files are those of now; those of a backup that was interrupted are as they were.
        """
        work, plan, reader = self.workspace, draft.plan, self.reader
        files = keep_files(work.storage, work.source, draft.backup_id, self.planner.files)
        found, made = self._read(draft, reader)
        if plan.snapshot_tid is not None:
            self._require_last_tid(plan.snapshot_tid, found)
        self._warn(found, files.versions)
        snapshot_id = None
        if plan.kind == "full":
            snapshot_id = self.snapshots.take(draft, reader)
            self.lease.renew()
        point = found.point(snapshot_id)
        parts = Parts(**parts_of(work, draft, draft.plan.level, draft.plan.parent))
        rows = parts.once(work.storage, found.tasks, lambda: self._list(parts, found, point, files))
        made.add([SimpleNamespace(**totals(found.tasks, rows), error=None)])
        self._point, self._parts = asdict(point), found.tasks + 1
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
        self.workspace.empty(layout.scan_folder(self.workspace.source, draft.backup_id))

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:
        point = self._point or self.workspace.reader().rows("queue_parent", backup_id=draft.backup_id)[0]
        return result_of(backup, summary(draft.plan, backup.source) | {"snapshot": point["snapshot_id"]}) | {
            name: point[name] for name in ("last_tid", "carried", "open_transactions")
        }

    def _read(self, draft: InProgress, reader: CatalogReader) -> tuple[Open, Totals]:
        """Do the tasks; what is open afterwards, and what they wrote."""
        work, plan, made = self.workspace, draft.plan, Totals()
        folder, carried = layout.scan_folder(work.source, draft.backup_id), None
        if plan.open_at and any(r.start < r.own_from for task in plan.tasks for r in task):
            carried = f"{folder}carried.parquet"
            write_ids(reader, work.storage.uri, carried, "queue_carried", backup_id=plan.open_at)
        work.reporter.start(plan.offsets, None, "backup", "messages")
        made.merge(self._do(draft, plan.tasks, 0, carried=carried, keep=plan.keep))
        found = Open(work, draft, plan.tasks, reader)
        if not plan.look_back or not found.count:
            return found, made
        suspects = f"{folder}candidates.parquet"
        oldest = found.suspects(suspects)
        if oldest is None:
            return found, made
        back = self._back(plan, oldest, reader)
        tasks = (*plan.tasks, *back)
        work.reporter.start(planning.offsets_of(back), None, "look for ends of transactions", "messages")
        made.merge(self._do(draft, tasks, len(plan.tasks), carried=suspects, keep=False))
        return Open(work, draft, tasks, work.reader()), made

    def _back(self, plan: QueuePlan, oldest: int, reader: CatalogReader) -> Tasks:
        """Where ends of transactions with messages from tid `oldest` on may be, if it is still there."""
        rows = reader.rows("queue_open_since", source=self.workspace.source, tid=oldest)
        lows = {(r["scope"], r["epoch"], r["region"]): int(r["end_position"]) for r in rows}
        for at in self.planner.cluster.positions(self.planner.topics, ISOLATION)[1]:
            lows[at.place] = max(lows.get(at.place, 0), at.low)
        return planning.from_lows(plan.look_back, lows)

    def _do(self, draft: InProgress, tasks: Tasks, first: int, *, carried: str | None, keep: bool) -> Totals:
        """Do the tasks from the `first` on."""
        request = self.request
        job = QueueCopyJob(
            **parts_of(self.workspace, draft, draft.plan.level, draft.plan.parent),
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
            watermarks=frozenset(draft.plan.watermarks),
            skipped=self.planner.skipped,
        )
        self.workspace.choose_runner(request, of_messages(planning.offsets_of(tasks[first:])))
        return run_tasks(self.workspace, job, range(first, len(tasks)))

    def _require_last_tid(self, tid: int, found: Open) -> None:
        """Refused when the queues contradict snapshot.json."""
        where = self.planner.report.where
        for one in found.ranges:
            place = f"topic {one.scope}, partition {one.region}"
            snapshot_json.require_last_tid(tid, where, one.last_tid, place, one.last_tid_position)
        if early := found.early():
            raise Refused(
                f"{where}: max_no_transaction_pos is behind a message of an open transaction: {early}, and "
                "is not ended.",
                hint="What depends on this snapshot would lose messages. Take another one.",
            )
        if unlike := found.unlike():
            raise Refused(
                f"{where} lists transaction {unlike[0]} as open, and in the queues it is not: it has no "
                "message before the snapshot's positions, or it was ended there.",
                hint="What depends on this snapshot would lose or repeat messages. Take another one.",
            )

    def _warn(self, found: Open, versions: Sequence[Version]) -> None:
        warning = self.workspace.reporter.warning
        first = min((one.first_tid for one in found.ranges if one.first_tid is not None), default=None)
        if versions and first is not None and first < versions[0].tid:
            warning(
                f"there are messages from tid {first} on, and {self.request.schema} has no version "
                f"before tid {versions[0].tid}"
            )
        count, some = found.lost()
        if count:
            warning(
                f"{count} transactions are open and have messages that the queues hold no more, such as "
                f"{some[0]}: no backup of this full continues them"
            )

    def _list(self, parts: Parts, found: Open, point: QueuePoint, files: Files) -> list[DataFile]:
        """The rows beside those of the messages."""
        source, backup_id = parts.source, parts.backup_id
        listing = Listing(self.workspace.storage, parts, found.plan.end_ts)
        listing.put("queue_points", [point])
        listing.put("queue_positions", found.positions())
        if found.count:
            listing.add("queue_transactions", found.write(listing.path("queue_transactions")))
        if files.versions:
            versions = [
                QueueSchema(
                    backup_id=backup_id,
                    source=source,
                    version=one.version,
                    from_tid=one.tid,
                    change=one.change,
                    definition=one.schema,
                )
                for one in files.versions
            ]
            listing.put("queue_schemas", versions)
        listing.file(layout.queue_file_path(source, backup_id, CONFIG), "config", files.config)
        listing.file(layout.queue_file_path(source, backup_id, SCHEMA), "schema", files.schema)
        return listing.rows


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
