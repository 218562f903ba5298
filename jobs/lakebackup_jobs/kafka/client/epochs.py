"""The history of a Kafka cluster's logs: where an epoch's records end, and single records.

librdkafka has no call of its own for the request OffsetForLeaderEpoch, but sends it when a partition is
assigned with a leader epoch, and reports in an error where the epoch's records end when that is before the
position asked for. So the position asked for is one that no log reaches.
"""

from __future__ import annotations

import io
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lakebackup.errors import EnvironmentProblem, LakebackupError, UsageProblem
from lakebackup.plan.topics.forks import EpochEnd
from lakebackup_jobs.kafka.admin.problems import PARTITION_EOF, PASSING, fatal_event, problem
from lakebackup_jobs.kafka.client.librdkafka import READING
from lakebackup_jobs.kafka.format.container import FileReader, decompress, record_start

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from concurrent.futures import Future

    from lakebackup.plan.partitions import RegionState
    from lakebackup.plan.topics.forks import BackupEnd
    from lakebackup.storage import Storage

# What is asked about a partition.
P = TypeVar("P", "BackupEnd", "RegionState")

BEYOND = 2**62
PATIENCE_S = 30.0
#: Data files read at once.
_READERS = 8
#: Partitions asked for at once.
_AT_ONCE = 500
_ENDS = re.compile(r"broker end offset is (-?\d+) \(offset leader epoch (-?\d+)\)")
# A record is all that is wanted of a partition. By default a client whose queue is full pauses for a second.
_LITTLE = {
    "fetch.message.max.bytes": "65536",
    "queued.min.messages": "1",
    "fetch.queue.backoff.ms": "1",
    "fetch.wait.max.ms": "10",
}
# Read of a file's end at first, then four times as much until a block begins in it.
_TAIL = 1 << 17
_HEADER = 1 << 16


class Place(NamedTuple):
    """The data file that a backup ended with in a partition; `end` is behind its last record."""

    storage: Storage
    path: str
    bytes: int
    end: int


