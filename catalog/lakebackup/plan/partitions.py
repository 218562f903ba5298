"""Topics and partitions as a Kafka cluster or the catalog describes them, and a backup's rows for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakebackup.rows.backups import Gap, Position, Scope
from lakebackup.rules.topic_settings import TopicSettings

#: Topic, epoch, partition.
PartitionKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of one epoch of a topic."""

    scope: str
    epoch: str
    region: str

    @property
    def key(self) -> PartitionKey:
        return self.scope, self.epoch, self.region


@dataclass(frozen=True, slots=True)
class Range(Partition):
    """Offsets `[start, end)` of a partition that one task copies: its range number `rank`, from 0."""

    start: int
    end: int
    rank: int


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the cluster describes it: `epoch` is the topic id as 32 hex digits.

    `settings`: set on the topic; `inherited`: set on its brokers, as in TopicSettings.
    """

    scope: str
    epoch: str
    regions: int
    replication: int
    settings: Mapping[str, str]
    inherited: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def saved(self) -> TopicSettings:
        """All settings, as a backup stores them."""
        return TopicSettings(self.settings, self.inherited)

    @property
    def effective(self) -> Mapping[str, str]:
        """The settings in force, as far as they are known."""
        return self.saved.in_force


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic of a merged or compacted backup, with totals of the files that the backup is made from."""

    scope: str
    epoch: str
    generation: int
    regions: int
    replication: int
    settings: str
    files: int
    bytes: int
    entries: int
    complete_ts: int | None = field(default=None, kw_only=True)

    def row(self, backup_id: str, source: str) -> Scope:
        """The topic's row in the new backup."""
        return Scope(
            backup_id=backup_id,
            source=source,
            scope=self.scope,
            epoch=self.epoch,
            regions=self.regions,
            settings=self.settings,
            replication=self.replication,
            generation=self.generation,
            complete_ts=self.complete_ts,
        )


@dataclass(frozen=True, slots=True)
class RegionState(Partition):
    """A partition as the cluster describes it. `low`, `high`: watermarks; `end`: where reading ends.

    `open_since`: the time (ms) of the record at `end`. An open transaction begins there, and hides that
    record and all later ones from readers of committed records. -1: the time is unknown; None: no record is
    hidden.
    """

    low: int
    end: int
    high: int
    leader_epoch: int | None
    open_since: int | None = None

    def complete_ts(self, end_ts: int) -> int | None:
        """The latest time (ms) up to which every record lies before `end`, which was read at `end_ts`.

        None: it is `end_ts`. -1: it is unknown, since the hidden record has no time, or one after `end_ts`.
        """
        if self.open_since is None:
            return None
        return max(self.open_since - 1, -1) if self.open_since <= end_ts else -1


@dataclass(frozen=True, slots=True)
class BackupRows:
    """Creates the rows of one backup; `ts` (ms): when its end positions were read."""

    backup_id: str
    source: str
    ts: int

    def position(self, region: RegionState, start: int, end: int) -> Position:
        """The row that says which offsets `[start, end)` of a partition the backup covers."""
        return Position(
            backup_id=self.backup_id,
            source=self.source,
            scope=region.scope,
            epoch=region.epoch,
            region=region.region,
            start_position=start,
            end_position=end,
            low_position=region.low,
            high_position=region.high,
            leader_epoch=region.leader_epoch,
            ts=self.ts,
            open_since=region.open_since,
        )

    def scope(
        self,
        topic: TopicState,
        *,
        generation: int = 0,
        settings: str | None = None,
        regions: Iterable[RegionState] = (),
    ) -> Scope:
        """The row of a topic. `settings`: JSON text that replaces the topic's own settings. `regions`: its
        partitions; the one with the oldest hidden record determines until when the topic is complete."""
        instants = [instant for r in regions if (instant := r.complete_ts(self.ts)) is not None]
        return Scope(
            backup_id=self.backup_id,
            source=self.source,
            scope=topic.scope,
            epoch=topic.epoch,
            regions=topic.regions,
            settings=topic.saved.dump() if settings is None else settings,
            replication=topic.replication,
            generation=generation,
            complete_ts=min(instants, default=None),
        )

    def gap(
        self,
        partition: PartitionKey,
        start: int,
        end: int | None,
        *,
        from_ts: int,
        to_ts: int | None = None,
        bridged: bool = False,
    ) -> Gap:
        """The row for offsets `[start, end)` that no backup holds.

        `end` None: the topic was recreated, and all records from `start` on were lost.
        """
        scope, epoch, region = partition
        return Gap(
            backup_id=self.backup_id,
            source=self.source,
            scope=scope,
            epoch=epoch,
            region=region,
            from_position=start,
            to_position=end,
            reason="recreated" if end is None else "purged",
            from_ts=from_ts,
            to_ts=self.ts if to_ts is None else to_ts,
            bridged=bridged,
        )
