"""Back up an engine's queues: fix the offsets, copy their messages, work out what is open, publish.

A full is a backup of the engine's snapshot, by the job that backs up snapshots, and one of the queues that
says where it stands in them. Order of publishing: as for topics. Little work is done in this process; Spark
is asked when there are many messages to read, and for the first backup of a destination.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lakebackup import layout, patterns, sidecar
from lakebackup.engine.failures import task_errors
from lakebackup.errors import NeedsFull, NotFound, Refused, UsageProblem
from lakebackup.lease import Lease
from lakebackup.model import QUEUES, Audit, Backup
from lakebackup.plan import backup_queue as planning
from lakebackup.plan.queue_history import (
    Standing,
    read_histories,
    read_watermarks,
    require_all,
    stand,
)
from lakebackup.queues import schema_history, snapshot_json
from lakebackup.storage import open_storage
from lakebackup.store import CatalogReader, CatalogWriter, destination_id
from lakebackup_jobs import backup_snapshot
from lakebackup_jobs.backup_topics import latest_number, next_sequences
from lakebackup_jobs.identity import holder, micros
from lakebackup_jobs.kafka.cluster import Cluster
from lakebackup_jobs.queues import begun as begin
from lakebackup_jobs.queues import ending
from lakebackup_jobs.queues.begun import Begun
from lakebackup_jobs.queues.copy_task import QueueCopyJob
from lakebackup_jobs.queues.cut import Tails
from lakebackup_jobs.queues.full_snapshot import FullSnapshot
from lakebackup_jobs.queues.put_back import require_put_back
from lakebackup_jobs.queues.request import CONFIG, SCHEMA, QueueRequest, files_of, put_aside, said_of
from lakebackup_jobs.tally import OUTCOME, Totals, totals
from lakebackup_jobs.taskboard import TaskBoard
from lakebackup_sql import names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.model import DataFile
    from lakebackup.plan.backup_queue import QueuePlan
    from lakebackup.storage import Storage
    from lakebackup_jobs.progress import Reporter
    from lakebackup_jobs.queues.seen import RangeSeen

ISOLATION = "read_committed"


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
        tails = Tails(dict(request.kafka), ISOLATION, request.names)
        self._regions = tails.settled(regions, lambda: self._cluster.positions(self._topics, ISOLATION)[1])
        # Read behind the ends: a schema is in its history before the first message that has it is written.
        self._files = files_of(request)

    @property
    def spark(self) -> SparkSession:
        """The session, made when it is first needed."""
        if self._spark is None:
            from lakebackup_jobs.session import spark_session

            self._spark = spark_session(remote=self.request.remote)
        return self._spark

    def foresee(self) -> dict[str, Any]:
        """What would be done; nothing is written."""
        reader = CatalogReader.open(self.request.destination, self.request.catalog)
        plan = self._plan(layout.new_backup_id(datetime.now(UTC)), reader, self._standing(reader))
        self._require_there(plan)
        for note in plan.notes:
            self.reporter.note(note)
        told = {"dry_run": True, **_summary(plan, self.source)}
        if plan.kind == "full":
            told["snapshot"] = backup_snapshot.run(
                replace(self._snapshots.request("dry run"), dry_run=True), reporter=self.reporter
            )
        return told

    def take(self, lease: Lease) -> dict[str, Any]:
        """End what was cut off, then take a new backup. A full that was ended is what is asked for."""
        reader = self._catalog()
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
            return _told(begun, manifest.backup, point)
        standing = self._standing(reader)
        snapshot_id = self._snapshots.found(begun, reader)
        done = begin.stored(self.storage, self.source, begun.backup_id)
        number = latest_number(reader, self.source) + 1
        why = begun.hindrance(asked, number, standing, self._regions, snapshot_id, done)
        if not why:
            self.reporter.note(f"going on with backup {begun.backup_id}, which was cut off")
            return self._carry_out(begun, reader, lease)
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
            self._migrate()
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
        return self._carry_out(begun, reader, lease)

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

    # --- what is done

    def _carry_out(self, begun: Begun, reader: CatalogReader, lease: Lease) -> dict[str, Any]:
        """Read what has not been read yet, and publish."""
        plan = begun.plan
        # From here on they are those of its beginning, also in a run that goes on with it.
        self._files = put_aside(self.storage, self.source, begun.backup_id, self._files)
        found, tasks, made = self._read(begun, reader)
        ranges = ending.ranges_of(self.storage, self.source, begun.backup_id, len(plan.tasks))
        if plan.snapshot_tid is not None:
            self._require_true(plan.snapshot_tid, ranges, found)
        self._warn_of_schema(ranges)
        self._warn_of_lost(found)
        snapshot_id = self._snapshots.take(begun, reader) if plan.kind == "full" else None
        lease.renew()
        rows = self._list(begun, found, ranges, tasks, snapshot_id)
        made.add([SimpleNamespace(**totals(tasks, rows), error=None)])
        backup = self._row(begun, made)
        manifest = sidecar.Manifest(
            backup=backup,
            positions=plan.positions,
            scopes=plan.scopes,
            gaps=plan.lost,
            parts=tasks + 1,
        )
        lease.renew()
        sidecar.write_manifest(self.storage, layout.manifest_path(self.source, begun.backup_id), manifest)
        self._writer(None if plan.little else self.spark).commit_backup(self.storage, manifest, held=lease)
        sidecar.mark(self.storage, layout.marker_path(self.source, begun.backup_id, "complete"))
        begin.end(self.storage, self.source, begun.backup_id)
        point = {
            "snapshot_id": snapshot_id,
            "last_tid": ending.last_tid(plan, ranges),
            "carried": sum(one.carried for one in ranges) if plan.keep else 0,
            "open_transactions": found.count,
        }
        return _told(begun, backup, point)

    def _read(self, begun: Begun, reader: CatalogReader) -> tuple[ending.Open, int, Totals]:
        """Do the tasks; what is open afterwards, how many tasks they were and what they wrote."""
        plan, made = begun.plan, Totals()
        carried = None
        if plan.open_at and any(r.start < r.own_from for task in plan.tasks for r in task):
            carried = f"{layout.seen_folder(self.source, begun.backup_id)}carried.parquet"
            query = reader.query("queue_carried_rows", backup_id=plan.open_at)
            ending.write_ids(self.storage, carried, query)
        self.reporter.start(plan.offsets, None, "backup")
        self._do(begun, plan.tasks, range(len(plan.tasks)), carried, plan.keep, made)
        found = self._open(begun, plan.tasks, reader)
        if not plan.look_back or not found.count:
            return found, len(plan.tasks), made
        path = f"{layout.seen_folder(self.source, begun.backup_id)}candidates.parquet"
        oldest = found.suspects(path)
        if oldest is None:
            return found, len(plan.tasks), made
        back = self._back(plan, oldest, reader)
        tasks = (*plan.tasks, *back)
        self.reporter.start(planning.offsets_of(back), None, "look for ends of transactions")
        self._do(begun, tasks, range(len(plan.tasks), len(tasks)), path, False, made)
        return self._open(begun, tasks, self._reader()), len(tasks), made

    def _back(
        self, plan: QueuePlan, oldest: int, reader: CatalogReader
    ) -> tuple[tuple[planning.QueueRange, ...], ...]:
        """Where ends of transactions with messages from tid `oldest` on may stand, if it is still there."""
        rows = reader.rows("queue_open_since", source=self.source, tid=oldest)
        lows = {(r["scope"], r["epoch"], r["region"]): int(r["end_position"]) for r in rows}
        for at in self._cluster.positions(self._topics, ISOLATION)[1]:
            place = at.scope, at.epoch, at.region
            lows[place] = max(lows.get(place, 0), at.low)
        return planning.from_lows(plan.look_back, lows)

    def _open(
        self, begun: Begun, tasks: tuple[tuple[planning.QueueRange, ...], ...], reader: CatalogReader
    ) -> ending.Open:
        spark = None if planning.are_little(tasks) else self.spark
        return ending.Open(self.storage, self.source, begun.backup_id, len(tasks), begun.plan, reader, spark)

    def _do(
        self,
        begun: Begun,
        tasks: tuple[tuple[planning.QueueRange, ...], ...],
        numbers: range,
        carried: str | None,
        keep: bool,
        made: Totals,
    ) -> None:
        request, plan = self.request, begun.plan
        if not numbers:
            return
        job = QueueCopyJob(
            destination_uri=self.storage.uri,
            destination=destination_id(self.storage),
            source=self.source,
            backup_id=begun.backup_id,
            number=begun.number,
            level=plan.level,
            parent=plan.parent.backup_id if plan.parent else None,
            client=dict(request.kafka),
            isolation=ISOLATION,
            codec=request.codec,
            compression_level=request.compression_level,
            target_bytes=request.target_bytes,
            tasks=tasks,
            sequences={(topic, region): number for topic, region, number in begun.first},
            report=True,
            names=request.names,
            carried=carried,
            keep=keep,
            watermarks=frozenset(plan.watermarks),
        )
        board = TaskBoard(self.storage, layout.backup_folder(self.source, begun.backup_id))
        with board.watched(self.reporter.update):
            if planning.are_little(tasks[number] for number in numbers):
                made.add(SimpleNamespace(**job.run(task), error=None) for task in numbers)
            else:
                ordered = self.spark.range(numbers.start, numbers.stop, 1, len(numbers))
                with task_errors():
                    made.add(ordered.mapInArrow(job, OUTCOME).collect())  # one row a task
        self.reporter.update(made.entries, made.bytes)

    def _require_true(self, tid: int, ranges: Sequence[RangeSeen], found: ending.Open) -> None:
        """Refused when the queues say otherwise than snapshot.json."""
        for one in ranges:
            place = f"topic {one.scope}, partition {one.region}"
            snapshot_json.require_true(tid, self._said.where, one.last_tid, place, one.last_tid_position)
        early = found.early()
        if early:
            raise Refused(
                f"{self._said.where} says with max_no_transaction_pos before where no open transaction has a "
                f"message, and {early}, and is not ended.",
                hint="What stands on this snapshot would lose messages. Take another one.",
            )
        unlike = found.unlike()
        if unlike:
            raise Refused(
                f"{self._said.where} says that transaction {unlike[0]} is open, and in the queues it is not: "
                "it has no message before the snapshot's positions, or it was ended there.",
                hint="What stands on this snapshot would lose or repeat messages. Take another one.",
            )

    def _warn_of_schema(self, ranges: Sequence[RangeSeen]) -> None:
        first = min((one.first_tid for one in ranges if one.first_tid is not None), default=None)
        versions = self._files.versions
        if versions and first is not None and first < versions[0].tid:
            self.reporter.warning(
                f"there are messages from tid {first} on, and {self.request.schema} says nothing of the time "
                f"before tid {versions[0].tid}"
            )

    def _warn_of_lost(self, found: ending.Open) -> None:
        count, some = found.lost()
        if count:
            self.reporter.warning(
                f"{count} transactions are open and have messages that the queues hold no more, such as "
                f"{some[0]}: nothing goes on with them from this full"
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

    # --- what is published

    def _list(
        self,
        begun: Begun,
        found: ending.Open,
        ranges: Sequence[RangeSeen],
        tasks: int,
        snapshot_id: str | None,
    ) -> list[DataFile]:
        """The rows beside those of the messages, put once: an earlier attempt's, if it came so far."""
        storage, source, backup_id = self.storage, self.source, begun.backup_id
        part = layout.parts_path(source, backup_id, tasks)
        try:
            return sidecar.read_part(storage, part)
        except NotFound:
            pass
        plan, files = begun.plan, self._files
        listing = ending.Listing(destination_id(storage), source, backup_id, begun.number, plan)
        count = found.count
        point = ending.point_row(plan, source, backup_id, ranges, snapshot_id, count)
        positions = ending.position_rows(plan, source, backup_id, ranges, found.places() if count else {})
        listing.add("queue_points", ending.put_rows(storage, source, backup_id, "queue_points", [point]))
        listing.add(
            "queue_positions", ending.put_rows(storage, source, backup_id, "queue_positions", positions)
        )
        if count:
            path = ending.listing_path(source, backup_id, "queue_transactions")
            put = found.write(path, "queue_open_rows", backup_id=backup_id, source=source)
            listing.add("queue_transactions", put)
        if files.versions:
            rows = ending.schema_rows(source, backup_id, files.versions)
            listing.add("queue_schemas", ending.put_rows(storage, source, backup_id, "queue_schemas", rows))
        if files.config is not None:
            listing.file(layout.queue_file_path(source, backup_id, CONFIG), "config", files.config)
        if files.schema is not None:
            listing.file(layout.queue_file_path(source, backup_id, SCHEMA), "schema", files.schema)
        return sidecar.write_part(storage, part, listing.rows)

    def _row(self, begun: Begun, made: Totals) -> Backup:
        plan, parent = begun.plan, begun.plan.parent
        return Backup(
            backup_id=begun.backup_id,
            number=begun.number,
            source=self.source,
            source_kind=QUEUES,
            destination=destination_id(self.storage),
            kind=plan.kind,
            level=plan.level,
            parent=parent.backup_id if parent else None,
            base=parent.base if parent else begun.backup_id,
            chain_position=parent.chain_position + 1 if parent else 0,
            place=begun.number,
            parent_place=parent.place if parent else None,
            start_ts=plan.end_ts - 1 if plan.start_ts is None else plan.start_ts,
            end_ts=plan.end_ts,
            started_at=begun.started_at,
            finished_at=micros(datetime.now(UTC)),
            files=made.files,
            bytes=made.bytes,
            entries=made.entries,
            digest=made.digest.hex(),
            isolation=ISOLATION,
            codec=self.request.codec,
            created_by=holder(),
            tool=f"lakebackup {version('lakebackup')}",
            note=self.request.note,
        )

    def _reader(self) -> CatalogReader:
        return CatalogReader(self.request.destination, self.request.catalog)

    def _writer(self, spark: SparkSession | None) -> CatalogWriter:
        return CatalogWriter.open(spark, self.request.destination, self.request.catalog)

    def _catalog(self) -> CatalogReader | None:
        """What was backed up so far, brought up to this version; None: there is no catalog yet."""
        version = self._writer(None).version()
        if version is None:
            return None
        if version < len(names("migrations")):
            self._migrate()
        return self._reader()

    def _migrate(self) -> None:
        self._writer(self.spark).migrate()


def _summary(plan: QueuePlan, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "kind": plan.kind,
        "parent": plan.parent.backup_id if plan.parent else None,
        "restore": plan.restore_id,
        "topics": len(plan.scopes),
        "partitions": len(plan.positions),
        "offsets": plan.offsets,
        "end_ts": plan.end_ts,
        "gaps": len(plan.lost),
    }


def _told(begun: Begun, backup: Backup, point: Mapping[str, Any]) -> dict[str, Any]:
    """What a person wants to know of a backup that exists; `point`: what its row of queue_points has."""
    return {
        "backup_id": begun.backup_id,
        **_summary(begun.plan, backup.source),
        "snapshot": point["snapshot_id"],
        "files": backup.files,
        "bytes": backup.bytes,
        "entries": backup.entries,
        "seconds": round((backup.finished_at - backup.started_at) / 1e6, 3),
        **{name: point[name] for name in ("last_tid", "carried", "open_transactions")},
    }


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """As a program for spark-submit: the arguments of `lakebackup backup queue`."""
    from lakebackup_jobs.cli import run_verb

    return run_verb(["backup", "queue"], argv, spark=spark)


if __name__ == "__main__":
    raise SystemExit(main())
