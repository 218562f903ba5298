"""Delete backups that no policy keeps, and files that no restore point needs any more.

Order: the plan, as rows beside the data; the proof that every restore point that stays keeps what it needs;
`prune.json`, with which the prune exists; floors in the catalog, the backups' states, and removals, with
which the files do not count any more; the audit entry; the objects, newest backups' first; `done`. The next
run resumes a prune that was interrupted. What backups wrote of themselves (manifest, parts) stays as proof.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from shlex import quote
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy, Refused, UsageProblem
from lakebackup.plan.topics.request import only_source
from lakebackup.plan.upkeep.prune import (
    Held,
    ImportedPrune,
    Leaving,
    PrunePlan,
    QueuesPrune,
    SnapshotsPrune,
    TopicsPrune,
    leaving,
    plan_chains,
    plan_expired,
    plan_imported,
    plan_prune,
    window_of,
)
from lakebackup.requests import Request
from lakebackup.rows.base import ARCHIVE, CHANGES, QUEUES, SNAPSHOT
from lakebackup.rules import layout
from lakebackup.rules.kinds import KINDS, only_one
from lakebackup.rules.retention import AS_SET, Limits
from lakebackup.rules.stored_json import object_of
from lakebackup.rules.times import format_ts
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import is_held
from lakebackup.store.reader import CatalogReader
from lakebackup.store.tombstones import Prune
from lakebackup_jobs.lifecycle.deletion.executor import Deletion, Removals
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.planning import planned
from lakebackup_jobs.lifecycle.tasks.splits import regions_of
from lakebackup_jobs.lifecycle.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from lakebackup.plan.upkeep.prune import Cut, Portion
    from lakebackup.rules.retention import Rule
    from lakebackup.sql_engine import EngineChoice
    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.progress import Reporter

# A restore that was interrupted this long ago protects no files any more.
HOLD_MS = 7 * 86_400_000
# Clocks of machines may differ by this much; with more, ages cannot be judged.
SKEW_MS = 60_000
# Kinds whose backups go whole alone, and why nothing smaller of theirs can go.
_WHOLE = {name: kind.whole for name, kind in KINDS.items() if kind.whole}


@dataclass(frozen=True, slots=True)
class PruneRequest(Request):
    """Flags of a prune: no topics means all, and whole backups; without `delete` it is a preview.

    `days`: a recovery window in place of the policy's window and redundancy. `future`: the backups from the
    future and those that depend on them, in place of what the policy does not keep.
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
    """Report what can be deleted, and with `delete` delete it; returns the summary.

    Raises NotFound (no catalog, no such topic), UsageProblem (several sources, topics of an archive), Busy (a
    backup or another prune is at work on the source, a restore is just beginning), Refused (the proof
    failed, the clocks disagree, or nothing could be restored after it: nothing was done), Incomplete (objects
    of a restore that began meanwhile, or that could not be deleted, stay for now).
    """
    reader = current_catalog(request.destination, request.catalog)
    source = _source(request, reader)
    work = Workspace(request, source, reporter, spark)
    if not request.delete:
        made = _planned(request, work, spark)
        return {"deleted": False, **_summary(made)}
    with work.running("prune") as lease:
        _require_clocks(work.storage, source)

        def spared() -> frozenset[tuple[str, str, str]]:
            return frozenset((h.scope, h.epoch, h.region) for h in _held(work))

        deletion = Deletion(work, "prune", lease, spared)
        return deletion.run(lambda: _recorded(request, deletion))


def _source(request: PruneRequest, reader: CatalogReader) -> str:
    """The source to prune; one that cannot be restored at all, or has no topics, loses backups whole."""
    known = {row["source"] for row in reader.rows("sources_known")}
    asked = request.source or (known.pop() if len(known) == 1 else None)
    if asked is None:
        restorable = sorted({row["source"] for row in reader.rows("list_sources")})
        if known and not restorable:
            raise UsageProblem(
                "The catalog holds several sources, none of which can be restored: "
                f"{', '.join(sorted(known))}.",
                hint="Choose one with --source NAME. Of another program's backups, this is only a report.",
            )
        asked = only_one(restorable, "restorable backup")
    kinds = _kinds(reader, asked)
    if CHANGES in kinds:
        raise UsageProblem(
            f"{asked} is a change feed: its log goes from its beginning on.",
            hint=f"Cut it at a time: lakebackup log truncate {quote(asked)} --to-time …",
        )
    whole = bool(kinds) and kinds <= _WHOLE.keys()
    if not whole and (request.delete or not _imported(kinds)):
        return only_source(reader, asked)  # which refuses to delete what another program made
    limited = any(astuple(request.limits))
    if request.topics or request.patterns or (limited and ARCHIVE not in kinds):
        what = " and ".join(_WHOLE.get(kind) or f"was imported from {kind}" for kind in sorted(kinds))
        raise UsageProblem(
            f"{asked} {what}.",
            hint="Its backups go whole, by policy or by a number of days: lakebackup prune 14.",
        )
    return asked


