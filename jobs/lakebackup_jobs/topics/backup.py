"""Back up Kafka topics: fix the offsets, copy them in Spark tasks, publish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from lakebackup.errors import Incomplete
from lakebackup.plan.parents import check_asked
from lakebackup.plan.topics.backup import BackupPlan, NewestFile, Prepared, increment_bytes
from lakebackup.rows.backups import Backup
from lakebackup.rows.base import TOPICS
from lakebackup.rules import layout, topic_settings
from lakebackup.rules.retention import roll_ms
from lakebackup.store import tombstones
from lakebackup.store.behind import require_current
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.manifest import Manifest
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import Session
from lakebackup_jobs.kafka.admin.groups import Groups
from lakebackup_jobs.kafka.client.consume import bytes_of
from lakebackup_jobs.lifecycle.lost_objects import notice_lost_objects
from lakebackup_jobs.lifecycle.parts import parts_of, run_tasks
from lakebackup_jobs.lifecycle.progress import Reporter, human_bytes
from lakebackup_jobs.lifecycle.run import Life, backup_row, result_of
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.memory import bytes_to_read, largest_record, tasks_at_once
from lakebackup_jobs.lifecycle.tasks.numbers import newest_files
from lakebackup_jobs.lifecycle.tasks.runner import by_size
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.runtime.memory_limit import memory_limit
from lakebackup_jobs.topics import forks
from lakebackup_jobs.topics.announce import (
    announce,
    record_unprotected,
    summary,
    warn_of_missed_tombstones,
)
from lakebackup_jobs.topics.planning import plan_next, prepare
from lakebackup_jobs.topics.request import BackupRequest
from lakebackup_jobs.topics.resume import InProgress, blocker, different, discard_files, identity_of
from lakebackup_jobs.topics.tasks import copy as copy_task
from lakebackup_jobs.topics.tasks.decode import decode_backup

# Tasks that run in this process at a time.
_THREADS = 8


def run(request: BackupRequest, *, spark: Session = None, reporter: Reporter) -> dict[str, Any]:
    """Take one backup, and return a summary of it. An interrupted backup is completed or discarded first.

    Raises NotFound (topics), Refused (a gap with on_gap="fail", a fork with on_fork="fail"), Busy (another
    run works on the source), EnvironmentProblem (broker, disk), Incomplete (some topics or groups cannot be
    read; the others are backed up by then).
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
        if not by_size(request, work.session):  # Spark starts while the backup is planned
            work.choose_runner(request, None)
        reader = notice_lost_objects(work, writer.prepare())
        topics = TopicsBackup(work, request, cluster, reader)
        life = Life(topics, lease)
        resumed = life.finish_interrupted()
        if resumed:
            topics.reader = work.reader()
            # Back up what came in since the positions of that backup; a cumulative one would read it again.
            topics.request = replace(request, mode="incr-diff", parent=None)
        draft = topics.plan()
        plan = draft.prepared.plan
        if resumed and plan.idle:
            return resumed
        if plan.tasks:
            work.choose_runner(topics.request, plan.bytes)
        announce(plan, reporter)
        if plan.fork:
            forks.record(work.writer(), plan.fork)
        scopes = {scope.scope for scope in plan.scopes}
        unprotected = record_unprotected(topics.reader, work.writer(), source, cluster.topic_names(), scopes)
        result = life.run(draft) | {"unprotected": len(unprotected)}
        if resumed:
            result["ended"] = resumed
        if plan.left_out:
            for warning in plan.left_out:
                reporter.warning(warning)
            raise Incomplete(
                f"Backup {draft.backup_id} was taken without what could not be read: "
                f"{len(plan.left_out)} in all.",
                hint="Give this user the rights that the warnings name, then back up again. Share groups "
                "cannot be saved; --groups none leaves all groups out.",
            ).with_result(result)
        return result


