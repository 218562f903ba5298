"""Let go of backups that no policy keeps, and of files that nobody was promised any more.

Order: the plan, as rows beside the data; the proof that every restore point that stays keeps what it needs;
`prune.json`, with which the prune exists; floors in the catalog, the backups' states, and removals, with
which the files do not count any more; the audit entry; the objects, newest backups' first; `done`. A prune
that was cut off goes on at the next run. What backups wrote of themselves (manifest, parts) stays as proof.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy, Refused, UsageProblem
from lakebackup.plan.topics.request import only_source
from lakebackup.plan.upkeep.prune import (
    Held,
    Leaving,
    PrunePlan,
    QueuesPrune,
    SnapshotsPrune,
    TopicsPrune,
    plan_chains,
    plan_expired,
    plan_prune,
    window_of,
)
from lakebackup.rows.base import ARCHIVE, CHANGES, QUEUES, SNAPSHOT
from lakebackup.rules import layout
from lakebackup.rules.kinds import KINDS
from lakebackup.rules.times import format_ts
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import Lease, is_held
from lakebackup.store.reader import CatalogReader
from lakebackup.store.tombstones import Chunk, Prune
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.deletion.executor import Removing
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.planning import planned
from lakebackup_jobs.lifecycle.tasks.splits import regions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.sql_engine import EngineChoice
    from lakebackup.sql_engine.spark import SparkEngine
    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.progress import Reporter

# A restore that was cut off this long ago holds nothing back any more.
HOLD_MS = 7 * 86_400_000
# By so much may the clocks of machines differ; with more, nobody can say what is old.
SKEW_MS = 60_000
# Kinds whose backups go whole alone, and why nothing smaller of theirs can go.
_WHOLE = {name: kind.whole for name, kind in KINDS.items() if kind.whole}


@dataclass(frozen=True, slots=True)
class PruneRequest:
    """What a person asked for: no topics means all, and backups whole; without `delete` nothing goes.

    `days`: a recovery window in place of the policy's. ms and bytes.
    """

    destination: str
    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    catalog: str | None = None
    source: str | None = None
    keep_ms: int | None = None
    keep_bytes: int | None = None
    days: int | None = None
    delete: bool = False
    lease_ttl_s: float = 60.0
    remote: str | None = None
    engine: EngineChoice = "auto"


def run(request: PruneRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Tell what can go, and with `delete` let it go; returns what a person wants to know of it.

    Raises NotFound (no catalog, no such topic), UsageProblem (several sources, topics of an archive), Busy (a
    backup or another prune is at work on the source, a restore is just beginning), Refused (the proof
    failed, the clocks disagree: nothing was done), Incomplete (objects of a restore that began meanwhile, or
    that could not be deleted, stay for now).
    """
    reader = current_catalog(request.destination, request.catalog)
    source = _source(request, reader)
    storage = open_storage(request.destination)
    if not request.delete:
        held = _held(storage, reader, source)
        made = _planned(request, source, held, spark, reporter)
        return {"deleted": False, **_summary(made)}
    with Lease.acquire(storage, f"source-{source}", holder(), ttl_s=request.lease_ttl_s) as lease:
        _require_clocks(reader, storage, source)
        return _Run(request, storage, source, lease, spark, reporter).prune()


def _source(request: PruneRequest, reader: CatalogReader) -> str:
    """The source to prune; one that cannot be restored at all, or has no topics, loses backups whole."""
    known = {row["source"] for row in reader.rows("sources_known")}
    asked = request.source or (known.pop() if len(known) == 1 else None)
    if asked is None and known and not reader.rows("list_sources"):
        raise UsageProblem(
            f"The catalog holds several sources, none of which can be restored: {', '.join(sorted(known))}.",
            hint="Choose one with --source NAME. Backups that another program made are not pruned here.",
        )
    kinds = _kinds(reader, asked) if asked else set()
    if CHANGES in kinds:
        raise UsageProblem(
            f"{asked} is a change feed: its log goes from its beginning on.",
            hint=f"Say up to when: lakebackup log truncate {asked} --until …",
        )
    if not kinds <= _WHOLE.keys() or not kinds:
        return only_source(reader, asked)
    limited = request.keep_ms or request.keep_bytes
    if request.topics or request.patterns or (limited and ARCHIVE not in kinds):
        what = " and ".join(_WHOLE[kind] for kind in sorted(kinds))
        raise UsageProblem(
            f"{asked} {what}.",
            hint="Its backups go whole, by policy or by a number of days: lakebackup prune 14.",
        )
    return str(asked)


