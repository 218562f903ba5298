"""Restore Kafka topics: a SELECT chooses the files, Spark tasks verify them and bring the records back.

Planning asks the catalog through DuckDB and writes nothing. Carrying out writes the planned files down, one
share for each partition, and Spark tasks restore their shares. A restore that was cut off is found again
by what was asked for, and goes on with the same shares where its target says it stands.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakebackup import layout, patterns
from lakebackup.errors import LakebackupError, NotFound, UsageProblem
from lakebackup.guard import check_select
from lakebackup.lease import Lease
from lakebackup.model import Audit, Restore
from lakebackup.plan.restore_topics import (
    Obstacle,
    RegionPart,
    RestorePlan,
    TopicPart,
    refuse_outside,
    require_restorable,
)
from lakebackup.storage import open_storage
from lakebackup.store import CatalogReader, CatalogWriter
from lakebackup.times import format_ts
from lakebackup_jobs.identity import holder, micros
from lakebackup_jobs.shares import deal
from lakebackup_jobs.targets import RegionOutcome, Target, open_target
from lakebackup_sql import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup_jobs.progress import Reporter


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What a person asked for. Times are ms, bounds `(from_ts, to_ts]`; `kafka` may hold secrets."""

    destination: str
    target: str
    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    catalog: str | None = None
    source: str | None = None
    maps: Mapping[str, str] = field(default_factory=dict)
    to_ts: int | None = None
    from_ts: int | None = None
    select: str | None = None
    partial: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)
    append: bool = False
    allow_gaps: bool = False
    settings: str = "auto"
    zero_as_one: bool = False
    dry_run: bool = False
    lease_ttl_s: float = 60.0
    remote: str | None = None

    def digest(self, source: str) -> str:
        """What makes two requests the same restore: all but credentials, places and waiting times."""
        asked = [
            source, self.target, sorted(self.topics), sorted(self.patterns), sorted(self.maps.items()),
            self.to_ts, self.from_ts, self.select, self.partial, self.append, self.allow_gaps,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]


def plan(request: RestoreRequest, reader: CatalogReader) -> RestorePlan:
    """What the restore would read, and what stands against it. Writes nothing.

    Raises NotFound (no such topic), Refused (a time after the last backup), UsageProblem (a bad SELECT).
    """
    source = request.source or _only_source(reader)
    newest = {row["scope"]: row["end_ts"] for row in reader.rows("restore_coverage", source=source)}
    parameters: dict[str, Any] = {"source": source, "from_ts": request.from_ts, "to_ts": request.to_ts}
    if request.select is None:
        topics = patterns.select(request.topics, request.patterns, newest)
        refuse_outside(source, topics, request.to_ts, newest)
        parameters["scopes"] = ",".join(topics)
        selection = load("queries", "restore_files")
        reader.define("selected", "restore_files", **parameters)
        parts = _parts(reader)
        obstacles = [*_gaps(reader, parameters), *_damage(reader)]
    else:
        checked = check_select(request.select, reader.relations())
        selection = checked.spark
        reader.define_checked("selected", checked)
        parts = _parts(reader)
        topics = sorted({part.scope for part in parts})
        if not topics:
            raise NotFound(
                "The SELECT chose no file.",
                hint="It must return the columns destination and path of rows of `files`.",
            )
        _refuse_two_histories(parts)
        parameters["scopes"] = ",".join(topics)
        obstacles = [*_damage(reader), *([] if request.partial else _breaks(reader))]
    targets = reader.rows("restore_targets", **{k: v for k, v in parameters.items() if k != "from_ts"})
    names = patterns.target_names(topics, request.maps)
    return RestorePlan(
        source=source,
        from_ts=request.from_ts,
        to_ts=request.to_ts,
        selection=selection,
        parameters=parameters if request.select is None else {},
        topics=tuple(_topic(row, names[row["scope"]], parts) for row in targets),
        obstacles=tuple(obstacles),
    )


