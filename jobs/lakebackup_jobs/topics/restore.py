"""Carry out the restore of Kafka topics: tasks verify the planned files and write their records to a target.

The restore first copies the plan's file into its folder; each task reads the rows of some partitions. An
interrupted restore is identified by the digest of its request. It is resumed with the same plan, from the
progress that the target recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from lakebackup.encryption.objects import Keyring
from lakebackup.errors import Incomplete, NotFound
from lakebackup.plan.topics import saved
from lakebackup.plan.topics.request import (
    RestoreRequest,
    other_paths,
    plan_rest,
    plan_restore,
    read_backups,
    refuse_unfinished,
)
from lakebackup.plan.topics.restore import RestorePlan, TopicPart, refusal, require_restorable
from lakebackup.rules.times import format_ts
from lakebackup.storage import Storage
from lakebackup.storage.nesting import require_outside
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.translations import publish
from lakebackup_jobs.kafka.admin.cluster import Denied
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.keyring import keyring, staged_key
from lakebackup_jobs.lifecycle.planning import plan_on_engine
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.restore import RestoreRun, Subject, restoring, unfinished
from lakebackup_jobs.lifecycle.tasks.plan_shares import MOST_TASKS, PlanShares, Share, store_plan, stored_plan
from lakebackup_jobs.lifecycle.tasks.runner import require_spark
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.targets import Target
from lakebackup_jobs.targets.kafka import target_of
from lakebackup_jobs.targets.records import Records
from lakebackup_jobs.topics.groups import GroupsRequest, move, short_of
from lakebackup_jobs.topics.record_select import RecordSelect

# How much a task restores, as long as there are not more than MOST_TASKS, and fewer than so many tasks.
_TASK_BYTES = 16 << 20
_TASK_PARTITIONS = 200
_LEAST_TASKS = 8
# The obstacles that a user may accept, by reason, and what the audit log calls a restore in spite of them.
_ACCEPTED = {
    "gap": "restore with gaps",
    "compacted": "approximate restore",
    "empty": "restore of an empty topic",
}
# Stored bytes a second; used while no restore into that kind of target is on record.
ASSUMED_BYTES_PER_S = 50_000_000


def run(request: RestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Carry out a restore, and return a summary of it.

    A dry run returns the plan, its SQL, and, if the restore would be refused, the reason and what to do
    (`refused`, `hint`).

    Raises Refused (gaps, damaged files, a target that is not empty), Damaged (a file differs from its row in
    the catalog; none of its records becomes visible), EnvironmentProblem (broker, disk), Busy.
    """
    work = Workspace(request, "", reporter, spark)
    if not request.dry_run and request.by_sql:  # Spark starts while the restore is planned
        require_spark(request, "into a Delta table" if request.records is None else "by SELECT of records")
        work.use_spark()
    started_at = micros(datetime.now(UTC))
    reader = work.current()
    saved_plan = saved.read(Path(request.plan)) if request.plan else None
    if saved_plan:
        saved.require_same_catalog(saved_plan, reader)
        request = saved_plan.request_for(request)
    plan = replace(
        plan_on_engine(reader, request, spark, reporter, partial(plan_restore, request)), at=started_at
    )
    target = target_of(request, reader)
    digest = request.digest(plan.source)
    # An interrupted restore is resumed with the files of its own plan, so a saved plan need not match now.
    if saved_plan and not unfinished(reader, digest):
        saved.require_holds(saved_plan, plan, request, reader)
    whole_plan = plan
    if request.continued:
        target_ids = target.target_ids(plan)
        resumed_id = unfinished(reader, digest)
        plan = plan_rest(plan, reader, target_ids["cluster"], target_ids["topics"], resumed_id)
    elif request.append and (target_ids := target.target_ids(plan)):
        resumed_id = unfinished(reader, digest)
        refuse_unfinished(plan, reader, target_ids["cluster"], target_ids["topics"], resumed_id)
    if request.dry_run:
        return {
            "dry_run": True,
            "target": target.name,
            **describe_reads(request, plan, reader),
            **(_preview(request, plan, work, reader) if request.records else {}),
            **(target_description := target.describe(plan)),
            **(save_plan(request, whole_plan, reader) if request.save_plan else {}),
            **_refusal(request, plan, {} if unfinished(reader, digest) else target_description),
        }
    require_restorable(plan, request.accepted)
    if not request.by_sql:
        work.choose_runner(request, 0 if target.is_local else plan.bytes)
    with restoring(work, reader, digest, target_state=target.unfinished) as run:
        result, shortfall = _carry_out(request, plan, target, run)
    if shortfall:
        raise shortfall.with_result(result)
    return result


def _preview(
    request: RestoreRequest, plan: RestorePlan, work: Workspace, reader: CatalogReader
) -> dict[str, Any]:
    work.reporter.note("starting Spark, which runs the SELECT")
    return RecordSelect(work.spark, reader, request, plan).preview()


