"""Restore a change feed: Spark tasks read and check the planned log files, Spark finds the latest committed
value of each key, and the target takes all of them at once."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy, NotFound, Refused
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.plan.logs.flush import shown_ts
from lakebackup.plan.logs.restore import plan_restore, require_restorable
from lakebackup.rules import layout
from lakebackup_jobs.kafka.admin.rights import lacks, require
from lakebackup_jobs.lifecycle.deletion.lock import recorded_restore
from lakebackup_jobs.lifecycle.identity import audit_entry
from lakebackup_jobs.lifecycle.planning import planned
from lakebackup_jobs.lifecycle.scratch import open_scratch
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.splits import clear
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.targets import Held, is_done, open_target, require_same
from lakebackup_jobs.targets.delta import DeltaTarget
from lakebackup_sql import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
    from lakebackup.rows.upkeep import Audit
    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.targets import Target
    from lakebackup_jobs.targets.change_topics import ChangeTopics

_TABLES_SHOWN = 50
# Begins the names of the lease and of the plan's folder of a restore.
_TARGET = "target-"


def run(
    request: LogRestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Restore what was committed in a span, or all that existed at its end; returns the summary.

    Raises NotFound, Refused (outside what is covered, gaps, damaged files, a target that holds something
    else), Damaged (a file, or a value that is not in the log), UsageProblem (keys), Busy, EnvironmentProblem.
    """
    work = Workspace(request, "", reporter, spark)
    reader = work.current()
    target = open_target(request, request.target, partial(_change_topics, request))
    if not request.dry_run:
        work.start_jvm()
    before = target.held()
    if upon := _upon(request):
        request = replace(
            request,
            start_ts=upon.to_ts,
            filters=tuple(upon.filters),
            first_key=upon.first_key,
            beyond_key=upon.beyond_key,
        )
    if before:
        require_same(before, request)
    base = upon or before
    plan = partial(
        plan_restore,
        request,
        whole_from=base.from_ts if base else None,
        base=(base.to_ts, base.filters) if base else None,
    )
    made = planned(reader, request, spark, reporter, plan)
    after = Held.after(base, made, request)
    summary = {**summary_of(made), "target": target.place}
    for note in made.notes:
        reporter.note(note)
    alone = upon is not None
    if is_done(before, after, alone=alone):
        return {"done_before": True, **summary}
    missing = target.missing_rights(made)
    if request.dry_run:
        refused = {"refused_because": lacks(missing)} if missing else {}
        return {"dry_run": True, **summary, **refused, "parameters": dict(made.parameters)}
    require_restorable(made, allow_gaps=request.allow_gaps)
    require(missing)
    if made.full or before or upon:
        work.start_sql()
    else:
        work.start_spark()
    name = f"{_TARGET}{hashlib.sha256(target.place.encode()).hexdigest()[:32]}"
    with open_scratch(work, name):
        # Another restore may have finished meanwhile.
        before = target.held()
        if is_done(before, after, alone=alone):
            return {"done_before": True, **summary}
        # One that is killed leaves its plan there, until the next into the target.
        folder = layout.restore_folder(name)
        written = bring(request, work, reader, made, target, before, after, folder)
    for note in target.forget():
        reporter.warning(note)
    return work.timed({**summary, **written})


def _change_topics(request: LogRestoreRequest, rest: str) -> ChangeTopics:
    from lakebackup_jobs.targets.change_topics import ChangeTopics

    return ChangeTopics(request, rest)


