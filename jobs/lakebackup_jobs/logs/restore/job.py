"""Restores a change feed.

Spark tasks read and check the planned log files, Spark finds the latest committed value of each key, and the
target commits all values at once.
"""

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
from lakebackup_jobs.targets import Held, is_done, require_same
from lakebackup_jobs.targets.delta import DeltaTarget
from lakebackup_jobs.targets.opening import open_target
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
# The prefix of the name that a restore's lease and its plan's folder share. The rest is a hash of the target.
_NAME_PREFIX = "target-"


def run(
    request: LogRestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Restore what was committed in a span, or all that existed at its end; returns the summary.

    Raises NotFound, Refused (a span that is not covered, gaps, damaged files, a target that holds something
    else), Damaged (a file, or a value that is not in the log), UsageProblem (keys), Busy and
    EnvironmentProblem.
    """
    work = Workspace(request, "", reporter, spark)
    reader = work.current()
    target = open_target(request, request.target, partial(_change_topics, request))
    if not request.dry_run:
        work.start_jvm()
    old_contents = target.held()
    if base_contents := _base_contents(request):
        request = replace(
            request,
            start_ts=base_contents.to_ts,
            filters=tuple(base_contents.filters),
            first_key=base_contents.first_key,
            beyond_key=base_contents.beyond_key,
        )
    if old_contents:
        require_same(old_contents, request)
    start_contents = base_contents or old_contents
    make_plan = partial(
        plan_restore,
        request,
        whole_from=start_contents.from_ts if start_contents else None,
        base=(start_contents.to_ts, start_contents.filters) if start_contents else None,
    )
    plan = planned(reader, request, spark, reporter, make_plan)
    new_contents = Held.after(start_contents, plan, request)
    summary = {**summary_of(plan), "target": target.place}
    for note in plan.notes:
        reporter.note(note)
    has_base = base_contents is not None
    if is_done(old_contents, new_contents, alone=has_base):
        return {"done_before": True, **summary}
    missing = target.missing_rights(plan)
    if request.dry_run:
        refused = {"refused_because": lacks(missing)} if missing else {}
        return {"dry_run": True, **summary, **refused, "parameters": dict(plan.parameters)}
    require_restorable(plan, allow_gaps=request.allow_gaps)
    require(missing)
    if plan.full or old_contents or base_contents:
        work.start_sql()
    else:
        work.start_spark()
    name = f"{_NAME_PREFIX}{hashlib.sha256(target.place.encode()).hexdigest()[:32]}"
    with open_scratch(work, name):
        # Read again under the lease, as another restore may have finished meanwhile.
        old_contents = target.held()
        if is_done(old_contents, new_contents, alone=has_base):
            return {"done_before": True, **summary}
        # A restore that is killed leaves its plan there, until the next restore into the target.
        folder = layout.restore_folder(name)
        target_counts = bring(request, work, reader, plan, target, old_contents, new_contents, folder)
    for note in target.forget():
        reporter.warning(note)
    return work.timed({**summary, **target_counts})


def _change_topics(request: LogRestoreRequest, address: str) -> ChangeTopics:
    from lakebackup_jobs.targets.change_topics import ChangeTopics

    return ChangeTopics(request, address)


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
    """Read the planned files, which no prune deletes meanwhile, and write the target; returns its summary.

    `made`: the plan of the restore. `before`, `after`: what the target holds before and after it. `folder`:
    where the splits are written; no other run may use it meanwhile. Raises as `run`.
    """
    # Imported here, because a dry run does not need pyspark and numba, which these load.
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
                target_counts: dict[str, int] = target.write(
                    apply.Changes(work.cluster, splits, made, full, before, after)
                )
        finally:
            splits.clear()
        reporter.update(made.entries, made.bytes)
        counts.update(entries=target_counts["entries"], bytes=made.bytes)
    return target_counts


def sweep(work: Workspace) -> None:
    """Delete the plans of restores that were killed and not repeated."""
    for name in list(work.storage.folders(f"{layout.RESTORES_FOLDER}/")):
        if name.startswith(_NAME_PREFIX):
            with suppress(Busy), work.lease(name):
                _clear(work.storage, layout.restore_folder(name))


def _clear(storage: Storage, folder: str) -> None:
    clear(storage, folder)
    TaskProgress(storage, folder).clear()


def _base_contents(request: LogRestoreRequest) -> Held | None:
    """What the table holds on which the restore is based, None without one. Raises Refused and NotFound."""
    if request.upon is None:
        return None
    contents = DeltaTarget(request.upon).held(others_as_of=(request.name, request.start_ts))
    if contents is None:
        raise NotFound(f"There is no table at {request.upon}.", hint="Check --read-snapshot-storage.")
    if contents.source != request.name or request.start_ts not in (None, contents.to_ts):
        raise Refused(
            f"{request.upon} holds what {contents.source} had in ({contents.from_ts}, {contents.to_ts}].",
            hint=f"Give --startts {contents.to_ts}, or leave it out.",
        )
    return contents


def _full(
    work: Workspace, reader: CatalogReader, plan: LogRestorePlan, request: LogRestoreRequest
) -> DataFrame | None:
    from lakebackup_jobs.logs.restore import apply
    from lakebackup_jobs.logs.restore.splits import RESULT

    if request.upon is not None:
        rows = work.spark.read.format("delta").load(request.upon)
        if missing := [column for column in apply.COLUMNS if column not in rows.columns]:
            raise Refused(
                f"The table at {request.upon} has no columns {', '.join(missing)}.",
                hint=f"The log can be applied to one with {RESULT}.",
            )
        return rows.select(*apply.COLUMNS)
    if plan.full is None:
        return None
    root = reader.destinations().uri(plan.full.destination)
    return work.spark.read.format("delta").load(
        f"{root}/{layout.full_folder(plan.source, plan.full.backup_id)}"
    )


def summary_of(made: LogRestorePlan) -> dict[str, Any]:
    """The summary of a restore by its plan `made`."""
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


def _audit(plan: LogRestorePlan, target: str) -> Audit:
    return audit_entry("restore with gaps", plan.source, {"target": target, "gaps": list(plan.gaps)})
