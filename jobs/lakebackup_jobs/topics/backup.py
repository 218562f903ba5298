"""Back up Kafka topics: fix the offsets, copy them in Spark tasks, publish."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from lakebackup.errors import Incomplete
from lakebackup.plan.parents import check_asked
from lakebackup.plan.topics.backup import increment_bytes
from lakebackup.rows.base import TOPICS
from lakebackup.rules import layout, topic_settings
from lakebackup.rules.retention import roll_ms
from lakebackup.store import tombstones
from lakebackup.store.behind import require_current
from lakebackup.store.manifest import Manifest
from lakebackup_jobs.kafka.admin.groups import Groups
from lakebackup_jobs.lifecycle.lost_objects import notice_lost_objects
from lakebackup_jobs.lifecycle.run import Life, backup_row, result_of
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.numbers import newest_files
from lakebackup_jobs.lifecycle.tasks.part import parts_of, run_tasks
from lakebackup_jobs.lifecycle.tasks.runner import by_size
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.topics import forks
from lakebackup_jobs.topics.announce import (
    announce,
    record_unprotected,
    summary,
    warn_of_missed_tombstones,
)
from lakebackup_jobs.topics.planning import plan_next, prepare
from lakebackup_jobs.topics.resume import InProgress, asked, blocker, different, discard_files
from lakebackup_jobs.topics.tasks import copy as copy_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakebackup.plan.topics.backup import BackupPlan, NewestFile, Prepared
    from lakebackup.rows.backups import Backup
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.writer import Session
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.lifecycle.tasks.totals import Totals
    from lakebackup_jobs.topics.request import BackupRequest


def run(request: BackupRequest, *, spark: Session = None, reporter: Reporter) -> dict[str, Any]:
    """Take one backup; returns what a person wants to know of it.

    Raises NotFound (topics), Refused (a gap with on_gap="fail", a history cut back), Busy (another run on
    the source), EnvironmentProblem (broker, disk), Incomplete (what was asked for and cannot be read; all
    else is backed up by then).
    """
    check_asked(request.mode, request.level, request.parent)
    cluster = Groups(request.kafka)
    source = layout.check_source(request.source or f"kafka-{cluster.cluster_id()}")
    work = Workspace(request, source, reporter, spark)
    if request.dry_run:
        reader = work.existing()
        if reader:
            require_current(reader)
        plan = plan_next(request, layout.new_backup_id(datetime.now(UTC)), source, cluster, reader)
        return {"dry_run": True, **summary(plan, source)}
    with work.running("backup", TOPICS) as lease:
        writer = work.writer()
        # The first is a full; else the plan shows how much there is to read.
        if request.mode == "full" or writer.version() is None:
            work.choose_runner(request, None)
        reader = notice_lost_objects(work, writer.prepare())
        topics = TopicsBackup(work, request, cluster, reader)
        life = Life(topics, lease)
        ended = life.settle()
        if ended:
            topics.reader = work.reader()
            # What came in since the positions of then; a cumulative one would read all again.
            topics.request = replace(request, mode="incr-diff", parent=None)
        draft = topics.plan()
        plan = draft.prepared.plan
        if ended and plan.idle:
            return ended
        if plan.tasks:
            work.choose_runner(topics.request, plan.bytes)
        announce(plan, reporter)
        if plan.fork:
            forks.record(work.writer(), plan.fork)
        taken = {scope.scope for scope in plan.scopes}
        alone = record_unprotected(topics.reader, work.writer(), source, cluster.topic_names(), taken)
        result = life.take(draft) | {"unprotected": len(alone)}
        if ended:
            result["ended"] = ended
        if plan.left_out:
            for left in plan.left_out:
                reporter.warning(left)
            raise Incomplete(
                f"Backup {draft.backup_id} was taken without what could not be read: "
                f"{len(plan.left_out)} in all.",
                hint="Give this user the rights that the warnings name, then back up again. Share groups "
                "cannot be saved; --groups none leaves all groups out.",
            ).with_result(result)
        return result


class TopicsBackup(Source[InProgress]):
    """The topics of one cluster. `reader`: the catalog before the next backup."""

    DRAFT = TypeAdapter(InProgress)

    def __init__(
        self, workspace: Workspace, request: BackupRequest, cluster: Groups, reader: CatalogReader
    ) -> None:
        super().__init__(workspace)
        self.request, self.cluster, self.reader = request, cluster, reader

    def plan(self) -> InProgress:
        work, request, reader = self.workspace, self.request, self.reader
        if request.parent:
            parent = reader.resolve_backup(request.parent, work.source)
            tombstones.require_not_pruned(work.storage, work.source, parent)
        prepared = prepare(request, work.source, self.cluster, reader)
        plan = prepared.plan
        files = newest_files(reader, work.source, plan.scopes, plan.places)
        prepared = replace(prepared, plan=replace(plan, bytes=self._bytes(plan, files)))
        first = [(file.scope, file.region, file.next_sequence) for file in files]
        return InProgress(prepared, asked(request), first)

    def _bytes(self, plan: BackupPlan, newest: Iterable[NewestFile]) -> int | None:
        """As of a plan. Where no file says how large a topic's records are, they are read once more: a small
        increment is read sooner than Spark starts."""
        if plan.kind == "full":
            return None
        known, unknown = increment_bytes(plan, newest)
        if not unknown:
            return known
        request = self.request
        most = request.local_below - known
        if most < 0 or not by_size(request, self.workspace.session):
            return None
        from lakebackup_jobs.kafka.client.consume import bytes_of  # compiled: a backup of known topics waits

        found = bytes_of(request.kafka, request.isolation, unknown, most)
        return None if found is None else known + found

    def resume_blocker(self, draft: InProgress) -> str | None:
        return blocker(draft, self.request, self.workspace, self.cluster)

    def is_asked_for(self, draft: InProgress) -> bool:
        return not different(draft, self.request)

    def copy(self, draft: InProgress) -> Totals:
        plan = draft.prepared.plan
        self.workspace.choose_runner(self.request, plan.bytes)
        self.workspace.reporter.start(plan.offsets, None, "backup")
        sequences = {(topic, region): number for topic, region, number in draft.first}
        job = copy_job(draft.completing(self.request), self.workspace, draft.prepared, sequences)
        return run_tasks(self.workspace, job, range(len(plan.tasks)))

    def manifest(self, draft: InProgress, totals: Totals) -> Manifest:
        return manifest(draft.completing(self.request), self.workspace, draft.prepared, totals)

    def discard(self, draft: InProgress) -> int:
        places = {(s.epoch, s.scope, s.region) for task in draft.prepared.plan.tasks for s in task}
        return discard_files(self.workspace, draft.backup_id, places, draft.first)

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:
        return result_of(backup, summary(draft.prepared.plan, backup.source))


def copy_job(
    request: BackupRequest,
    work: Workspace,
    prepared: Prepared,
    sequences: Mapping[tuple[str, str], int],
    *,
    report: bool = True,
) -> copy_task.CopyJob:
    """What the tasks of a prepared backup do; `sequences`: of next_sequences; `report`: they report their
    progress."""
    plan = prepared.plan
    return copy_task.CopyJob(
        **parts_of(work, prepared, plan.level, plan.parent),
        client=dict(request.kafka),
        isolation=request.isolation,
        codec=request.codec,
        compression_level=request.compression_level,
        target_bytes=request.target_bytes,
        tasks=plan.tasks,
        sequences=sequences,
        report=report,
        rolls=_rolls(plan, request.roll_ms),
    )


def _rolls(plan: BackupPlan, asked_ms: int | None) -> dict[str, int]:
    """For each topic whose files are closed by time: after how many ms."""
    spans = {scope.scope: roll_ms(topic_settings.in_force(scope.settings), asked_ms) for scope in plan.scopes}
    return {topic: span for topic, span in spans.items() if span is not None}


def manifest(request: BackupRequest, work: Workspace, prepared: Prepared, totals: Totals) -> Manifest:
    """The rows of a backup whose tasks are done, after those that are read out of its new data files."""
    plan = prepared.plan
    warn_of_missed_tombstones(plan, work.reporter)
    if plan.tasks:
        _decode(request, work, prepared)
    backup = backup_row(
        work,
        prepared,
        totals,
        plan.parent,
        kind=plan.kind,
        level=plan.level,
        branch=plan.branch,
        end_ts=plan.end_ts,
        isolation=request.isolation,
        codec=request.codec,
        note=request.note,
    )
    return Manifest(
        backup=backup,
        positions=plan.positions,
        scopes=plan.scopes,
        gaps=plan.gaps,
        groups=plan.groups,
        parts=len(plan.tasks),
    )


def _decode(request: BackupRequest, work: Workspace, prepared: Prepared) -> None:
    """Write the rows of group commits and schemas."""
    from lakebackup_jobs.topics.tasks.decode import decode_backup

    parts: dict[str, list[str]] = {}
    for task, splits in enumerate(prepared.plan.tasks):
        for scope in {split.scope for split in splits}:
            parts.setdefault(scope, []).append(layout.parts_path(work.source, prepared.backup_id, task))
    if not decode_backup(work, prepared.backup_id, parts, request.schema_topics):
        return
    for row in work.reader().rows("decode_problems", backup_id=prepared.backup_id):
        work.reporter.warning(
            f"topic {row['scope']}: {row['records']} records are kept but could not be decoded; the first, "
            f"partition {row['region']}, offset {row['position']}: {row['problem']}"
        )
