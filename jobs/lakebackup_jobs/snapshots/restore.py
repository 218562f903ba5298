"""Restore the files of a snapshot into a folder: Spark tasks, or threads of this process, read, check and
write them.

The plan is written first, as splits in the restore's own folder inside the target. After an interruption, a
request for the same files finds it there and resumes the restore.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from pyspark.sql import SparkSession

from lakebackup.errors import Damaged
from lakebackup.formats.snapshots.names import require_safe
from lakebackup.plan.snapshots.restore import (
    FILE_COST,
    Form,
    SnapshotRestorePlan,
    SnapshotRestoreRequest,
    folder_of_table,
    plan_restore,
    read_folders,
    read_order,
    require_names,
    restore_digest,
)
from lakebackup.rules.times import format_ts
from lakebackup.storage import Storage
from lakebackup.storage.nesting import require_outside
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import Roots
from lakebackup_jobs.lifecycle.keyring import open_roots
from lakebackup_jobs.lifecycle.planning import plan_on_engine
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.restore import Subject, complete_interrupted, key_of, restoring
from lakebackup_jobs.lifecycle.tasks.plan_shares import MOST_TASKS, PlanShares, store_plan, weighed
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.runner import of_restored_files
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.query.words import counted
from lakebackup_jobs.snapshots.target import Target
from lakebackup_jobs.snapshots.tasks.write import MAX_NAMES, Folder, RestoredFolder, WriteJob
from lakebackup_sql import load

_SHARE_BYTES = 128 << 20
_MAX_TABLES = 50


def run(
    request: SnapshotRestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Restore the files; returns a summary.

    Raises Refused (names that cannot be written, a folder that holds something else, files that were pruned),
    Damaged (some files differ from the catalog: these were not restored, all others were; or a data key
    cannot be opened: nothing was restored), UsageProblem (files are encrypted, and no identity is set), Busy,
    EnvironmentProblem.
    """
    work = Workspace(request, "", reporter, spark)
    reader = work.current()
    plan = plan_on_engine(reader, request, spark, reporter, partial(plan_restore, request))
    require_outside(request, request.folder)
    target = Target(request.folder)
    require_names(plan, reader, target.limits())
    digest = restore_digest(plan)
    for note in plan.notes:
        reporter.warning(note)
    summary = _summary(plan, target, request.form)
    refusal, key = target.refusal(digest), key_of("snapshot", digest, str(target.folder))
    subject = Subject(
        source=plan.source,
        target=f"dir:{target.folder}",
        selection=request.select or load("queries", "restore_snapshot_files"),
        to_ts=plan.end_ts,
    )
    if refusal and target.holds(read_order(plan)):
        if not request.dry_run:
            complete_interrupted(work, reader, key, subject)
        return {"done_before": True, **summary}
    if request.dry_run:
        return {"dry_run": True, **summary, "refused_because": refusal}
    target.require_free(plan, reader, digest)
    roots = open_roots(reader, plan.file)
    work.choose_runner(request, of_restored_files(plan.weight), beside_spark=True)
    with target.locked(digest, plan) as resumed:
        if resumed:
            reporter.note(f"resuming the restore that {target.folder} holds and that did not finish")
        with restoring(work, reader, key) as run:
            run.begin(subject)
            if plan.damage:
                detail = {"folder": str(target.folder), "damage": plan.damage}
                run.audit("restore with damage", detail, subject=plan.backup_id or "")
            rows = _write(work, reader, request, plan, target, roots)
            entries, size = (sum(getattr(row, name) for row in rows) for name in ("entries", "bytes"))
            written_files = entries - sum(row.kept for row in rows)
            result = work.timed(
                {"resumed": resumed, "runner": work.runner, **summary, "written": written_files}
            )
            if damage := _damage(rows, target):
                raise damage.with_result(result)
            # First: a run that is killed in between leaves a folder that shows that it is complete. After the
            # row, it would leave one that looks unfinished, and would be restored and recorded again.
            target.finish()
            run.complete(entries=entries, size=size)
    return result


