"""Carry out the restore of Kafka topics: Spark tasks verify the planned files and bring the records back.

The planned files are written first, a split for each partition; tasks read their splits. An interrupted
restore is found again by what was asked for, and resumed with the same splits from the target's progress.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Incomplete, LakebackupError, NotFound
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
from lakebackup.rules import layout
from lakebackup.rules.times import format_ts
from lakebackup.storage.nesting import require_outside
from lakebackup.store.roots import destination_id
from lakebackup.store.translations import publish
from lakebackup_jobs.kafka.admin.cluster import Denied
from lakebackup_jobs.lifecycle.deletion.lock import RestoreLog, refuse_pruned_meanwhile, unfinished
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.planning import planned
from lakebackup_jobs.lifecycle.scratch import Scratch, open_scratch
from lakebackup_jobs.lifecycle.tasks.splits import resumed_plan, write_splits
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.targets.kafka import target_of
from lakebackup_jobs.topics.groups import GroupsRequest, move, short_of
from lakebackup_jobs.topics.record_select import RecordSelect, staged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.targets import Target


# What a person may accept as it is, by the reason of the obstacle, and what the audit log calls that.
_ACCEPTED = {
    "gap": "restore with gaps",
    "compacted": "approximate restore",
    "empty": "restore of an empty topic",
}
# Stored bytes a second, where no restore into the kind of target is on record.
ASSUMED_BYTES_PER_S = 50_000_000


def run(request: RestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Carry a restore out; returns what a person wants to know of it.

    Of a dry run: the plan, its SQL, and, if it would be refused, why and what to do (`refused`, `hint`).

    Raises Refused (gaps, damaged files, a target that is not empty), Damaged (a file that is not what the
    catalog says, found before any of it becomes visible), EnvironmentProblem (broker, disk), Busy.
    """
    work = Workspace(request, "", reporter, spark)
    if not request.dry_run:  # beside the plan
        if request.by_sql:
            work.start_sql()
        elif not request.to_file:
            work.start_spark()
    began = micros(datetime.now(UTC))
    reader = work.current()
    kept = saved.read(Path(request.plan)) if request.plan else None
    if kept:
        saved.require_same_catalog(kept, reader)
        request = kept.asked(request)
    made = replace(planned(reader, request, spark, reporter, partial(plan_restore, request)), at=began)
    target = target_of(request, reader)
    digest = request.digest(made.source)
    # An interrupted restore is resumed with the files that were planned then, whatever came in since.
    if kept and not unfinished(reader, digest):
        saved.require_holds(kept, made, request)
    whole = made
    if request.continued:
        into = target.into(made)
        made = plan_rest(made, into["cluster"], into["topics"], unfinished(reader, digest))
    elif request.append and (into := target.into(made)):
        refuse_unfinished(made, into["cluster"], into["topics"], unfinished(reader, digest))
    if request.dry_run:
        return {
            "dry_run": True,
            "target": target.place,
            **_summary(made),
            **(
                _previewed(request, made, work, reader)
                if request.records
                else {"partitions": _partitions(made)}
            ),
            **_backups(made),
            "estimate": _estimate(request, made, reader),
            "selection": made.selection,
            "parameters": dict(made.parameters),
            **(described := target.describe(made)),
            **_save(request, whole),
            **_refused(request, made, {} if unfinished(reader, digest) else described),
        }
    require_restorable(made, request.accepted)
    with open_scratch(work, f"restore-{digest}") as scratch:
        return _carry_out(request, made, digest, target, reader, scratch)


def _previewed(
    request: RestoreRequest, made: RestorePlan, work: Workspace, reader: CatalogReader
) -> dict[str, Any]:
    work.reporter.note("starting Spark, which runs the SELECT")
    return RecordSelect(work.spark, reader, request, made).preview()


