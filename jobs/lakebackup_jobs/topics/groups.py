"""Set the offsets of consumer groups in restored topics.

The new offsets are a join of the groups' saved offsets with the translations that restores recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pyspark.sql import SparkSession

from lakebackup.errors import EnvironmentProblem, Incomplete, NotFound, UsageProblem
from lakebackup.plan.topics.groups import MEANINGS, Committed, GroupPlan, choose_targets, plan_groups
from lakebackup.plan.topics.request import only_source, target_list
from lakebackup.requests import Request
from lakebackup.rules import patterns
from lakebackup.rules.times import format_ts
from lakebackup.store.behind import current_catalog
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.admin.groups import Groups
from lakebackup_jobs.kafka.admin.rights import Rights, lacks, require
from lakebackup_jobs.lifecycle.identity import audit_entry
from lakebackup_jobs.lifecycle.progress import Reporter


@dataclass(frozen=True, slots=True)
class GroupsRequest(Request):
    """The groups to move, and how. `kafka`: librdkafka properties; they may hold secrets.

    `at_ts`: the instant (ms) whose offsets the groups get; None: the offsets in the topics' newest backup.
    `from_log`: also use offsets that `__consumer_offsets` held before they were erased.
    """

    target: str
    groups: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    source: str | None = None
    maps: Mapping[str, str] = field(default_factory=dict)
    group_maps: Mapping[str, str] = field(default_factory=dict)
    at_ts: int | None = None
    from_log: bool = False
    force: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)


def run(request: GroupsRequest, *, reporter: Reporter) -> dict[str, Any]:
    """Move the groups. Returns the outcome for each partition of each group.

    Raises NotFound (no such group or topic), UsageProblem, EnvironmentProblem, Incomplete (some groups could
    not be moved; the others are moved).
    """
    result, plan = move(request, reporter)
    if plan.failed and not request.dry_run:
        raise short_of(plan).with_result(result)
    return result


def move(request: GroupsRequest, reporter: Reporter) -> tuple[dict[str, Any], GroupPlan]:
    """Like `run`, but groups that cannot be moved are no error. Returns the plan too."""
    if not request.target.startswith("kafka://"):
        raise UsageProblem("Groups are put into a Kafka cluster.", hint="Give --to kafka://HOST:PORT.")
    reader = current_catalog(request.destination, request.catalog)
    servers = request.target.removeprefix("kafka://")
    client = {**request.kafka, "bootstrap.servers": servers}
    target = Groups(client)
    source = only_source(reader, request.source)
    _warn_of_unsaved(request, reader, source, reporter)
    plan = _plan(request, reader, source, target)
    missing = Rights(client).of_groups(
        {move.target_group for move, _ in plan.offsets_to_set},
        {offset.scope for _, offset in plan.offsets_to_set},
    )
    if missing and request.dry_run:
        return _result(request, plan) | {"refused_because": lacks(missing)}, plan
    require(missing, outcome="No offset is committed")
    if not request.dry_run and plan.offsets_to_set:
        plan = _commit_offsets(plan, target)
        _audit(request, plan, reporter)
    return _result(request, plan), plan


def _warn_of_unsaved(request: GroupsRequest, reader: CatalogReader, source: str, reporter: Reporter) -> None:
    """Warn of groups that the request names, but whose positions no backup holds."""
    expressions = [patterns.compile_pattern(text, kind=patterns.GROUP) for text in request.patterns]
    for row in reader.rows("unsaved_groups", source=source):
        name, protocol = row["group_id"], row["protocol"]
        if name in request.groups or any(expression.fullmatch(name) for expression in expressions):
            reporter.warning(
                f"group {name} is not restored: backups hold no position of a {protocol} group. Set where it "
                "starts in the target before its members do"
            )


def _plan(request: GroupsRequest, reader: CatalogReader, source: str, target: Groups) -> GroupPlan:
    if request.at_ts is None and not request.from_log:
        reader = reader.with_query("wanted", "groups_of_points", source=source)
    else:
        reader = reader.with_query(
            "wanted", "group_offsets_at", source=source, ts=request.at_ts, ignore_erased=request.from_log
        )
    cluster = target.cluster_id()
    restored = reader.rows("restored_into", source=source, cluster=cluster)
    existing = set(target.topic_names())
    states = target.describe({row["target_scope"] for row in restored} & existing)
    target_topics, unclear = choose_targets(
        restored, {state.scope: state.epoch for state in states}, request.maps
    )
    rows = reader.rows("group_moves", source=source, cluster=cluster, targets=target_list(target_topics))
    saved_groups = {row["group_id"] for row in rows}
    if not saved_groups and not request.groups:
        raise NotFound(
            "The backups hold no position of a consumer group in these topics.",
            hint="They were taken with --groups none or by a user without the right Describe on the groups, "
            "or no group had committed there.",
        )
    group_ids = patterns.select(request.groups, request.patterns, saved_groups, kind=patterns.GROUP)
    names = patterns.target_names(group_ids, request.group_maps, kind=patterns.GROUP)
    for row in rows:
        if row["group_id"] in names and row["scope"] in unclear:
            raise unclear[row["scope"]]
    target_groups = target.read(set(names.values()) & set(target.names()))
    if target_groups.denied:
        group, reason = next(iter(sorted(target_groups.denied.items())))
        raise EnvironmentProblem(
            f"Consumer group {group} of the target cannot be read: {reason}",
            hint="Give this user the right to describe and read consumer groups.",
        )
    return plan_groups(
        rows, names, {group.group_id: group for group in target_groups.groups}, force=request.force
    )


def _commit_offsets(plan: GroupPlan, target: Groups) -> GroupPlan:
    """Commit the planned offsets. Groups that got members meanwhile do not change; the plan says so."""
    offsets: dict[str, list[Committed]] = {}
    for m, offset in plan.offsets_to_set:
        offsets.setdefault(m.target_group, []).append(offset)
    active = target.alter(offsets)
    blocked = {m for m, _ in plan.offsets_to_set if m.target_group in active}
    return GroupPlan(tuple(replace(m, outcome="active") if m in blocked else m for m in plan.moves))


def _audit(request: GroupsRequest, plan: GroupPlan, reporter: Reporter) -> None:
    # The audit log is written without Spark: to start a JVM would take longer than the whole command.
    writer = CatalogWriter(cast("SparkSession", None), request.destination, request.catalog)
    by_group: dict[str, list[str]] = {}
    for m, offset in plan.offsets_to_set:
        by_group.setdefault(m.target_group, []).append(
            f"{m.scope}[{m.region}] {m.position} -> {offset.scope}[{offset.region}] {offset.position}"
        )
    detail = {"outcomes": plan.counts(), "groups": by_group}
    entry = audit_entry("restore groups", request.target, detail)
    try:
        writer.append_audit(entry)
    except EnvironmentProblem as error:  # the groups are moved, so the command has not failed
        reporter.warning(f"this run could not be recorded in the catalog: {error.message}")


def _result(request: GroupsRequest, plan: GroupPlan) -> dict[str, Any]:
    return {
        **({"dry_run": True} if request.dry_run else {}),
        "at_time": format_ts(request.at_ts) if request.at_ts is not None else None,
        "outcomes": plan.counts(),
        "meaning": {outcome: MEANINGS[outcome] for outcome in sorted(plan.counts())},
        "groups": [
            {
                "group": m.group_id,
                "topic": m.scope,
                "partition": int(m.region),
                "position": m.position,
                "outcome": m.outcome,
                "offsets": m.offsets,
                "target_group": m.target_group,
                "target_topic": m.target_offset.scope if m.target_offset else None,
                "target_partition": int(m.target_offset.region) if m.target_offset else None,
                "target_position": m.target_offset.position if m.target_offset else None,
            }
            for m in plan.moves
        ],
    }


def short_of(plan: GroupPlan) -> Incomplete:
    """The error that says which groups could not be moved."""
    lines = [f"  {m.target_group}, {m.scope}[{m.region}]: {MEANINGS[m.outcome]}" for m in plan.failed[:10]]
    remainder = f"\n  and {len(plan.failed) - 10} more" if len(plan.failed) > 10 else ""
    return Incomplete(
        "Groups were left alone:\n" + "\n".join(lines) + remainder,
        hint="Stop their consumers and run `lakebackup restore groups` again; what was moved stays.",
    )
