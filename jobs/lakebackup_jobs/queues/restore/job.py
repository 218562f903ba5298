"""Carry out the restore of an engine: its snapshot, its configuration, a watermark, its queues' messages.

All that will be done is recorded before anything is written, so that an interrupted restore is resumed with
the same backups, the same messages and the same watermark, and nothing is there twice.
"""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged, LakebackupError, NotFound, Refused, UsageProblem
from lakebackup.formats.queues import schema_history
from lakebackup.formats.queues.watermark import Watermark, headers_of
from lakebackup.plan.queues.restore import plan_restore, require_restorable
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.rules import layout
from lakebackup.rules.times import format_ts
from lakebackup.rules.topic_settings import TopicSettings
from lakebackup.store.behind import current_catalog
from lakebackup_jobs.lifecycle.deletion.lock import RestoreLog, refuse_pruned_meanwhile, unfinished
from lakebackup_jobs.lifecycle.desk import Desk, desk
from lakebackup_jobs.lifecycle.planning import planned
from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.restore import restore_state, summary
from lakebackup_jobs.queues.restore.engine_folder import EngineFolder
from lakebackup_jobs.queues.restore.prepare import Preparing, Sessions, ends_of
from lakebackup_jobs.queues.restore.replay_task import QueueReplayJob, WatermarkMessage
from lakebackup_jobs.queues.restore.scan_task import tid_at
from lakebackup_jobs.queues.restore.splits import found
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.targets.topics import Topics, group_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

    from lakebackup.plan.queues.restore import ConfigFile, Queue, QueueRestorePlan, QueueRestoreRequest
    from lakebackup.storage import Storage
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.queues.restore.restore_state import Done, Prepared

_AT_ONCE = 8


