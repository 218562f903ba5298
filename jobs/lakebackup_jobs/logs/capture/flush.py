"""Plans the flushes of a log task: reads the cluster and the catalog, and lets `plan.logs.flush` decide.

A flush is due at intervals, and earlier once enough bytes wait. When a flush captured nothing, because no
transaction is complete yet, the next one is planned after half an interval.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.plan.logs import flush as log_flush
from lakebackup.plan.logs.flush import FIRST_BYTES, Flush, Newest
from lakebackup.plan.logs.restore import NEVER
from lakebackup.plan.partitions import BackupRows, PartitionKey, RegionState, TopicState
from lakebackup.plan.topics.forks import BackupEnd, cut_back
from lakebackup.requests import Request
from lakebackup.rows.backups import Gap, Position
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client.epochs import Logs
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.logs import skips
from lakebackup_jobs.logs.capture.flush_task import CaptureJob
from lakebackup_jobs.logs.capture.fold_task import FoldJob
from lakebackup_jobs.logs.feeds import ISOLATION, Range
from lakebackup_jobs.logs.feeds.registry import feed_of
from lakebackup_jobs.logs.task import TaskSettings, keys_of, settings_of, settings_text

# How long a list of the cluster's topics is reused while no flush is due.
_TOPICS_S = 10.0
# The least mean size of an event that is assumed, however small the last events were.
_LEAST_BYTES = 128


@dataclass(frozen=True, slots=True)
class LogRequest(Request):
    """A task as its job runs it. `kafka`: librdkafka properties with bootstrap.servers; may hold secrets.

    `scratch`: folder of the Spark tasks' temporary files. `tries`: after so many passing errors in a row the
    task pauses. The wait doubles after each. `recipients`: who can read the files; without recipients, a key
    of `keys_file` encrypts them if the settings say so.
    """

    name: str
    settings: TaskSettings
    kafka: Mapping[str, str] = field(repr=False)
    keys_file: str | None = None
    recipients: tuple[str, ...] = ()
    scratch: str | None = None
    parallelism: int = os.cpu_count() or 2
    tries: int = 6


class Planner:
    """Plans one flush after another, each when it is due. Caches the state of the cluster and catalog."""

    def __init__(self, request: LogRequest) -> None:
        self._request = request
        self._feed = feed_of(request.settings, request.kafka)
        self._cluster = Cluster(request.kafka)
        self._topics: list[TopicState] = []
        self._topics_time = -_TOPICS_S
        self._stale = True
        self._due = 0.0  # on the monotonic clock
        self._planned_state: tuple[str | None, int] | None = None
        self._idle = False
        self._first_ends: dict[tuple[str, str, str], int] | None = None
        self._newest: Newest | None = None
        self._end_offsets: dict[PartitionKey, int] = {}
        self._epochs: dict[PartitionKey, int | None] = {}  # leader's epoch at the end offset
        self._uncut_ends: set[tuple[PartitionKey, int, int | None]] = set()
        self._mean_bytes: float = FIRST_BYTES
        self._last_backup_id: str | None = None

    def plan(self, *, immediate: bool = False) -> Flush | None:
        """The next flush, or None when it is not due or there are no new events.

        With `immediate`, flushes follow each other whether they are due or not, until all events that existed
        at the first call are flushed. Raises Refused (Kafka lost events), NotFound (no topic) and
        EnvironmentProblem.
        """
        if self._stale:
            self._read_catalog()
        settings = self._request.settings
        if not immediate and time.monotonic() - self._topics_time < _TOPICS_S and self._topics:
            topics = self._topics
        else:
            topics = self._describe_topics()
        instant, regions = self._cluster.positions(topics, ISOLATION)
        cuts = self._find_cuts(regions)
        regions = self._limit_to_first_ends(regions) if immediate else regions
        waiting_count = log_flush.waiting(regions, {**self._end_offsets, **cuts})
        is_immediate = (
            immediate or waiting_count * self._mean_bytes >= settings.flush_bytes
        ) and not self._idle
        # A cut cannot wait: once the partition grows again, new events have the offsets of old ones.
        if cuts or (waiting_count and (is_immediate or (not immediate and time.monotonic() >= self._due))):
            return self._new_flush(topics, regions, instant, cuts)
        return None

    def _find_cuts(self, regions: Sequence[RegionState]) -> dict[PartitionKey, int]:
        """The partitions whose log was cut back behind what was read of them, and the offset of the cut."""
        current_regions = {region.key: region for region in regions}
        ends = [
            BackupEnd(0, *partition, end, self._epochs[partition])
            for partition, end in self._end_offsets.items()
            if partition in current_regions
            and (
                (partition, end, current_regions[partition].leader_epoch) not in self._uncut_ends
                or end > current_regions[partition].high
            )
        ]
        cuts = cut_back(ends, current_regions, Logs(self._request.kafka, lambda _: {}))
        # The log of a partition with a new leader is asked only once.
        self._uncut_ends |= {
            (e.partition, e.position, current_regions[e.partition].leader_epoch)
            for e in ends
            if e.partition not in cuts
        }
        return cuts

    def _limit_to_first_ends(self, regions: Sequence[RegionState]) -> list[RegionState]:
        """The regions, each cut to its end at the first call."""
        partitions = [(region.scope, region.epoch, region.region) for region in regions]
        if self._first_ends is None:
            self._first_ends = {
                partition: region.end for partition, region in zip(partitions, regions, strict=True)
            }
        ends = [self._first_ends.get(partition, 0) for partition in partitions]
        return [
            replace(region, end=min(region.end, max(region.low, end)))
            for region, end in zip(regions, ends, strict=True)
        ]

    def waits_by_topic(self) -> dict[str, int]:
        """The number of events of each topic that are not flushed yet, without topics that have none."""
        self._read_catalog()
        _, regions = self._cluster.positions(self._describe_topics(), ISOLATION)
        counts: dict[str, int] = {}
        for region in regions:
            counts[region.scope] = counts.get(region.scope, 0) + log_flush.waiting(
                [region], self._end_offsets
            )
        return {topic: count for topic, count in sorted(counts.items()) if count}

    def _new_flush(
        self,
        topics: Sequence[TopicState],
        regions: Sequence[RegionState],
        instant: int,
        cuts: Mapping[PartitionKey, int],
    ) -> Flush:
        request, settings, source = self._request, self._request.settings, self._request.name
        start_time = datetime.now(UTC)
        backup_id = layout.new_backup_id(start_time)
        self._stale = True
        rows = BackupRows(backup_id, source, instant)
        gaps = log_flush.gaps(
            rows, regions, self._end_offsets, self._newest, allowed=settings.allow_gaps, cuts=cuts
        )
        floor = self._floor(regions) if self._newest is None else None
        context = self._feed.prepare(
            open_storage(request.destination),
            layout.backup_folder(source, backup_id),
            layout.backup_folder(source, self._last_backup_id) if self._last_backup_id else None,
            self._newest.checkpoint if self._newest else floor,
        )
        most_offsets = max(1, int(settings.flush_bytes / self._mean_bytes))
        positions = log_flush.positions(rows, regions, {**self._end_offsets, **cuts}, most_offsets, cuts)
        reader = self._reader()
        gaps += self._skipped_gaps(rows, positions, reader)
        number = latest_number(reader, source)
        self._planned_state = (self._newest.backup_id if self._newest else None, number)
        return Flush(
            backup_id=backup_id,
            number=number + 1,
            started_at=micros(start_time),
            instant=instant,
            newest=self._newest,
            floor=floor,
            since=settings.lastbackupts,
            positions=positions,
            scopes=tuple(rows.scope(topic, settings=settings_text(settings)) for topic in topics),
            gaps=gaps,
            tasks=log_flush.tasks(positions, request.parallelism),
            left_out=write_excluded_tables(request, reader, backup_id),
            context=context,
        )

    def _skipped_gaps(
        self, rows: BackupRows, positions: Sequence[Position], reader: CatalogReader
    ) -> tuple[Gap, ...]:
        """The gaps of messages that a person told the task to skip, and that no flush recorded yet."""
        texts, source = self._request.settings.skip, self._request.name
        if not texts:
            return ()
        gaps = reader.rows("log_restore_gaps", source=source, start_ts=-1, end_ts=NEVER)
        recorded = {
            (row["scope"], row["region"], row["from_position"])
            for row in gaps
            if row["reason"] == skips.REASON
        }
        from_ts = self._newest.end_ts if self._newest else 0
        return tuple(skips.gaps(rows, texts, positions, recorded, from_ts))

    def _floor(self, regions: Sequence[RegionState]) -> int | None:
        settings, late_partitions = self._request.settings, []
        if settings.lastbackupts is not None:
            purged_regions = [region for region in regions if region.low]
            since_ms = log_flush.physical_ms(settings.lastbackupts, self._feed.domain)
            # The times of messages are when they were sent, which is after they were committed.
            for region, first_offset in zip(
                purged_regions, self._cluster.offsets_at(purged_regions, since_ms), strict=True
            ):
                # -1: no message is that new. If the partition is empty, the age of deleted events is unknown.
                if first_offset == region.low or (first_offset < 0 and region.low == region.end):
                    late_partitions.append(f"topic {region.scope}, partition {region.region}")
        return log_flush.first_floor(
            regions, settings.lastbackupts, late_partitions, allowed=settings.allow_gaps
        )

    def _describe_topics(self) -> list[TopicState]:
        names = self._feed.topics(self._cluster.topic_names())
        self._topics, self._topics_time = self._cluster.describe(names), time.monotonic()
        return self._topics

    def _read_catalog(self) -> None:
        """Read from the catalog up to which offsets the log reaches, and when the next flush is due."""
        reader, source = self._reader(), self._request.name
        row = reader.first_row("log_newest", source=source)
        self._newest = Newest(**row) if row else None
        rows = {
            (row["scope"], row["epoch"], row["region"]): row
            for row in reader.rows("log_positions", source=source)
        }
        self._end_offsets = {partition: row["end_position"] for partition, row in rows.items()}
        self._epochs = {partition: row["leader_epoch"] for partition, row in rows.items()}
        self._uncut_ends = {e for e in self._uncut_ends if self._end_offsets.get(e[0]) == e[1]}
        last_flush = reader.first_row("log_read", source=source)
        self._last_backup_id = last_flush["backup_id"] if last_flush else None
        last_times = (last_flush["started_at"], last_flush["finished_at"]) if last_flush else None
        if last_flush and last_flush["offsets"]:
            self._mean_bytes = max((last_flush["raw_bytes"] or 0) / last_flush["offsets"], _LEAST_BYTES)
        # Idle: the last planned flush captured nothing, as no transaction is complete yet. No backup has its
        # number.
        state = (self._newest.backup_id if self._newest else None, latest_number(reader, source))
        self._idle = state == self._planned_state
        every_s = self._request.settings.flush_every_s
        wait_s = every_s / 2 if self._idle else log_flush.due_in(last_times, every_s, time.time())
        self._due = time.monotonic() + wait_s
        self._stale = False

    def _reader(self) -> CatalogReader:
        """A reader of the catalog as it is now."""
        return CatalogReader(self._request.destination, self._request.catalog)


def write_excluded_tables(request: LogRequest, reader: CatalogReader, backup_id: str) -> str | None:
    """Write the ids of the tables that never had a name in the filter; returns the object's path, if any."""
    if not request.settings.filters:
        return None
    names = reader.rows("log_names", source=request.name)
    ids = sorted({row["table_id"] for row in names} - chosen_tables(request.settings, names))
    if not ids:
        return None
    path = f"{layout.backup_folder(request.name, backup_id)}left-out.parquet"
    rows = pa.record_batch({"table_id": pa.array(ids, pa.int64())})
    write_rows(open_storage(request.destination), path, rows.schema, [rows])
    return path


