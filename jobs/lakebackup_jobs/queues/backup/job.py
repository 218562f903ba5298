"""Backs up an engine's queues: it completes an interrupted backup, fixes the offsets, plans and copies.

A full consists of a backup of the engine's snapshot, which the job for snapshots takes, and a backup of the
queues that records the snapshot's positions in them. Small backups run in this process; Spark runs large
ones.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from lakebackup.errors import UsageProblem
from lakebackup.rows.base import QUEUES
from lakebackup.rules import layout
from lakebackup.store.writer import Session
from lakebackup_jobs.lifecycle.lost_objects import notice_lost_objects
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import Life
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.backup.execute import QueueBackup, summary
from lakebackup_jobs.queues.backup.planner import QueuePlanner
from lakebackup_jobs.queues.backup.request import QueueRequest
from lakebackup_jobs.snapshots import backup as backup_snapshot


def run(request: QueueRequest, *, spark: Session = None, reporter: Reporter) -> dict[str, Any]:
    """Take one backup and return its report; with `dry_run`, only a preview.

    Raises NeedsFull (queues were purged or reset; nothing is stored then), NotFound (topics, files),
    UsageProblem (files with invalid content), Refused (messages without a tid, a snapshot.json that cannot be
    right), Busy (another run on the source), EnvironmentProblem.
    """
    source = layout.check_source(request.source)
    layout.snapshot_source(source)
    if not request.topics:
        raise UsageProblem("No queue was named.", hint="Name them with --pattern, such as 'delta\\..*'.")
    work = Workspace(request, source, reporter, spark)
    if request.dry_run:
        return _preview(QueueBackup(work, QueuePlanner(request, work, work.existing)))
    # The catalog is opened while the cluster is queried.
    with work.running("backup", QUEUES) as lease, ThreadPoolExecutor(1, "catalog") as pool:
        catalog = pool.submit(work.writer().prepare)
        # The planner reads the ends under the lease: ends read earlier may be older than those of a backup
        # that another run has taken since.
        planner = QueuePlanner(request, work, lambda: notice_lost_objects(work, catalog.result()))
        queues = QueueBackup(work, planner)
        life = Life(queues, lease)
        planner.record_skipped()
        completed = life.finish_interrupted()
        if completed and completed["kind"] == "full":
            return completed
        if completed:
            planner.catalog = work.reader()
        if completed and request.mode == "differential":
            # Only the messages since that backup are missing: another differential would read all again.
            planner.request = replace(request, mode="incremental")
        result = life.run(queues.plan())
    return {**result, "ended": completed} if completed else result


def _preview(queues: QueueBackup) -> dict[str, Any]:
    """Return what the backup would do; write nothing."""
    work, planner = queues.workspace, queues.planner
    plan = planner.plan(layout.new_backup_id(datetime.now(UTC)))
    planner.require_there(plan)
    for note in plan.notes:
        work.reporter.note(note)
    preview = {"dry_run": True, **summary(plan, work.source)}
    if plan.kind == "full":
        snapshot = replace(queues.snapshots.request("dry run"), dry_run=True)
        preview["snapshot"] = backup_snapshot.run(snapshot, reporter=work.reporter)
    return preview