def _carry_out(
    request: RestoreRequest, plan: RestorePlan, target: Target, run: RestoreRun
) -> tuple[dict[str, Any], Incomplete | None]:
    """Carry out the planned restore, or continue an interrupted one with its own plan.

    Returns the summary, and the error to end with when the records are restored and consumer groups are not.
    """
    work, reporter = run.workspace, run.workspace.reporter
    shares, select, plan_file = None, None, plan.file
    if run.resumed:
        reporter.note(f"resuming restore {run.restore_id}, which did not finish")
        # Newer backups do not change the plan that the interrupted run recorded.
        if recorded := stored_plan(run.storage, run.folder):
            shares, state = recorded
            plan = plan.resumed(shares.file, state)
    if request.records and not shares:  # checks the SELECT's columns before anything is written
        reporter.note("starting Spark, which runs the SELECT")
        select = RecordSelect(work.spark, run.catalog, request, plan)
    roots = run.catalog.destinations()
    plan_rows = run.catalog.with_rows("selected", plan.file)
    for row in plan_rows.rows("selected_destinations"):  # fails here, before anything is written
        roots.open(row["destination"])
    keys = keyring(run.catalog.with_rows("selected", plan_file) if request.records else plan_rows, roots)
    staged_keys = [staged_key(keys[key_id], run.restore_id) for key_id in sorted(keys)]
    roots = roots.with_keys(Keyring(staged_keys) if request.records else keys)
    target.prepare(plan, run.restore_id, resumed=run.resumed)
    _record_accepted(request, plan, run)
    subject = Subject(plan.source, request.target, plan.selection, plan.from_ts, plan.to_ts)
    run.begin(subject, into=target.target_ids(plan))
    if request.records:
        key = next(iter(staged_keys), None)
        plan = select.stage(run.storage, run.restore_id, key) if select else plan
        roots = roots.including(destination_id(run.storage), run.storage.uri)
    shares = shares or store_partitions(run.storage, run.folder, plan)
    reporter.start(plan.entries, plan.bytes, "restore")

    with shares.task_progress().watched(reporter.update, reporter.warning):
        outcomes = target.write(Records(work.task_cluster, shares, plan, run.restore_id, roots))
    reporter.update(plan.entries, plan.bytes)
    reporter.wait("publishing")
    notes = target.finish(plan)
    publish(run.writer, run.restore_id)
    groups, shortfall = _move_groups(request, plan, reporter) if request.groups else ({}, None)
    run.complete(outcomes)
    leftovers = target.forget()
    shares.clear()
    for note in (*notes, *leftovers):
        reporter.warning(note)
    result = {
        "restore_id": run.restore_id,
        "resumed": run.resumed,
        "runner": work.runner,
        "target": target.name,
        **_summary(plan),
        **groups,
        "entries": sum(outcome.entries for outcome in outcomes),
    }
    return work.timed(result), shortfall


def _record_accepted(request: RestoreRequest, plan: RestorePlan, run: RestoreRun) -> None:
    """Record in the audit log in spite of which obstacles the user wants the restore, and tell the user."""
    for reason, action in _ACCEPTED.items():
        if details := [str(obstacle) for obstacle in plan.obstacles if obstacle.reason == reason]:
            run.audit(action, details)
            for text in details:
                run.workspace.reporter.warning(f"{action}: {text}")
    if request.records:
        run.audit("restore by SELECT of records", [request.records])


