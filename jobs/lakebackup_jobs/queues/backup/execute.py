"""What is done of a backup of queues that was begun: its tasks are run, what is open is worked out, and it is
published: the rows beside the messages, the manifest, the row in the catalog.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NotFound, Refused
from lakebackup.formats.queues import snapshot_json
from lakebackup.plan.queues import backup as planning
from lakebackup.rows.backups import Backup
from lakebackup.rows.base import QUEUES
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.store import manifest as sidecar
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.task_progress import TaskBoard
from lakebackup_jobs.lifecycle.task_totals import OUTCOME, Totals, totals
from lakebackup_jobs.queues.backup import open_transactions as ending
from lakebackup_jobs.queues.backup import resume as begin
from lakebackup_jobs.queues.backup.copy_task import QueueCopyJob
from lakebackup_jobs.queues.backup.request import CONFIG, SCHEMA, put_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.formats.queues.schema_history import Version
    from lakebackup.plan.queues.backup import QueuePlan
    from lakebackup.plan.topics.backup import TopicState
    from lakebackup.rows.backups import DataFile
    from lakebackup.rows.queues import QueuePoint
    from lakebackup.storage import Storage
    from lakebackup.store.lease import Lease
    from lakebackup_jobs.kafka.admin.cluster import Cluster
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.queues.backup.full_snapshot import FullSnapshot
    from lakebackup_jobs.queues.backup.request import Files, QueueRequest
    from lakebackup_jobs.queues.backup.resume import Begun
    from lakebackup_jobs.queues.backup.skipped import Place
    from lakebackup_jobs.queues.transaction_scan import RangeSeen

ISOLATION = "read_committed"


@dataclass(frozen=True, slots=True)
class Work:
    """What every backup of one run is carried out with. `said_at`: where the engine says where it stands;
    `session`: a session of Spark's, made when much is to be done."""

    request: QueueRequest
    storage: Storage
    source: str
    cluster: Cluster
    topics: Sequence[TopicState]
    said_at: str
    snapshots: FullSnapshot
    session: Callable[[], SparkSession]
    reporter: Reporter
    skipped: frozenset[Place] = frozenset()

    def carry_out(self, begun: Begun, reader: CatalogReader, lease: Lease, files: Files) -> dict[str, Any]:
        """Read what has not been read yet, and publish; what a person wants to know of the backup.

        `files`: the engine's as they are now; those of a backup that was cut off are as they were.
        """
        plan = begun.plan
        files = put_aside(self.storage, self.source, begun.backup_id, files)
        found, tasks, made = self._read(begun, reader)
        ranges = ending.ranges_of(self.storage, self.source, begun.backup_id, len(plan.tasks))
        if plan.snapshot_tid is not None:
            self._require_true(plan.snapshot_tid, ranges, found)
        self._warn_of_schema(ranges, files.versions)
        self._warn_of_lost(found)
        snapshot_id = self.snapshots.take(begun, reader) if plan.kind == "full" else None
        lease.renew()
        point = ending.point_row(plan, self.source, begun.backup_id, ranges, snapshot_id, found.count)
        rows = self._list(begun, found, ranges, tasks, point, files)
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
        self._writer(plan.little).commit_backup(self.storage, manifest, held=lease)
        sidecar.mark(self.storage, layout.marker_path(self.source, begun.backup_id, "complete"))
        begin.end(self.storage, self.source, begun.backup_id)
        return result_of(begun, backup, asdict(point))

    def _read(self, begun: Begun, reader: CatalogReader) -> tuple[ending.Open, int, Totals]:
        """Do the tasks; what is open afterwards, how many tasks they were and what they wrote."""
        plan, made = begun.plan, Totals()
        carried = None
        if plan.open_at and any(r.start < r.own_from for task in plan.tasks for r in task):
            carried = f"{layout.seen_folder(self.source, begun.backup_id)}carried.parquet"
            query = reader.query("queue_carried", backup_id=plan.open_at)
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
        return (
            self._open(begun, tasks, CatalogReader(self.request.destination, self.request.catalog)),
            len(tasks),
            made,
        )

    def _back(
        self, plan: QueuePlan, oldest: int, reader: CatalogReader
    ) -> tuple[tuple[planning.QueueRange, ...], ...]:
        """Where ends of transactions with messages from tid `oldest` on may stand, if it is still there."""
        rows = reader.rows("queue_open_since", source=self.source, tid=oldest)
        lows = {(r["scope"], r["epoch"], r["region"]): int(r["end_position"]) for r in rows}
        for at in self.cluster.positions(self.topics, ISOLATION)[1]:
            place = at.scope, at.epoch, at.region
            lows[place] = max(lows.get(place, 0), at.low)
        return planning.from_lows(plan.look_back, lows)

    def _open(
        self, begun: Begun, tasks: tuple[tuple[planning.QueueRange, ...], ...], reader: CatalogReader
    ) -> ending.Open:
        spark = None if planning.are_little(tasks) else self.session()
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
            skipped=self.skipped,
        )
        board = TaskBoard(self.storage, layout.backup_folder(self.source, begun.backup_id))
        with board.watched(self.reporter.update):
            if planning.are_little(tasks[number] for number in numbers):
                made.add(SimpleNamespace(**job.run(task), error=None) for task in numbers)
            else:
                ordered = self.session().range(numbers.start, numbers.stop, 1, len(numbers))
                with task_errors():
                    made.add(ordered.mapInArrow(job, OUTCOME).collect())  # one row a task
        self.reporter.update(made.entries, made.bytes)

    def _require_true(self, tid: int, ranges: Sequence[RangeSeen], found: ending.Open) -> None:
        """Refused when the queues say otherwise than snapshot.json."""
        for one in ranges:
            place = f"topic {one.scope}, partition {one.region}"
            snapshot_json.require_true(tid, self.said_at, one.last_tid, place, one.last_tid_position)
        early = found.early()
        if early:
            raise Refused(
                f"{self.said_at} says with max_no_transaction_pos before where no open transaction has a "
                f"message, and {early}, and is not ended.",
                hint="What stands on this snapshot would lose messages. Take another one.",
            )
        unlike = found.unlike()
        if unlike:
            raise Refused(
                f"{self.said_at} says that transaction {unlike[0]} is open, and in the queues it is not: "
                "it has no message before the snapshot's positions, or it was ended there.",
                hint="What stands on this snapshot would lose or repeat messages. Take another one.",
            )

    def _warn_of_schema(self, ranges: Sequence[RangeSeen], versions: Sequence[Version]) -> None:
        first = min((one.first_tid for one in ranges if one.first_tid is not None), default=None)
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

    # --- what is published

    def _list(
        self,
        begun: Begun,
        found: ending.Open,
        ranges: Sequence[RangeSeen],
        tasks: int,
        point: QueuePoint,
        files: Files,
    ) -> list[DataFile]:
        """The rows beside those of the messages, put once: an earlier attempt's, if it came so far."""
        storage, source, backup_id = self.storage, self.source, begun.backup_id
        part = layout.parts_path(source, backup_id, tasks)
        try:
            return sidecar.read_part(storage, part)
        except NotFound:
            pass
        plan = begun.plan
        listing = ending.Listing(destination_id(storage), source, backup_id, begun.number, plan)
        count = found.count
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
            **made.columns(),
            isolation=ISOLATION,
            codec=self.request.codec,
            note=self.request.note,
        )

    def _writer(self, little: bool) -> CatalogWriter:
        session = None if little else self.session()
        return CatalogWriter.open(session, self.request.destination, self.request.catalog)


def summary(plan: QueuePlan, source: str) -> dict[str, Any]:
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


def result_of(begun: Begun, backup: Backup, point: Mapping[str, Any]) -> dict[str, Any]:
    """What a person wants to know of a backup that exists; `point`: what its row of queue_points has."""
    return {
        "backup_id": begun.backup_id,
        **summary(begun.plan, backup.source),
        "snapshot": point["snapshot_id"],
        "files": backup.files,
        "bytes": backup.bytes,
        "entries": backup.entries,
        "seconds": round((backup.finished_at - backup.started_at) / 1e6, 3),
        **{name: point[name] for name in ("last_tid", "carried", "open_transactions")},
    }