def _carry_out(
    request: RestoreRequest,
    made: RestorePlan,
    digest: str,
    target: Target,
    reader: CatalogReader,
    scratch: Scratch,
) -> dict[str, Any]:
    work, reporter = scratch.workspace, scratch.workspace.reporter
    # Where nothing can be written no plan of an earlier run can be carried on.
    resumed = unfinished(reader, digest) if scratch.recorded else None
    restore_id = resumed or layout.new_backup_id(datetime.now(UTC))
    if resumed:
        reporter.note(f"resuming restore {restore_id}, which did not finish")
    ready = _resumed_plan(request, made, restore_id, scratch) if resumed else None
    made, select = ready or made, None
    if request.records and not ready:  # its columns are checked before anything is written
        reporter.note("starting Spark, which runs the SELECT")
        select = RecordSelect(work.spark, reader, request, made)
    roots = reader.destinations()
    for row in made.chosen.rows("selected_destinations"):  # before anything is written
        roots.open(row["destination"])
    target.prepare(made, restore_id, resumed=resumed is not None)

    writer = scratch.writer()
    log = RestoreLog(writer, restore_id, made, request.target, {"digest": digest, "into": target.into(made)})
    for reason, action in _ACCEPTED.items():
        if found := [str(o) for o in made.obstacles if o.reason == reason]:
            log.audit(action, found)
            for text in found:
                reporter.warning(f"{action}: {text}")
    if request.records:
        log.audit("restore by SELECT of records", [request.records])
    log.row("running")
    refuse_pruned_meanwhile(work, made.source, reader)
    if request.records:
        made = select.stage(scratch.storage, restore_id) if select else made
        roots = roots.including(destination_id(scratch.storage), scratch.storage.uri)
    splits = write_splits(scratch.storage, made, layout.restore_folder(restore_id))
    reporter.start(made.entries, made.bytes, "restore")
    from lakebackup_jobs.targets.records import Records

    watched = splits.task_progress().watched(reporter.update, reporter.warning)
    with watched, _failure_on_record(log, target, reporter):
        cluster = None if target.is_local else work.cluster
        outcomes = target.write(Records(cluster, splits, made, restore_id, roots))
    reporter.update(made.entries, made.bytes)
    reporter.wait("publishing")
    notes = target.finish(made)
    publish(writer, restore_id)
    groups, shortfall = _move_groups(request, made, reporter) if request.groups else ({}, None)
    log.finish(outcomes)
    leftovers = target.forget()
    splits.clear()
    for note in (*notes, *leftovers):
        reporter.warning(note)
    result = work.timed(
        {
            "restore_id": restore_id,
            "resumed": resumed is not None,
            "target": target.place,
            **_summary(made),
            **groups,
            "entries": sum(o.entries for o in outcomes),
        }
    )
    if shortfall:
        raise shortfall.with_result(result)
    return result


@contextmanager
def _failure_on_record(log: RestoreLog, target: Target, reporter: Reporter) -> Iterator[None]:
    """Records a failure inside the block, and says what state the target is left in."""
    try:
        yield
    except LakebackupError as error:
        log.row("failed", problem=error.message)
        error.hint = f"{error.hint} {target.unfinished()}".strip()
        raise
    except KeyboardInterrupt:
        if state := target.unfinished():
            reporter.warning(state)
        raise


def _resumed_plan(
    request: RestoreRequest, made: RestorePlan, restore_id: str, scratch: Scratch
) -> RestorePlan | None:
    """The plan that the run which is resumed carried out, whatever newer backups make of it now; None when it
    had not come so far."""
    if request.records:
        return staged(scratch.storage, restore_id, made)
    return resumed_plan(scratch.storage, layout.restore_folder(restore_id), made)


def _move_groups(
    request: RestoreRequest, made: RestorePlan, reporter: Reporter
) -> tuple[dict[str, Any], Incomplete | None]:
    """Set the groups to their offsets at the time that the topics are restored to; returns what became of
    them, and the error to end with where some could not be set."""
    asked = GroupsRequest(
        destination=request.destination,
        catalog=request.catalog,
        source=made.source,
        target=request.target,
        patterns=request.groups,
        maps={t.scope: t.target for t in made.topics},
        at_ts=made.to_ts,
        kafka=request.kafka,
    )
    try:
        moved, plan = move(asked, reporter)
    except (NotFound, Denied) as error:  # no reason to take the records back
        return {}, Incomplete(
            f"The records are restored, and no consumer group is: {error.message}", hint=error.hint
        )
    return {name: moved[name] for name in ("outcomes", "groups")}, short_of(plan) if plan.failed else None


