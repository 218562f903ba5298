"""Carry out the restore of a snapshot's files into a folder: Spark tasks read, check and write them.

The plan is written first, as splits in a folder of the restore's own inside the target: an interrupted
restore is found there, and resumed when the same files are asked for.
"""

from __future__ import annotations

import json
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged
from lakebackup.formats.snapshots.names import require_safe
from lakebackup.plan.snapshots.restore import (
    FILE_COST,
    folder_of_table,
    plan_restore,
    read_folders,
    read_order,
    require_names,
    restore_digest,
    sort_ranges,
)
from lakebackup.rules.times import format_ts
from lakebackup.storage.nesting import require_outside
from lakebackup_jobs.lifecycle.deletion.lock import recorded_restore
from lakebackup_jobs.lifecycle.identity import audit_entry
from lakebackup_jobs.lifecycle.planning import planned
from lakebackup_jobs.lifecycle.tasks.arrow_splits import WRITTEN as PATHS
from lakebackup_jobs.lifecycle.tasks.arrow_splits import ArrowSplitWriter
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.query.words import counted
from lakebackup_jobs.snapshots.target import Target
from lakebackup_jobs.snapshots.tasks.write import NAMED, Folder, RestoredFolder, WriteJob
from lakebackup_sql import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.snapshots.restore import Form, SnapshotRestorePlan, SnapshotRestoreRequest
    from lakebackup.rows.upkeep import Audit
    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.progress import Reporter

_SPLIT_BYTES = 128 << 20
_MOST_SPLITS = 400
_SHOWN = 50
# So little is written by threads of this process, before Spark's tasks would have.
_LITTLE = 4 << 30