def _folders(
    request: SnapshotRestoreRequest, plan: SnapshotRestorePlan, reader: CatalogReader, target: Target
) -> Iterator[RestoredFolder]:
    """Yield the folders below the target. Raises Refused if one cannot be written under its name."""
    limits = target.limits()
    for batch in read_folders(request, plan, reader):
        for row in batch.to_pylist():
            folder = RestoredFolder(**{**row, "target": row["target"].removesuffix("/")})
            if not folder.target:
                target.root = folder
                continue
            require_safe([folder.target], limits)
            yield folder


def _write(
    work: Workspace,
    reader: CatalogReader,
    request: SnapshotRestoreRequest,
    plan: SnapshotRestorePlan,
    target: Target,
    roots: Roots,
) -> list[Any]:
    """Record the plan and run its tasks, on Spark if there is much to do.

    Returns the report of each task. Folders get their modes and times after all files are written.
    """
    shares, reporter = store_shares(target.storage, plan), work.reporter
    reporter.start(plan.files, plan.bytes, "restore", "files")
    folder, cluster = str(target.folder), work.task_cluster
    # A sync also waits for the writes of other threads: a single one at the end takes half as long as one for
    # each share.
    job = WriteJob(folder, target.storage.uri, shares, roots, syncs=cluster is not None)
    folders = partial(_folders, request, plan, reader, target)
    with Folder(folder) as output:
        output.create_folders(folders(), existing=request.select is not None)
    with TaskProgress(target.storage, "").watched(reporter.update):
        # Threads run in parallel, since hashing and writing release the interpreter lock.
        rows = run_all(job, shares.numbers, cluster)
        with Folder(folder) as output:
            if not any(row.damaged for row in rows):
                output.finish_folders(folders())
            output.sync()
    reporter.update(plan.files, plan.bytes)
    return rows


def store_shares(storage: Storage, plan: SnapshotRestorePlan) -> PlanShares:
    """Record a plan in `storage`, in shares of about equal weight; an object is in one share only."""
    size = max(_SHARE_BYTES, plan.weight // MOST_TASKS)
    objects = plan.file.batches(columns=["destination", "path", "bytes"])
    return store_plan(storage, "", plan.file, weighed(objects, size, weight="bytes", each=FILE_COST), {})


def _summary(plan: SnapshotRestorePlan, target: Target, form: Form) -> dict[str, Any]:
    tables = plan.tables[:_MAX_TABLES]
    return {
        "source": plan.source,
        "backup_id": plan.backup_id,
        "taken": format_ts(plan.end_ts) if plan.end_ts is not None else None,
        "folder": str(target.folder),
        "of_tables": len(plan.tables),
        "files": plan.files,
        "bytes": plan.bytes,
        "not_verifiable": sum(table.unknown for table in plan.tables) or None,
        "tables": [
            {
                "table": table.scope,
                "tablets": table.regions,
                "files": table.files,
                "bytes": table.bytes,
                "plain": table.is_plain,
                "path": str(target.folder / folder_of_table(form, table.scope)),
            }
            for table in tables
        ],
    }


def _damage(rows: Sequence[Any], target: Target) -> Damaged | None:
    """Return the error that names the files that could not be restored; None if all were restored."""
    count = sum(row.damaged for row in rows)
    if not count:
        return None
    names = list(islice(chain.from_iterable(json.loads(row.names) for row in rows), MAX_NAMES))
    suffix = f"\n  and {count - len(names)} more" if count > len(names) else ""
    return Damaged(
        f"{counted(count, 'file')} could not be restored into {target.folder}; all others were. "
        "What is stored of them is not whole:\n" + "\n".join(f"  {name}" for name in names) + suffix,
        hint="Put the objects back from a copy of the repository and run the same command again, or restore "
        "these files from another backup.",
    )
