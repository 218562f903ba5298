"""Restores a change feed.

Tasks read and check the planned log files; one task, or Spark's SQL, finds the latest committed value of each
key; the target commits all values at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakebackup.errors import Busy, NotFound, Refused
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.plan.logs.flush import shown_ts
from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest, plan_restore, require_restorable
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin.rights import lacks, require
from lakebackup_jobs.lifecycle.keyring import open_roots
from lakebackup_jobs.lifecycle.planning import plan_on_engine
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.restore import Subject, complete_interrupted, key_of, restoring, unfinished
from lakebackup_jobs.lifecycle.scratch import open_scratch
from lakebackup_jobs.lifecycle.tasks.plan_shares import clear
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.runner import require_spark
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.restore import apply
from lakebackup_jobs.logs.restore.content import LogContent, is_small
from lakebackup_jobs.logs.restore.shares import RESULT, LogShares, store_shares
from lakebackup_jobs.logs.restore.small import SmallChanges
from lakebackup_jobs.targets import RestoredSpan, Target, is_done, require_same
from lakebackup_jobs.targets.change_topics import ChangeTopics
from lakebackup_jobs.targets.delta import DeltaTarget
from lakebackup_jobs.targets.opening import open_target
from lakebackup_sql import load

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
    old_contents = target.restored_span()
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
    plan = plan_on_engine(reader, request, spark, reporter, make_plan)
    new_contents = RestoredSpan.after_restore(start_contents, plan, request)
    summary = {**summary_of(plan), "target": target.name}
    for note in plan.notes:
        reporter.note(note)
    has_base = base_contents is not None
    key = key_of("log", target.name, new_contents.text())
    name = f"{_NAME_PREFIX}{hashlib.sha256(target.name.encode()).hexdigest()[:32]}"
    if is_done(old_contents, new_contents, from_full=has_base):
        if not request.dry_run:
            _finish_interrupted(work, reader, key, _subject(plan, target), name)
        return {"done_before": True, **summary}
    missing = target.missing_rights(plan)
    if request.dry_run:
        refused = {"refused_because": lacks(missing)} if missing else {}
        return {"dry_run": True, **summary, **refused, "parameters": dict(plan.parameters)}
    require_restorable(plan, allow_gaps=request.allow_gaps)
    require(missing)
    if _needs_sql(plan, request, target, old_contents):
        require_spark(request, "of a large log, or on top of a table or a full,")
        work.use_spark()
    else:
        work.choose_runner(request, plan.bytes + (plan.full.bytes if plan.full else 0))
    with open_scratch(work, name):
        # Read again under the lease, as another restore may have finished meanwhile.
        old_contents = target.restored_span()
        if is_done(old_contents, new_contents, from_full=has_base):
            return {"done_before": True, **summary}
        target.require_unclaimed(new_contents)
        # A restore that is killed leaves its plan there, until the next restore into the target.
        folder = layout.restore_folder(name)
        target_counts = write_target(
            request, work, reader, plan, target, old_contents, new_contents, folder, key
        )
    for note in target.forget():
        reporter.warning(note)
    return work.timed({"runner": work.runner, **summary, **target_counts})


def _finish_interrupted(
    work: Workspace, reader: CatalogReader, key: str, subject: Subject, name: str
) -> None:
    """Record a restore as complete that was killed when the target held all of it, and delete its plan."""
    if unfinished(reader, key):
        with open_scratch(work, name) as scratch:
            _clear(scratch.storage, layout.restore_folder(name))
            complete_interrupted(work, reader, key, subject)


def _change_topics(request: LogRestoreRequest, address: str) -> ChangeTopics:
    return ChangeTopics(request, address)


def write_target(
    request: LogRestoreRequest,
    work: Workspace,
    reader: CatalogReader,
    plan: LogRestorePlan,
    target: Target,
    old_contents: RestoredSpan | None,
    new_contents: RestoredSpan,
    folder: str,
    key: str | None = None,
) -> dict[str, int]:
    """Read the planned files, which no prune deletes meanwhile, and write the target; returns its summary.

    `plan`: the plan of the restore. `old_contents`, `new_contents`: what the target holds before and after
    it. `folder`: where the plan is recorded; no other run may use it meanwhile. `key`: that of the restore;
    None: an interrupted one is not continued. Raises as `run`.
    """
    reporter = work.reporter
    keys = LogKeys.load(request.keys_file) if request.keys_file else None
    with restoring(work, reader, key) as run:
        run.begin(_subject(plan, target))
        if plan.gaps:
            detail = {"target": target.name, "gaps": list(plan.gaps)}
            run.audit("restore with gaps", detail, subject=plan.source)
        _clear(run.storage, folder)
        shares = store_shares(
            run.storage,
            plan,
            folder,
            roots=open_roots(reader, plan.file),
            keys=keys,
            checksum=request.checksum,
        )
        reporter.start(plan.entries, plan.bytes, "restore", "events")
        try:
            watched = shares.task_progress().watched(reporter.update, reporter.warning)
            with (
                watched,
                _content(request, work, shares, target, plan, old_contents, new_contents) as content,
            ):
                target_counts: dict[str, int] = target.write(content)
        finally:
            shares.clear()
        reporter.update(plan.entries, plan.bytes)
        run.complete(entries=target_counts["entries"], size=plan.bytes)
    return target_counts


def _subject(plan: LogRestorePlan, target: Target) -> Subject:
    return Subject(
        source=plan.source,
        target=target.name,
        selection=load("queries", "log_restore_files"),
        from_ts=plan.start_ts,
        to_ts=plan.end_ts,
    )


def _needs_sql(
    plan: LogRestorePlan, request: LogRestoreRequest, target: Target, old_contents: RestoredSpan | None
) -> bool:
    """Whether only Spark's SQL can restore the log: it is large, or its rows are joined with others."""
    merges = old_contents is not None and isinstance(target, DeltaTarget)
    return merges or request.upon is not None or not is_small(plan)