def chosen_tables(settings: TaskSettings, names: Sequence[Mapping[str, Any]]) -> set[int]:
    """The ids of the tables that have or had a name in the filter of a task. `names`: rows of log_names."""
    tables = settings.table_filter
    return {row["table_id"] for row in names if tables.matches(row["db"], row["name"])}


def is_wanted(request: LogRequest, flush: Flush) -> bool:
    """Whether a flush was planned with the task's present settings.

    If not, another flush takes its place: it may lack events that the task is to capture now, or hold events
    that later flushes drop.
    """
    return all(settings_of(scope.settings) == request.settings for scope in flush.scopes)


def capture_job(request: LogRequest, flush: Flush, encryption: RunEncryption | None = None) -> CaptureJob:
    """The job of a flush's capture tasks. With `encryption`, the object of the backup's data key is written.

    Raises NotFound and UsageProblem for the key file.
    """
    settings, parts = request.settings, _parts(request, flush)
    storage = open_storage(request.destination)
    is_by_key_file = settings.encrypt and encryption is None
    ranges = [
        Range(p.scope, int(p.region), p.epoch, p.start_position, p.end_position) for p in flush.positions
    ]
    return CaptureJob(
        **parts,
        key=None if encryption is None else encryption.stored_key(storage, request.name, flush.backup_id),
        client=dict(request.kafka),
        tasks=tuple(tuple(ranges[number] for number in task) for task in flush.tasks),
        codec=settings.codec,
        cipher=keys_of(request.name, request.keys_file).cipher if is_by_key_file else None,
        excluded_tables_path=flush.left_out,
        after_ts=flush.since,
        until_ts=settings.endts,
        scratch=request.scratch,
    )


def fold_job(request: LogRequest, flush: Flush) -> FoldJob:
    """The job of a flush's last task. Raises as `capture_job`."""
    return FoldJob(
        **_parts(request, flush),
        catalog=request.catalog,
        tasks=len(flush.tasks),
        resolved_ts=flush.resolved_ts,
        tables=request.settings.table_filter,
        # Meta keys of earlier flushes may be encrypted when this one's are not.
        keys=LogKeys.load(request.keys_file) if request.keys_file else None,
    )


def _parts(request: LogRequest, flush: Flush) -> dict[str, Any]:
    """The fields that both jobs of a flush have."""
    storage = open_storage(request.destination)
    return {
        "uri": storage.uri,
        "destination": destination_id(storage),
        "source": request.name,
        "backup_id": flush.backup_id,
        "number": flush.number,
        "parent": flush.newest.backup_id if flush.newest else None,
        "feed": feed_of(request.settings, request.kafka),
        "context": flush.context,
    }