def run(
    request: SnapshotRestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Restore, and return what was written.

    Raises Refused (names that cannot be written, a folder that holds something else, files that were pruned),
    Damaged (some files differ from the catalog: they are not there, all others are), Busy,
    EnvironmentProblem.
    """
    work = Workspace(request, "", reporter, spark)
    reader = work.current()
    made = planned(reader, request, spark, reporter, partial(plan_restore, request))
    require_outside(request, request.folder)
    target = Target(request.folder)
    require_names(made, target.limits())
    digest = restore_digest(made)
    for note in made.notes:
        reporter.warning(note)
    summary = _summary(made, target, request.form)
    refused = target.taken(digest)
    if refused and target.holds(read_order(made)):
        return {"done_before": True, **summary}
    if request.dry_run:
        return {"dry_run": True, **summary, "refused_because": refused}
    target.require_free(made, digest)
    with target.locked(digest, made) as resumed:
        if resumed:
            reporter.note(f"resuming the restore that {target.folder} holds and that did not finish")
        with recorded_restore(
            work,
            reader,
            source=made.source,
            target=f"dir:{target.folder}",
            selection=request.select or load("queries", "restore_snapshot_files"),
            to_ts=made.end_ts,
            audit=_audit(made, str(target.folder)) if made.damage else None,
        ) as (_, counts):
            rows = _write(work, reader, request, made, target)
            counts.update({name: sum(getattr(row, name) for row in rows) for name in ("entries", "bytes")})
            written = counts["entries"] - sum(row.kept for row in rows)
            result = work.timed({"resumed": resumed, **summary, "written": written})
            if damage := _damage(rows, target):
                raise damage.with_result(result)
        target.finish()
    return result


def _folders(
    request: SnapshotRestoreRequest, made: SnapshotRestorePlan, target: Target
) -> Iterator[RestoredFolder]:
    """The folders below the one restored into. Raises Refused where one cannot be written under its name."""
    limits = target.limits()
    for batch in read_folders(request, made):
        for row in batch.to_pylist():
            folder = RestoredFolder(**{**row, "target": row["target"].removesuffix("/")})
            if not folder.target:
                target.root = folder
                continue
            require_safe([folder.target], limits)
            yield folder


def is_little(made: SnapshotRestorePlan) -> bool:
    """Whether threads of this process restore it."""
    return made.weight <= _LITTLE


def _write(
    work: Workspace,
    reader: CatalogReader,
    request: SnapshotRestoreRequest,
    made: SnapshotRestorePlan,
    target: Target,
) -> list[Any]:
    """Write the splits and carry them out, in Spark's tasks where there is much to do.

    Returns what the task of each split reported. Folders get their modes and times when all files are there.
    """
    splits, reporter = write_splits(target.storage, made), work.reporter
    reporter.start(made.files, made.bytes, "restore", "files")
    here, folder = is_little(made), str(target.folder)
    # A sync waits for what other threads write too: one at the end costs half of one for each split.
    job = WriteJob(folder, target.storage.uri, splits, reader.destinations(), syncs=not here)
    folders = partial(_folders, request, made, target)
    with Folder(folder) as written:
        written.create_folders(folders(), existing=request.select is not None)
    with TaskProgress(target.storage, "").watched(reporter.update):
        # Hashing and writing leave the interpreter to the next thread.
        rows = run_all(job, range(len(splits)), None if here else work.cluster)
        with Folder(folder) as written:
            if not any(row.damaged for row in rows):
                written.finish_folders(folders())
            written.sync()
    reporter.update(made.files, made.bytes)
    return rows


def write_splits(storage: Storage, made: SnapshotRestorePlan) -> tuple[str, ...]:
    """Write the splits of a planned restore into `storage`, as Arrow; returns their paths."""
    size = max(_SPLIT_BYTES, made.weight // _MOST_SPLITS)
    writer = ArrowSplitWriter(storage.uri, "plan/", size, weight="bytes", each=FILE_COST)

    def spread(rows: DataFrame) -> DataFrame:
        tasks = rows.repartitionByRange(1 + made.weight // size, "destination", "path")
        return tasks.sortWithinPartitions("destination", "path", "position", "bytes", "target")

    return tuple(
        row["path"]
        for bounds in sort_ranges(made)
        for row in made.chosen.map(writer, PATHS, "restore_snapshot_order", spread=spread, **bounds)
    )


def _summary(made: SnapshotRestorePlan, target: Target, form: Form) -> dict[str, Any]:
    shown = made.tables[:_SHOWN]
    return {
        "source": made.source,
        "backup_id": made.backup_id,
        "taken": format_ts(made.end_ts) if made.end_ts is not None else None,
        "folder": str(target.folder),
        "of_tables": len(made.tables),
        "files": made.files,
        "bytes": made.bytes,
        "not_verifiable": sum(table.unknown for table in made.tables) or None,
        "tables": [
            {
                "table": table.scope,
                "tablets": table.regions,
                "files": table.files,
                "bytes": table.bytes,
                "plain": table.is_plain,
                "path": str(target.folder / folder_of_table(form, table.scope)),
            }
            for table in shown
        ],
    }


def _damage(rows: Sequence[Any], target: Target) -> Damaged | None:
    """The error that names the files that could not be restored; None when all were."""
    count = sum(row.damaged for row in rows)
    if not count:
        return None
    names = list(islice(chain.from_iterable(json.loads(row.names) for row in rows), NAMED))
    more = f"\n  and {count - len(names)} more" if count > len(names) else ""
    return Damaged(
        f"{counted(count, 'file')} could not be restored into {target.folder}; all others were. "
        "What is stored of them is not whole:\n" + "\n".join(f"  {name}" for name in names) + more,
        hint="Put the objects back from a copy of the repository and run the same command again, or restore "
        "these files from another backup.",
    )


def _audit(made: SnapshotRestorePlan, folder: str) -> Audit:
    """The entry for a restore of a backup that is known to be damaged."""
    detail = {"folder": folder, "damage": made.damage}
    return audit_entry("restore with damage", made.backup_id or "", detail)