def store_partitions(storage: Storage, folder: str, plan: RestorePlan) -> PlanShares:
    """Record a plan below the folder of a restore; each partition is a share of its own.

    A task takes several small partitions, since it costs some tenths of a second to start one.
    """
    shares = [
        Share(first, end, (part.scope, part.epoch, part.region)) for part, first, end in plan.partitions()
    ]
    most_tasks = max(_LEAST_TASKS, plan.bytes // _TASK_BYTES, len(shares) // _TASK_PARTITIONS)
    return store_plan(
        storage, folder, plan.file, shares, plan.to_resume(), most_tasks=min(most_tasks, MOST_TASKS)
    )


def _move_groups(
    request: RestoreRequest, plan: RestorePlan, reporter: Reporter
) -> tuple[dict[str, Any], Incomplete | None]:
    """Set the consumer groups to their offsets at the time to which the topics are restored.

    Returns the outcomes, and the error to end with when some groups could not be set.
    """
    groups_request = GroupsRequest(
        destination=request.destination,
        catalog=request.catalog,
        source=plan.source,
        target=request.target,
        patterns=request.groups,
        maps={t.scope: t.target for t in plan.topics},
        at_ts=plan.to_ts,
        kafka=request.kafka,
    )
    try:
        result, moves = move(groups_request, reporter)
    except (NotFound, Denied) as error:  # the records are restored all the same
        return {}, Incomplete(
            f"The records are restored, and no consumer group is: {error.message}", hint=error.hint
        )
    return {name: result[name] for name in ("outcomes", "groups")}, short_of(moves) if moves.failed else None


def describe_reads(request: RestoreRequest, plan: RestorePlan, reader: CatalogReader) -> dict[str, Any]:
    """Describe what a planned restore would read: the part of a dry run that does not look at the target."""
    return {
        **_summary(plan),
        **({} if request.records else {"partitions": _partitions(plan)}),
        **_backups(plan, reader),
        "estimate": _estimate(request, plan, reader),
        "selection": plan.selection,
        "parameters": dict(plan.parameters),
    }


def _summary(plan: RestorePlan) -> dict[str, Any]:
    return {
        "source": plan.source,
        "from_time": format_ts(plan.from_ts) if plan.from_ts is not None else None,
        "to_time": format_ts(plan.to_ts) if plan.to_ts is not None else None,
        "files": plan.files,
        "bytes": plan.bytes,
        "entries_in_files": plan.entries,
        "topics": [
            {
                "topic": t.scope,
                "target": t.target,
                "backup_id": t.backup_id,
                "partitions": t.regions,
                "files": sum(p.files for p in t.parts),
                "bytes": sum(p.bytes for p in t.parts),
                "entries": sum(p.entries for p in t.parts),
                "reaches": format_ts(t.end_ts if plan.to_ts is None else min(plan.to_ts, t.end_ts)),
            }
            for t in plan.topics
        ],
        "obstacles": [str(o) for o in plan.obstacles],
        **({"notes": list(plan.notes)} if plan.notes else {}),
    }


def _refusal(
    request: RestoreRequest, plan: RestorePlan, target_description: Mapping[str, Any]
) -> dict[str, str]:
    """Why the restore would be refused, and what to do about it; empty when it would not be refused."""
    error = refusal(plan, request.accepted)
    if error:
        return {"refused": error.message, "hint": error.hint}
    parts = [target_description, *target_description.get("target_topics", ())]
    misfits = [part["refused_because"] for part in parts if part.get("refused_because")]
    if misfits:
        hint = target_description.get("refused_hint", "Restore into another place.")
        return {"refused": "; ".join(misfits) + ".", "hint": hint}
    return {}


def _partitions(plan: RestorePlan) -> list[dict[str, Any]]:
    """What each partition gets, and the time up to which the files restore it."""
    return [
        {
            "topic": t.scope,
            "partition": p.region,
            "files": p.files,
            "bytes": p.bytes,
            "entries": p.entries,
            "from_offset": p.start_position,
            "to_offset": p.end_position,
            "newest_ts": p.max_ts,
            "reaches": _reached(plan, t, p.region),
        }
        for t in plan.topics
        for p in t.parts
    ]


def _backups(plan: RestorePlan, reader: CatalogReader) -> dict[str, Any]:
    """The backups that are read, and other sets of backups that would restore the same, with their cost."""
    paths = [
        {
            "topics": topics,
            "takes": "this restore"
            if number == 0
            else f"fewest {' and '.join(path.least)}"
            if path.least
            else "most backups",
            "backups": [step.backup_id for step in path.steps],
            "files": path.cost.files,
            "bytes": path.cost.bytes,
        }
        for topics, sets in other_paths(plan, reader)
        for number, path in enumerate(sets)
    ]
    return {
        "backups": [
            {**asdict(part), "end_ts": format_ts(part.end_ts)} for part in read_backups(plan, reader)
        ],
        **({"alternatives": paths} if paths else {}),
    }


def _reached(plan: RestorePlan, topic: TopicPart, region: str) -> str:
    reached_ts = plan.to_ts if plan.to_ts is not None else topic.end_ts
    if plan.reached is not None:
        region_ts = plan.reached.get((topic.scope, region))
        if region_ts is None:
            return "no restore point"
        reached_ts = min(reached_ts, region_ts)
    return format_ts(reached_ts)


def _estimate(request: RestoreRequest, plan: RestorePlan, reader: CatalogReader) -> str:
    """How long the restore may take, and what this estimate is based on."""
    kind = request.target.partition(":")[0]
    speeds = [
        row["bytes"] * 1_000_000 / row["micros"]
        for row in reader.rows("restore_speeds", target=f"{kind}:")
        if row["bytes"] and row["micros"]
    ]
    speed = median(speeds) if speeds else ASSUMED_BYTES_PER_S
    basis = (
        f"the median of {len(speeds)} restores into {kind}"
        if speeds
        else f"assumed, no restore into {kind} yet"
    )
    seconds = plan.bytes / speed
    duration = f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"
    return f"{duration} at {speed / 1_000_000:.1f} MB/s ({basis})"


def save_plan(request: RestoreRequest, plan: RestorePlan, reader: CatalogReader) -> dict[str, Any]:
    """Save a plan to the request's `save_plan`; returns its path and the digest of its files.

    Raises UsageProblem (the path lies in a repository, or cannot be written) and Refused (it exists).
    """
    path = str(request.save_plan)
    tool = f"lakebackup {version('lakebackup')}"
    require_outside(request, path, is_file=True)
    saved_plan = saved.make(request, plan, reader, now_us=micros(datetime.now(UTC)), tool=tool)
    saved.write(Path(path), saved_plan)
    return {"plan": path, "digest": saved_plan.digest}
