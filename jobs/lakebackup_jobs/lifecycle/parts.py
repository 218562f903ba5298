"""Runs the tasks of a backup on a workspace's runner."""

from __future__ import annotations

from typing import Any

from lakebackup.store.data_keys import RunEncryption
from lakebackup_jobs.lifecycle.run import Parent
from lakebackup_jobs.lifecycle.source import Draft
from lakebackup_jobs.lifecycle.tasks.part import PartTask
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace


def parts_of(
    work: Workspace,
    draft: Draft,
    level: int = 0,
    parent: Parent | None = None,
    encryption: RunEncryption | None = None,
) -> dict[str, Any]:
    """The values for the fields of a draft's Parts. `parent`: the backup that it continues. With
    `encryption`, the object of the backup's data key is written."""
    return {
        "uri": work.storage.uri,
        "destination": work.destination,
        "source": work.source,
        "backup_id": draft.backup_id,
        "number": draft.number,
        "level": level,
        "parent": parent.backup_id if parent else None,
        "key": encryption and encryption.stored_key(work.storage, work.source, draft.backup_id),
    }


def run_tasks(workspace: Workspace, job: PartTask, tasks: range, *, max_tasks: int | None = None) -> Totals:
    """Run tasks on the workspace's runner, at most `max_tasks` in parallel. Returns the totals of their
    files.

    Raises the first error that a task reported.
    """
    sums, reporter = Totals(), workspace.reporter
    if not tasks:
        return sums
    with workspace.task_progress(job.folder).watched(reporter.update, reporter.warning):
        sums.add(run_all(job, tasks, workspace.task_cluster, max_tasks))
    reporter.update(sums.entries, sums.bytes)
    return sums
