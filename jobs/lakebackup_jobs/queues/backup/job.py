"""Back up an engine's queues: complete what was interrupted, fix the offsets, plan, and carry it out.

A full is a backup of the engine's snapshot, by the job that backs up snapshots, and one of the queues that
records its position in them. Little work is done in this process; Spark is asked when there are many
messages to read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakebackup.errors import UsageProblem
from lakebackup.rows.base import QUEUES
from lakebackup.rules import layout
from lakebackup_jobs.lifecycle.lost_objects import notice_lost_objects
from lakebackup_jobs.lifecycle.run import Life
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.backup.execute import QueueBackup, summary
from lakebackup_jobs.queues.backup.planner import QueuePlanner
from lakebackup_jobs.snapshots import backup as backup_snapshot

if TYPE_CHECKING:
    from lakebackup.store.writer import Session
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.queues.backup.request import QueueRequest


def run(request: QueueRequest, *, spark: Session = None, reporter: Reporter) -> dict[str, Any]:
    """Take one backup; returns what a person wants to know of it.

    Raises NeedsFull (queues that were purged or reset, of which nothing is stored then), NotFound (topics,
    files), UsageProblem (files that are not what they have to be), Refused (messages without a tid, a
    snapshot.json that cannot be right), Busy (another run on the source), EnvironmentProblem.
    """
    source = layout.check_source(request.source)
    layout.snapshot_source(source)
    if not request.topics:
        raise UsageProblem("No queue was named.", hint="Name them with --pattern, such as 'delta\\..*'.")
    work = Workspace(request, source, reporter, spark)
    if request.dry_run:
        return _preview(QueueBackup(work, QueuePlanner(request, work, work.existing)))
    # The catalog is opened while the cluster is asked.
    with work.running("backup", QUEUES) as lease, ThreadPoolExecutor(1, "catalog") as beside:
        catalog = beside.submit(work.writer().prepare)
        # Ends that were looked at before it may be older than those of a backup that another run has taken.
        planner = QueuePlanner(request, work, lambda: notice_lost_objects(work, catalog.result()))
        queues = QueueBackup(work, planner)
        life = Life(queues, lease)
        planner.record_skipped()
        ended = life.settle()
        if ended and ended["kind"] == "full":
            return ended
        if ended:
            planner.catalog = work.reader()
        if ended and request.mode == "differential":
            # What came since the positions of then; another one from the full on would read all of it again.
            planner.request = replace(request, mode="incremental")
        result = life.take(queues.plan())
    return {**result, "ended": ended} if ended else result


def _preview(queues: QueueBackup) -> dict[str, Any]:
    """What would be done; nothing is written."""
    work, planner = queues.workspace, queues.planner
    plan = planner.plan(layout.new_backup_id(datetime.now(UTC)))
    planner.require_there(plan)
    for note in plan.notes:
        work.reporter.note(note)
    found = {"dry_run": True, **summary(plan, work.source)}
    if plan.kind == "full":
        snapshot = replace(queues.snapshots.request("dry run"), dry_run=True)
        found["snapshot"] = backup_snapshot.run(snapshot, reporter=work.reporter)
    return found
