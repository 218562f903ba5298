"""Back up Kafka topics: fix the offsets, copy them in Spark tasks, publish.

Order of publishing: data objects, their rows as manifest parts, the manifest, `files` rows, positions,
scopes and gaps, then the one `backups` row, which alone makes the backup exist, then its marker.
A crash anywhere before that row leaves nothing visible, and running again succeeds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from lakebackup import layout, patterns, sidecar
from lakebackup.frames import task_errors
from lakebackup.lease import Lease
from lakebackup.model import Backup, Digest
from lakebackup.plan.backup_topics import BackupPlan, Covered, Mode, OnGap, Parent, plan_backup
from lakebackup.storage import Storage, open_storage
from lakebackup.store import CatalogReader, CatalogWriter, destination_id
from lakebackup_jobs.identity import holder, micros
from lakebackup_jobs.kafka.cluster import Cluster
from lakebackup_jobs.outcome import raise_first
from lakebackup_jobs.taskboard import TaskBoard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup_jobs.progress import Reporter


@dataclass(frozen=True, slots=True)
class BackupRequest:
    """What a person asked for. `kafka`: librdkafka properties with bootstrap.servers; may hold secrets."""

    destination: str
    topics: tuple[str, ...]
    kafka: Mapping[str, str]
    catalog: str | None = None
    source: str | None = None
    patterns: tuple[str, ...] = ()
    isolation: str = "read_committed"
    codec: str = "zstandard"
    level: int | None = None
    target_bytes: int = 128 << 20
    mode: Mode = "auto"
    on_gap: OnGap = "full"
    dry_run: bool = False
    lease_ttl_s: float = 60.0
    note: str | None = None
    remote: str | None = None
    parallelism: int = os.cpu_count() or 2


def run(request: BackupRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Take one backup; returns what a person wants to know of it.

    Raises NotFound (topics), Refused (a gap with on_gap="fail", a history cut back), Busy (another run on
    the source), EnvironmentProblem (broker, disk).
    """
    storage = open_storage(request.destination)
    cluster = Cluster(request.kafka)
    source = layout.check_source(request.source or f"kafka-{cluster.cluster_id()}")
    reader = CatalogReader.open(request.destination, request.catalog)
    if request.dry_run:
        plan = _plan(request, layout.new_backup_id(datetime.now(UTC)), source, cluster, reader)
        return {"dry_run": True, **_summary(plan, source)}
    with Lease.acquire(storage, f"source-{source}", holder(), ttl_s=request.lease_ttl_s) as lease:
        return _Run(request, storage, source, cluster, lease, spark, reporter).take()