class Logs:
    """The logs of one cluster; `config`: librdkafka properties. See plan.forks.Log.

    `files`: for each end of a backup the last data file before it.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        files: Callable[[Collection[BackupEnd]], Mapping[BackupEnd, Place]],
    ) -> None:
        self._config, self._files = config, files

    def ends(self, asked: Collection[BackupEnd]) -> Mapping[BackupEnd, EpochEnd]:
        """Where the records of each leader epoch end. Raises EnvironmentProblem when no answer comes."""
        found = {}

        def take(asked_end: BackupEnd, message: Any) -> None:
            error = message.error()
            end = _ENDS.search(error.str()) if error else None
            if end and int(end[1]) >= 0:
                found[asked_end] = EpochEnd(leader_epoch=int(end[2]), position=int(end[1]))

        self._each({asked_end: (BEYOND, asked_end.leader_epoch or 0) for asked_end in asked}, take)
        return found

    def compared(self, asked: Collection[BackupEnd]) -> Mapping[BackupEnd, bool | None]:
        """Whether the log's record at the last offset of each one's data file is the one in the file; None:
        the log lacks it, compacted or deleted since. Left out: those that have no file that can be read."""
        files = self._files(asked)
        found: dict[BackupEnd, bool | None] = dict.fromkeys(files)
        with ThreadPoolExecutor(_READERS) as readers:
            compared: dict[BackupEnd, Future[bool | None]] = {}

            def take(asked_end: BackupEnd, message: Any) -> None:
                place = files[asked_end]
                if not message.error() and message.offset() == place.end - 1:
                    compared[asked_end] = readers.submit(_ends_with, place, message)

            self._each({asked_end: (place.end - 1, None) for asked_end, place in files.items()}, take)
            for asked_end, result in compared.items():
                if (same := result.result()) is None:
                    del found[asked_end]
                else:
                    found[asked_end] = same
        return found

    def _each(self, asked: Mapping[P, tuple[int, int | None]], take: Callable[[P, Any], None]) -> None:
        """The first message of each partition from (offset, leader epoch) on, or the error in its place."""
        rest = list(asked.items())
        while rest:
            some, rest = dict(rest[:_AT_ONCE]), rest[_AT_ONCE:]
            with closing(self._client()) as client:
                _first(client, some, take)

    def _client(self) -> Consumer:
        own = {
            **_LITTLE, **READING, "isolation.level": "read_uncommitted", "group.id": "lakebackup-reader",
            "log_level": 0,
        }  # fmt: skip
        try:
            return Consumer({**self._config, **own})
        except KafkaException as error:
            raise UsageProblem(
                f"The Kafka client could not be set up: {error.args[0].str()}.",
                hint="Correct the setting that it names, in the file of --kafka-config.",
            ) from None


def record_times(config: Mapping[str, str], regions: Collection[RegionState]) -> dict[RegionState, int]:
    """The time (ms) of the record at the `end` of each partition, which an open transaction hides from
    readers of committed records; -1 or left out: it has none. Raises EnvironmentProblem without an answer."""
    times = {}

    def take(region: RegionState, message: Any) -> None:
        if not message.error() and message.offset() == region.end:
            kind, ts = message.timestamp()
            times[region] = ts if kind else -1

    Logs(config, lambda _: {})._each({region: (region.end, None) for region in regions}, take)  # noqa: SLF001
    return times


def _first(
    client: Consumer, asked: Mapping[P, tuple[int, int | None]], take: Callable[[P, Any], None]
) -> None:
    waiting = {(asked_end.scope, int(asked_end.region)): asked_end for asked_end in asked}
    places = [
        TopicPartition(asked_end.scope, int(asked_end.region), at)
        if epoch is None
        else TopicPartition(asked_end.scope, int(asked_end.region), at, leader_epoch=epoch)
        for asked_end, (at, epoch) in asked.items()
    ]
    client.assign(places)
    deadline = time.monotonic() + PATIENCE_S
    last: KafkaError | None = None
    while waiting:
        answered = []
        # No more than are waited for: it would wait for those too.
        for message in client.consume(len(waiting), 0.1):
            error = message.error()
            topic, partition = message.topic(), message.partition()
            if error and error.code() in PASSING and error.code() != PARTITION_EOF:
                last = error
                continue
            if error and fatal_event(error.code()):
                raise problem(error.code(), error.str(), f"{topic}[{partition}]")
            if topic is not None and partition is not None:
                asked_end = waiting.pop((topic, partition), None)
                if asked_end is not None:
                    take(asked_end, message)
                    answered.append(TopicPartition(topic, partition))
        if answered:
            client.pause(answered)  # no more of what else its batches hold
            deadline = time.monotonic() + PATIENCE_S
        if waiting and time.monotonic() > deadline:
            topic, partition = next(iter(waiting))
            raise EnvironmentProblem(
                f"{topic}[{partition}]: its leader did not report the history of the log within "
                f"{PATIENCE_S:.0f} s{f' ({last.str()})' if last else ''}.",
                hint="Run it again when all brokers are up.",
            )


def _ends_with(place: Place, message: Any) -> bool | None:
    """Whether a message is in the last block of a data file; None: the file cannot be read.

    It is written as it would be in the file, but for its headers, and looked for: nothing is decoded.
    """
    storage, path, size, _ = place
    try:
        header = storage.get(path, start=0, length=min(size, _HEADER))
        begins = FileReader(io.BytesIO(header), path).position
        mark = header[begins - 16 : begins]
        tail = _TAIL
        while True:
            start = max(begins - 16, size - tail)
            data = storage.get(path, start=start, length=size - start)
            # Blocks stand between marks, and a mark ends the file.
            at = data.rfind(mark, 0, len(data) - 16)
            if at >= 0 or start == begins - 16:
                break
            tail *= 4
        if at < 0 or not data.endswith(mark):
            return None
        file = FileReader(io.BytesIO(header[:begins] + data[at + 16 :]), path)
        kind, ts = message.timestamp()
        record = record_start(
            file.fmt, message.topic(), message.partition(), message.offset(), ts if kind else -1, kind,
            message.key(), message.value(),
        )  # fmt: skip
        return any(record in decompress(file.codec, block).tobytes() for _, _, block in file.stored())
    except LakebackupError:
        return None  # `verify` reports damaged files; they prove nothing about the source's history