def _kinds(reader: CatalogReader, source: str) -> set[str]:
    return {row["source_kind"] for row in reader.rows("source_kinds", source=source)}


class _Run:
    """One prune on its way: first those that were cut off, then what can go now."""

    def __init__(
        self,
        request: PruneRequest,
        storage: Storage,
        source: str,
        lease: Lease,
        spark: SparkSession | None,
        reporter: Reporter,
    ) -> None:
        from lakebackup_jobs.runtime.session import spark_session

        self.request, self.storage, self.source, self.lease = request, storage, source, lease
        self.reporter = reporter
        self.spark = spark or spark_session(remote=request.remote)
        self.writer = CatalogWriter.open(self.spark, request.destination, request.catalog)
        self.started = time.monotonic()
        self.removing = Removing(
            request.destination,
            request.catalog,
            storage,
            source,
            "prune",
            lease,
            self.spark,
            self.writer,
            reporter,
            lambda: frozenset((h.scope, h.epoch, h.region) for h in self._held()),
        )

    def prune(self) -> dict[str, Any]:
        resumed, left = self.removing.resume()
        made, written = self._plan()
        if written:
            left += self.removing.carry_out(written)
        result = {
            "deleted": True,
            "prune_id": written.prune_id if written else None,
            "resumed": resumed,
            **_summary(made),
            "seconds": round(time.monotonic() - self.started, 3),
        }
        left.require_none(self.reporter, result)
        return result

    def _plan(self) -> tuple[PrunePlan, Prune | None]:
        """What can go, put down and proven; nothing but objects that nobody counts is written before that."""
        from lakebackup.sql_engine.spark import SparkEngine

        made = _planned(self.request, self.source, self._held(), self.spark, self.reporter)
        if made.is_empty:
            return made, None
        engine = SparkEngine(self.spark, self.writer.catalog_uri)
        made.give(engine)
        prune_id, at = layout.new_backup_id(datetime.now(UTC)), micros(datetime.now(UTC))
        try:
            chunks = self._put_down(engine, made, prune_id, at)
            frame = self.removing.removals(chunks)
            frame.select("destination", "path").createOrReplaceTempView("doomed")
            made.require_proof(engine)
            self.lease.renew()
            prune = Prune(
                prune_id=prune_id,
                at=at,
                actor=holder(),
                source=self.source,
                asked=json.dumps(self._asked()),
                floors=tuple(made.floors(prune_id, at)),
                chunks=chunks,
                backups=tuple((backup.backup_id, backup.reason) for backup in made.backups),
            )
            tombstones.write_prune(self.storage, prune)
        except Exception:
            self.removing.forget(prune_id)
            raise
        return made, prune

    def _put_down(self, engine: SparkEngine, made: PrunePlan, prune_id: str, at: int) -> tuple[Chunk, ...]:
        statement, parameters = made.removals(prune_id, at)
        return self.removing.put_down(engine.query(statement, **parameters), prune_id, made.gone_files)

    def _held(self) -> list[Held]:
        reader = CatalogReader(self.request.destination, self.request.catalog)
        return _held(self.storage, reader, self.source)

    def _asked(self) -> dict[str, Any]:
        request = self.request
        return {
            "topics": list(request.topics),
            "patterns": list(request.patterns),
            "keep_ms": request.keep_ms,
            "keep_bytes": request.keep_bytes,
            "days": request.days,
        }


def _require_clocks(reader: CatalogReader, storage: Storage, source: str) -> None:
    """Refused when what is old cannot be told: this clock, the storage's and the backups' own disagree."""
    now = time.time_ns() // 1_000_000
    (newest,) = reader.rows("prune_clock", source=source)
    done = (newest["finished_at"] or 0) // 1000
    if now < done - SKEW_MS:
        raise Refused(
            f"The newest backup of {source} was done at {format_ts(done)}, and this machine's clock says "
            f"{format_ts(now)}.",
            hint="Nothing was deleted. Set the clock right.",
        )
    # The lease was written a moment ago.
    stored = max(found.modified_ms for found in storage.list(layout.lease_folder(f"source-{source}")))
    if abs(stored - now) > SKEW_MS:
        raise Refused(
            f"The storage's clock says {format_ts(stored)}, and this machine's {format_ts(now)}.",
            hint="Nothing was deleted. Set the clocks right.",
        )


