"""The ends of a restore's target partition, and what the restore's group has committed for it.

A transaction is decided when its commit returns; the brokers write its marker into every partition it touched
a moment later, and only then are its records, and its offsets, there for readers of what is committed. Some
Kafka releases (4.3.1 among them, KAFKA-20734) lose markers that were still to be written when all brokers of
a partition went down: while it has no leader its coordinator takes it for a deleted one, skips the marker and
calls the transaction complete. What lacks its marker then stays open, and hides all that follows, until the
same producer id ends another transaction there.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
Place = tuple[str, int]

# The client retries silently as long as a transaction is open; markers take milliseconds.
_MARKER_S = 5.0
# An attempt that begins when the time is over still gets an answer that is on its way.
_LEAST_WAIT_S = 0.1


class Progress(NamedTuple):
    """Next source position of a partition, and a note from the caller."""

    position: int
    note: str


class Base(NamedTuple):
    """The start of a transaction: the progress before it, and a target offset not after its first record."""

    before: Progress
    offset: int


@dataclass(frozen=True, slots=True)
class CommitNote:
    """What an offset commit records. `repairing`: the records from `base` on are being repaired."""

    progress: Progress
    base: Base | None = None
    repairing: bool = False

    def note(self) -> str:
        """As metadata of the offset commit."""
        base = [*self.base.before, self.base.offset] if self.base else None
        return json.dumps([self.progress.note, base, self.repairing], separators=(",", ":"))

    @staticmethod
    def parse(position: int, metadata: str | None) -> CommitNote:
        """Read what `note` wrote."""
        # confluent-kafka ignores the text's length, and may return extra bytes after its end.
        (note, base, repairing), _ = json.JSONDecoder().raw_decode(metadata or "null")
        return CommitNote(Progress(position, note), base and Base(Progress(*base[:2]), base[2]), repairing)


class Ends(NamedTuple):
    """The last stable offset, where committed readers stop, and the high watermark."""

    stable: int
    high: int


class Target:
    """The target partitions of a restore, and the offsets that its `group` committed. Close it after use.

    Each request is retried for up to `patience` seconds; then EnvironmentProblem.
    """

    def __init__(self, config: Mapping[str, str], group: str, patience: float) -> None:
        self._config, self._patience = config, patience
        settings: dict[str, Any] = {**config, "group.id": group, "log_level": 0}
        # The first stops before open transactions, the second reads them.
        self._stable = Consumer({**settings, "isolation.level": "read_committed"})
        self._all = Consumer({**settings, "isolation.level": "read_uncommitted"})

    def close(self) -> None:
        """Close the connections."""
        self._stable.close()
        self._all.close()

    def ends(self, place: Place) -> Ends:
        """The ends of a partition."""
        return Ends(self._watermark(self._stable, place, 1), self._watermark(self._all, place, 1))

    def begin(self, place: Place) -> int:
        """The offset that a partition begins at."""
        return self._watermark(self._all, place, 0)

    def committed(self, place: Place) -> CommitNote | None:
        """The note of the last transaction with a written marker; None when there was none."""
        return self._committed(self._all, place, self._patience)

    def offsets_pending(self, place: Place) -> bool:
        """Whether an offset commit of this group waits for its transaction's marker."""
        try:
            self._committed(self._stable, place, min(_MARKER_S, self._patience))
        except EnvironmentProblem:
            self.committed(place)  # raises when the broker does not answer at all
            return True
        return False

    def wait(self, place: Place, *, high: int) -> None:
        """Wait until no offset commit is pending and committed readers see all records below `high`."""
        waiting = Retrying(
            retry=retry_if_result(lambda done: not done),
            wait=wait_exponential(multiplier=0.01, max=0.5),
            stop=stop_after_delay(self._patience),
        )
        try:
            waiting(lambda: self.ends(place).stable >= high and not self.offsets_pending(place))
        except RetryError:
            raise EnvironmentProblem(
                f"{place[0]}[{place[1]}]: Kafka accepted the records, but after {self._patience:g} s readers "
                f"of committed records still do not see all below offset {high}.",
                hint="Another application's transaction is open there, or the brokers lost the end of ours. "
                "Run the same restore again: it resumes, and repairs what was lost.",
            ) from None

    def _watermark(self, client: Consumer, place: Place, which: int) -> int:
        wanted = TopicPartition(*place)
        return int(
            self._retried(
                place, self._patience, lambda left: client.get_watermark_offsets(wanted, timeout=left)
            )[which]
        )

    def _committed(self, client: Consumer, place: Place, seconds: float) -> CommitNote | None:
        wanted = [TopicPartition(*place)]

        def ask(left: float) -> TopicPartition:
            (found,) = client.committed(wanted, timeout=left)
            if found.error is not None:
                raise KafkaException(found.error)
            return found

        found = self._retried(place, seconds, ask)
        return None if found.offset < 0 else CommitNote.parse(found.offset, found.metadata)

    def _retried(self, place: Place, seconds: float, question: Callable[[float], T]) -> T:
        topic, partition = place

        def passes(error: BaseException) -> bool:
            if not isinstance(error, KafkaException):
                return False
            code = error.args[0].code()
            if code in UNKNOWN_TOPIC:  # clients say so too while the brokers are restarted
                return not partition_missing(self._config, topic, partition)
            return code in PASSING | COORDINATOR

        end = time.monotonic() + seconds
        waiting = Retrying(
            retry=retry_if_exception(passes),
            wait=wait_exponential(multiplier=0.05, max=1),
            stop=stop_after_delay(seconds),
        )
        where = f"{topic}[{partition}]"
        try:
            return waiting(lambda: question(max(end - time.monotonic(), _LEAST_WAIT_S)))
        except KafkaException as error:
            raise problem(error.args[0].code(), error.args[0].str(), where) from None
        except RetryError as late:
            last = cast("KafkaException", late.last_attempt.exception()).args[0]
            if last.code() in UNKNOWN_TOPIC:
                raise Unanswered(
                    f"{where}: no broker answers any more: {last.str()} (code {last.code()}).",
                    hint="Nothing of this run is visible. Run it again when the brokers are back.",
                ) from None
            raise problem(last.code(), last.str(), where) from None
