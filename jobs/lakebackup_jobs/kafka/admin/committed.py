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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition
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

    Each method asks for all its partitions in as few requests as there are brokers. Each request is retried
    for up to `patience` seconds. Then it raises EnvironmentProblem.
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

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, Ends]:
        """The ends of each partition."""
        stable = self._offsets(self._stable, partitions, OFFSET_END)
        high = self._offsets(self._all, partitions, OFFSET_END)
        return {partition: Ends(stable[partition], high[partition]) for partition in partitions}

    def begins(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """The first offset of each partition."""
        return self._offsets(self._all, partitions, OFFSET_BEGINNING)

    def committed(self, partitions: Collection[Partition]) -> dict[Partition, CommitNote | None]:
        """The note of the last transaction with each partition whose marker is written; None without one."""
        return self._committed(self._all, partitions, self._patience)

    def offsets_pending(self, partitions: Collection[Partition]) -> bool:
        """Whether an offset commit of this group for any partition waits for its transaction's marker."""
        try:
            self._committed(self._stable, partitions, min(_MARKER_S, self._patience))
        except EnvironmentProblem:
            self.committed(partitions)  # raises when the broker does not answer at all
            return True
        return False

    def wait(self, highs: Mapping[Partition, int]) -> dict[Partition, Ends]:
        """Wait until no offset commit is pending and readers of committed records see all below an offset of
        each partition. Returns the ends of the partitions by then.

        Raises EnvironmentProblem after `patience` seconds.
        """
        ends: dict[Partition, Ends] = {}

        def hidden_partition() -> Partition | None:
            ends.update(self.ends(highs))
            for partition, high in highs.items():
                if ends[partition].stable < high:
                    return partition
            return next(iter(highs)) if self.offsets_pending(highs) else None

        retrying = Retrying(
            retry=retry_if_result(lambda partition: partition is not None),
            wait=wait_exponential(multiplier=0.01, max=0.5),
            stop=stop_after_delay(self._patience),
        )
        try:
            retrying(hidden_partition)
        except RetryError as timeout:
            topic, number = partition = timeout.last_attempt.result()
            raise EnvironmentProblem(
                f"{topic}[{number}]: Kafka accepted the records, but after {self._patience:g} s readers of "
                f"committed records still do not see all below offset {highs[partition]}.",
                hint="Another application's transaction is open there, or the brokers lost the end of ours. "
                "Run the same restore again: it resumes, and repairs what was lost.",
            ) from None
        return ends

    def _offsets(
        self, client: Consumer, partitions: Collection[Partition], position: int
    ) -> dict[Partition, int]:
        """The offset at `position` in each partition: OFFSET_END or OFFSET_BEGINNING."""
        # These constants are the times -1 and -2, by which Kafka's ListOffsets requests mean the same.
        requests = [TopicPartition(*partition, position) for partition in partitions]
        answers = self._with_retries(
            requests, self._patience, lambda timeout_s: client.offsets_for_times(requests, timeout=timeout_s)
        )
        return {(answer.topic, answer.partition): int(answer.offset) for answer in answers}

    def _committed(
        self, client: Consumer, partitions: Collection[Partition], seconds: float
    ) -> dict[Partition, CommitNote | None]:
        requests = [TopicPartition(*partition) for partition in partitions]
        answers = self._with_retries(
            requests, seconds, lambda timeout_s: client.committed(requests, timeout=timeout_s)
        )
        return {
            (answer.topic, answer.partition): None
            if answer.offset < 0
            else CommitNote.parse(answer.offset, answer.metadata)
            for answer in answers
        }

    def _with_retries(
        self,
        requests: Sequence[TopicPartition],
        seconds: float,
        request: Callable[[float], list[TopicPartition]],
    ) -> list[TopicPartition]:
        """The answers to `request`, which gets its timeout in seconds, once none of them is an error."""
        if not requests:
            return []
        failed = requests[0]

        def answers(timeout_s: float) -> list[TopicPartition]:
            nonlocal failed
            failed = requests[0]
            answered = request(timeout_s)
            for answer in answered:
                if answer.error is not None:
                    failed = answer
                    raise KafkaException(answer.error)
            return answered

        def is_passing(error: BaseException) -> bool:
            if not isinstance(error, KafkaException):
                return False
            code = error.args[0].code()
            if code in UNKNOWN_TOPIC:  # clients also report this while brokers restart
                return not partition_missing(self._config, failed.topic, failed.partition)
            return code in PASSING | COORDINATOR

        end_s = time.monotonic() + seconds
        retrying = Retrying(
            retry=retry_if_exception(is_passing),
            wait=wait_exponential(multiplier=0.05, max=1),
            stop=stop_after_delay(seconds),
        )
        try:
            return retrying(lambda: answers(max(end_s - time.monotonic(), _LEAST_WAIT_S)))
        except KafkaException as error:
            location = f"{failed.topic}[{failed.partition}]"
            raise problem(error.args[0].code(), error.args[0].str(), location) from None
        except RetryError as timeout:
            location = f"{failed.topic}[{failed.partition}]"
            last_error = cast("KafkaException", timeout.last_attempt.exception()).args[0]
            if last_error.code() in UNKNOWN_TOPIC:
                raise Unanswered(
                    f"{location}: no broker answers any more: {last_error.str()} (code {last_error.code()}).",
                    hint="Nothing of this run is visible. Run it again when the brokers are back.",
                ) from None
            raise problem(last_error.code(), last_error.str(), location) from None
