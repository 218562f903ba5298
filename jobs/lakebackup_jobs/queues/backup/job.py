"""Back up an engine's queues: end what was cut off, fix the offsets, plan, and have it carried out.

A full is a backup of the engine's snapshot, by the job that backs up snapshots, and one of the queues that
says where it stands in them. Order of publishing: as for topics. Little work is done in this process; Spark
is asked when there are many messages to read, and for the first backup of a destination.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NeedsFull, Refused, UsageProblem
from lakebackup.formats.queues import schema_history, snapshot_json
from lakebackup.plan.queues import backup as planning
from lakebackup.plan.queues.history import (
    Standing,
    read_histories,
    read_watermarks,
    require_all,
    stand,
)
from lakebackup.rows.base import QUEUES
from lakebackup.rows.upkeep import Audit
from lakebackup.rules import layout, patterns
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.numbers import latest_number, next_sequences
from lakebackup_jobs.queues.backup import resume as begin
from lakebackup_jobs.queues.backup import skipped
from lakebackup_jobs.queues.backup.cut import Tails
from lakebackup_jobs.queues.backup.execute import ISOLATION, Work, result_of, summary
from lakebackup_jobs.queues.backup.full_snapshot import FullSnapshot
from lakebackup_jobs.queues.backup.request import QueueRequest, files_of, said_of
from lakebackup_jobs.queues.backup.resume import Begun
from lakebackup_jobs.queues.incomplete import require_put_back
from lakebackup_jobs.snapshots import backup as backup_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup.plan.queues.backup import QueuePlan
    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.progress import Reporter


def run(request: QueueRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Take one backup; returns what a person wants to know of it.

    Raises NeedsFull (queues that were purged or reset, of which nothing is stored then), NotFound (topics,
    files), UsageProblem (files that are not what they have to be), Refused (messages without a tid, a
    snapshot.json that cannot be right), Busy (another run on the source), EnvironmentProblem.
    """
    source = layout.check_source(request.source)
    layout.snapshot_source(source)
    if not request.topics:
        raise UsageProblem("No queue was named.", hint="Name them with --topics, such as 'delta.*'.")
    storage = open_storage(request.destination)
    if request.dry_run:
        return _Run(request, storage, source, spark, reporter).foresee()
    with Lease.acquire(storage, f"source-{source}", holder(), ttl_s=request.lease_ttl_s) as lease:
        # Ends that were looked at before it may be older than those of a backup that another run has taken.
        return _Run(request, storage, source, spark, reporter).take(lease)