def run(request: RestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Carry a restore out; returns what a person wants to know of it.

    Raises Refused (gaps, damaged files, a target that is not empty), Damaged (a file that is not what the
    catalog says, found before any of it becomes visible), EnvironmentProblem (broker, disk), Busy.
    """
    reader = CatalogReader.open(request.destination, request.catalog)
    if reader is None:
        raise NotFound(
            f"There is no catalog at {request.catalog or request.destination}.",
            hint="Check --from and --catalog; `lakebackup catalog rebuild` makes one anew from the backups.",
        )
    made = plan(request, reader)
    target = open_target(request)
    if request.dry_run:
        return {
            "dry_run": True,
            **_summary(made),
            "selection": made.selection,
            "parameters": dict(made.parameters),
            **target.describe(made),
        }
    require_restorable(made, allow_gaps=request.allow_gaps)
    digest = request.digest(made.source)
    storage = open_storage(request.destination)
    with Lease.acquire(storage, f"restore-{digest}", holder(), ttl_s=request.lease_ttl_s):
        return _carry_out(request, made, digest, target, reader, spark, reporter)


def _carry_out(
    request: RestoreRequest,
    made: RestorePlan,
    digest: str,
    target: Target,
    reader: CatalogReader,
    given: SparkSession | None,
    reporter: Reporter,
) -> dict[str, Any]:
    from lakebackup_jobs.session import spark_session

    started = time.monotonic()
    resumed = _unfinished(reader, digest)
    restore_id = resumed or layout.new_backup_id(datetime.now(UTC))
    if resumed:
        reporter.note(f"going on with restore {restore_id}, which did not finish")
    target.prepare(made, restore_id, resumed=resumed is not None)

    spark = given or spark_session(remote=request.remote)
    writer = CatalogWriter.open(spark, request.destination, request.catalog)
    log = _Log(writer, restore_id, made, request.target, digest)
    if request.allow_gaps and any(o.reason == "gap" for o in made.obstacles):
        log.audit("restore with gaps", [str(o) for o in made.obstacles])
    log.row("running")
    shares = deal(open_storage(request.destination), reader, made, f"restores/{restore_id}/")
    reporter.start(made.entries, made.bytes, "restore")
    roots = {name: writer.root_of(uri) for name, uri in reader.destinations().items()}
    try:
        with shares.board().watched(reporter.update):
            outcomes = target.replay(spark, shares, made, restore_id, roots)
        reporter.update(made.entries, made.bytes)
    except LakebackupError as error:
        log.row("failed", problem=error.message)
        raise
    notes = target.finish(made)
    log.finish(outcomes)
    target.forget()
    shares.clear()
    for note in notes:
        reporter.warning(note)
    return {
        "restore_id": restore_id,
        "resumed": resumed is not None,
        **_summary(made),
        "entries": sum(o.entries for o in outcomes),
        "seconds": round(time.monotonic() - started, 3),
    }


class _Log:
    """The rows that a restore leaves in the catalog."""

    def __init__(
        self, writer: CatalogWriter, restore_id: str, made: RestorePlan, target: str, digest: str
    ) -> None:
        self._writer, self._id, self._plan, self._target, self._digest = (
            writer,
            restore_id,
            made,
            target,
            digest,
        )

    def row(self, state: Any, problem: str | None = None) -> None:
        self._writer.append([self._row(state, problem=problem)])

    def finish(self, outcomes: Sequence[RegionOutcome]) -> None:
        regions = [self._row("region_done", outcome=outcome) for outcome in outcomes]
        self._writer.append([*regions, self._row("complete")])

    def audit(self, action: str, detail: list[str]) -> None:
        self._writer.append_audit(
            Audit(
                at=micros(datetime.now(UTC)),
                actor=holder(),
                action=action,
                subject=self._id,
                detail=json.dumps(detail),
            )
        )

    def _row(
        self, state: Any, *, outcome: RegionOutcome | None = None, problem: str | None = None
    ) -> Restore:
        return Restore(
            restore_id=self._id,
            at=micros(datetime.now(UTC)),
            source=self._plan.source,
            scope=outcome.scope if outcome else None,
            region=outcome.region if outcome else None,
            state=state,
            target=self._target,
            from_ts=self._plan.from_ts,
            to_ts=self._plan.to_ts,
            selection=self._plan.selection,
            position=outcome.position if outcome else None,
            entries=outcome.entries if outcome else None,
            bytes=outcome.bytes if outcome else None,
            detail=json.dumps({"digest": self._digest, **({"problem": problem} if problem else {})}),
        )


def _unfinished(reader: CatalogReader, digest: str) -> str | None:
    for row in reader.rows("open_restores"):
        if json.loads(row["detail"] or "{}").get("digest") == digest:
            return str(row["restore_id"])
    return None


def _only_source(reader: CatalogReader) -> str:
    sources = [row["source"] for row in reader.rows("list_sources")]
    if len(sources) == 1:
        return str(sources[0])
    if not sources:
        raise NotFound(
            "The catalog holds no restorable backup.", hint="`lakebackup list` shows what it holds."
        )
    raise UsageProblem(
        f"The catalog holds several sources: {', '.join(sources)}.", hint="Say which one with --source NAME."
    )


def _parts(reader: CatalogReader) -> list[RegionPart]:
    return [RegionPart(**row) for row in reader.rows("selected_summary")]


def _refuse_two_histories(parts: Sequence[RegionPart]) -> None:
    for scope in {part.scope for part in parts}:
        epochs = sorted({part.epoch for part in parts if part.scope == scope})
        if len(epochs) > 1:
            raise UsageProblem(
                f"It chooses files of topic {scope} from before and after it was deleted and made again "
                f"(epochs {', '.join(epochs)}).",
                hint="Restore one at a time: add AND epoch = '...' to the SELECT.",
            )


def _topic(row: Mapping[str, Any], target: str, parts: Sequence[RegionPart]) -> TopicPart:
    return TopicPart(
        scope=row["scope"],
        target=target,
        epoch=row["epoch"],
        backup_id=row["backup_id"],
        base=row["base"],
        number=row["number"],
        end_ts=row["end_ts"],
        regions=row["regions"],
        replication=row["replication"],
        settings=json.loads(row["settings"]),
        parts=tuple(part for part in parts if part.scope == row["scope"]),
    )


def _gaps(reader: CatalogReader, parameters: Mapping[str, Any]) -> list[Obstacle]:
    wanted = {k: v for k, v in parameters.items() if k != "from_ts"}
    return [
        Obstacle(
            scope=row["scope"],
            region=row["region"],
            reason="gap",
            detail=f"offsets from {row['from_position']} "
            + (
                f"to {row['to_position']} were deleted"
                if row["reason"] == "purged"
                else "on were lost, the topic was made again"
            )
            + " before they were backed up",
            before_ts=row["from_ts"],
            after_ts=row["to_ts"],
        )
        for row in reader.rows("restore_gaps", **wanted)
    ]


def _damage(reader: CatalogReader) -> list[Obstacle]:
    return [
        Obstacle(
            scope=row["scope"],
            region=row["region"],
            reason="damage",
            detail=f"file {row['path']} was {row['outcome']} when it was last checked",
            before_ts=None,
            after_ts=None,
        )
        for row in reader.rows("selected_damage")
    ]


def _breaks(reader: CatalogReader) -> list[Obstacle]:
    return [
        Obstacle(
            scope=row["scope"],
            region=row["region"],
            reason="partial",
            detail=(
                f"it takes {row['chosen']} of the {row['held']} files up to offset {row['end_position']}"
                if row["bases"] == 1
                else f"it mixes files of {row['bases']} chains, which hold offsets twice"
            )
            + "; --partial restores them all the same",
            before_ts=None,
            after_ts=None,
        )
        for row in reader.rows("selected_breaks")
    ]


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
                "reaches": format_ts(t.end_ts),
            }
            for t in made.topics
        ],
        "obstacles": [str(o) for o in made.obstacles],
    }


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """As a program for spark-submit: the arguments of `lakebackup restore topics`."""
    from lakebackup_jobs.cli import run_verb

    return run_verb(["restore", "topics"], argv, spark=spark)


if __name__ == "__main__":
    raise SystemExit(main())
