"""A backup of queues, as the lifecycle runs it.

It runs the tasks that read the queues, determines which transactions are open at the end, and writes the rows
beside those of the messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from pydantic import TypeAdapter

from lakebackup.errors import Refused
from lakebackup.formats.queues import snapshot_json
from lakebackup.formats.queues.schema_history import Version
from lakebackup.plan.queues import backup as planning
from lakebackup.plan.queues.backup import QueuePlan, Tasks
from lakebackup.plan.topics.forks import BackupEnd
from lakebackup.rows.backups import Backup, DataFile
from lakebackup.rows.base import QUEUES
from lakebackup.rows.queues import QueuePoint, QueueSchema
from lakebackup.rules import layout
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.manifest import Manifest
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.parts import parts_of, run_tasks
from lakebackup_jobs.lifecycle.run import backup_row, result_of
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number, next_sequences
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.lifecycle.tasks.runner import of_messages
from lakebackup_jobs.lifecycle.tasks.totals import Totals, totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.backup.copy_task import QueueCopyJob
from lakebackup_jobs.queues.backup.draft import ISOLATION, InProgress
from lakebackup_jobs.queues.backup.full_snapshot import FullSnapshot
from lakebackup_jobs.queues.backup.listing import Listing
from lakebackup_jobs.queues.backup.open_transactions import Open
from lakebackup_jobs.queues.backup.planner import QueuePlanner
from lakebackup_jobs.queues.backup.request import QueueRequest, StoredFiles, delete_unused_files, store_files
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.topics.resume import discard_files, tasks_done, unread


class QueueBackup(Source[InProgress]):
    """The queues of one engine.

    A resumed backup is completed as it was planned, whatever was written to the queues meanwhile. A full is
    resumed only when its snapshot is backed up already and the engine has not made another one since;
    otherwise its positions would not be those of that snapshot.
    """

    DRAFT = TypeAdapter(InProgress)

    def __init__(self, workspace: Workspace, planner: QueuePlanner) -> None:
        super().__init__(workspace)
        self.encryption = RunEncryption.of(planner.request.recipients, workspace.storage)
        self.planner = planner
        self.snapshots = FullSnapshot(planner.request, workspace)
        self._point: Mapping[str, Any] = {}
        self._parts = 0

    @property
    def request(self) -> QueueRequest:
        return self.planner.request

    @property
    def reader(self) -> CatalogReader:
        """The catalog as it was when the run started."""
        return self.planner.catalog or self.workspace.reader()

    def plan(self) -> InProgress:
        started_at, work, reader = datetime.now(UTC), self.workspace, self.planner.catalog
        backup_id = layout.new_backup_id(started_at)
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
            started_at=micros(started_at),
            plan=plan,
            asked=self.planner.request_identity(plan),
            first=[(topic, region, number) for (topic, region), number in sequences.items()],
        )

    def resume_blocker(self, draft: InProgress) -> str | None:
        work, plan, reader = self.workspace, draft.plan, self.reader
        if plan.kind == "full" and self.snapshots.find_backup(draft, reader) is None:
            return "its snapshot was not backed up yet"
        if latest_number(reader, work.source) + 1 != draft.number:
            return "another backup was taken since"
        identity = self.planner.request_identity(plan)
        if identity.get("snapshot_is") != draft.asked.get("snapshot_is"):
            return "the engine's snapshot is another one now"
        if identity != draft.asked:
            return "its options are different now"
        continuation = self.planner.continuation()
        parent = continuation.parent.backup_id if continuation.parent else None
        if continuation.restore_id != plan.restore_id or (plan.parent and parent != plan.parent.backup_id):
            return "the next backup depends on another one now"
        ends = (
            BackupEnd(0, p.scope, p.epoch, p.region, p.end_position, p.leader_epoch) for p in plan.positions
        )
        if self.planner.cuts(ends):
            return "its queues were cut back since, and have other messages there"
        completed_tasks = tasks_done(work, draft.backup_id)
        remaining_spans = (
            span for task, spans in enumerate(plan.tasks) if task not in completed_tasks for span in spans
        )
        return unread(remaining_spans, self.planner.regions)

    def matches_request(self, draft: InProgress) -> bool:
        return draft.asked == self.planner.request_identity(draft.plan)

    def copy(self, draft: InProgress) -> Totals:
        """Run the tasks that are not done, and write the rows beside those of the messages.

        The engine's files are stored as they are now; a resumed backup keeps those that it has stored.
        """
        work, plan, reader = self.workspace, draft.plan, self.reader
        parts = Parts(**parts_of(work, draft, plan.level, plan.parent, self.encryption))
        files = store_files(work.storage, parts, self.planner.files)
        transactions, task_totals = self._read_queues(draft, parts, reader)
        if plan.snapshot_tid is not None:
            self._require_last_tid(plan.snapshot_tid, transactions)
        self._warn(transactions, files.versions)
        snapshot_id = None
        if plan.kind == "full":
            snapshot_id = self.snapshots.take_backup(draft, reader)
            self.lease.renew()
        point = transactions.point(snapshot_id)
        rows = parts.write_once(
            work.storage, transactions.tasks, lambda: self._list(parts, transactions, point, files)
        )
        delete_unused_files(work.storage, work.source, draft.backup_id, {row.path for row in rows})
        task_totals.add([SimpleNamespace(**totals(transactions.tasks, rows), error=None)])
        self._point, self._parts = asdict(point), transactions.tasks + 1
        return task_totals

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
        if snapshot_id := self.snapshots.find_backup(draft, work.reader()):
            # The hold is released first: once the draft is gone, nothing shows that it is of no use.
            self.snapshots.release(snapshot_id, draft)
        partitions = {(s.epoch, s.scope, s.region) for task in draft.plan.tasks for s in task}
        count = discard_files(work, draft.backup_id, partitions, draft.first) if draft.plan.keep else 0
        work.empty(layout.queue_files_folder(work.source, draft.backup_id))
        return count

    def finish(self, draft: InProgress) -> None:
        """Delete the transactions that the tasks recorded, which are no longer needed."""
        self.workspace.empty(layout.scan_folder(self.workspace.source, draft.backup_id))

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:
        point = self._point or self.workspace.reader().rows("queue_parent", backup_id=draft.backup_id)[0]
        return result_of(backup, summary(draft.plan, backup.source) | {"snapshot": point["snapshot_id"]}) | {
            name: point[name] for name in ("last_tid", "carried", "open_transactions")
        }

    def _read_queues(self, draft: InProgress, parts: Parts, reader: CatalogReader) -> tuple[Open, Totals]:
        """Run the tasks; return the transactions that are open afterwards, and the totals of the tasks."""
        work, plan, task_totals = self.workspace, draft.plan, Totals()
        folder, carried = layout.scan_folder(work.source, draft.backup_id), None
        if plan.open_at and any(r.start < r.own_from for task in plan.tasks for r in task):
            carried = f"{folder}carried.parquet"
            write_ids(reader, work.storage.uri, carried, "queue_carried", backup_id=plan.open_at)
        work.reporter.start(plan.offsets, None, "backup", "messages")
        task_totals.merge(self._run_tasks(draft, parts, plan.tasks, 0, carried=carried, keep=plan.keep))
        transactions = Open(work, draft, plan.tasks, reader)
        if not plan.look_back or not transactions.count:
            return transactions, task_totals
        suspects = f"{folder}candidates.parquet"
        oldest = transactions.suspects(suspects)
        if oldest is None:
            return transactions, task_totals
        extra_tasks = self._look_back_tasks(plan, oldest, reader)
        tasks = (*plan.tasks, *extra_tasks)
        work.reporter.start(
            planning.offsets_of(extra_tasks), None, "look for ends of transactions", "messages"
        )
        task_totals.merge(self._run_tasks(draft, parts, tasks, len(plan.tasks), carried=suspects, keep=False))
        return Open(work, draft, tasks, work.reader()), task_totals

    def _look_back_tasks(self, plan: QueuePlan, oldest: int, reader: CatalogReader) -> Tasks:
        """Return tasks for the offsets that may hold ends of transactions with messages from tid `oldest` on,
        without offsets that the queues have deleted."""
        rows = reader.rows("queue_open_since", source=self.workspace.source, tid=oldest)
        lows = {(r["scope"], r["epoch"], r["region"]): int(r["end_position"]) for r in rows}
        for region in self.planner.cluster.positions(self.planner.topics, ISOLATION)[1]:
            lows[region.key] = max(lows.get(region.key, 0), region.low)
        return planning.from_lows(plan.look_back, lows)

    def _run_tasks(
        self, draft: InProgress, parts: Parts, tasks: Tasks, first: int, *, carried: str | None, keep: bool
    ) -> Totals:
        """Run the tasks from number `first` on; return their totals."""
        request = self.request
        job = QueueCopyJob(
            **vars(parts),
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

    def _require_last_tid(self, tid: int, transactions: Open) -> None:
        """Raise Refused when the queues contradict snapshot.json."""
        path = self.planner.report.path
        for scan in transactions.ranges:
            partition = f"topic {scan.scope}, partition {scan.region}"
            snapshot_json.require_last_tid(tid, path, scan.last_tid, partition, scan.last_tid_position)
        if early := transactions.early():
            raise Refused(
                f"{path}: max_no_transaction_pos is behind a message of an open transaction: {early}, and "
                "is not ended.",
                hint="What depends on this snapshot would lose messages. Take another one.",
            )
        if not_open := transactions.unlike():
            raise Refused(
                f"{path} lists transaction {not_open[0]} as open, and in the queues it is not: it has no "
                "message before the snapshot's positions, or it was ended there.",
                hint="What depends on this snapshot would lose or repeat messages. Take another one.",
            )

    def _warn(self, transactions: Open, versions: Sequence[Version]) -> None:
        warning = self.workspace.reporter.warning
        first = min(
            (scan.first_tid for scan in transactions.ranges if scan.first_tid is not None), default=None
        )
        if versions and first is not None and first < versions[0].tid:
            warning(
                f"there are messages from tid {first} on, and {self.request.schema} has no version "
                f"before tid {versions[0].tid}"
            )
        count, examples = transactions.lost()
        if count:
            warning(
                f"{count} transactions are open and have messages that the queues hold no more, such as "
                f"{examples[0]}: no backup of this full continues them"
            )

    def _list(
        self, parts: Parts, transactions: Open, point: QueuePoint, files: StoredFiles
    ) -> list[DataFile]:
        """Write the objects beside the messages and return their rows."""
        source, backup_id = parts.source, parts.backup_id
        listing = Listing(self.workspace.storage, parts, transactions.plan.end_ts)
        listing.write_rows("queue_points", [point])
        listing.write_rows("queue_positions", transactions.positions())
        if transactions.count:
            listing.add("queue_transactions", transactions.write(listing.path("queue_transactions")))
        if files.versions:
            versions = [
                QueueSchema(
                    backup_id=backup_id,
                    source=source,
                    version=version.version,
                    from_tid=version.tid,
                    change=version.change,
                    definition=version.schema,
                )
                for version in files.versions
            ]
            listing.write_rows("queue_schemas", versions)
        for file in files.files:
            listing.file(file)
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
