"""When a log task flushes, and what: reads the cluster and the catalog, and lets `plan.logs.flush` decide."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup.plan.logs import flush as log_flush
from lakebackup.plan.logs.flush import FIRST_BYTES, Flush, Newest
from lakebackup.plan.logs.restore import NEVER
from lakebackup.plan.partitions import BackupRows
from lakebackup.plan.topics.forks import BackupEnd, cut_back
from lakebackup.requests import Request
from lakebackup.rules import layout
from lakebackup.storage import open_storage
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
from lakebackup_jobs.logs.feeds import ISOLATION, Range, feed_of
from lakebackup_jobs.logs.task import keys_of, settings_of, settings_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from lakebackup.plan.partitions import Place, RegionState, TopicState
    from lakebackup.rows.backups import Gap, Position
    from lakebackup_jobs.logs.task import TaskSettings

# How long a list of the cluster's topics is reused while no flush is due.
_TOPICS_S = 10.0
# Events are taken to be at least as large, however small the last ones were.
_LEAST_BYTES = 128


@dataclass(frozen=True, slots=True)
class LogRequest(Request):
    """A task as its job runs it. `kafka`: librdkafka properties with bootstrap.servers; may hold secrets.

    `scratch`: folder of tasks' temporary files. `tries`: how often what fails for a while is tried, each time
    after twice the wait, before the task pauses.
    """

    name: str
    settings: TaskSettings
    kafka: Mapping[str, str] = field(repr=False)
    keys_file: str | None = None
    scratch: str | None = None
    parallelism: int = os.cpu_count() or 2
    tries: int = 6


class Planner:
    """Plans one flush after another, each when it is due; remembers between them what it has read."""

    def __init__(self, request: LogRequest) -> None:
        self._request = request
        self._feed = feed_of(request.settings, request.kafka)
        self._cluster = Cluster(request.kafka)
        self._topics: list[TopicState] = []
        self._asked = -_TOPICS_S
        self._stale = True
        self._due = 0.0  # on the monotonic clock
        self._stood: tuple[str | None, int] | None = None
        self._idle = False
        self._ends: dict[tuple[str, str, str], int] | None = None
        self._newest: Newest | None = None
        self._known: dict[Place, int] = {}
        self._epochs: dict[Place, int | None] = {}  # of the leader when it was read up to there
        self._uncut: set[tuple[Place, int, int | None]] = set()
        self._mean: float = FIRST_BYTES
        self._before: str | None = None

    def plan(self, *, now: bool = False) -> Flush | None:
        """The next flush when it is due; None when it is not, or nothing is new. With `now` one after the
        other, whether due or not, until all that existed at the first call is flushed.

        Raises Refused (events are gone), NotFound (no topic), EnvironmentProblem.
        """
        if self._stale:
            self._look()
        settings = self._request.settings
        if not now and time.monotonic() - self._asked < _TOPICS_S and self._topics:
            topics = self._topics
        else:
            topics = self._ask()
        instant, regions = self._cluster.positions(topics, ISOLATION)
        cuts = self._cut(regions)
        regions = self._as_first_seen(regions) if now else regions
        waits = log_flush.waiting(regions, {**self._known, **cuts})
        at_once = (now or waits * self._mean >= settings.flush_bytes) and not self._idle
        # A cut cannot wait: once the partition has grown again, new events are where others were read.
        if cuts or (waits and (at_once or (not now and time.monotonic() >= self._due))):
            return self._flush(topics, regions, instant, cuts)
        return None

    def _cut(self, regions: Sequence[RegionState]) -> dict[Place, int]:
        """The partitions that were cut back behind what was read of them, and where."""
        now = {region.place: region for region in regions}
        ends = [
            BackupEnd(0, *place, end, self._epochs[place])
            for place, end in self._known.items()
            if place in now
            and ((place, end, now[place].leader_epoch) not in self._uncut or end > now[place].high)
        ]
        cuts = cut_back(ends, now, Logs(self._request.kafka, lambda _: {}))
        # Of a new leader's partition the log is asked once.
        self._uncut |= {(s.where, s.position, now[s.where].leader_epoch) for s in ends if s.where not in cuts}
        return cuts

    def _as_first_seen(self, regions: Sequence[RegionState]) -> list[RegionState]:
        """What has arrived since the first call is left for later."""
        keys = [(region.scope, region.epoch, region.region) for region in regions]
        if self._ends is None:
            self._ends = {key: region.end for key, region in zip(keys, regions, strict=True)}
        ends = [self._ends.get(key, 0) for key in keys]
        return [
            replace(region, end=min(region.end, max(region.low, end)))
            for region, end in zip(regions, ends, strict=True)
        ]

    def waits_by_topic(self) -> dict[str, int]:
        """How many events of each topic are not flushed yet; topics with none are left out."""
        self._look()
        _, regions = self._cluster.positions(self._ask(), ISOLATION)
        found: dict[str, int] = {}
        for region in regions:
            found[region.scope] = found.get(region.scope, 0) + log_flush.waiting([region], self._known)
        return {topic: count for topic, count in sorted(found.items()) if count}

    def _flush(
        self,
        topics: Sequence[TopicState],
        regions: Sequence[RegionState],
        instant: int,
        cuts: Mapping[Place, int],
    ) -> Flush:
        request, settings, source = self._request, self._request.settings, self._request.name
        now = datetime.now(UTC)
        backup_id = layout.new_backup_id(now)
        self._stale = True
        rows = BackupRows(backup_id, source, instant)
        gaps = log_flush.gaps(
            rows, regions, self._known, self._newest, allowed=settings.allow_gaps, cuts=cuts
        )
        floor = self._floor(regions) if self._newest is None else None
        context = self._feed.prepare(
            open_storage(request.destination),
            layout.backup_folder(source, backup_id),
            layout.backup_folder(source, self._before) if self._before else None,
            self._newest.checkpoint if self._newest else floor,
        )
        most = max(1, int(settings.flush_bytes / self._mean))
        positions = log_flush.positions(rows, regions, {**self._known, **cuts}, most, cuts)
        reader = self._reader()
        gaps += self._skipped(rows, positions, reader)
        number = latest_number(reader, source)
        self._stood = (self._newest.backup_id if self._newest else None, number)
        return Flush(
            backup_id=backup_id,
            number=number + 1,
            started_at=micros(now),
            instant=instant,
            newest=self._newest,
            floor=floor,
            since=settings.lastbackupts,
            positions=positions,
            scopes=tuple(rows.scope(topic, settings=settings_text(settings)) for topic in topics),
            gaps=gaps,
            tasks=log_flush.tasks(positions, request.parallelism),
            left_out=left_out(request, reader, backup_id),
            context=context,
        )

    def _skipped(
        self, rows: BackupRows, positions: Sequence[Position], reader: CatalogReader
    ) -> tuple[Gap, ...]:
        """The gaps of the messages that a person left out, as far as no flush recorded them."""
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
        settings, lost = self._request.settings, []
        if settings.lastbackupts is not None:
            cut = [region for region in regions if region.low]
            since = log_flush.physical_ms(settings.lastbackupts, self._feed.domain)
            # Events carry when they were sent, which is after they were committed.
            for region, first in zip(cut, self._cluster.offsets_at(cut, since), strict=True):
                # -1: none is as young, or none is left, and their age is unknown.
                if first == region.low or (first < 0 and region.low == region.end):
                    lost.append(f"topic {region.scope}, partition {region.region}")
        return log_flush.first_floor(regions, settings.lastbackupts, lost, allowed=settings.allow_gaps)

    def _ask(self) -> list[TopicState]:
        names = self._feed.topics(self._cluster.topic_names())
        self._topics, self._asked = self._cluster.describe(names), time.monotonic()
        return self._topics

    def _look(self) -> None:
        """Read from the catalog how far the log is."""
        reader, source = self._reader(), self._request.name
        row = reader.one("log_newest", source=source)
        self._newest = Newest(**row) if row else None
        rows = {
            (row["scope"], row["epoch"], row["region"]): row
            for row in reader.rows("log_positions", source=source)
        }
        self._known = {place: row["end_position"] for place, row in rows.items()}
        self._epochs = {place: row["leader_epoch"] for place, row in rows.items()}
        self._uncut = {one for one in self._uncut if self._known.get(one[0]) == one[1]}
        read = reader.one("log_read", source=source)
        self._before = read["backup_id"] if read else None
        last = (read["started_at"], read["finished_at"]) if read else None
        if read and read["offsets"]:
            self._mean = max((read["raw_bytes"] or 0) / read["offsets"], _LEAST_BYTES)
        # The last plan captured nothing, and nothing else took its number: no transaction is whole yet.
        stood = (self._newest.backup_id if self._newest else None, latest_number(reader, source))
        self._idle = stood == self._stood
        every_s = self._request.settings.flush_every_s
        wait_s = every_s / 2 if self._idle else log_flush.due_in(last, every_s, time.time())
        self._due = time.monotonic() + wait_s
        self._stale = False

    def _reader(self) -> CatalogReader:
        """The catalog as it is now."""
        return CatalogReader(self._request.destination, self._request.catalog)


def left_out(request: LogRequest, reader: CatalogReader, backup_id: str) -> str | None:
    """Write the ids of the tables that never had a name in the filter, for the tasks; the object's path."""
    filters = request.settings.filters
    if not filters:
        return None
    names = reader.rows("log_names", source=request.name)
    ids = sorted({row["table_id"] for row in names} - chosen_tables(filters, names))
    if not ids:
        return None
    path = f"{layout.backup_folder(request.name, backup_id)}left-out.parquet"
    rows = pa.record_batch({"table_id": pa.array(ids, pa.int64())})
    write_rows(open_storage(request.destination), path, rows.schema, [rows])
    return path


