"""Delete backups that no policy keeps, and files that no restore point needs any more.

The steps of a prune:

1. Write the plan as rows beside the data.
2. Prove that every restore point that stays keeps the files that it needs.
3. Write `prune.json`. From then on the prune exists, and the next run resumes it after an interruption.
4. Write floors, the backups' new states and removals into the catalog. From then on the files do not count.
5. Write the audit entry.
6. Delete the objects, those of the newest backups first.
7. Delete the data keys of deleted backups that no stored file needs any more.
8. Write `done`.

The manifests and parts of deleted backups stay as proof.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import groupby
from operator import attrgetter
from shlex import quote
from typing import Any

from pyspark.sql import SparkSession

from lakebackup.errors import Busy, Refused, UsageProblem
from lakebackup.plan.topics.request import only_source
from lakebackup.plan.upkeep.prune import (
    Cut,
    HeldPartition,
    ImportedPrune,
    Leaving,
    Portion,
    PrunePlan,
    QueuesPrune,
    SnapshotsPrune,
    TopicsPrune,
    plan_chains,
    plan_expired,
    plan_imported,
    plan_prune,
    window_of,
    with_leaving,
)
from lakebackup.requests import Request
from lakebackup.rows.base import ARCHIVE, CHANGES, QUEUES, SNAPSHOT
from lakebackup.rules import layout
from lakebackup.rules.kinds import KINDS, only_one
from lakebackup.rules.retention import AS_SET, Limits, Rule
from lakebackup.rules.stored_json import object_of
from lakebackup.rules.times import format_ts
from lakebackup.sql_engine import EngineChoice
from lakebackup.storage import Storage
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import is_held
from lakebackup.store.reader import CatalogReader
from lakebackup.store.tombstones import Prune
from lakebackup_jobs.lifecycle.deletion.executor import Deletion
from lakebackup_jobs.lifecycle.planning import plan_on_engine
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.tasks.plan_shares import regions_of
from lakebackup_jobs.lifecycle.workspace import Workspace

# An unfinished restore protects its files for this long after its start.
HOLD_MS = 7 * 86_400_000
# If the clocks of storage and machine differ by more than this, ages cannot be judged.
SKEW_MS = 60_000
# Kinds of which only whole backups can be deleted, and why.
_WHOLE_ONLY_REASONS = {name: kind.not_split_reason for name, kind in KINDS.items() if kind.not_split_reason}


@dataclass(frozen=True, slots=True)
class PruneRequest(Request):
    """The flags of a prune.

    Without `topics` and `patterns`, it covers all topics and also deletes whole backups. Without `delete`, it
    is a preview. `days` is a recovery window that replaces the policy's window and redundancy. With `future`,
    it deletes the backups from the future and those that depend on them, instead of those that the policy
    does not keep.
    """

    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    source: str | None = None
    limits: Limits = AS_SET
    days: int | None = None
    future: bool = False
    delete: bool = False
    engine: EngineChoice = "auto"


def run(request: PruneRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Plan the prune, and with `delete` carry it out. Returns the summary.

    Raises NotFound (no catalog, no such topic), UsageProblem (several sources, topics of an archive), Busy (a
    backup or another prune is at work on the source, or a restore is just beginning), Refused (the proof
    failed, the clocks disagree, or nothing could be restored afterwards: nothing was deleted), Incomplete
    (some objects stay for now: a restore that began meanwhile needs them, or they could not be deleted).
    """
    reader = current_catalog(request.destination, request.catalog)
    source = _source(request, reader)
    work = Workspace(request, source, reporter, spark)
    if not request.delete:
        plan = _planned(request, work, spark)
        return {"deleted": False, **_summary(plan)}
    with work.running("prune") as lease:
        _require_clocks(work.storage, source)

        def spared() -> frozenset[tuple[str, str, str]]:
            return frozenset(
                (region.scope, region.epoch, region.region) for region in _partitions_in_use(work)
            )

        deletion = Deletion(work, "prune", lease, spared)
        return deletion.run(lambda: _record(request, deletion))


def _source(request: PruneRequest, reader: CatalogReader) -> str:
    """Return the source to prune. Raises UsageProblem if the request names topics or limits, and only whole
    backups of the source can be deleted, since it has no topics or cannot be restored at all."""
    known_sources = {row["source"] for row in reader.rows("sources_known")}
    source = request.source or (known_sources.pop() if len(known_sources) == 1 else None)
    if source is None:
        restorable = sorted({row["source"] for row in reader.rows("list_sources")})
        if known_sources and not restorable:
            raise UsageProblem(
                "The catalog holds several sources, none of which can be restored: "
                f"{', '.join(sorted(known_sources))}.",
                hint="Choose one with --source NAME. Of another program's backups, this is only a report.",
            )
        source = only_one(restorable, "restorable backup")
    kinds = _kinds(reader, source)
    if CHANGES in kinds:
        raise UsageProblem(
            f"{source} is a change feed: its log goes from its beginning on.",
            hint=f"Cut it at a time: lakebackup log truncate {quote(source)} --to-time …",
        )
    only_whole = bool(kinds) and kinds <= _WHOLE_ONLY_REASONS.keys()
    if not only_whole and (request.delete or not _imported(kinds)):
        return only_source(reader, source)  # refuses to delete the backups of another program
    limited = any(astuple(request.limits))
    if request.topics or request.patterns or (limited and ARCHIVE not in kinds):
        reasons = " and ".join(
            _WHOLE_ONLY_REASONS.get(kind) or f"was imported from {kind}" for kind in sorted(kinds)
        )
        raise UsageProblem(
            f"{source} {reasons}.",
            hint="Its backups go whole, by policy or by a number of days: lakebackup prune 14.",
        )
    return source