class _Run:
    """One backup on its way, from the plan to the marker."""

    def __init__(
        self,
        request: BackupRequest,
        storage: Storage,
        source: str,
        cluster: Cluster,
        lease: Lease,
        spark: SparkSession | None,
        reporter: Reporter,
    ) -> None:
        self.request, self.storage, self.source = request, storage, source
        self.cluster, self.lease, self.reporter = cluster, lease, reporter
        self.given_spark = spark
        self.started = datetime.now(UTC)
        self.backup_id = layout.new_backup_id(self.started)

    def take(self) -> dict[str, Any]:
        """Plan, copy, publish."""
        from lakebackup_jobs.session import spark_session

        request = self.request
        spark = self.given_spark or spark_session(remote=request.remote)
        writer = CatalogWriter.open(spark, request.destination, request.catalog)
        writer.migrate()
        reader = CatalogReader(request.destination, request.catalog)
        destination = destination_id(self.storage)
        plan = _plan(request, self.backup_id, self.source, self.cluster, reader)
        for gap in plan.gaps:
            self.reporter.warning(
                f"topic {gap.scope}, partition {gap.region}: "
                + (
                    f"offsets [{gap.from_position}, {gap.to_position}) were deleted before their backup"
                    if gap.reason == "purged"
                    else f"the topic was deleted and made again; offsets from {gap.from_position} are unknown"
                )
            )
        newest = reader.one("latest_number", source=self.source)
        number = (newest["number"] or 0) + 1 if newest else 1
        totals = self._copy(spark, plan, number, destination, reader)
        backup = self._row(plan, number, destination, totals)
        manifest = sidecar.Manifest(
            backup=backup, positions=plan.positions, scopes=plan.scopes, gaps=plan.gaps, parts=len(plan.tasks)
        )
        self.lease.renew()
        sidecar.write_manifest(self.storage, layout.manifest_path(self.source, self.backup_id), manifest)
        writer.commit_backup(self.storage, manifest)
        sidecar.mark(self.storage, layout.marker_path(self.source, self.backup_id, "complete"))
        return {
            "backup_id": self.backup_id,
            **_summary(plan, self.source),
            "files": backup.files,
            "bytes": backup.bytes,
            "entries": backup.entries,
            "seconds": round((backup.finished_at - backup.started_at) / 1e6, 3),
        }

    def _copy(
        self, spark: SparkSession, plan: BackupPlan, number: int, destination: str, reader: CatalogReader
    ) -> _Totals:
        from lakebackup_jobs.kafka.copy_task import OUTCOME, CopyJob

        self.reporter.start(plan.offsets, None, "backup")
        if not plan.tasks:
            return _Totals()
        job = CopyJob(
            destination_uri=self.storage.uri,
            destination=destination,
            source=self.source,
            backup_id=self.backup_id,
            number=number,
            level=0 if plan.kind == "full" else 1,
            parent=plan.parent.backup_id if plan.parent else None,
            client=dict(self.request.kafka),
            isolation=self.request.isolation,
            codec=self.request.codec,
            compression_level=self.request.level,
            target_bytes=self.request.target_bytes,
            tasks=plan.tasks,
            sequences=_sequences(reader, self.source, plan),
            report=True,
        )
        count = len(plan.tasks)
        board = TaskBoard(self.storage, layout.backup_folder(self.source, self.backup_id))
        with board.watched(self.reporter.update), task_errors():
            # One row a task: the rows of the files stay in the parts.
            rows = spark.range(0, count, 1, count).mapInArrow(job, OUTCOME).collect()
        raise_first(row.error for row in rows)
        totals = _Totals()
        for row in rows:
            totals.add(row.files, row.bytes, row.entries, [row.lane0, row.lane1, row.lane2, row.lane3])
        self.reporter.update(totals.entries, totals.bytes)
        return totals

    def _row(self, plan: BackupPlan, number: int, destination: str, totals: _Totals) -> Backup:
        parent = plan.parent
        return Backup(
            backup_id=self.backup_id,
            number=number,
            source=self.source,
            destination=destination,
            kind=plan.kind,
            level=0 if plan.kind == "full" else 1,
            parent=parent.backup_id if parent else None,
            base=parent.base if parent else self.backup_id,
            chain_position=parent.chain_position + 1 if parent else 0,
            start_ts=parent.end_ts if parent else None,
            end_ts=plan.end_ts,
            started_at=micros(self.started),
            finished_at=micros(datetime.now(UTC)),
            files=totals.files,
            bytes=totals.bytes,
            entries=totals.entries,
            digest=totals.digest.hex(),
            isolation=self.request.isolation,
            codec=self.request.codec,
            created_by=holder(),
            tool=f"lakebackup {version('lakebackup')}",
            note=self.request.note,
        )


class _Totals:
    def __init__(self) -> None:
        self.files = self.bytes = self.entries = 0
        self.digest = Digest()

    def add(self, files: int, size: int, entries: int, lanes: Sequence[int]) -> None:
        self.files += files
        self.bytes += size
        self.entries += entries
        self.digest.add_lanes(lanes)


def _plan(
    request: BackupRequest, backup_id: str, source: str, cluster: Cluster, reader: CatalogReader | None
) -> BackupPlan:
    names = patterns.select(request.topics, request.patterns, cluster.topic_names())
    topics = cluster.describe(names)
    end_ts, regions = cluster.positions(topics, request.isolation)
    found = reader.one("latest_backup", source=source) if reader else None
    parent = (
        Parent(
            backup_id=found["backup_id"],
            base=found["base"],
            number=found["number"],
            level=found["level"],
            chain_position=found["chain_position"],
            end_ts=found["end_ts"],
        )
        if found
        else None
    )
    covered = (
        [
            Covered(**{name: row[name] for name in Covered.__match_args__})
            for row in reader.rows("region_ends", source=source, base=parent.base)
        ]
        if reader and parent
        else []
    )
    return plan_backup(
        backup_id=backup_id,
        source=source,
        topics=topics,
        regions=regions,
        end_ts=end_ts,
        parent=parent,
        covered=covered,
        mode=request.mode,
        on_gap=request.on_gap,
        parallelism=request.parallelism,
    )


def _sequences(reader: CatalogReader, source: str, plan: BackupPlan) -> dict[tuple[str, str], int]:
    epochs = {scope.scope: scope.epoch for scope in plan.scopes}
    return {
        (row["scope"], row["region"]): row["next_sequence"]
        for row in reader.rows("next_sequence", source=source)
        if epochs.get(row["scope"]) == row["epoch"]
    }


def _summary(plan: BackupPlan, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "kind": plan.kind,
        "parent": plan.parent.backup_id if plan.parent else None,
        "topics": len(plan.scopes),
        "partitions": len(plan.positions),
        "offsets": plan.offsets,
        "end_ts": plan.end_ts,
        "gaps": len(plan.gaps),
    }


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """As a program for spark-submit: the arguments of `lakebackup backup topics`."""
    from lakebackup_jobs.cli import run_verb

    return run_verb(["backup", "topics"], argv, spark=spark)


if __name__ == "__main__":
    raise SystemExit(main())
