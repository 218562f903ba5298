"""Restores an engine: its snapshot, its configuration, then a watermark and the messages in its queues.

The plan is recorded before any of these is written. So an interrupted restore resumes with the same backups,
the same messages and the same watermark, and writes no message twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

from pyspark.sql import SparkSession

from lakebackup.errors import Damaged, Refused, UsageProblem
from lakebackup.formats.queues import schema_history
from lakebackup.formats.queues.watermark import Watermark
from lakebackup.plan.queues.restore import (
    ConfigFile,
    EngineState,
    Queue,
    QueueRestorePlan,
    QueueRestoreRequest,
    plan_restore,
    require_restorable,
)
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.rules import layout
from lakebackup.rules.times import format_ts
from lakebackup.rules.topic_settings import TopicSettings
from lakebackup.storage.nesting import require_outside
from lakebackup.store.behind import current_catalog
from lakebackup_jobs.kafka.admin import rights
from lakebackup_jobs.kafka.admin.cluster import outlasting_restarts
from lakebackup_jobs.lifecycle.keyring import open_roots
from lakebackup_jobs.lifecycle.planning import plan_on_engine
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.restore import RestoreRun, Subject, restoring
from lakebackup_jobs.lifecycle.tasks.plan_shares import stored_plan
from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome
from lakebackup_jobs.lifecycle.tasks.runner import of_restored_messages
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.restore import summary
from lakebackup_jobs.queues.restore.config_files import read_config
from lakebackup_jobs.queues.restore.engine_folder import EngineFolder
from lakebackup_jobs.queues.restore.prepare import ends_of, new_topic, prepare
from lakebackup_jobs.queues.restore.replay_task import QueueReplayJob
from lakebackup_jobs.queues.restore.restore_state import CompletedRestore, Prepared, RestoreState
from lakebackup_jobs.queues.restore.scan_task import tid_at
from lakebackup_jobs.queues.restore.shares import run_shares
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.targets.topics import RestoredTopic, Topics


def run(
    request: QueueRestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Restore an engine and return the report. With `dry_run`, return only a preview.

    Raises NotFound, Refused (a point that is not covered, damaged or missing files, a folder or topics that
    are not empty), Damaged (a file that is not what the catalog says; none of it becomes visible), Busy,
    EnvironmentProblem.
    """
    work = Workspace(request, request.source, reporter, spark)
    run = _Run(request, work)
    if request.dry_run:
        return run.preview()
    return run.carry_out()


