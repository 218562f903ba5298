"""What a log task needs of a kind of change feed; `feed_of` gives the one in a task's settings.

A feed is in Kafka topics. All events of a region come in one partition, in order, and before the mark that
completes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lakebackup.errors import Refused
from lakebackup_jobs.logs.skips import by_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.formats.logs.events import Domain
    from lakebackup.storage import Storage
    from lakebackup_jobs.logs.skips import Skipped
    from lakebackup_jobs.logs.task import TaskSettings

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
    """What a batch of a partition's records is: `events.captured_schema()` and `events.marks_schema()`.

    `upto`: None, or the offset at which this flush must stop in the partition: the records from there on
    belong to a transaction that is not whole yet.
    """

    records: pa.RecordBatch
    marks: pa.RecordBatch
    upto: int | None = None


class Decoder(Protocol):
    """Decodes one partition's records within one flush, batch after batch."""

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """`records`: as of kafka.format.arrow.records_of, in order.

        Raises Damaged, naming topic, partition and offset, for an event that cannot be read.
        """
        ...

    def skip(self, records: pa.RecordBatch) -> None:
        """Records of the partition that a person left out: what can be known of them counts as captured."""
        ...

    def finish(self) -> Mapping[str, Any] | None:
        """After the last batch: what else the fold needs of this partition (JSON), None: nothing."""
        ...


class Feed(Protocol):
    """A kind of change feed. Pickled into Spark's tasks."""

    @property
    def domain(self) -> Domain:
        """The unit of its timestamps."""
        ...

    @property
    def skipped(self) -> Skipped:
        """The messages that a person left out."""
        ...

    def topics(self, known: Sequence[str]) -> list[str]:
        """Which of the cluster's topics hold events; `prepare` reads any others itself."""
        ...

    def own_topics(self, names: Sequence[str]) -> list[str]:
        """Which of the cluster's topics `prepare` reads."""
        ...

    def prepare(
        self, storage: Storage, folder: str, before: str | None, resolved_ts: int | None
    ) -> Mapping[str, Any]:
        """Before a flush is planned, after its ends were read: what else decoders must know (JSON).

        `folder`: of this flush's backup, for objects of its own; `before`: the folder of the last one, None
        for the first flush. `resolved_ts`: the checkpoint before. Few bytes: long data goes into objects.
        """
        ...

    def decoder(self, storage: Storage, of: Range, context: Mapping[str, Any]) -> Decoder:
        """For one partition, in a task. `context`: what `prepare` gave."""
        ...

    def checkpoint(
        self,
        storage: Storage,
        context: Mapping[str, Any],
        finished: Iterator[Mapping[str, Any]],
        regions: Iterator[Mapping[str, Any]],
        resolved_ts: int | None,
    ) -> int | None:
        """Up to which ts the log is whole, once a flush was read; None: not known yet. In a task.

        `finished`: what the decoders' `finish` returned; `regions`: rows as of `region_marks`, of this flush
        and earlier ones.
        """
        ...


def feed_of(settings: TaskSettings, client: Mapping[str, str]) -> Feed:
    """The feed of a task. `client`: librdkafka's settings.

    Raises Refused for a Debezium feed with gaps: transactions are whole when all of their events are there.
    Raises UsageProblem for a placeholder that is none.
    """
    if settings.feed == "debezium":
        if settings.allow_gaps:
            raise Refused(
                "--allow-gaps cannot be used with a Debezium feed: a transaction that lost an event is never "
                "whole, and the log would end before it.",
                hint="Start a new task on a connector with a new topic.prefix, which takes a new snapshot.",
            )
        from lakebackup_jobs.logs.feeds.debezium import DebeziumFeed
        from lakebackup_jobs.logs.feeds.unavailable import DEFAULT, Placeholder

        placeholder = Placeholder(settings.unavailable_value or DEFAULT)
        skipped = by_partition(settings.skip)
        return DebeziumFeed(client, settings.topics, skipped=skipped, placeholder=placeholder)
    from lakebackup_jobs.logs.feeds.br import BrFeed

    return BrFeed(settings.topics, skipped=by_partition(settings.skip))
