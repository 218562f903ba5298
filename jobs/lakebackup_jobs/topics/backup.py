"""Back up Kafka topics: fix the offsets, copy them in Spark tasks, publish.

Order of publishing: data objects, their rows as manifest parts, the manifest, `files` rows, positions,
scopes and gaps, then the one `backups` row, which alone makes the backup exist, then its marker.
A crash anywhere before that row leaves nothing visible, and running again succeeds.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import EnvironmentProblem, Incomplete
from lakebackup.plan.parents import Choice, Mode, check_asked, choose, covered_by, falls_short
from lakebackup.plan.topics.backup import BackupPlan, OnGap, Parent, Prepared, plan_backup
from lakebackup.plan.topics.generations import GROWTH, Held
from lakebackup.plan.topics.request import require_own
from lakebackup.rows.backups import Backup
from lakebackup.rules import layout, patterns, topic_settings
from lakebackup.rules.retention import roll_ms
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import Storage, open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store import tombstones
from lakebackup.store.behind import require_current
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.admin.groups import Groups, group_rows
from lakebackup_jobs.kafka.format.offsets_log import OFFSETS_TOPIC
from lakebackup_jobs.kafka.format.registry import SCHEMAS_TOPIC
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.numbers import latest_number, next_sequences
from lakebackup_jobs.lifecycle.task_progress import TaskBoard
from lakebackup_jobs.lifecycle.task_totals import Totals
from lakebackup_jobs.topics import forks
from lakebackup_jobs.topics import resume as unfinished
from lakebackup_jobs.topics.unprotected import record_unprotected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.plan.topics.backup import TopicState
    from lakebackup.rows.topics import Group
    from lakebackup_jobs.kafka.admin.cluster import Cluster
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.topics.forks import OnFork
    from lakebackup_jobs.topics.resume import Begun
    from lakebackup_jobs.topics.tasks.copy import CopyJob


@dataclass(frozen=True, slots=True)
class BackupRequest:
    """What a person asked for. `kafka`: librdkafka properties with bootstrap.servers; may hold secrets.

    `level` and `parent` as in plan.parents.choose; `log`: it is a batch of a backup without an end.
    `roll_ms`: a file is closed when its records span this long; 0 never, None by the topic's retention.
    """

    destination: str
    topics: tuple[str, ...]
    kafka: Mapping[str, str]
    catalog: str | None = None
    source: str | None = None
    patterns: tuple[str, ...] = ()
    isolation: str = "read_committed"
    codec: str = "zstandard"
    compression_level: int | None = None
    target_bytes: int = 128 << 20
    roll_ms: int | None = None
    mode: Mode = "auto"
    level: int | None = None
    parent: str | None = None
    on_gap: OnGap = "restart"
    on_fork: OnFork = "branch"
    dry_run: bool = False
    lease_ttl_s: float = 60.0
    note: str | None = None
    remote: str | None = None
    log: bool = False
    new_generation: bool = False
    growth: float = GROWTH
    groups: Literal["all", "none"] = "all"
    schema_topics: tuple[str, ...] = (SCHEMAS_TOPIC,)
    parallelism: int = os.cpu_count() or 2


def run(request: BackupRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Take one backup; returns what a person wants to know of it.

    Raises NotFound (topics), Refused (a gap with on_gap="fail", a history cut back), Busy (another run on
    the source), EnvironmentProblem (broker, disk), Incomplete (what was asked for and cannot be read; all
    else is backed up by then).
    """
    check_asked(request.mode, request.level, request.parent)
    storage = open_storage(request.destination)
    cluster = Groups(request.kafka)
    source = layout.check_source(request.source or f"kafka-{cluster.cluster_id()}")
    reader = CatalogReader.open(request.destination, request.catalog)
    if reader:
        require_current(reader)
    if request.dry_run:
        plan = _plan(request, layout.new_backup_id(datetime.now(UTC)), source, cluster, reader)
        return {"dry_run": True, **_summary(plan, source)}
    with Lease.acquire(storage, f"source-{source}", holder(), ttl_s=request.lease_ttl_s) as lease:
        return _take(request, storage, source, cluster, lease, spark, reporter)


