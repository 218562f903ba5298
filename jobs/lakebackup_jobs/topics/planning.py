"""Plan the next backup of a source's topics, from the present state of its cluster and its catalog."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from lakebackup.errors import EnvironmentProblem
from lakebackup.plan.parents import Choice, choose, covered_by, falls_short
from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup.plan.topics.backup import BackupPlan, Prepared, plan_backup
from lakebackup.plan.topics.generations import read_generations
from lakebackup.rows.base import TOPICS
from lakebackup.rows.topics import Group
from lakebackup.rules import patterns
from lakebackup.rules.kinds import require_kind_of
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.admin.groups import Groups, group_rows
from lakebackup_jobs.kafka.client.epochs import record_times
from lakebackup_jobs.kafka.format.offsets_log import OFFSETS_TOPIC, isolation_of
from lakebackup_jobs.lifecycle.tasks.numbers import next_backup
from lakebackup_jobs.topics import forks
from lakebackup_jobs.topics.request import BackupRequest


def prepare(
    request: BackupRequest, source: str, cluster: Groups, reader: CatalogReader, *, contents: bool = True
) -> Prepared:
    """The plan of the next backup, with its id and number. `contents`: see forks.find."""
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
    topics, topic_warnings = _topics(
        request, cluster, _earlier_names(reader, "topics_of_source", "scope", source)
    )
    # The groups are read before the end positions, so that no group's offset is beyond what is backed up.
    earlier_groups = _earlier_names(reader, "groups_of_source", "group_id", source)
    groups, group_warnings = _groups(request, backup_id, source, cluster, topics, earlier_groups)
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
        histories=read_generations(reader, source, choice.parent, topics) if reader else (),
        new_generation=request.new_generation,
        growth=request.growth,
    )
    return replace(
        plan,
        groups=groups,
        left_out=topic_warnings + group_warnings,
        notes=choice.notes,
        warnings=choice.warnings,
        fork=fork,
    )


def _with_open_since(
    request: BackupRequest, end_ts: int, regions: Sequence[RegionState]
) -> list[RegionState]:
    """The partitions, with `open_since` where an open transaction hides records."""
    hidden = [
        r for r in regions if r.end < r.high and isolation_of(r.scope, request.isolation) == "read_committed"
    ]
    if not hidden:
        return list(regions)
    times = record_times(request.kafka, hidden)
    present_ms = time.time_ns() // 1_000_000

    def open_since(region: RegionState) -> int | None:
        ts = times.get(region, -1)
        if end_ts < ts <= present_ms:  # written after the backup's end time, so nothing is missing
            return None
        return ts if 0 <= ts <= present_ms else -1

    return [replace(r, open_since=open_since(r)) if r in hidden else r for r in regions]


def _earlier_names(reader: CatalogReader | None, query: str, column: str, source: str) -> set[str]:
    """The names in `column` of a query over the backups of a source; without a catalog, none."""
    return {str(row[column]) for row in reader.rows(query, source=source)} if reader else set()


def _topics(
    request: BackupRequest, cluster: Cluster, earlier: Collection[str]
) -> tuple[list[TopicState], tuple[str, ...]]:
    """The topics to back up, sorted, and a warning for each topic that this user may not read.

    `earlier`: the topics in earlier backups. This user may have lost the right to see some of them.
    """
    existing = cluster.topic_names()
    # The broker does not list a topic that this user may not see, as if it did not exist.
    denied = cluster.denied(set(request.topics) - set(existing))
    requested_names = [name for name in request.topics if name not in denied]
    names = (
        patterns.select(requested_names, request.patterns, existing)
        if requested_names or request.patterns or not denied
        else []
    )
    offsets_topics = {OFFSETS_TOPIC} if request.groups == "all" else set()
    topics, unreadable = cluster.describe_readable({*names, *(offsets_topics & set(existing))})
    unreadable |= cluster.denied(offsets_topics - set(existing))
    denied |= {name: unreadable[name] for name in names if name in unreadable}
    expressions = [patterns.compile_pattern(text, kind=patterns.TOPIC) for text in request.patterns]
    missing_names = {
        name
        for name in set(earlier) - set(existing)
        if not patterns.is_internal(name) and any(e.fullmatch(name) for e in expressions)
    }
    denied |= {
        name: f"an earlier backup has it, and {reason}; or it was deleted"
        for name, reason in cluster.denied(missing_names).items()
    }
    warnings = tuple(f"topic {name} is left out: {reason}" for name, reason in sorted(denied.items()))
    if denied and denied.keys() >= set(names):
        raise EnvironmentProblem(
            f"There is nothing that this user may back up: {'; '.join(warnings)}.",
            hint="Give this user the rights Describe, DescribeConfigs and Read on the topics.",
        )
    warnings += tuple(
        f"topic {name} is left out: {unreadable[name]}"
        for name in offsets_topics - set(names)
        if name in unreadable
    )
    return topics, warnings


def _groups(
    request: BackupRequest,
    backup_id: str,
    source: str,
    cluster: Groups,
    topics: Sequence[TopicState],
    earlier: Collection[str],
) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """The rows of the groups of some topics, and a warning for each group that cannot be read.

    `earlier`: the groups in earlier backups. This user may have lost the right to see some of them.
    """
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
        *(f"consumer group {name} is not saved: {reason}" for name, reason in sorted(read.denied.items())),
        *(f"group {name} is not saved: {share}" for name in read.share_groups),
        *(
            [f"consumer groups are not saved that this user may not describe: {read.hidden}"]
            if read.hidden
            else []
        ),
    )