def _imported(kinds: set[str]) -> bool:
    """Return whether another program makes the backups of a source."""
    return bool(kinds) and not kinds & KINDS.keys()


def _kinds(reader: CatalogReader, source: str) -> set[str]:
    return {row["source_kind"] for row in reader.rows("source_kinds", source=source)}


def _record(request: PruneRequest, deletion: Deletion) -> tuple[dict[str, Any], Prune | None]:
    """Plan and record the prune. Return its summary, and the prune; None if nothing can be deleted."""
    plan = _planned(request, deletion.workspace, deletion.workspace.session)
    options = {
        "topics": request.topics,
        "patterns": request.patterns,
        **asdict(request.limits),
        "days": request.days,
        "future": request.future,
    }
    return _summary(plan), deletion.record(plan, options)


def _require_clocks(storage: Storage, source: str) -> None:
    """Raise Refused when this machine's clock and the storage's disagree, since ages cannot be judged
    then."""
    now_ms = time.time_ns() // 1_000_000
    # This run has just written its lease, so the newest object there shows the storage's time.
    storage_ms = max(entry.modified_ms for entry in storage.list(layout.lease_folder(f"source-{source}")))
    if abs(storage_ms - now_ms) > SKEW_MS:
        raise Refused(
            f"The storage's clock says {format_ts(storage_ms)}, and this machine's {format_ts(now_ms)}.",
            hint="Nothing was deleted. Set the clocks right.",
        )


def _planned(request: PruneRequest, work: Workspace, spark: SparkSession | None) -> PrunePlan:
    source, regions_in_use = work.source, _partitions_in_use(work)

    def plan(reader: CatalogReader) -> PrunePlan:
        backups, protected_ids = choose_backups(request, source, reader)
        if backups and regions_in_use:
            work.reporter.note(
                f"{len(backups)} obsolete backups are kept for now: restores of {source} have not finished"
            )
            backups = ()
        return plan_for(request, source, regions_in_use, reader, backups, protected_ids)

    reader = CatalogReader(request.destination, request.catalog)
    return plan_on_engine(reader, request, spark, work.reporter, plan)


