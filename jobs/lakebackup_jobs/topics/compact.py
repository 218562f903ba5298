"""Write the newest restore points of compacted topics anew, with the latest record of each key alone.

What comes of it is a backup like any other, which begins a generation: it ends at the positions and at the
instant of the backup it is made from, and the next backup goes on from there. Nothing is read from Kafka and
nothing is taken away; what it replaces is let go by prune.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NotFound
from lakebackup.plan.topics.compact import CompactPlan, CompactTopic, plan_compaction
from lakebackup.plan.topics.generations import Held
from lakebackup.plan.topics.request import only_source
from lakebackup.rows.backups import Backup, Gap, Position
from lakebackup.rows.topics import Group
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import Storage, open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.format.stored_file import StoredFile
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.numbers import latest_number, next_sequences
from lakebackup_jobs.lifecycle.task_progress import TaskBoard
from lakebackup_jobs.lifecycle.task_totals import Totals
from lakebackup_jobs.topics import compact_splits as pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakebackup_jobs.lifecycle.progress import Reporter

# More pieces than this share tasks.
MOST_TASKS = 2_000


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """What a person asked for; without topics and patterns, all compacted topics but internal ones."""

    destination: str
    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    all_keyed: bool = False
    catalog: str | None = None
    source: str | None = None
    codec: str = "zstandard"
    compression_level: int | None = None
    target_bytes: int = 128 << 20
    dry_run: bool = False
    lease_ttl_s: float = 60.0
    note: str | None = None
    remote: str | None = None


def run(request: CompactRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Compact; returns what a person wants to know of it.

    Raises NotFound (no catalog, no such topic), Refused (a named topic that is not compacted or has records
    without a key), Damaged (a file is not what the catalog says; nothing was written), Busy (another run on
    the source), EnvironmentProblem.
    """
    reader = current_catalog(request.destination, request.catalog)
    source = layout.check_source(only_source(reader, request.source))
    if request.dry_run:
        return {"dry_run": True, "source": source, **_summary(_plan(request, reader, source))}
    storage = open_storage(request.destination)
    with Lease.acquire(storage, f"source-{source}", holder(), ttl_s=request.lease_ttl_s) as lease:
        return _Run(request, source, storage, lease, spark, reporter).compact()