def bring(
    request: LogRestoreRequest,
    work: Workspace,
    reader: CatalogReader,
    made: LogRestorePlan,
    target: Target,
    before: Held | None,
    after: Held,
    folder: str,
) -> dict[str, int]:
    """Read the planned files and write the target, while no prune may delete them; the target's summary.

    `folder`: where the plan is written, which no other run uses meanwhile.
    """
    # They load pyspark and numba; a dry run does without.
    from lakebackup_jobs.logs.restore import apply
    from lakebackup_jobs.logs.restore.splits import write_splits

    reporter = work.reporter
    keys = LogKeys.load(request.keys_file) if request.keys_file else None
    with recorded_restore(
        work,
        reader,
        source=made.source,
        target=target.place,
        selection=load("queries", "log_restore_files"),
        from_ts=made.start_ts,
        to_ts=made.end_ts,
        audit=_audit(made, target.place) if made.gaps else None,
    ) as (own, counts):
        _clear(own.storage, folder)
        splits = write_splits(own.storage, made, folder, keys=keys, checksum=request.checksum)
        reporter.start(made.entries, made.bytes, "restore", "events")
        try:
            watched = splits.task_progress().watched(reporter.update, reporter.warning)
            with watched, apply.sized(work.cluster, made.raw_bytes):
                full = _full(work, reader, made, request)
                written: dict[str, int] = target.write(
                    apply.Changes(work.cluster, splits, made, full, before, after)
                )
        finally:
            splits.clear()
        reporter.update(made.entries, made.bytes)
        counts.update(entries=written["entries"], bytes=made.bytes)
    return written


def sweep(work: Workspace) -> None:
    """Delete the plans of restores that were killed and have not been repeated."""
    for name in list(work.storage.folders(f"{layout.RESTORES_FOLDER}/")):
        if name.startswith(_TARGET):
            with suppress(Busy), work.lease(name):
                _clear(work.storage, layout.restore_folder(name))


def _clear(storage: Storage, folder: str) -> None:
    clear(storage, folder)
    TaskProgress(storage, folder).clear()


def _upon(request: LogRestoreRequest) -> Held | None:
    """What the table holds that the restore starts from; None without one. Raises Refused, NotFound."""
    if request.upon is None:
        return None
    held = DeltaTarget(request.upon).held(others_as_of=(request.name, request.start_ts))
    if held is None:
        raise NotFound(f"There is no table at {request.upon}.", hint="Check --read-snapshot-storage.")
    if held.source != request.name or request.start_ts not in (None, held.to_ts):
        raise Refused(
            f"{request.upon} holds what {held.source} had in ({held.from_ts}, {held.to_ts}].",
            hint=f"Give --startts {held.to_ts}, or leave it out.",
        )
    return held


def _full(
    work: Workspace, reader: CatalogReader, made: LogRestorePlan, request: LogRestoreRequest
) -> DataFrame | None:
    from lakebackup_jobs.logs.restore import apply
    from lakebackup_jobs.logs.restore.splits import RESULT

    if request.upon is not None:
        rows = work.spark.read.format("delta").load(request.upon)
        if lacks := [column for column in apply.COLUMNS if column not in rows.columns]:
            raise Refused(
                f"The table at {request.upon} has no columns {', '.join(lacks)}.",
                hint=f"The log can be applied to one with {RESULT}.",
            )
        return rows.select(*apply.COLUMNS)
    if made.full is None:
        return None
    root = reader.destinations().uri(made.full.destination)
    return work.spark.read.format("delta").load(
        f"{root}/{layout.full_folder(made.source, made.full.backup_id)}"
    )


def summary_of(made: LogRestorePlan) -> dict[str, Any]:
    """The summary of a plan."""
    return {
        "source": made.source,
        "from_ts": shown_ts(made.start_ts, made.domain),
        "to_ts": shown_ts(made.end_ts, made.domain),
        "full": made.full.backup_id if made.full else None,
        "tables": [f"{table.db}.{table.name}" for table in made.tables[:_TABLES_SHOWN]],
        "of_tables": len(made.tables),
        "files": made.writes.files + made.values.files,
        "bytes": made.bytes,
        "raw_bytes": made.raw_bytes,
        "entries_in_files": made.entries,
        "writes": asdict(made.writes),
        "values": asdict(made.values),
        "obstacles": [*made.obstacles, *made.gaps],
    }


def _audit(made: LogRestorePlan, place: str) -> Audit:
    return audit_entry("restore with gaps", made.source, {"target": place, "gaps": list(made.gaps)})