@contextmanager
def _content(
    request: LogRestoreRequest,
    work: Workspace,
    shares: LogShares,
    target: Target,
    plan: LogRestorePlan,
    old_contents: RestoredSpan | None,
    new_contents: RestoredSpan,
) -> Iterator[LogContent]:
    """What the target gets, found by one task or by Spark's SQL."""
    if not _needs_sql(plan, request, target, old_contents):
        yield SmallChanges(work.task_cluster, shares, plan, old_contents, new_contents)
        return

    with apply.sized(work.cluster, plan.raw_bytes):
        full = _full(work, shares, request)
        yield apply.Changes(work.cluster, shares, plan, old_contents, new_contents, full)


def sweep(work: Workspace) -> None:
    """Delete the plans of restores that were killed and not repeated."""
    for name in list(work.storage.folders(f"{layout.RESTORES_FOLDER}/")):
        if name.startswith(_NAME_PREFIX):
            with suppress(Busy), work.lease(name):
                _clear(work.storage, layout.restore_folder(name))


def _clear(storage: Storage, folder: str) -> None:
    clear(storage, folder)
    TaskProgress(storage, folder).clear()


def _base_contents(request: LogRestoreRequest) -> RestoredSpan | None:
    """What the table holds on which the restore is based, None without one. Raises Refused and NotFound."""
    if request.upon is None:
        return None
    contents = DeltaTarget(request.upon).restored_span(others_as_of=(request.name, request.start_ts))
    if contents is None:
        raise NotFound(f"There is no table at {request.upon}.", hint="Check --read-snapshot-storage.")
    if contents.source != request.name or request.start_ts not in (None, contents.to_ts):
        raise Refused(
            f"{request.upon} holds what {contents.source} had in ({contents.from_ts}, {contents.to_ts}].",
            hint=f"Give --startts {contents.to_ts}, or leave it out.",
        )
    return contents


def _full(work: Workspace, shares: LogShares, request: LogRestoreRequest) -> DataFrame | None:
    if request.upon is not None:
        rows = work.spark.read.format("delta").load(request.upon)
        if missing := [column for column in apply.COLUMNS if column not in rows.columns]:
            raise Refused(
                f"The table at {request.upon} has no columns {', '.join(missing)}.",
                hint=f"The log can be applied to one with {RESULT}.",
            )
        return rows.select(*apply.COLUMNS)
    return work.spark.read.format("delta").load(shares.full) if shares.full else None


def summary_of(plan: LogRestorePlan) -> dict[str, Any]:
    """The summary of a restore by its plan `plan`."""
    return {
        "source": plan.source,
        "from_ts": shown_ts(plan.start_ts, plan.domain),
        "to_ts": shown_ts(plan.end_ts, plan.domain),
        "full": plan.full.backup_id if plan.full else None,
        "tables": [f"{table.db}.{table.name}" for table in plan.tables[:_TABLES_SHOWN]],
        "of_tables": len(plan.tables),
        "files": plan.writes.files + plan.values.files,
        "bytes": plan.bytes,
        "raw_bytes": plan.raw_bytes,
        "entries_in_files": plan.entries,
        "writes": asdict(plan.writes),
        "values": asdict(plan.values),
        "obstacles": [*plan.obstacles, *plan.gaps],
    }
