"""The interface between a log task and its change feed. `feed_of` returns the feed of a task's settings.

A feed is a set of Kafka topics. All events of a region are in one partition, in order, and before the mark
that completes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from lakebackup.formats.logs.events import Domain
from lakebackup.storage import Storage
from lakebackup_jobs.logs.skips import Skipped

#: A feed has no events of open or aborted Kafka transactions.
ISOLATION = "read_committed"


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `[start, end)` of one partition of a feed; `epoch` is the topic's id, 32 hex digits."""

    topic: str
    partition: int
    epoch: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded batch of a partition's records: `events.captured_schema()` and `events.marks_schema()`.

    `upto`: None, or the offset at which this flush must stop in the partition, because the records from there
    on belong to a transaction that is not complete yet.
    """

    records: pa.RecordBatch
    marks: pa.RecordBatch
    upto: int | None = None


class Decoder(Protocol):
    """Decodes one partition's records within one flush, batch after batch."""

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Decode a batch of records, as kafka.format.arrow.records_of returns them, in order.

        Raises Damaged for an event that cannot be read. The error names its topic, partition and offset.
        """
        ...

    def skip(self, records: pa.RecordBatch) -> None:
        """Take records that a person told the task to skip. What can be read of them counts as captured."""
        ...

    def finish(self) -> Mapping[str, Any] | None:
        """Called after the last batch; returns what else the fold needs of the partition (JSON), or None."""
        ...


class Feed(Protocol):
    """A kind of change feed. Pickled into Spark's tasks."""

    @property
    def domain(self) -> Domain:
        """The unit of the feed's timestamps."""
        ...

    @property
    def skipped(self) -> Skipped:
        """The messages that a person told the task to skip."""
        ...

    def topics(self, topic_names: Sequence[str]) -> list[str]:
        """The topics, of all those of the cluster, that hold events. `prepare` reads any others itself."""
        ...

    def own_topics(self, names: Sequence[str]) -> list[str]:
        """The topics, of all those of the cluster, that `prepare` reads."""
        ...

    def prepare(
        self, storage: Storage, folder: str, last_folder: str | None, resolved_ts: int | None
    ) -> Mapping[str, Any]:
        """Prepare a flush; returns what else its decoders must know (JSON).

        Called before a flush is planned and after the ends of its partitions were read. `folder`: of this
        flush's backup, for objects of the feed. `last_folder`: the folder of the last flush, None for the
        first one. `resolved_ts`: the previous checkpoint. The answer is small: long data goes into objects.
        """
        ...

    def decoder(self, storage: Storage, of: Range, context: Mapping[str, Any]) -> Decoder:
        """The decoder of one partition, in a Spark task. `context`: what `prepare` returned."""
        ...

    def checkpoint(
        self,
        storage: Storage,
        context: Mapping[str, Any],
        finished: Iterator[Mapping[str, Any]],
        regions: Iterator[Mapping[str, Any]],
        resolved_ts: int | None,
    ) -> int | None:
        """The ts up to which the log is complete once a flush was read, None: not known yet. In a Spark task.

        `finished`: what the decoders' `finish` returned. `regions`: rows of `region_marks.SCHEMA`, of this
        flush and earlier ones. `resolved_ts`: the previous checkpoint.
        """
        ...
