"""Reads the ends of a restore's target partitions, and the offsets that the restore's group has committed.

A transaction is decided when its commit returns. The brokers write its marker into every partition that it
touched a moment later. Only then do readers of committed records see its records and its offsets. Some Kafka
releases (4.3.1 among them, KAFKA-20734) lose markers that were still to be written when all brokers of a
partition went down. While the partition has no leader, the transaction's coordinator takes it for a deleted
one, skips the marker, and calls the transaction complete. Without its marker the transaction stays open in
the partition, and hides all records after it, until the same producer id ends another transaction there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tenacity import (
    RetryError,
    Retrying,
    retry_if_exception,
    retry_if_result,
    stop_after_delay,
    wait_exponential,
)

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.kafka.admin.problems import (
    COORDINATOR,
    PASSING,
    UNKNOWN_TOPIC,
    Unanswered,
    partition_missing,
    problem,
)

T = TypeVar("T")
Partition = tuple[str, int]

# How long to wait for an offset that a transaction has not released. The client retries silently while the
# transaction is open, but markers take only milliseconds.
_MARKER_S = 5.0
# An attempt that begins when the time is over still gets an answer that is on its way.
_LEAST_WAIT_S = 0.1


class Progress(NamedTuple):
    """The next source position of a partition, and a note from the caller."""

    position: int
    note: str


class Base(NamedTuple):
    """The start of a transaction: the progress before it, and an offset at or before its first record."""

    progress_before: Progress
    offset: int


@dataclass(frozen=True, slots=True)
class CommitNote:
    """The contents of an offset commit. `repairing`: the records from `base` on are being repaired."""

    progress: Progress
    base: Base | None = None
    repairing: bool = False

    def note(self) -> str:
        """The metadata of the offset commit."""
        base = [*self.base.progress_before, self.base.offset] if self.base else None
        return json.dumps([self.progress.note, base, self.repairing], separators=(",", ":"))

    @staticmethod
    def parse(position: int, metadata: str | None) -> CommitNote:
        """Parse a position and the metadata that `note` returned."""
        # confluent-kafka ignores the text's length, and may return extra bytes after its end.
        (note, base, repairing), _ = json.JSONDecoder().raw_decode(metadata or "null")
        return CommitNote(Progress(position, note), base and Base(Progress(*base[:2]), base[2]), repairing)


class Ends(NamedTuple):
    """The last stable offset, where readers of committed records stop, and the high watermark."""

    stable: int
    high: int


class Target:
    """The target partitions of a restore, and the offsets that its `group` committed. Close it after use.

    Each request is retried for up to `patience` seconds. Then it raises EnvironmentProblem.
    """

    def __init__(self, config: Mapping[str, str], group: str, patience: float) -> None:
        self._config, self._patience = config, patience
        settings: dict[str, Any] = {**config, "group.id": group, "log_level": 0}
        # The first consumer stops before open transactions. The second reads them too.
        self._stable = Consumer({**settings, "isolation.level": "read_committed"})
        self._all = Consumer({**settings, "isolation.level": "read_uncommitted"})

    def close(self) -> None:
        """Close the connections."""
        self._stable.close()
        self._all.close()

    def ends(self, partition: Partition) -> Ends:
        """The ends of a partition."""
        return Ends(self._watermark(self._stable, partition, 1), self._watermark(self._all, partition, 1))

    def begin(self, partition: Partition) -> int:
        """The first offset of a partition."""
        return self._watermark(self._all, partition, 0)

    def committed(self, partition: Partition) -> CommitNote | None:
        """The note of the last transaction whose marker is written; None when there is none."""
        return self._committed(self._all, partition, self._patience)

    def offsets_pending(self, partition: Partition) -> bool:
        """Whether an offset commit of this group waits for its transaction's marker."""
        try:
            self._committed(self._stable, partition, min(_MARKER_S, self._patience))
        except EnvironmentProblem:
            self.committed(partition)  # raises when the broker does not answer at all
            return True
        return False

    def wait(self, partition: Partition, *, high: int) -> None:
        """Wait until no offset commit is pending and readers of committed records see all below `high`.

        Raises EnvironmentProblem after `patience` seconds.
        """
        retrying = Retrying(
            retry=retry_if_result(lambda is_visible: not is_visible),
            wait=wait_exponential(multiplier=0.01, max=0.5),
            stop=stop_after_delay(self._patience),
        )
        try:
            retrying(lambda: self.ends(partition).stable >= high and not self.offsets_pending(partition))
        except RetryError:
            raise EnvironmentProblem(
                f"{partition[0]}[{partition[1]}]: Kafka accepted the records, but after {self._patience:g} s "
                f"readers of committed records still do not see all below offset {high}.",
                hint="Another application's transaction is open there, or the brokers lost the end of ours. "
                "Run the same restore again: it resumes, and repairs what was lost.",
            ) from None

    def _watermark(self, client: Consumer, partition: Partition, index: int) -> int:
        topic_partition = TopicPartition(*partition)
        return int(
            self._with_retries(
                partition,
                self._patience,
                lambda timeout_s: client.get_watermark_offsets(topic_partition, timeout=timeout_s),
            )[index]
        )

    def _committed(self, client: Consumer, partition: Partition, seconds: float) -> CommitNote | None:
        topic_partitions = [TopicPartition(*partition)]

        def read_offset(timeout_s: float) -> TopicPartition:
            (answer,) = client.committed(topic_partitions, timeout=timeout_s)
            if answer.error is not None:
                raise KafkaException(answer.error)
            return answer

        committed = self._with_retries(partition, seconds, read_offset)
        return None if committed.offset < 0 else CommitNote.parse(committed.offset, committed.metadata)

    def _with_retries(self, topic_partition: Partition, seconds: float, request: Callable[[float], T]) -> T:
        topic, partition = topic_partition

        def is_passing(error: BaseException) -> bool:
            if not isinstance(error, KafkaException):
                return False
            code = error.args[0].code()
            if code in UNKNOWN_TOPIC:  # clients also report this while brokers restart
                return not partition_missing(self._config, topic, partition)
            return code in PASSING | COORDINATOR

        end_s = time.monotonic() + seconds
        retrying = Retrying(
            retry=retry_if_exception(is_passing),
            wait=wait_exponential(multiplier=0.05, max=1),
            stop=stop_after_delay(seconds),
        )
        location = f"{topic}[{partition}]"
        try:
            return retrying(lambda: request(max(end_s - time.monotonic(), _LEAST_WAIT_S)))
        except KafkaException as error:
            raise problem(error.args[0].code(), error.args[0].str(), location) from None
        except RetryError as timeout:
            last_error = cast("KafkaException", timeout.last_attempt.exception()).args[0]
            if last_error.code() in UNKNOWN_TOPIC:
                raise Unanswered(
                    f"{location}: no broker answers any more: {last_error.str()} (code {last_error.code()}).",
                    hint="Nothing of this run is visible. Run it again when the brokers are back.",
                ) from None
            raise problem(last_error.code(), last_error.str(), location) from None