def choose_backups(
    request: PruneRequest, source: str, reader: CatalogReader
) -> tuple[tuple[Leaving, ...], tuple[str, ...]]:
    """Return the backups to delete whole, each before those that it depends on, and the ids of the backups
    that a policy or a person keeps for their own restore points.

    Raises Refused if nothing could be restored without the backups from the future.
    """
    if request.days is not None:
        policy = reader.first_row("policy_in_force", source=source)
        window = window_of(source, now_ms=time.time_ns() // 1_000_000, days=request.days, policy=policy)
        reader = reader.with_rows("policies", window)
    protected_ids = tuple(row["backup_id"] for row in reader.rows("prune_kept", source=source))
    if request.future:
        return _judge_future(source, reader), protected_ids
    if request.topics or request.patterns:
        return (), protected_ids
    query = "prune_imported" if _imported(_kinds(reader, source)) else "prune_backups"
    return tuple(Leaving(**row) for row in reader.rows(query, source=source)), protected_ids


def _judge_future(source: str, reader: CatalogReader) -> tuple[Leaving, ...]:
    """Return the backups from the future and those that depend on them.

    Raises Refused if no other backup could be restored.
    """
    backups = tuple(Leaving(**row) for row in reader.rows("prune_future", source=source))
    (remaining,) = with_leaving(reader, backups).rows("prune_rest", source=source)
    if backups and not remaining["backups"]:
        raise Refused(
            f"Without its backups from the future, and those that depend on them, nothing of {source} could "
            "be restored.",
            hint="Nothing was deleted. Set this machine's clock if it is behind; else take a full backup "
            "first.",
        )
    return backups


def plan_for(
    request: PruneRequest,
    source: str,
    regions_in_use: Sequence[HeldPartition],
    reader: CatalogReader,
    backups: Sequence[Leaving] = (),
    protected_ids: Sequence[str] = (),
) -> PrunePlan:
    """Plan what can be deleted of a source now, by its kind.

    `regions_in_use` are the partitions that unfinished restores read, `backups` the backups to delete whole,
    `protected_ids` the ids of backups that are kept for their own restore points.
    """
    kinds = _kinds(reader, source)
    if kinds == {SNAPSHOT}:
        return plan_expired(reader, source, backups)
    if kinds == {QUEUES}:
        return plan_chains(reader, source, backups)
    if _imported(kinds):
        return plan_imported(source, backups)
    return plan_prune(
        reader,
        source,
        backups=backups,
        protected_ids=protected_ids,
        names=request.topics,
        expressions=request.patterns,
        now_ms=time.time_ns() // 1_000_000,
        limits=request.limits,
        held_partitions=regions_in_use,
        backups_only=request.future,
    )


def _partitions_in_use(work: Workspace) -> list[HeldPartition]:
    """Return the partitions that unfinished restores read. Raises Busy while one is still writing its
    plan."""
    held_regions: list[HeldPartition] = []
    storage = work.storage
    for row in work.reader().rows("prune_restores", source=work.source):
        digest = object_of(row["detail"]).get("digest")
        running = digest is not None and is_held(storage, f"restore-{digest}")
        if not running and row["at"] // 1000 < time.time_ns() // 1_000_000 - HOLD_MS:
            continue
        regions = regions_of(storage, f"restores/{row['restore_id']}/")
        if regions is None and running:
            raise Busy(
                f"Restore {row['restore_id']} is just beginning, or reads a snapshot, or writes an archive; "
                "which files it needs is not known.",
                hint="Run the prune again when it is done.",
            )
        held_regions += [HeldPartition(*region, row["restore_id"]) for region in regions or ()]
    return held_regions


def _summary(plan: PrunePlan) -> dict[str, Any]:
    return {
        "source": plan.source,
        "files": plan.gone_files,
        "bytes": plan.gone_bytes,
        "of_files": plan.files,
        "of_bytes": plan.bytes,
        "backups": [asdict(backup) for backup in plan.backups[:_MAX_ROWS]],
        "of_backups": len(plan.backups),
        **_EMPTY_SUMMARY,
        **(_topics_summary(plan) if isinstance(plan, TopicsPrune) else {}),
        **(_tables_summary(plan) if isinstance(plan, SnapshotsPrune) else {}),
        **({"released": list(plan.released)} if isinstance(plan, QueuesPrune) else {}),
        **({"report_only": True} if isinstance(plan, ImportedPrune) else {}),
    }


# The keys that every summary has, also for sources without topics.
_EMPTY_SUMMARY: dict[str, Any] = {"topics": [], "partitions": [], "held": [], "bound": 0, "left_alone": []}


def _topics_summary(plan: TopicsPrune) -> dict[str, Any]:
    topic = attrgetter("scope", "epoch")
    portions = {key: list(group) for key, group in groupby(sorted(plan.portions, key=topic), topic)}
    rules = {topic(rule): rule for rule in plan.rules}
    return {
        "topics": [_topic_row(rules[key], group) for key, group in portions.items()],
        "partitions": [_partition_row(cut, portions[topic(cut)]) for cut in plan.cuts[:_MAX_ROWS]],
        "held": [asdict(region) for region in plan.held_partitions],
        "bound": len(plan.bound),
        "left_alone": [{"topic": scope, "reason": reason} for scope, reason in plan.skipped_topics],
    }


def _tables_summary(plan: SnapshotsPrune) -> dict[str, Any]:
    """Return the deletions of each table, and the unneeded files that stay because their packs stay."""
    tables = [table for table in plan.expired if table.files]
    return {
        "tables": [
            {"table": table.scope or "(packs)", "files": table.files, "bytes": table.bytes}
            for table in tables[:_MAX_ROWS]
        ],
        "of_tables": len(tables),
        "held_back_files": sum(table.idle for table in plan.expired),
        "held_back_bytes": sum(table.idle_bytes or 0 for table in plan.expired),
    }


_REASONS = ("time", "size", "generation")
# How many backups and partitions a summary has at most; the views `obsolete_backups` and `floors` have all.
_MAX_ROWS = 50


def _topic_row(rule: Rule, portions: Sequence[Portion]) -> dict[str, Any]:
    by_reason = {f"by_{reason}": sum(p.files for p in portions if p.reason == reason) for reason in _REASONS}
    return {
        "topic": rule.scope,
        "epoch": rule.epoch,
        "older_than": format_ts(rule.cutoff_ts) if rule.cutoff_ts is not None else None,
        "keep_bytes": rule.keep_bytes,
        **_sums(portions),
        **by_reason,
    }


def _partition_row(cut: Cut, portions: Sequence[Portion]) -> dict[str, Any]:
    return {
        "topic": cut.scope,
        "partition": cut.region,
        "floor": cut.low_position,
        "generation": cut.generation,
        **_sums([portion for portion in portions if portion.region == cut.region]),
    }


def _sums(portions: Sequence[Portion]) -> dict[str, int]:
    return {"files": sum(p.files for p in portions), "bytes": sum(p.bytes for p in portions)}