class _Run:
    """One run on its way."""

    def __init__(
        self,
        request: QueueRequest,
        storage: Storage,
        source: str,
        spark: SparkSession | None,
        reporter: Reporter,
    ) -> None:
        self.request, self.storage, self.source, self.reporter = request, storage, source, reporter
        self._spark = spark
        self._said = said_of(request)
        self._snapshots = FullSnapshot(request, source, spark, reporter)
        self._cluster = Cluster(request.kafka)
        self._existing = self._cluster.topic_names()
        self._topics = self._cluster.describe(patterns.select_shell(request.topics, self._existing))
        self._end_ts, regions = self._cluster.positions(self._topics, ISOLATION)
        known = skipped.recorded(CatalogReader.open(request.destination, request.catalog), source)
        self._skip = skipped.asked(request.skip, self._topics) - known
        self._skipped = self._skip | known
        tails = Tails(dict(request.kafka), ISOLATION, request.names, self._skipped)
        self._regions = tails.settled(regions, lambda: self._cluster.positions(self._topics, ISOLATION)[1])
        # Read behind the ends: a schema is in its history before the first message that has it is written.
        self._files = files_of(request)

    @property
    def spark(self) -> SparkSession:
        """The session, made when it is first needed."""
        if self._spark is None:
            from lakebackup_jobs.runtime.session import spark_session

            self._spark = spark_session(remote=self.request.remote)
        return self._spark

    def foresee(self) -> dict[str, Any]:
        """What would be done; nothing is written."""
        reader = CatalogReader.open(self.request.destination, self.request.catalog)
        plan = self._plan(layout.new_backup_id(datetime.now(UTC)), reader, self._standing(reader))
        self._require_there(plan)
        for note in plan.notes:
            self.reporter.note(note)
        told = {"dry_run": True, **summary(plan, self.source)}
        if plan.kind == "full":
            told["snapshot"] = backup_snapshot.run(
                replace(self._snapshots.request("dry run"), dry_run=True), reporter=self.reporter
            )
        return told

    def take(self, lease: Lease) -> dict[str, Any]:
        """End what was cut off, then take a new backup. A full that was ended is what is asked for."""
        reader = self._catalog()
        if reader:
            self._record_skipped()
        ended = self._settle(reader, lease) if reader else None
        if ended is None:
            return self._begin(reader, lease)
        if ended["kind"] == "full":
            return ended
        if self.request.mode == "differential":
            # What came since the positions of then; another one from the full on would read all of it again.
            self.request = replace(self.request, mode="incremental")
        return {**self._begin(self._reader(), lease), "ended": ended}

    def _settle(self, reader: CatalogReader, lease: Lease) -> dict[str, Any] | None:
        """End what the last run began and did not end, or take it away; what it is, if it was asked for."""
        begun = begin.found(self.storage, self.source)
        if begun is None:
            return None
        asked = self._asked(begun.plan)
        if reader.rows("find_backups", prefix=begun.backup_id):
            sidecar.mark(self.storage, layout.marker_path(self.source, begun.backup_id, "complete"))
            begin.end(self.storage, self.source, begun.backup_id)
            self.reporter.note(f"backup {begun.backup_id} is whole; its run was cut off at the very end")
            if begun.asked != asked:
                return None
            path = layout.manifest_path(self.source, begun.backup_id)
            manifest = sidecar.read_manifest(self.storage, path)
            (point,) = reader.rows("queue_parent", backup_id=begun.backup_id)
            return result_of(begun, manifest.backup, point)
        standing = self._standing(reader)
        snapshot_id = self._snapshots.found(begun, reader)
        done = begin.stored(self.storage, self.source, begun.backup_id)
        number = latest_number(reader, self.source) + 1
        why = begun.hindrance(asked, number, standing, self._regions, snapshot_id, done)
        if not why:
            self.reporter.note(f"going on with backup {begun.backup_id}, which was cut off")
            return self._work().carry_out(begun, reader, lease, self._files)
        lease.renew()
        self._let_go(begun, snapshot_id, why)
        return None

    def _asked(self, plan: QueuePlan) -> dict[str, Any]:
        """What makes two requests the same backup: of a full, also that the snapshot is the same."""
        return {**self.request.asked, **({"snapshot_is": self._said.mark} if plan.kind == "full" else {})}

    def _begin(self, reader: CatalogReader | None, lease: Lease) -> dict[str, Any]:
        now = datetime.now(UTC)
        backup_id = layout.new_backup_id(now)
        plan = self._plan(backup_id, reader, self._standing(reader))
        self._require_there(plan)
        if reader is None:
            self._writer(None).prepare()
            self._record_skipped()
            reader = CatalogReader(self.request.destination, self.request.catalog)
        for note in plan.notes:
            self.reporter.note(note)
        for gap in plan.lost:
            self.reporter.warning(f"{planning.describe(gap)} before their backup")
        sequences = next_sequences(reader, self.source, plan.scopes) if plan.keep else {}
        begun = Begun(
            backup_id=backup_id,
            number=latest_number(reader, self.source) + 1,
            started_at=micros(now),
            plan=plan,
            asked=self._asked(plan),
            first=[(topic, region, number) for (topic, region), number in sequences.items()],
        )
        begin.begin(self.storage, self.source, begun)
        return self._work().carry_out(begun, reader, lease, self._files)

    def _record_skipped(self) -> None:
        skipped.record(self._writer(None), self.source, self._skip, time.time_ns() // 1000)
        for scope, _, region, position in sorted(self._skip):
            self.reporter.warning(f"{scope}[{region}] at offset {position} is left out of all backups")

    # --- what is planned

    def _standing(self, reader: CatalogReader | None) -> Standing:
        if reader is None:
            return Standing()
        kinds = {row["source_kind"] for row in reader.rows("source_kinds", source=self.source)}
        if kinds - {QUEUES}:
            raise Refused(
                f"The backups of {self.source} are of another kind ({', '.join(sorted(kinds))}).",
                hint="Give the engine a name of its own.",
            )
        cluster = self._cluster.cluster_id()
        histories = read_histories(reader, self.source, cluster)
        if self.request.mode != "full":
            require_put_back(self.storage, reader, self.source, histories, self._topics)
        try:
            standing = stand(reader, histories, self._topics, self.request.mode)
        except NeedsFull:
            if self.request.mode != "full":
                raise
            standing = Standing()
        if self.request.mode != "full":
            require_all(standing.starts, self._topics, self._existing)
        return replace(standing, watermarks=read_watermarks(reader, self.source, cluster))

    def _plan(self, backup_id: str, reader: CatalogReader | None, standing: Standing) -> QueuePlan:
        request, mode = self.request, self.request.mode
        full = mode == "full" or (mode == "auto" and standing.parent is None)
        start_ts = standing.start_ts
        common: dict[str, Any] = {
            "backup_id": backup_id,
            "source": self.source,
            "standing": standing,
            "topics": self._topics,
            "regions": self._regions,
            # Times of a chain follow each other, whatever a clock says.
            "end_ts": max(self._end_ts, (start_ts or 0) + 1),
            "parallelism": request.parallelism,
        }
        if full:
            if request.snapshot is None:
                raise UsageProblem(
                    f"A full of {self.source} needs a snapshot of the engine.",
                    hint="Say with --snapshot where it is.",
                )
            told = self._said.read
            if told:
                snapshot_json.require_fits(told, self._said.where, self.source, self._regions)
            return planning.plan_full(told=told, **common)
        plan = planning.plan_child(mode="differential" if mode == "differential" else "incremental", **common)
        if reader:
            self._require_not_in_others(plan, reader, common)
            self._compare_files(reader, standing)
        return plan

    def _require_not_in_others(self, plan: QueuePlan, reader: CatalogReader, common: dict[str, Any]) -> None:
        """Raise NeedsFull for a differential which would need what other backups since have in its place."""
        if self.request.mode != "differential" or not plan.lost:
            return
        histories = read_histories(reader, self.source, self._cluster.cluster_id())
        newest = replace(
            stand(reader, histories, self._topics, "incremental"), watermarks=common["standing"].watermarks
        )
        other = planning.plan_child(mode="incremental", **{**common, "standing": newest})
        if not other.lost:
            raise planning.only_incremental(plan.lost)

    def _require_there(self, plan: QueuePlan) -> None:
        """Raise NeedsFull when something is missing that a backup would have to read; the audit log tells."""
        if plan.kind == "full" or not plan.lost:
            return
        if not self.request.dry_run:
            gaps = [
                {
                    name: getattr(gap, name)
                    for name in ("scope", "epoch", "region", "from_position", "to_position")
                }
                for gap in plan.lost[:100]
            ]
            self._writer(None).append_audit(
                Audit(
                    at=time.time_ns() // 1000,
                    actor=holder(),
                    action="queue gap",
                    subject=self.source,
                    detail=json.dumps({"missing": gaps, "partitions": len(plan.lost)}),
                )
            )
        raise planning.needs_full(plan.lost)

    def _compare_files(self, reader: CatalogReader, standing: Standing) -> None:
        """Look whether the engine's files go on from those of the parent."""
        if standing.parent is None:
            return
        known = reader.rows("queue_versions", backup_id=standing.parent.backup_id)
        before = [(row["version"], row["from_tid"]) for row in known]
        if before and self._files.schema is None:
            raise UsageProblem(
                f"Backup {standing.parent.backup_id} has a history of schemas, and nobody said where it is.",
                hint="Give --schema FILE: it travels with every backup.",
            )
        lacking = schema_history.unlike(self._files.versions, before)
        if lacking and not standing.restored:
            self.reporter.warning(
                f"{self.request.schema} does not go on from that of backup {standing.parent.backup_id}: "
                f"version {lacking[0]}, valid from tid {lacking[1]}, is not in it"
            )

    def _let_go(self, begun: Begun, snapshot_id: str | None, why: str) -> None:
        """Take away what a run left that is not gone on with."""
        if snapshot_id:
            # First: once nothing says what was begun, nobody knows that the hold is of no use.
            self._snapshots.release(snapshot_id, begun)
        count = begin.take_away(self.storage, self.source, begun)
        self.reporter.note(
            f"backup {begun.backup_id} was cut off and is not gone on with, since {why}; its {count} files "
            "of messages are taken away"
        )

    def _work(self) -> Work:
        return Work(
            request=self.request,
            storage=self.storage,
            source=self.source,
            cluster=self._cluster,
            topics=self._topics,
            said_at=self._said.where,
            snapshots=self._snapshots,
            session=lambda: self.spark,
            reporter=self.reporter,
            skipped=self._skipped,
        )

    def _reader(self) -> CatalogReader:
        return CatalogReader(self.request.destination, self.request.catalog)

    def _writer(self, spark: SparkSession | None) -> CatalogWriter:
        return CatalogWriter.open(spark, self.request.destination, self.request.catalog)

    def _catalog(self) -> CatalogReader | None:
        """What was backed up so far, brought up to this version; None: there is no catalog yet."""
        writer = self._writer(None)
        if writer.version() is None:
            return None
        writer.prepare()
        return self._reader()