def _summary(made: RestorePlan) -> dict[str, Any]:
    return {
        "source": made.source,
        "from_time": format_ts(made.from_ts) if made.from_ts is not None else None,
        "to_time": format_ts(made.to_ts) if made.to_ts is not None else None,
        "files": made.files,
        "bytes": made.bytes,
        "entries_in_files": made.entries,
        "topics": [
            {
                "topic": t.scope,
                "target": t.target,
                "backup_id": t.backup_id,
                "partitions": t.regions,
                "files": sum(p.files for p in t.parts),
                "bytes": sum(p.bytes for p in t.parts),
                "entries": sum(p.entries for p in t.parts),
                "reaches": format_ts(t.end_ts if made.to_ts is None else min(made.to_ts, t.end_ts)),
            }
            for t in made.topics
        ],
        "obstacles": [str(o) for o in made.obstacles],
        **({"notes": list(made.notes)} if made.notes else {}),
    }


def _refused(request: RestoreRequest, made: RestorePlan, described: Mapping[str, Any]) -> dict[str, str]:
    """Why the restore would be refused, and what to do then; empty when it would not be."""
    refused = refusal(made, request.accepted)
    if refused:
        return {"refused": refused.message, "hint": refused.hint}
    places = [described, *described.get("target_topics", ())]
    misfits = [place["refused_because"] for place in places if place.get("refused_because")]
    if misfits:
        hint = described.get("refused_hint", "Restore into another place.")
        return {"refused": "; ".join(misfits) + ".", "hint": hint}
    return {}


def _partitions(made: RestorePlan) -> list[dict[str, Any]]:
    """What each partition gets, and which time the files bring it to."""
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
            "reaches": _reached(made, t, p.region),
        }
        for t in made.topics
        for p in t.parts
    ]


def _backups(made: RestorePlan) -> dict[str, Any]:
    """The backups that are read, and the other complete sets that would bring the same, with their cost."""
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
        for topics, sets in other_paths(made)
        for number, path in enumerate(sets)
    ]
    return {
        "backups": [{**asdict(part), "end_ts": format_ts(part.end_ts)} for part in read_backups(made)],
        **({"alternatives": paths} if paths else {}),
    }


def _reached(made: RestorePlan, topic: TopicPart, region: str) -> str:
    reached = made.to_ts if made.to_ts is not None else topic.end_ts
    if made.reached is not None:
        whole = made.reached.get((topic.scope, region))
        if whole is None:
            return "no restore point"
        reached = min(reached, whole)
    return format_ts(reached)


def _estimate(request: RestoreRequest, made: RestorePlan, reader: CatalogReader) -> str:
    """How long it may take, and from what that is known."""
    kind = request.target.partition(":")[0]
    speeds = [
        row["bytes"] * 1_000_000 / row["micros"]
        for row in reader.rows("restore_speeds", target=f"{kind}:")
        if row["bytes"] and row["micros"]
    ]
    speed = median(speeds) if speeds else ASSUMED_BYTES_PER_S
    known = (
        f"the median of {len(speeds)} restores into {kind}"
        if speeds
        else f"assumed, no restore into {kind} yet"
    )
    seconds = made.bytes / speed
    duration = f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"
    return f"{duration} at {speed / 1_000_000:.1f} MB/s ({known})"


def _save(request: RestoreRequest, made: RestorePlan) -> dict[str, Any]:
    if not request.save_plan:
        return {}
    tool = f"lakebackup {version('lakebackup')}"
    require_outside(request, request.save_plan, is_file=True)
    plan = saved.make(request, made, now=micros(datetime.now(UTC)), tool=tool)
    saved.write(Path(request.save_plan), plan)
    return {"plan": request.save_plan, "digest": plan.digest}