def run(
    request: QueueRestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Restore an engine; returns what a person wants to know of it.

    Raises NotFound, Refused (a point that is not covered, damaged or missing files, a folder or topics that
    hold something already), Damaged (a file that is not what the catalog says, found before any of it
    becomes visible), Busy, EnvironmentProblem.
    """
    run = _Run(request, spark, reporter)
    if request.dry_run:
        return run.preview()
    work = Workspace(request, "", reporter, spark)
    with desk(work, f"restore-{request.digest()}") as place:
        return run.carry_out(place)


class _Run:
    """One run on its way."""

    def __init__(self, request: QueueRestoreRequest, spark: SparkSession | None, reporter: Reporter) -> None:
        scheme, _, servers = request.target.partition("://")
        if scheme != "kafka" or not servers:
            raise UsageProblem(
                f"{request.target!r} is no place messages can be restored to.",
                hint="Give --to kafka://HOST:PORT.",
            )
        if request.settings not in ("auto", "saved", "suspended"):
            raise UsageProblem(f"--settings {request.settings!r}: use auto, saved or suspended.")
        self.request, self.reporter = request, reporter
        self._sessions = Sessions(spark, request.remote)
        self._client = {**request.kafka, "bootstrap.servers": servers}
        self._topics = Topics(self._client)
        self._reader = current_catalog(request.destination, request.catalog)
        self._folder = EngineFolder(request.folder)
        self._finished: str | None = None

    def preview(self) -> dict[str, Any]:
        """What would be done; nothing is written."""
        made = self._plan()
        there = set(self._topics.topic_names())
        return {
            "dry_run": True,
            **summary.summary(made),
            "queues": [
                {
                    **summary.of_queue(queue),
                    "action": "write into" if queue.target in there else "create",
                    "refused_because": self._misfit(queue, there),
                }
                for queue in made.queues
            ],
            "obstacles": list(made.obstacles),
            "refused_because": self._folder.taken(),
            "selection": made.selection,
            "parameters": dict(made.parameters),
        }

    def carry_out(self, place: Desk) -> dict[str, Any]:
        """All of it, from where an earlier run was interrupted."""
        storage, writer = place.storage, place.writer()
        # Where nothing can be written no earlier run can be resumed.
        resumed = unfinished(self._reader, self.request.digest()) if place.recorded else None
        made = self._resumed(storage, writer, resumed) if resumed else None
        # One whose messages were all there is in the catalog, or was about to be: this one is another.
        restore_id = (
            resumed if resumed and resumed != self._finished else layout.new_backup_id(datetime.now(UTC))
        )
        plan = None if made else self._checked(restore_id)
        log = self._log(writer, restore_id, made or plan)
        log.row("running")
        try:
            if made is None and plan is not None:
                refuse_pruned_meanwhile(
                    place.workspace,
                    plan.source,
                    self._reader,
                    *(link.backup_id for link in plan.restore_path.links),
                )
                made = self._prepare(storage, restore_id, plan)
            assert made is not None  # noqa: S101 - one of both is there
            outcomes, done, notes = self._do(storage, restore_id, made)
        except LakebackupError as error:
            log.row("failed", problem=error.message)
            error.hint = f"{error.hint} {summary.suspended(storage, restore_id)}".strip()
            raise
        summary.publish(self.request, storage, writer, restore_id, made, done)
        self._folder.finish()
        log.finish(outcomes)
        self._topics.delete_group(group_of(restore_id))
        restore_state.clear(storage, restore_id)
        for note in notes:
            self.reporter.warning(note)
        return place.workspace.timed(
            {
                "restore_id": restore_id,
                "resumed": resumed == restore_id,
                **summary.result(made),
                "whole": summary.is_whole(made, done),
                "entries": sum(outcome.entries for outcome in outcomes),
            }
        )

    # --- before anything is written

    def _plan(self) -> QueueRestorePlan:
        request = self.request
        plan = partial(
            plan_restore, request, tid_of=lambda _, files: tid_at(files, request.to_ts or 0, request.names)
        )
        made = planned(self._reader, request, self._sessions.spark, self.reporter, plan)
        for note in made.notes:
            self.reporter.note(note)
        return made

    def _resumed(self, storage: Storage, writer: CatalogWriter, restore_id: str) -> Prepared | None:
        """What a restore that did not finish was to do; None when it starts again: what it had written is
        gone, or it had written nothing. Raises Refused when only its folder is not there."""
        made = restore_state.read(storage, restore_id)
        if made is None:
            return None
        there = set(self._topics.topic_names()) & made.epochs.keys()
        epochs = {state.scope: state.epoch for state in self._topics.describe(there)}
        done = restore_state.read_done(storage, restore_id)
        if epochs == made.epochs:
            if self._folder.is_own(restore_id) or done:
                self.reporter.note(f"resuming restore {restore_id}, which did not finish")
                return made
            if ends_of(self._topics, {name: len(of) for name, of in made.bases.items()}) != made.bases:
                raise Refused(
                    f"Restore {restore_id} did not finish, and its queues hold messages; but "
                    f"{self._folder.folder} is not the folder that it started in.",
                    hint="Bring that folder back (is it mounted?) and run the same command to resume it. To "
                    "start again, give another --into, and --append or topics that are empty.",
                )
        self.reporter.note(
            f"what restore {restore_id}, which did not finish, had written is gone: it starts again"
        )
        self._topics.delete_group(group_of(restore_id))
        # Another plan may be of another full.
        self._folder.clear(restore_id, [summary.name_of(file) for file in made.config])
        if done:
            self._log(writer, restore_id, made).row("complete")
            self._finished = restore_id
        restore_state.clear(storage, restore_id, keep_settings=not done)
        return None

    def _checked(self, restore_id: str) -> QueueRestorePlan:
        """A plan that can be carried out. Raises Refused."""
        made = self._plan()
        require_restorable(made)
        for file in made.config:
            self._content(file, made.upto_tid)
        if self._folder.taken(restore_id):
            raise self._folder.refusal(restore_id)
        there = set(self._topics.topic_names())
        if misfits := [why for queue in made.queues if (why := self._misfit(queue, there))]:
            raise Refused(
                "; ".join(misfits) + ".",
                hint="Restore into other topics with --map a=b; --append puts the watermark and the messages "
                "behind what the engine's own queues hold.",
            )
        return made

    def _misfit(self, queue: Queue, there: Collection[str]) -> str | None:
        topic = queue.target
        if (why := self._topics.misfit(topic)) or topic not in there:
            return why
        (state,) = self._topics.describe([topic])
        if state.regions < queue.regions or (state.regions > queue.regions and not self.request.append):
            return f"topic {topic} has {state.regions} partitions, the backup {queue.regions}"
        held = 0 if self.request.append else self._topics.held(topic)
        return f"topic {topic} holds messages already ({held} offsets)" if held else None

    def _prepare(self, storage: Storage, restore_id: str, plan: QueueRestorePlan) -> Prepared:
        """Claim the folder, create the topics, and record what will be done."""
        asked = self.request.to_ts
        self._folder.begin(restore_id, "" if asked is None else f"--to-time {format_ts(asked)}")
        return Preparing(
            self.request, self._reader, self._topics, storage, self._sessions, restore_id
        ).prepare(plan)

    # --- in order: snapshot, configuration, watermark and messages

    def _do(
        self, storage: Storage, restore_id: str, made: Prepared
    ) -> tuple[list[RegionOutcome], Done, list[str]]:
        self._snapshot(restore_id, made)
        for file in made.config:
            self._folder.put(summary.name_of(file), self._content(file, made.upto_tid))
        rows = self._replay(storage, restore_id, made)
        notes = [
            note
            for queue in made.queues
            for note in self._topics.settle(
                queue.target,
                TopicSettings(made.settings[queue.target]),
                queue.min_ts,
                self.request.settings,
            )
        ]
        notes += self._topics.hidden(made.bases)
        done = restore_state.read_done(storage, restore_id)
        if done is None:
            done = summary.done_of(rows, made)
            restore_state.write_done(storage, restore_id, done)
        notes += summary.warnings_of(done)
        outcomes = [
            RegionOutcome(
                row.scope,
                row.region,
                row.entries,
                row.bytes,
                done.ends[row.scope][int(row.region)],
            )
            for row in rows
        ]
        return outcomes, done, notes

    def _snapshot(self, restore_id: str, made: Prepared) -> None:
        if self._folder.has_snapshot(restore_id):
            return
        request = SnapshotRestoreRequest(
            destination=self.request.destination,
            folder=str(self._folder.snapshot_being(restore_id)),
            catalog=self.request.catalog,
            source=layout.snapshot_source(made.source),
            backup=made.snapshot_id,
            form="flat",
            remote=self.request.remote,
            engine=self.request.engine,
        )
        restore_snapshot.run(request, spark=self._sessions.spark, reporter=self.reporter)
        if not self._folder.has_snapshot(restore_id):
            raise Damaged(
                f"The snapshot of full {made.full_id} holds no file.",
                hint="Choose another full with --backup.",
            )

    def _content(self, file: ConfigFile, upto_tid: int | None) -> bytes:
        """What an engine's own file is at a tid. Raises Damaged."""
        try:
            content = self._reader.destinations().open(file.destination).get(file.path)
        except NotFound:
            content = b""
        if len(content) != file.bytes or hashlib.sha256(content).hexdigest() != file.sha256:
            raise Damaged(
                f"{file.path} is missing, or not what was written (size or sha256).",
                hint="Bring the file back from a copy of the destination, or choose another backup.",
            )
        if file.role == "schema" and upto_tid is not None:
            content = schema_history.cut(content, upto_tid, file.path)
        return content

    def _replay(self, storage: Storage, restore_id: str, made: Prepared) -> list[Any]:
        shares = found(storage, restore_state.folder_of(restore_id))
        if shares is None:
            raise Damaged(
                f"The plan of restore {restore_id} is gone from {storage.uri}.",
                hint="Restore into other topics and another folder.",
            )
        watermark = Watermark(
            made.source, made.full_id, made.backup_id, restore_id, made.first_tid, made.to_tid
        )
        job = QueueReplayJob(
            roots=self._reader.destinations(),
            shares=shares,
            group=group_of(restore_id),
            client=self._client,
            names=self.request.names,
            watermark=WatermarkMessage(watermark.value, tuple(headers_of(made.names)), made.stamp),
            upto_tid=made.upto_tid,
            segments=made.segments,
            leave_out=tuple(made.leave_out),
            zero_as_one=self.request.zero_as_one,
        )
        self.reporter.start(made.entries, made.bytes, "restore")
        at_once = min(_AT_ONCE, 4 * (os.cpu_count() or 2))
        spark = self._sessions.of(made.bytes)
        numbers = shares.numbers
        with shares.board().watched(self.reporter.update):
            rows = run_all(job, numbers, spark, None if spark else at_once)
        self.reporter.update(made.entries, made.bytes)
        return rows

    def _log(
        self, writer: CatalogWriter, restore_id: str, made: Prepared | QueueRestorePlan | None
    ) -> RestoreLog:
        assert made is not None  # noqa: S101 - one of both is there
        detail = {"digest": self.request.digest(), "folder": str(self._folder.folder)}
        return RestoreLog(writer, restore_id, made, self.request.target, detail)