class TopicsBackup(Source[InProgress]):
    """Backups of the topics of one cluster. `reader`: the catalog before the next backup."""

    DRAFT = TypeAdapter(InProgress)

    def __init__(
        self, workspace: Workspace, request: BackupRequest, cluster: Groups, reader: CatalogReader
    ) -> None:
        super().__init__(workspace)
        self.request, self.cluster, self.reader = request, cluster, reader
        self.encryption = RunEncryption.of(request.recipients, workspace.storage)

    def plan(self) -> InProgress:
        work, request, reader = self.workspace, self.request, self.reader
        if request.parent:
            parent = reader.resolve_backup(request.parent, work.source)
            tombstones.require_not_pruned(work.storage, work.source, parent)
        prepared = prepare(request, work.source, self.cluster, reader)
        plan = prepared.plan
        files = newest_files(reader, work.source, plan.scopes, plan.partitions_read)
        prepared = replace(prepared, plan=replace(plan, bytes=self._bytes(plan, files)))
        first = [(file.scope, file.region, file.next_sequence) for file in files]
        return InProgress(prepared, identity_of(request), first)

    def _bytes(self, plan: BackupPlan, newest: Iterable[NewestFile]) -> int | None:
        """The number of bytes that a plan reads; None: unknown, or too many to count.

        Where no earlier file shows how large a topic's records are, records of some partitions are read to
        count them: this takes less time than starting Spark.
        """
        known_bytes, unknown = increment_bytes(plan, newest)
        if not unknown:
            return known_bytes
        request = self.request
        limit = request.local_below - known_bytes
        if limit < 0 or not by_size(request, self.workspace.session):
            return None

        counted_bytes = bytes_of(request.kafka, request.isolation, unknown, limit)
        return None if counted_bytes is None else known_bytes + counted_bytes

    def resume_blocker(self, draft: InProgress) -> str | None:
        return blocker(draft, self.request, self.workspace, self.cluster)

    def matches_request(self, draft: InProgress) -> bool:
        return not different(draft, self.request)

    def copy(self, draft: InProgress) -> Totals:
        plan = draft.prepared.plan
        self.workspace.choose_runner(self.request, plan.bytes)
        self.workspace.reporter.start(plan.offsets, None, "backup")
        sequences = {(topic, region): number for topic, region, number in draft.first}
        job = copy_job(
            draft.completing(self.request), self.workspace, draft.prepared, sequences, self.encryption
        )
        # In this process most of them wait: for the broker, or for the disk to have a small file.
        threads = None if self.workspace.task_cluster else self._threads(plan)
        return run_tasks(self.workspace, job, range(len(plan.tasks)), max_tasks=threads)

    def _threads(self, plan: BackupPlan) -> int:
        """Return how many tasks run in this process at a time, and warn if a single one may not fit."""
        settings = {scope.scope: topic_settings.in_force(scope.settings) for scope in plan.scopes}
        task_bytes = bytes_to_read(largest_record(settings.values()))
        if task_bytes > memory_limit():
            names = [
                n for n, own in settings.items() if bytes_to_read(largest_record([own])) > memory_limit()
            ]
            self.workspace.reporter.warning(
                f"max.message.bytes of topic {', '.join(sorted(names))} allows records so large that a task "
                f"may need {human_bytes(task_bytes)} of memory, and there are {human_bytes(memory_limit())}"
            )
        return tasks_at_once(task_bytes, _THREADS)

    def manifest(self, draft: InProgress, totals: Totals) -> Manifest:
        return manifest(
            draft.completing(self.request), self.workspace, draft.prepared, totals, self.encryption
        )

    def discard(self, draft: InProgress) -> int:
        partitions = {(s.epoch, s.scope, s.region) for task in draft.prepared.plan.tasks for s in task}
        return discard_files(self.workspace, draft.backup_id, partitions, draft.first)

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:
        return result_of(backup, summary(draft.prepared.plan, backup.source))


def copy_job(
    request: BackupRequest,
    work: Workspace,
    prepared: Prepared,
    sequences: Mapping[tuple[str, str], int],
    encryption: RunEncryption | None,
    *,
    report: bool = True,
) -> copy_task.CopyJob:
    """The job of a prepared backup's tasks. `sequences`: see next_sequences. `encryption`: how the run
    encrypts. `report`: whether the tasks report their progress."""
    plan = prepared.plan
    return copy_task.CopyJob(
        **parts_of(work, prepared, plan.level, plan.parent, encryption if plan.tasks else None),
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
    """Map each topic whose files are closed by time to the time span of a file in ms."""
    spans = {scope.scope: roll_ms(topic_settings.in_force(scope.settings), asked_ms) for scope in plan.scopes}
    return {topic: span for topic, span in spans.items() if span is not None}


def manifest(
    request: BackupRequest,
    work: Workspace,
    prepared: Prepared,
    totals: Totals,
    encryption: RunEncryption | None,
) -> Manifest:
    """The manifest of a backup whose tasks are done. Writes the rows decoded from its data files first."""
    plan = prepared.plan
    warn_of_missed_tombstones(plan, work.reporter)
    if plan.tasks:
        _decode(request, work, prepared, encryption)
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


def _decode(
    request: BackupRequest, work: Workspace, prepared: Prepared, encryption: RunEncryption | None
) -> None:
    """Write the rows of group commits and schemas, and warn of records that cannot be decoded."""
    parts: dict[str, list[str]] = {}
    for task, splits in enumerate(prepared.plan.tasks):
        for scope in {split.scope for split in splits}:
            parts.setdefault(scope, []).append(layout.parts_path(work.source, prepared.backup_id, task))
    if not decode_backup(work, prepared.backup_id, parts, request.schema_topics, encryption):
        return
    for row in work.reader().rows("decode_problems", backup_id=prepared.backup_id):
        work.reporter.warning(
            f"topic {row['scope']}: {row['records']} records are kept but could not be decoded; the first, "
            f"partition {row['region']}, offset {row['position']}: {row['problem']}"
        )