def _imported(kinds: set[str]) -> bool:
    """Whether another program makes the backups of a source."""
    return bool(kinds) and not kinds & KINDS.keys()


def _kinds(reader: CatalogReader, source: str) -> set[str]:
    return {row["source_kind"] for row in reader.rows("source_kinds", source=source)}


def _recorded(request: PruneRequest, deletion: Deletion) -> tuple[dict[str, Any], Prune | None]:
    """What can go, and the prune that was recorded for it; None when nothing can go."""
    work = deletion.workspace
    made = _planned(request, work, work.session)
    if made.is_empty:
        return _summary(made), None
    reader = deletion.reader()
    made.give(reader)
    now = datetime.now(UTC)
    prune_id, at = layout.new_backup_id(now), micros(now)
    prune = Prune(
        prune_id=prune_id,
        at=at,
        actor=holder(),
        source=work.source,
        asked=json.dumps(
            {
                "topics": request.topics,
                "patterns": request.patterns,
                **asdict(request.limits),
                "days": request.days,
                "future": request.future,
            }
        ),
        floors=tuple(made.floors(prune_id, at)),
        chunks=(),
        backups=tuple((backup.backup_id, backup.reason) for backup in made.backups),
    )
    removals = Removals(reader, *made.removals(prune_id, at), made.gone_files)
    return _summary(made), deletion.record(prune, removals, lambda: made.require_proof(reader))


def _require_clocks(storage: Storage, source: str) -> None:
    """Raise Refused when ages cannot be judged: this clock and the storage's disagree."""
    now = time.time_ns() // 1_000_000
    # The lease was written a moment ago.
    stored = max(found.modified_ms for found in storage.list(layout.lease_folder(f"source-{source}")))
    if abs(stored - now) > SKEW_MS:
        raise Refused(
            f"The storage's clock says {format_ts(stored)}, and this machine's {format_ts(now)}.",
            hint="Nothing was deleted. Set the clocks right.",
        )


def _planned(request: PruneRequest, work: Workspace, spark: SparkSession | None) -> PrunePlan:
    source, held = work.source, _held(work)
    reader = CatalogReader(request.destination, request.catalog)

    def judge(reader: CatalogReader) -> tuple[tuple[Leaving, ...], tuple[str, ...]]:
        return judged(request, source, reader.apart())

    backups, kept = planned(reader, request, spark, work.reporter, judge)
    if backups and held:
        work.reporter.note(
            f"{len(backups)} obsolete backups are kept for now: restores of {source} have not finished"
        )
        backups = ()

    def plan(reader: CatalogReader) -> PrunePlan:
        return plan_for(request, source, held, reader, backups, kept)

    return planned(reader, request, spark, work.reporter, plan)


def judged(
    request: PruneRequest, source: str, reader: CatalogReader
) -> tuple[tuple[Leaving, ...], tuple[str, ...]]:
    """The backups that go whole, dependants first, and the ids of those kept for their own sake."""
    if request.days is not None:
        policy = reader.apart().one("policy_in_force", source=source)
        now = time.time_ns() // 1_000_000
        reader.give("policies", window_of(source, now=now, days=request.days, policy=policy))
    kept = tuple(row["backup_id"] for row in reader.rows("prune_kept", source=source))
    if request.future:
        return _from_future(source, reader), kept
    if request.topics or request.patterns:
        return (), kept
    question = "prune_imported" if _imported(_kinds(reader, source)) else "prune_backups"
    return tuple(Leaving(**row) for row in reader.rows(question, source=source)), kept