class _Run:
    """One run of a restore."""

    def __init__(self, request: QueueRestoreRequest, work: Workspace) -> None:
        scheme, _, servers = request.target.partition("://")
        if scheme != "kafka" or not servers:
            raise UsageProblem(
                f"{request.target!r} is no place messages can be restored to.",
                hint="Give --to kafka://HOST:PORT.",
            )
        if request.settings not in ("auto", "saved", "suspended"):
            raise UsageProblem(f"--topic-settings {request.settings!r}: use auto, saved or suspended.")
        self.request, self.work, self.reporter = request, work, work.reporter
        self._client = {**request.kafka, "bootstrap.servers": servers}
        self._topics = Topics(self._client)
        self._reader = current_catalog(request.destination, request.catalog)
        require_outside(request, request.folder)
        self._folder = EngineFolder(request.folder)

    def preview(self) -> dict[str, Any]:
        """Return what the restore would do. Writes nothing."""
        plan = self._plan()
        existing = set(self._topics.topic_names())
        missing = self._missing_rights(plan.queues)
        reasons = [self._folder.blocker(), rights.lacks(missing) if missing else None]
        return {
            "dry_run": True,
            **summary.summary(plan),
            "queues": [
                {
                    **summary.of_queue(queue),
                    "action": "write into" if queue.target in existing else "create",
                    "refused_because": self._misfit(queue, existing),
                }
                for queue in plan.queues
            ],
            "obstacles": list(plan.obstacles),
            "refused_because": "; ".join(filter(None, reasons)) or None,
            "selection": plan.selection,
            "parameters": dict(plan.parameters),
        }

    def carry_out(self) -> dict[str, Any]:
        """Carry out the restore, or continue it where an earlier run was interrupted."""
        request: QueueRestoreRequest = self.request
        state: RestoreState | None = None

        def target_state() -> str:
            return summary.suspended(state) if state else ""

        with restoring(self.work, self._reader, request.digest(), target_state=target_state) as run:
            interrupted_id = run.restore_id if run.resumed else None
            state, prepared = RestoreState(run.storage, run.restore_id), None
            if run.resumed:
                state, prepared = self._resume(run, state)
                run.restore_id = state.restore_id
            plan = prepared or self._checked_plan(state.restore_id)
            rights.require(self._missing_rights(plan.queues))
            self.work.choose_runner(
                request, of_restored_messages(plan.bytes, plan.entries), beside_spark=True
            )
            needed = () if isinstance(plan, Prepared) else plan.restore_path.backup_ids
            run.begin(self._subject(plan), *needed, folder=str(self._folder.folder))
            prepared = plan if isinstance(plan, Prepared) else self._prepare(state, plan)
            outcomes, completed, notes = self._restore(state, prepared)
            summary.publish(self.work.reader(), run.writer, state, prepared, completed)
            self._folder.finish()
            run.complete(outcomes)
            leftovers = self._topics.forget_groups([state.group])
            state.clear()
        for note in (*notes, *leftovers):
            self.reporter.warning(note)
        return self.work.timed(
            {
                "restore_id": state.restore_id,
                "resumed": interrupted_id == state.restore_id,
                "runner": self.work.runner,
                **summary.result(prepared),
                "whole": summary.is_whole(prepared, completed),
                "entries": sum(outcome.entries for outcome in outcomes),
            }
        )

    # --- before anything is written

    def _missing_rights(self, queues: Iterable[Queue]) -> list[str]:
        targets = {queue.target for queue in queues if not self._topics.misfit(queue.target)}
        return rights.Rights(self._client).missing(targets, self._topics.topic_names())

    def _plan(self) -> QueueRestorePlan:
        request = self.request
        make_plan = partial(
            plan_restore, request, tid_of=lambda _, files: tid_at(files, request.to_ts or 0, request.names)
        )
        plan = plan_on_engine(self._reader, request, self.work.session, self.reporter, make_plan)
        for note in plan.notes:
            self.reporter.note(note)
        return plan

    def _resume(self, run: RestoreRun, state: RestoreState) -> tuple[RestoreState, Prepared | None]:
        """Return the state to continue with, and what the unfinished restore was to do.

        The latter is None when the restore starts again, since it had written nothing or what it wrote is
        gone. Raises Refused when the topics hold its messages and only its folder is missing.
        """
        prepared, restore_id = state.read(Prepared), state.restore_id
        if prepared is None:
            return state, None
        existing = set(self._topics.topic_names()) & prepared.epochs.keys()
        epochs = {topic.scope: topic.epoch for topic in self._topics.describe(existing)}
        completed = state.read(CompletedRestore)
        if epochs == prepared.epochs:
            if self._folder.is_own(restore_id) or completed:
                self.reporter.note(f"resuming restore {restore_id}, which did not finish")
                return state, prepared
            if (
                ends_of(self._topics, {name: len(offsets) for name, offsets in prepared.bases.items()})
                != prepared.bases
            ):
                raise Refused(
                    f"Restore {restore_id} did not finish, and its queues hold messages; but "
                    f"{self._folder.folder} is not the folder that it started in.",
                    hint="Bring that folder back (is it mounted?) and run the same command to resume it. To "
                    "start again, give another --into, and --append or topics that are empty.",
                )
        self.reporter.note(
            f"what restore {restore_id}, which did not finish, had written is gone: it starts again"
        )
        self._topics.delete_group(state.group)
        # The next plan may use another full.
        self._folder.clear(restore_id, [file.name for file in prepared.config])
        if completed is None:
            state.clear(keep_settings=True)
            return state, None
        # The old restore had written all its messages, so it is recorded as complete. A new restore starts.
        run.complete_without_totals(restore_id, self._subject(prepared))
        state.clear()
        return RestoreState(state.storage, _new_id()), None

    def _checked_plan(self, restore_id: str) -> QueueRestorePlan:
        """Return a plan that can be carried out. Raises Refused."""
        plan = self._plan()
        require_restorable(plan)
        for file in plan.config:
            self._content(file, plan.upto_tid)
        if self._folder.blocker(restore_id):
            raise self._folder.refusal(restore_id)
        existing = set(self._topics.topic_names())
        if misfits := [misfit for queue in plan.queues if (misfit := self._misfit(queue, existing))]:
            raise Refused(
                "; ".join(misfits) + ".",
                hint="Restore into other topics with --map a=b; --append puts the watermark and the messages "
                "behind what the engine's own queues hold.",
            )
        return plan

    def _misfit(self, queue: Queue, existing: Collection[str]) -> str | None:
        """Return why messages of a queue cannot be written into its target topic; None if they can."""
        topic = queue.target
        if reason := self._topics.misfit(topic):
            return reason
        if topic not in existing:
            return self._topics.refusals([new_topic(queue)]).get(topic)
        (state,) = self._topics.describe([topic])
        if state.regions < queue.regions or (state.regions > queue.regions and not self.request.append):
            return f"topic {topic} has {state.regions} partitions, the backup {queue.regions}"
        offsets = 0 if self.request.append else self._topics.offset_counts([state])[topic]
        return f"topic {topic} holds messages already ({offsets} offsets)" if offsets else None

    def _prepare(self, state: RestoreState, plan: QueueRestorePlan) -> Prepared:
        """Claim the folder, create the topics, and record what will be done."""
        to_ts = self.request.to_ts
        self._folder.begin(state.restore_id, "" if to_ts is None else f"--to-time {format_ts(to_ts)}")
        new_topics = {queue.target for queue in plan.queues} - set(self._topics.topic_names())
        prepared = prepare(self.request, self.work, self._topics, state, plan, self._reader)
        rights.require(rights.Rights(self._client).of_topics(new_topics), outcome="No message is written")
        return prepared

    # --- in order: snapshot, configuration, watermark and messages

    def _restore(
        self, state: RestoreState, prepared: Prepared
    ) -> tuple[list[RegionOutcome], CompletedRestore, list[str]]:
        self._snapshot(state.restore_id, prepared)
        for file in prepared.config:
            self._folder.write_file(file.name, self._content(file, prepared.upto_tid))
        rows = self._replay(state, prepared)
        notes = self._give_final_settings(prepared)
        completed = state.read(CompletedRestore)
        if completed is None:
            completed = summary.done_of(rows, prepared)
            state.write(completed)
        notes += summary.warnings_of(completed)
        outcomes = [
            RegionOutcome(
                scope=row.scope,
                region=row.region,
                entries=row.entries,
                bytes=row.bytes,
                position=completed.ends[row.scope][int(row.region)],
            )
            for row in rows
        ]
        return outcomes, completed, notes

    @outlasting_restarts
    def _give_final_settings(self, prepared: Prepared) -> list[str]:
        """Give the topics their final settings; return warnings."""
        restored_topics = [
            RestoredTopic(queue.target, TopicSettings(prepared.settings[queue.target]), queue.min_ts)
            for queue in prepared.queues
        ]
        notes = chain.from_iterable(
            self._topics.finish_settings(restored_topics, self.request.settings).values()
        )
        return [*notes, *self._topics.hidden(self._topics.describe(prepared.bases))]

    def _snapshot(self, restore_id: str, prepared: Prepared) -> None:
        if self._folder.has_snapshot(restore_id):
            return
        request = SnapshotRestoreRequest(
            destination=self.request.destination,
            folder=str(self._folder.snapshot_being(restore_id)),
            catalog=self.request.catalog,
            source=layout.snapshot_source(prepared.source),
            backup=prepared.snapshot_id,
            form="flat",
            remote=self.request.remote,
            runner=self.request.runner,
            local_below=self.request.local_below,
            engine=self.request.engine,
            bandwidth=self.request.bandwidth,
        )
        restore_snapshot.run(request, spark=self.work.session, reporter=self.reporter)
        if not self._folder.has_snapshot(restore_id):
            raise Damaged(
                f"The snapshot of full {prepared.full_id} holds no file.",
                hint="Choose another full with --backup.",
            )

    def _content(self, file: ConfigFile, upto_tid: int | None) -> bytes:
        """Return the content of an engine's own file, as it was at a tid (None: as it is). Raises Damaged."""
        content = read_config(file, self._reader)
        if file.role == "schema" and upto_tid is not None:
            return schema_history.cut(content, upto_tid, file.path)
        return content

    def _replay(self, state: RestoreState, prepared: Prepared) -> list[Any]:
        stored_shares = stored_plan(state.storage, state.folder)
        if stored_shares is None:
            raise Damaged(
                f"The plan of restore {state.restore_id} is gone from {state.storage.uri}.",
                hint="Restore into other topics and another folder.",
            )
        shares, _ = stored_shares
        watermark = Watermark(
            prepared.source,
            prepared.full_id,
            prepared.backup_id,
            state.restore_id,
            prepared.first_tid,
            prepared.to_tid,
        )
        job = QueueReplayJob(
            roots=open_roots(self._reader, shares.file),
            shares=shares,
            group=state.group,
            client=self._client,
            names=self.request.names,
            watermark=watermark,
            stamp=prepared.stamp,
            watermark_names=prepared.names,
            upto_tid=prepared.upto_tid,
            segments=prepared.segments,
            leave_out=tuple(prepared.leave_out),
            zero_as_one=self.request.zero_as_one,
        )
        self.reporter.start(prepared.entries, prepared.bytes, "restore", "messages")
        with shares.task_progress().watched(self.reporter.update, self.reporter.warning):
            rows = run_shares(job, shares, self.work.task_session)
        self.reporter.update(prepared.entries, prepared.bytes)
        return rows

    def _subject(self, plan: EngineState) -> Subject:
        return Subject(plan.source, self.request.target, plan.selection, plan.from_ts, plan.to_ts)


def _new_id() -> str:
    return layout.new_backup_id(datetime.now(UTC))