def chosen_tables(filters: Sequence[str], names: Sequence[Mapping[str, Any]]) -> set[int]:
    """Ids of the tables with a name in the filter; `names`: rows of log_names."""
    tables = TableFilter(filters)
    return {row["table_id"] for row in names if tables.takes(row["db"], row["name"])}


def is_wanted(request: LogRequest, flush: Flush) -> bool:
    """Whether a flush was planned with the task's present settings. Else another one takes its place: it may
    have left out what the task is to capture now, or have captured what later flushes leave out."""
    return all(settings_of(scope.settings) == request.settings for scope in flush.scopes)


def capture_job(request: LogRequest, flush: Flush) -> CaptureJob:
    """What the tasks of a flush do. Raises NotFound and UsageProblem of the file of keys."""
    settings = request.settings
    ranges = [
        Range(p.scope, int(p.region), p.epoch, p.start_position, p.end_position) for p in flush.positions
    ]
    return CaptureJob(
        **_parts(request, flush),
        client=dict(request.kafka),
        tasks=tuple(tuple(ranges[number] for number in task) for task in flush.tasks),
        codec=settings.codec,
        cipher=keys_of(request.name, request.keys_file).cipher if settings.encrypt else None,
        left_out=flush.left_out,
        after_ts=flush.since,
        until_ts=settings.endts,
        scratch=request.scratch,
    )


def fold_job(request: LogRequest, flush: Flush) -> FoldJob:
    """What the last task of a flush does. Raises as `capture_job`."""
    return FoldJob(
        **_parts(request, flush),
        catalog=request.catalog,
        tasks=len(flush.tasks),
        resolved_ts=flush.resolved_ts,
        filters=request.settings.filters,
        # Meta keys of earlier flushes may be encrypted when this one's are not.
        keys=keys_of(request.name, request.keys_file)
        if request.settings.encrypt or request.keys_file
        else None,
    )


def _parts(request: LogRequest, flush: Flush) -> dict[str, Any]:
    """What all tasks of a flush know."""
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