def _take(
    request: BackupRequest,
    storage: Storage,
    source: str,
    cluster: Groups,
    lease: Lease,
    spark: SparkSession | None,
    reporter: Reporter,
) -> dict[str, Any]:
    """Plan, copy, publish."""
    from lakebackup_jobs.runtime.session import spark_session

    spark = spark or spark_session(remote=request.remote)
    writer = CatalogWriter.open(spark, request.destination, request.catalog)
    writer.prepare()
    ended = _settle(request, storage, source, cluster, lease, writer, spark, reporter)
    if ended and request.mode == "full":
        return ended
    if ended:
        # What came in since the positions of then; a cumulative one would read all again.
        request = replace(request, mode="incr-diff", parent=None)
    reader = CatalogReader(request.destination, request.catalog)
    if request.parent:
        tombstones.require_staying(storage, source, reader.resolve_backup(request.parent))
    prepared = prepare(request, source, cluster, reader)
    if ended and prepared.plan.idle:
        return ended
    tell(prepared.plan, reporter)
    if prepared.plan.fork:
        forks.record(writer, prepared.plan.fork)
    taken = {scope.scope for scope in prepared.plan.scopes}
    alone = record_unprotected(reader, writer, source, cluster.topic_names(), taken)
    sequences = next_sequences(reader, source, prepared.plan.scopes)
    job = copy_job(request, storage, source, prepared, sequences)
    unfinished.begin(storage, source, request, prepared, sequences)
    totals = _copy(spark, storage, source, prepared, job, reporter)
    result = publish(request, storage, source, prepared, totals, writer, lease, reporter)
    unfinished.end(storage, source)
    result["unprotected"] = len(alone)
    if ended:
        result["ended"] = ended
    if prepared.plan.left_out:
        for left in prepared.plan.left_out:
            reporter.warning(left)
        reporter.result(result)
        raise Incomplete(
            f"Backup {prepared.backup_id} was taken without what could not be read: "
            f"{len(prepared.plan.left_out)} in all.",
            hint="Give this user the rights that the warnings name, then back up again.",
        )
    return result


def _settle(
    request: BackupRequest,
    storage: Storage,
    source: str,
    cluster: Groups,
    lease: Lease,
    writer: CatalogWriter,
    spark: SparkSession,
    reporter: Reporter,
) -> dict[str, Any] | None:
    """End what the last run of a source began and did not end, or discard it; what it is, if asked for."""
    begun = unfinished.found(storage, source)
    if begun is None:
        return None
    reader = CatalogReader(request.destination, request.catalog)
    prepared, result = begun.prepared, None
    if _exists(begun, request):
        result = _close(begun, request, source, storage, reporter)
    elif why := unfinished.hindrance(begun, request, source, storage, cluster, reader):
        lease.renew()  # a run that slept may find that another one made the backup exist
        if _exists(begun, request):
            return _settle(request, storage, source, cluster, lease, writer, spark, reporter)
        count = unfinished.take_away(begun, source, storage)
        reporter.note(
            f"backup {begun.backup_id} was cut off and is not gone on with, since {why}; "
            f"its {count} data files are taken away"
        )
    else:
        done = len(unfinished.stored(begun, source, storage))
        reporter.note(
            f"going on with backup {begun.backup_id}, which was cut off: "
            f"{done} of {len(prepared.plan.tasks)} tasks are done"
        )
        request = begun.ends(request)
        job = copy_job(
            request, storage, source, prepared, next_sequences(reader, source, prepared.plan.scopes)
        )
        totals = _copy(spark, storage, source, prepared, job, reporter)
        result = publish(request, storage, source, prepared, totals, writer, lease, reporter)
    unfinished.end(storage, source)
    return result


def _exists(begun: Begun, request: BackupRequest) -> bool:
    reader = CatalogReader(request.destination, request.catalog)
    return bool(reader.rows("find_backups", prefix=begun.backup_id))