def _from_future(source: str, reader: CatalogReader) -> tuple[Leaving, ...]:
    """The backups from the future, with those that depend on them. Raises Refused when no other is left."""
    going = tuple(Leaving(**row) for row in reader.rows("prune_future", source=source))
    reader.give("leaving", leaving((backup.backup_id, backup.reason) for backup in going))
    (rest,) = reader.rows("prune_rest", source=source)
    if going and not rest["backups"]:
        raise Refused(
            f"Without its backups from the future, and those that depend on them, nothing of {source} could "
            "be restored.",
            hint="Nothing was deleted. Set this machine's clock if it is behind; else take a full backup "
            "first.",
        )
    return going


def plan_for(
    request: PruneRequest,
    source: str,
    held: Sequence[Held],
    reader: CatalogReader,
    backups: Sequence[Leaving] = (),
    kept: Sequence[str] = (),
) -> PrunePlan:
    """What can go now of a source, by its kind."""
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
        kept=kept,
        names=request.topics,
        expressions=request.patterns,
        now=time.time_ns() // 1_000_000,
        limits=request.limits,
        held=held,
        backups_only=request.future,
    )


def _held(work: Workspace) -> list[Held]:
    """The partitions that unfinished restores read. Raises Busy while one is still writing its plan."""
    found: list[Held] = []
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
        found += [Held(*region, row["restore_id"]) for region in regions or ()]
    return found


def _summary(made: PrunePlan) -> dict[str, Any]:
    return {
        "source": made.source,
        "files": made.gone_files,
        "bytes": made.gone_bytes,
        "of_files": made.files,
        "of_bytes": made.bytes,
        "backups": [asdict(backup) for backup in made.backups[:_SHOWN]],
        "of_backups": len(made.backups),
        **_NOTHING,
        **(_of_topics(made) if isinstance(made, TopicsPrune) else {}),
        **(_of_tables(made) if isinstance(made, SnapshotsPrune) else {}),
        **({"released": list(made.released)} if isinstance(made, QueuesPrune) else {}),
        **({"report_only": True} if isinstance(made, ImportedPrune) else {}),
    }


# Every summary has these, also where there are no topics.
_NOTHING: dict[str, Any] = {"topics": [], "partitions": [], "held": [], "bound": 0, "left_alone": []}


def _of_topics(made: TopicsPrune) -> dict[str, Any]:
    topic = attrgetter("scope", "epoch")
    portions = {key: list(some) for key, some in groupby(sorted(made.portions, key=topic), topic)}
    rules = {topic(rule): rule for rule in made.rules}
    return {
        "topics": [_topic(rules[key], some) for key, some in portions.items()],
        "partitions": [_partition(cut, portions[topic(cut)]) for cut in made.cuts[:_SHOWN]],
        "held": [asdict(h) for h in made.held],
        "bound": len(made.bound),
        "left_alone": [{"topic": scope, "reason": reason} for scope, reason in made.left_alone],
    }


def _of_tables(made: SnapshotsPrune) -> dict[str, Any]:
    """What goes of each table, and what packs hold back that nobody needs."""
    gone = [one for one in made.expired if one.files]
    return {
        "tables": [
            {"table": one.scope or "(packs)", "files": one.files, "bytes": one.bytes} for one in gone[:_SHOWN]
        ],
        "of_tables": len(gone),
        "held_back_files": sum(one.idle for one in made.expired),
        "held_back_bytes": sum(one.idle_bytes or 0 for one in made.expired),
    }


_REASONS = ("time", "size", "generation")
# A terminal shows no more backups and partitions; the views `obsolete_backups` and `floors` have them all.
_SHOWN = 50


def _topic(rule: Rule, portions: Sequence[Portion]) -> dict[str, Any]:
    by_reason = {f"by_{reason}": sum(p.files for p in portions if p.reason == reason) for reason in _REASONS}
    return {
        "topic": rule.scope,
        "epoch": rule.epoch,
        "older_than": format_ts(rule.cutoff_ts) if rule.cutoff_ts is not None else None,
        "keep_bytes": rule.keep_bytes,
        **_sums(portions),
        **by_reason,
    }


def _partition(cut: Cut, portions: Sequence[Portion]) -> dict[str, Any]:
    return {
        "topic": cut.scope,
        "partition": cut.region,
        "floor": cut.low_position,
        "generation": cut.generation,
        **_sums([portion for portion in portions if portion.region == cut.region]),
    }


def _sums(portions: Sequence[Portion]) -> dict[str, int]:
    return {"files": sum(p.files for p in portions), "bytes": sum(p.bytes for p in portions)}