def _planned(
    request: PruneRequest,
    source: str,
    held: Sequence[Held],
    spark: SparkSession | None,
    reporter: Reporter,
) -> PrunePlan:
    def plan(reader: CatalogReader) -> PrunePlan:
        backups, kept = judged(request, source, reader.apart())
        if backups and held:
            reporter.note(
                f"{len(backups)} obsolete backups stay for now: restores of {source} are not finished"
            )
            backups = ()
        return plan_for(request, source, held, reader, backups, kept)

    reader = CatalogReader(request.destination, request.catalog, as_written=True)
    return planned(reader, request, spark, reporter, plan)


def judged(
    request: PruneRequest, source: str, reader: CatalogReader
) -> tuple[tuple[Leaving, ...], tuple[str, ...]]:
    """The backups that go whole, dependants first, and the ids of those kept for their own sake."""
    if request.days is not None:
        found = reader.apart().one("policy_in_force", source=source)
        least = found["min_redundancy"] if found else 1
        now = time.time_ns() // 1_000_000
        reader.give("policies", window_of(source, now=now, days=request.days, min_redundancy=least))
    kept = tuple(row["backup_id"] for row in reader.rows("prune_kept", source=source))
    if request.topics or request.patterns:
        return (), kept
    return tuple(Leaving(**row) for row in reader.rows("prune_backups", source=source)), kept


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
    return plan_prune(
        reader,
        source,
        backups=backups,
        kept=kept,
        names=request.topics,
        expressions=request.patterns,
        now=time.time_ns() // 1_000_000,
        keep_ms=request.keep_ms,
        keep_bytes=request.keep_bytes,
        held=held,
    )


def _held(storage: Storage, reader: CatalogReader, source: str) -> list[Held]:
    """The partitions that unfinished restores read. Raises Busy when one is just putting its plan down."""
    found: list[Held] = []
    for row in reader.rows("prune_restores", source=source):
        digest = json.loads(row["detail"] or "{}").get("digest")
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
    }


# What every prune says of topics, also where there are none.
_NOTHING: dict[str, Any] = {"topics": [], "partitions": [], "held": [], "bound": 0, "left_alone": []}


def _of_topics(made: TopicsPrune) -> dict[str, Any]:
    topics = sorted({(p.scope, p.epoch) for p in made.portions})
    rules = {(r.scope, r.epoch): r for r in made.rules}
    return {
        "topics": [_topic(made, *topic, rules[topic].cutoff_ts, rules[topic].keep_bytes) for topic in topics],
        "partitions": list(_partitions(made)),
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


def _topic(
    made: TopicsPrune, scope: str, epoch: str, cutoff_ts: int | None, keep_bytes: int | None
) -> dict[str, Any]:
    mine = [p for p in made.portions if (p.scope, p.epoch) == (scope, epoch)]
    return {
        "topic": scope,
        "epoch": epoch,
        "older_than": format_ts(cutoff_ts) if cutoff_ts is not None else None,
        "keep_bytes": keep_bytes,
        "files": sum(p.files for p in mine),
        "bytes": sum(p.bytes for p in mine),
        **{f"by_{reason}": sum(p.files for p in mine if p.reason == reason) for reason in _REASONS},
    }


_REASONS = ("time", "size", "generation")
# A terminal shows no more backups and partitions; the views `obsolete_backups` and `floors` have them all.
_SHOWN = 50


def _partitions(made: TopicsPrune) -> Iterator[dict[str, Any]]:
    gone: dict[tuple[str, str, str], list[int]] = {}
    for p in made.portions:
        entry = gone.setdefault((p.scope, p.epoch, p.region), [0, 0])
        entry[0] += p.files
        entry[1] += p.bytes
    for cut in made.cuts[:_SHOWN]:
        files, size = gone[cut.scope, cut.epoch, cut.region]
        yield {
            "topic": cut.scope,
            "partition": cut.region,
            "floor": cut.low_position,
            "generation": cut.generation,
            "files": files,
            "bytes": size,
        }