def _close(
    begun: Begun, request: BackupRequest, source: str, storage: Storage, reporter: Reporter
) -> dict[str, Any] | None:
    """Do what is left to do for a backup that exists; what it is, if it was asked for."""
    sidecar.mark(storage, layout.marker_path(source, begun.backup_id, "complete"))
    reporter.note(f"backup {begun.backup_id} is whole; its run was cut off at the very end")
    if not begun.same(request):
        return None
    manifest = sidecar.read_manifest(storage, layout.manifest_path(source, begun.backup_id))
    return _result(begun.prepared, manifest.backup)


def prepare(
    request: BackupRequest, source: str, cluster: Groups, reader: CatalogReader, *, contents: bool = True
) -> Prepared:
    """The next backup of a source, as its cluster and its catalog are now; `contents` as in forks.find."""
    now = datetime.now(UTC)
    backup_id = layout.new_backup_id(now)
    plan = _plan(request, backup_id, source, cluster, reader, contents=contents)
    return Prepared(backup_id, latest_number(reader, source) + 1, micros(now), plan)


def tell(plan: BackupPlan, reporter: Reporter) -> None:
    """Say what a plan found of the source's history, how it chose its parent, what it reads anew."""
    if plan.fork:
        reporter.warning(forks.told(plan.fork))
    for warning in plan.warnings:
        reporter.warning(warning)
    for note in plan.notes:
        reporter.note(note)
    _tell_gaps(plan, reporter)
    _tell_generations(plan, reporter)


def _tell_gaps(plan: BackupPlan, reporter: Reporter) -> None:
    for gap in plan.gaps:
        reporter.warning(
            f"topic {gap.scope}, partition {gap.region}: "
            + (
                f"offsets [{gap.from_position}, {gap.to_position}) were deleted before their backup"
                if gap.reason == "purged"
                else f"the topic was deleted and made again; offsets from {gap.from_position} are unknown"
            )
        )


def _tell_generations(plan: BackupPlan, reporter: Reporter) -> None:
    why = {
        "asked": "as asked",
        "growth": "the backup holds much that the topic has dropped",
        "tombstones": "it was not read for so long that tombstones may be gone",
        "purged": "records were deleted before their backup",
    }
    for scope, generation in plan.anew:
        reporter.note(
            f"topic {scope} begins generation {generation.number}: {why[generation.anew or 'asked']}"
        )


