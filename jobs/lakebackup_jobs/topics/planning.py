"""The next backup of a source's topics, as its cluster and its catalog are now."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from lakebackup.errors import EnvironmentProblem
from lakebackup.plan.parents import Choice, choose, covered_by, falls_short
from lakebackup.plan.topics.backup import BackupPlan, Prepared, plan_backup
from lakebackup.plan.topics.generations import read_generations
from lakebackup.rows.base import TOPICS
from lakebackup.rules import patterns
from lakebackup.rules.kinds import require_kind_of
from lakebackup_jobs.kafka.admin.groups import Groups, group_rows
from lakebackup_jobs.kafka.client.epochs import record_times
from lakebackup_jobs.kafka.format.offsets_log import OFFSETS_TOPIC, isolation_of
from lakebackup_jobs.lifecycle.tasks.numbers import next_backup
from lakebackup_jobs.topics import forks

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakebackup.plan.partitions import RegionState, TopicState
    from lakebackup.rows.topics import Group
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.kafka.admin.cluster import Cluster
    from lakebackup_jobs.topics.request import BackupRequest


def prepare(
    request: BackupRequest, source: str, cluster: Groups, reader: CatalogReader, *, contents: bool = True
) -> Prepared:
    """The next backup, with its id and number; `contents` as in forks.find."""
    backup_id, number, started_at = next_backup(reader, source)
    plan = plan_next(request, backup_id, source, cluster, reader, contents=contents)
    return Prepared(backup_id, number, started_at, plan)


def plan_next(
    request: BackupRequest,
    backup_id: str,
    source: str,
    cluster: Groups,
    reader: CatalogReader | None,
    *,
    contents: bool = True,
) -> BackupPlan:
    names, denied = _topics(request, cluster, _earlier(reader, "topics_of_source", "scope", source))
    topics = cluster.describe(names)
    # Before the end positions, so that no group is beyond what is backed up.
    saved_before = _earlier(reader, "groups_of_source", "group_id", source)
    groups, left_out = _groups(request, backup_id, source, cluster, topics, saved_before)
    end_ts, positions = cluster.positions(topics, request.isolation)
    regions = _with_open_since(request, end_ts, positions)
    choice, covered, fork = Choice(None, None, "differential", 1), [], None
    if reader:
        require_kind_of(reader, source, TOPICS)
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
        held=read_generations(reader, source, choice.parent, topics) if reader else (),
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


def _with_open_since(
    request: BackupRequest, end_ts: int, regions: Sequence[RegionState]
) -> list[RegionState]:
    """The partitions, with the time of the first record that an open transaction hides in each."""
    hidden = [
        r for r in regions if r.end < r.high and isolation_of(r.scope, request.isolation) == "read_committed"
    ]
    if not hidden:
        return list(regions)
    times = record_times(request.kafka, hidden)
    present_ms = time.time_ns() // 1_000_000

    def open_since(region: RegionState) -> int | None:
        ts = times.get(region, -1)
        if end_ts < ts <= present_ms:  # written after the instant up to which the backup promises to have all
            return None
        return ts if 0 <= ts <= present_ms else -1

    return [replace(r, open_since=open_since(r)) if r in hidden else r for r in regions]


def _earlier(reader: CatalogReader | None, query: str, column: str, source: str) -> set[str]:
    """What the backups of a source hold by name, as a query lists it."""
    return {str(row[column]) for row in reader.rows(query, source=source)} if reader else set()


def _topics(
    request: BackupRequest, cluster: Cluster, earlier: Collection[str]
) -> tuple[list[str], tuple[str, ...]]:
    """The topics to back up, and a warning for each that this user may not read. `earlier`: the topics that
    backups have, of which rights may hide some by now."""
    existing = cluster.topic_names()
    # A topic that may not be seen is not listed, as one that is not there.
    denied = cluster.denied(set(request.topics) - set(existing))
    named = [name for name in request.topics if name not in denied]
    names = (
        patterns.select(named, request.patterns, existing) if named or request.patterns or not denied else []
    )
    denied |= cluster.denied(names)
    expressions = [patterns.compile_pattern(text, kind=patterns.TOPIC) for text in request.patterns]
    absent = {
        name
        for name in set(earlier) - set(existing)
        if not patterns.is_internal(name) and any(e.fullmatch(name) for e in expressions)
    }
    denied |= {
        name: f"an earlier backup has it, and {why}; or it was deleted"
        for name, why in cluster.denied(absent).items()
    }
    left_out = tuple(f"topic {name} is left out: {why}" for name, why in sorted(denied.items()))
    names = [name for name in names if name not in denied]
    if denied and not names:
        raise EnvironmentProblem(
            f"There is nothing that this user may back up: {'; '.join(left_out)}.",
            hint="Give this user the rights Describe, DescribeConfigs and Read on the topics.",
        )
    if request.groups == "all":
        if why := cluster.denied([OFFSETS_TOPIC]).get(OFFSETS_TOPIC):
            left_out += (f"topic {OFFSETS_TOPIC} is left out: {why}",)
        elif OFFSETS_TOPIC in existing:
            names = sorted({*names, OFFSETS_TOPIC})
    return names, left_out


def _groups(
    request: BackupRequest,
    backup_id: str,
    source: str,
    cluster: Groups,
    topics: Sequence[TopicState],
    earlier: Collection[str],
) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """Rows of the groups of some topics, and a warning for each group that cannot be read. `earlier`: the
    groups that backups have, of which rights may hide some by now."""
    if request.groups == "none":
        return (), ()
    ts = time.time_ns() // 1_000_000
    read = cluster.read(earlier=earlier)
    rows = group_rows(
        backup_id=backup_id,
        source=source,
        ts=ts,
        read=read,
        topics=topics,
        existing=cluster.topic_names(),
    )
    share = (
        "it is a share group, whose position the brokers keep for themselves (or a streams group that has "
        "committed nothing)"
    )
    return rows, (
        *(f"consumer group {name} is not saved: {why}" for name, why in sorted(read.denied.items())),
        *(f"group {name} is not saved: {share}" for name in read.share_groups),
        *(
            [f"consumer groups are not saved that this user may not describe: {read.hidden}"]
            if read.hidden
            else []
        ),
    )
