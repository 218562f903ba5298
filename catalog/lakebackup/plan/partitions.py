"""Topics and partitions as a Kafka cluster or the catalog describes them, and a backup's rows for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebackup.rows.backups import Gap, Position, Scope
from lakebackup.rules.topic_settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Topic, epoch, partition.
Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of one epoch of a topic."""

    scope: str
    epoch: str
    region: str

    @property
    def place(self) -> Place:
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
    """A topic of a merged or compacted backup, and totals of the files that the backup is made from."""

    scope: str
    epoch: str
    generation: int
    regions: int
    replication: int
    settings: str
    files: int
    bytes: int
    entries: int

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
        )


@dataclass(frozen=True, slots=True)
class RegionState(Partition):
    """A partition as the cluster describes it. `low`, `high`: watermarks; `end`: where reading ends."""

    low: int
    end: int
    high: int
    leader_epoch: int | None


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
        )

    def scope(self, topic: TopicState, *, generation: int = 0, settings: str | None = None) -> Scope:
        """The row of a topic. `settings`: JSON text that replaces the topic's own settings."""
        return Scope(
            backup_id=self.backup_id,
            source=self.source,
            scope=topic.scope,
            epoch=topic.epoch,
            regions=topic.regions,
            settings=topic.saved.dump() if settings is None else settings,
            replication=topic.replication,
            generation=generation,
        )

    def gap(
        self,
        place: Place,
        start: int,
        end: int | None,
        *,
        from_ts: int,
        to_ts: int | None = None,
        bridged: bool = False,
    ) -> Gap:
        """The row for offsets `[start, end)` that no backup holds.

        `end` None: the topic was recreated, and everything from `start` on was lost.
        """
        scope, epoch, region = place
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