class _Run:
    """One compaction on its way; it makes one backup for each instant that its topics' backups end at."""

    def __init__(
        self,
        request: CompactRequest,
        source: str,
        storage: Storage,
        lease: Lease,
        spark: SparkSession | None,
        reporter: Reporter,
    ) -> None:
        self.request, self.source, self.storage = request, source, storage
        self.lease, self.given_spark, self.reporter = lease, spark, reporter

    def compact(self) -> dict[str, Any]:
        from lakebackup_jobs.runtime.session import spark_session

        started = datetime.now(UTC)
        plan = _plan(self.request, CatalogReader(self.request.destination, self.request.catalog), self.source)
        for topic in plan.topics:
            if topic.doubtful:
                self.reporter.warning(
                    f"topic {topic.scope}: its backups were further apart than its delete.retention.ms: a "
                    "deleted key may be among what is kept; a new generation (--new-generation) has none"
                )
        for scope, reason in plan.left_out.items():
            self.reporter.note(f"topic {scope} stays as it is: {reason}")
        made = []
        if plan.topics:
            spark = self.given_spark or spark_session(remote=self.request.remote)
            made = [self._batch(spark, batch) for batch in plan.batches]
        return {
            "source": self.source,
            "backup_ids": [backup.backup_id for backup in made],
            **_summary(plan),
            **{f"kept_{name}": sum(getattr(b, name) for b in made) for name in ("files", "bytes", "entries")},
            "seconds": round((datetime.now(UTC) - started).total_seconds(), 3),
        }

    def _batch(self, spark: SparkSession, topics: Sequence[CompactTopic]) -> Backup:
        """One backup: of topics whose newest restore points end at the same instant."""
        started = datetime.now(UTC)
        backup_id = layout.new_backup_id(started)
        folder = layout.backup_folder(self.source, backup_id)
        reader = CatalogReader(self.request.destination, self.request.catalog)
        scopes = ",".join(topic.scope for topic in topics)
        asked: dict[str, Any] = {"source": self.source, "scopes": scopes, "to_ts": None}
        (between,) = reader.rows("restore_range", **asked)
        reader.define("selected", "restore_files", **asked, **between, from_ts=None)
        count = pieces.cut(self.storage, folder, _files(reader))
        parent = reader.one("latest_backup", source=self.source, level=None)
        if parent is None:
            raise NotFound("The chain that these backups stood on is not whole any more.")
        number = latest_number(reader, self.source) + 1
        totals = self._copy(spark, reader, topics, backup_id, number, parent["backup_id"], count)
        end_ts = topics[0].end_ts
        backup = Backup(
            backup_id=backup_id,
            number=number,
            source=self.source,
            destination=destination_id(self.storage),
            kind="differential",
            level=1,
            parent=parent["backup_id"],
            base=parent["base"],
            chain_position=parent["chain_position"] + 1,
            place=number,
            parent_place=parent["place"],
            start_ts=min(parent["end_ts"], end_ts),
            end_ts=end_ts,
            started_at=micros(started),
            **totals.columns(),
            isolation=parent["isolation"],
            codec=self.request.codec,
            note=self.request.note or f"compaction of {topics[0].backup_id}",
        )
        manifest = sidecar.Manifest(
            backup=backup,
            positions=[
                Position(backup_id=backup_id, source=self.source, **row)
                for row in reader.rows("compact_positions", source=self.source, scopes=scopes)
            ],
            scopes=[topic.row(backup_id, self.source) for topic in topics],
            gaps=[_gap(row, topics, backup_id, self.source) for row in reader.rows("restore_gaps", **asked)],
            groups=[
                Group(backup_id=backup_id, source=self.source, **row)
                for row in reader.rows(
                    "compact_groups", source=self.source, backup_id=topics[0].backup_id, scopes=scopes
                )
            ],
            parts=count,
        )
        self.lease.renew()
        sidecar.write_manifest(self.storage, layout.manifest_path(self.source, backup_id), manifest)
        writer = CatalogWriter.open(spark, self.request.destination, self.request.catalog)
        writer.commit_backup(self.storage, manifest, held=self.lease)
        sidecar.mark(self.storage, layout.marker_path(self.source, backup_id, "complete"))
        pieces.clear(self.storage, folder)
        return backup

    def _copy(
        self,
        spark: SparkSession,
        reader: CatalogReader,
        topics: Sequence[CompactTopic],
        backup_id: str,
        number: int,
        parent: str,
        count: int,
    ) -> Totals:
        from pyspark.sql import functions as sf

        from lakebackup_jobs.lifecycle.task_totals import OUTCOME
        from lakebackup_jobs.topics.tasks import compact as compact_task

        folder = layout.backup_folder(self.source, backup_id)
        roots = reader.destinations()
        find = compact_task.FindNewest(self.storage.uri, folder, roots)
        keep = compact_task.KeepNewest(
            uri=self.storage.uri,
            folder=folder,
            roots=roots,
            destination=destination_id(self.storage),
            source=self.source,
            backup_id=backup_id,
            number=number,
            parent=parent,
            codec=self.request.codec,
            compression_level=self.request.compression_level,
            target_bytes=self.request.target_bytes,
            sequences=next_sequences(reader, self.source, topics),
            generations={topic.scope: topic.generation for topic in topics},
            drop_before={topic.scope: topic.drop_before for topic in topics},
        )
        numbers = spark.range(0, count, 1, min(count, MOST_TASKS))
        newest = (
            numbers.mapInArrow(find, compact_task.FOUND)
            .groupBy("part", "key")
            # Pieces of a partition are numbered in the order of its offsets: the greatest holds the greatest.
            .agg(sf.max("piece").alias("piece"), sf.max("position").alias("position"))
            .select("piece", "position")
        )
        every = numbers.select(sf.col("id").cast("INT").alias("piece"), sf.lit(-1).cast("BIGINT"))
        # Twice as many, since pieces meet by the hash of their numbers.
        survivors = newest.union(every).repartition(min(2 * count, MOST_TASKS), "piece")
        job = survivors.sortWithinPartitions("piece", "position").mapInArrow(keep, OUTCOME)
        # Every record is looked at twice: for the newest of its key, and whether it is that.
        self.reporter.start(2 * sum(topic.entries for topic in topics), None, "compact")
        with TaskBoard(self.storage, folder).watched(self.reporter.update), task_errors():
            rows = job.collect()
        totals = Totals()
        totals.add(rows)
        return totals


def _plan(request: CompactRequest, reader: CatalogReader, source: str) -> CompactPlan:
    latest = reader.one("latest_backup", source=source, level=None) or {"base": None, "link": None}
    held = reader.rows("generations", source=source, base=latest["base"], link=latest["link"])
    return plan_compaction(
        reader.rows("compact_points", source=source),
        [Held(**row) for row in held],
        names=request.topics,
        expressions=request.patterns,
        all_keyed=request.all_keyed,
    )


def _files(reader: CatalogReader) -> Iterator[StoredFile]:
    for batch in reader.query("selected_files"):
        for row in batch.to_pylist():
            yield StoredFile(**row)


def _gap(row: dict[str, Any], topics: Sequence[CompactTopic], backup_id: str, source: str) -> Gap:
    """A gap in what was compacted is one in what came of it."""
    epoch = next(topic.epoch for topic in topics if topic.scope == row["scope"])
    return Gap(backup_id=backup_id, source=source, epoch=epoch, bridged=True, **row)


def _summary(plan: CompactPlan) -> dict[str, Any]:
    return {
        "files": sum(topic.files for topic in plan.topics),
        "bytes": sum(topic.bytes for topic in plan.topics),
        "entries": sum(topic.entries for topic in plan.topics),
        "topics": [
            {
                "topic": topic.scope,
                "backup_id": topic.backup_id,
                "end_ts": topic.end_ts,
                "generation": topic.generation,
                "files": topic.files,
                "bytes": topic.bytes,
                "entries": topic.entries,
            }
            for topic in plan.topics
        ],
        "left_out": [{"topic": scope, "because": reason} for scope, reason in plan.left_out.items()],
    }