def tell_missed_tombstones(plan: BackupPlan, reporter: Reporter) -> None:
    """Warn, when reading has ended, of compacted topics that were unread for too long."""
    for scope in plan.missed_tombstones(micros(datetime.now(UTC)) // 1000):
        reporter.warning(
            f"topic {scope}: it was not read to its end within its delete.retention.ms, so a deleted key may "
            "come back in a restore. The next backup reads the topic from its start; back it up more often, "
            "or raise the setting"
        )


def copy_job(
    request: BackupRequest,
    storage: Storage,
    source: str,
    prepared: Prepared,
    sequences: Mapping[tuple[str, str], int],
    *,
    report: bool = True,
) -> CopyJob:
    """What the tasks of a prepared backup do; `sequences`: of next_sequences; `report`: they tell how far."""
    from lakebackup_jobs.topics.tasks import copy as copy_task

    plan = prepared.plan
    return copy_task.CopyJob(
        destination_uri=storage.uri,
        destination=destination_id(storage),
        source=source,
        backup_id=prepared.backup_id,
        number=prepared.number,
        level=plan.level,
        parent=plan.parent.backup_id if plan.parent else None,
        client=dict(request.kafka),
        isolation=request.isolation,
        codec=request.codec,
        compression_level=request.compression_level,
        target_bytes=request.target_bytes,
        tasks=plan.tasks,
        sequences=sequences,
        report=report,
        rolls=_rolls(plan, request.roll_ms),
    )


def _rolls(plan: BackupPlan, asked: int | None) -> dict[str, int]:
    """For each topic whose files are closed by time: after how many ms."""
    spans = {scope.scope: roll_ms(topic_settings.in_force(scope.settings), asked) for scope in plan.scopes}
    return {topic: span for topic, span in spans.items() if span is not None}


def _copy(
    spark: SparkSession, storage: Storage, source: str, prepared: Prepared, job: CopyJob, reporter: Reporter
) -> Totals:
    from lakebackup_jobs.lifecycle.task_totals import OUTCOME

    reporter.start(prepared.plan.offsets, None, "backup")
    totals = Totals()
    count = len(prepared.plan.tasks)
    if not count:
        return totals
    board = TaskBoard(storage, layout.backup_folder(source, prepared.backup_id))
    with board.watched(reporter.update), task_errors():
        # One row a task: the rows of the files stay in the parts.
        rows = spark.range(0, count, 1, count).mapInArrow(job, OUTCOME).collect()
    totals.add(rows)
    reporter.update(totals.entries, totals.bytes)
    return totals


def _decode(
    request: BackupRequest,
    storage: Storage,
    source: str,
    prepared: Prepared,
    writer: CatalogWriter,
    reporter: Reporter,
) -> None:
    """Write the rows that are read out of the new data files: group commits and schemas."""
    from lakebackup_jobs.topics.tasks.decode import decode_backup

    parts: dict[str, list[str]] = {}
    for task, splits in enumerate(prepared.plan.tasks):
        for scope in {split.scope for split in splits}:
            parts.setdefault(scope, []).append(layout.parts_path(source, prepared.backup_id, task))
    root = (destination_id(storage), storage.uri)
    if not decode_backup(writer, prepared.backup_id, root, parts, request.schema_topics):
        return
    reader = CatalogReader(request.destination, request.catalog)
    for row in reader.rows("decode_problems", backup_id=prepared.backup_id):
        reporter.warning(
            f"topic {row['scope']}: {row['records']} records are kept but could not be decoded; the first, "
            f"partition {row['region']}, offset {row['position']}: {row['problem']}"
        )


def publish(
    request: BackupRequest,
    storage: Storage,
    source: str,
    prepared: Prepared,
    totals: Totals,
    writer: CatalogWriter,
    lease: Lease,
    reporter: Reporter,
) -> dict[str, Any]:
    """Make a backup exist whose data files and parts are there; again and again, it exists once."""
    plan = prepared.plan
    tell_missed_tombstones(plan, reporter)
    _decode(request, storage, source, prepared, writer, reporter)
    backup = _row(request, source, prepared, totals, destination_id(storage))
    manifest = sidecar.Manifest(
        backup=backup,
        positions=plan.positions,
        scopes=plan.scopes,
        gaps=plan.gaps,
        groups=plan.groups,
        parts=len(plan.tasks),
    )
    lease.renew()
    sidecar.write_manifest(storage, layout.manifest_path(source, prepared.backup_id), manifest)
    writer.commit_backup(storage, manifest, held=lease)
    sidecar.mark(storage, layout.marker_path(source, prepared.backup_id, "complete"))
    return _result(prepared, backup)


def _result(prepared: Prepared, backup: Backup) -> dict[str, Any]:
    """What a person wants to know of a backup that exists."""
    return {
        "backup_id": prepared.backup_id,
        **_summary(prepared.plan, backup.source),
        "files": backup.files,
        "bytes": backup.bytes,
        "entries": backup.entries,
        "seconds": round((backup.finished_at - backup.started_at) / 1e6, 3),
    }


def _row(request: BackupRequest, source: str, prepared: Prepared, totals: Totals, destination: str) -> Backup:
    plan, parent = prepared.plan, prepared.plan.parent
    return Backup(
        backup_id=prepared.backup_id,
        number=prepared.number,
        source=source,
        destination=destination,
        kind=plan.kind,
        level=plan.level,
        parent=parent.backup_id if parent else None,
        base=parent.base if parent else prepared.backup_id,
        chain_position=parent.chain_position + 1 if parent else 0,
        place=prepared.number,
        parent_place=parent.place if parent else None,
        branch=plan.branch,
        start_ts=parent.end_ts if parent else None,
        end_ts=plan.end_ts,
        started_at=prepared.started_at,
        **totals.columns(),
        isolation=request.isolation,
        codec=request.codec,
        note=request.note,
    )


def _plan(
    request: BackupRequest,
    backup_id: str,
    source: str,
    cluster: Groups,
    reader: CatalogReader | None,
    *,
    contents: bool = True,
) -> BackupPlan:
    names, denied = _topics(request, cluster)
    topics = cluster.describe(names)
    # Before the end positions, so that no group stands beyond what is backed up.
    groups, left_out = _groups(request, backup_id, source, cluster, topics)
    end_ts, regions = cluster.positions(topics, request.isolation)
    choice, covered, fork = Choice(None, None, "differential", 1), [], None
    if reader:
        require_own(source, [row["source_kind"] for row in reader.rows("source_kinds", source=source)])
        fork = forks.find(reader, source, regions, request.kafka, contents=contents)
        if fork:
            forks.check(fork, request.on_fork)
            reader = forks.without(reader, fork)
        choice = choose(
            reader, source, mode=request.mode, level=request.level, parent=request.parent, log=request.log
        )
        covered = covered_by(reader, source, choice.parent)
        if request.mode != "full" and falls_short(regions, covered):
            choice = choice.instead()
            covered = covered_by(reader, source, choice.parent)
        choice = replace(choice, branch=forks.branch(reader, choice))
    plan = plan_backup(
        backup_id=backup_id,
        source=source,
        topics=topics,
        regions=regions,
        end_ts=end_ts,
        parent=choice.parent,
        covered=covered,
        full=request.mode == "full",
        on_gap=request.on_gap,
        parallelism=request.parallelism,
        increment=choice.increment,
        level=choice.level,
        branch=choice.branch,
        held=_held(reader, source, choice.parent),
        new_generation=request.new_generation,
        growth=request.growth,
    )
    return replace(
        plan,
        groups=groups,
        left_out=denied + left_out,
        notes=choice.notes,
        warnings=choice.warnings,
        fork=fork,
    )


def _topics(request: BackupRequest, cluster: Cluster) -> tuple[list[str], tuple[str, ...]]:
    """The topics to back up, and what there is to say of those that this user may not read."""
    existing = cluster.topic_names()
    # A topic that may not be seen is not listed, as one that is not there.
    denied = cluster.denied(set(request.topics) - set(existing))
    named = [name for name in request.topics if name not in denied]
    names = (
        patterns.select(named, request.patterns, existing) if named or request.patterns or not denied else []
    )
    denied |= cluster.denied(names)
    told = tuple(f"topic {name} is left out: {why}" for name, why in sorted(denied.items()))
    names = [name for name in names if name not in denied]
    if denied and not names:
        raise EnvironmentProblem(
            f"There is nothing that this user may back up: {'; '.join(told)}.",
            hint="Give this user the rights Describe, DescribeConfigs and Read on the topics.",
        )
    if request.groups == "all" and OFFSETS_TOPIC in existing and not cluster.denied([OFFSETS_TOPIC]):
        names = sorted({*names, OFFSETS_TOPIC})
    return names, told


def _groups(
    request: BackupRequest, backup_id: str, source: str, cluster: Groups, topics: Sequence[TopicState]
) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """Rows of the groups of some topics, and what there is to say of groups that cannot be read."""
    if request.groups == "none":
        return (), ()
    ts = time.time_ns() // 1_000_000
    read = cluster.read()
    rows = group_rows(
        backup_id=backup_id,
        source=source,
        ts=ts,
        read=read,
        topics=topics,
        existing=cluster.topic_names(),
    )
    return rows, tuple(
        f"consumer group {name} is not saved: {why}" for name, why in sorted(read.denied.items())
    )


def _held(reader: CatalogReader | None, source: str, parent: Parent | None) -> list[Held]:
    if reader is None:
        return []
    base, link = (parent.base, parent.link) if parent else (None, None)
    rows = reader.rows("generations", source=source, base=base, link=link)
    return [Held(**row) for row in rows]


def _summary(plan: BackupPlan, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "kind": plan.kind,
        "level": plan.level,
        "parent": plan.parent.backup_id if plan.parent else None,
        "topics": len(plan.scopes),
        "partitions": len(plan.positions),
        "offsets": plan.offsets,
        "end_ts": plan.end_ts,
        "gaps": len(plan.gaps),
        "fork": forks.describe(plan.fork) if plan.fork else None,
        "groups": len({row.group_id for row in plan.groups}),
        "generations": [
            {"topic": scope, "generation": g.number, "because": g.anew} for scope, g in plan.anew
        ],
        "left_out": list(plan.left_out),
    }
