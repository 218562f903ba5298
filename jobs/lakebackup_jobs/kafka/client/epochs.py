"""Reads the history of a Kafka cluster's logs: where each leader epoch's records end, and single records.

librdkafka has no call for the request OffsetForLeaderEpoch. It sends the request when a partition is assigned
with a leader epoch. If the epoch's records end before the assigned position, it reports an error that names
their end. So partitions are assigned at a position that no log reaches, and the ends are read from the
errors.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lakebackup.errors import EnvironmentProblem, LakebackupError, UsageProblem
from lakebackup.plan.partitions import RegionState
from lakebackup.plan.topics.forks import BackupEnd, EpochEnd
from lakebackup.storage import Storage
from lakebackup_jobs.kafka.admin.problems import PARTITION_EOF, PASSING, fatal_event, problem
from lakebackup_jobs.kafka.client.librdkafka import READING
from lakebackup_jobs.kafka.format.container import FileReader, decompress, record_start

# What a request is about: the end of a backup in a partition, or the partition's state.
P = TypeVar("P", "BackupEnd", "RegionState")

#: An offset that no log reaches.
BEYOND = 2**62
PATIENCE_S = 30.0
#: Data files read at once, and how many a reader takes at a time: to hand over each of them costs more than
#: to read a small one.
_READERS = 8
_FILES_AT_A_TIME = 16
#: Partitions assigned to one client.
_BATCH_PARTITIONS = 500
_ENDS = re.compile(r"broker end offset is (-?\d+) \(offset leader epoch (-?\d+)\)")
# One record of each partition is enough. By default a client whose queue is full pauses for a second.
_ONE_RECORD = {
    "fetch.message.max.bytes": "65536",
    "queued.min.messages": "1",
    "fetch.queue.backoff.ms": "1",
    "fetch.wait.max.ms": "10",
}
# Bytes read first from a file's end. Each further read takes four times as many, until the last block fits.
_TAIL = 1 << 17
_HEADER = 1 << 16


class LogEnd(NamedTuple):
    """The last data file of a backup in a partition. `end` is the offset after its last record."""

    storage: Storage
    path: str
    bytes: int
    end: int


class Logs:
    """The logs of one cluster, see plan.topics.forks.Log. `config`: librdkafka properties.

    `files`: returns the last data file before each end of a backup.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        files: Callable[[Collection[BackupEnd]], Mapping[BackupEnd, LogEnd]],
    ) -> None:
        self._config, self._files = config, files

    def ends(self, backup_ends: Collection[BackupEnd]) -> Mapping[BackupEnd, EpochEnd]:
        """Return where the records of each backup end's leader epoch end.

        Ends that the log does not know are left out. Raises EnvironmentProblem when a leader does not answer.
        """
        epoch_ends = {}

        def store_ends(answers: Sequence[tuple[BackupEnd, Any]]) -> None:
            for backup_end, message in answers:
                error = message.error()
                end = _ENDS.search(error.str()) if error else None
                if end and int(end[1]) >= 0:
                    epoch_ends[backup_end] = EpochEnd(leader_epoch=int(end[2]), position=int(end[1]))

        self._first_messages(
            {backup_end: (BEYOND, backup_end.leader_epoch or 0) for backup_end in backup_ends}, store_ends
        )
        return epoch_ends

    def compared(self, backup_ends: Collection[BackupEnd]) -> Mapping[BackupEnd, bool | None]:
        """Return whether the last record of each backup end's data file is the log's record at its offset.

        None: the log lacks the record, which was compacted or deleted since. Backup ends without a readable
        file are left out. Raises EnvironmentProblem when a leader does not answer.
        """
        files = self._files(backup_ends)
        matches: dict[BackupEnd, bool | None] = dict.fromkeys(files)
        with ThreadPoolExecutor(_READERS) as readers:
            comparisons: list[Future[dict[BackupEnd, bool | None]]] = []

            def compare(answers: Sequence[tuple[BackupEnd, Any]]) -> None:
                records = [
                    (backup_end, files[backup_end], message)
                    for backup_end, message in answers
                    if not message.error() and message.offset() == files[backup_end].end - 1
                ]
                comparisons.extend(
                    readers.submit(_compare, records[first : first + _FILES_AT_A_TIME])
                    for first in range(0, len(records), _FILES_AT_A_TIME)
                )

            self._first_messages(
                {backup_end: (file.end - 1, None) for backup_end, file in files.items()}, compare
            )
            for comparison in comparisons:
                for backup_end, is_same in comparison.result().items():
                    if is_same is None:
                        del matches[backup_end]
                    else:
                        matches[backup_end] = is_same
        return matches

    def _first_messages(
        self,
        starts: Mapping[P, tuple[int, int | None]],
        handle: Callable[[Sequence[tuple[P, Any]]], None],
    ) -> None:
        """Call `handle` with each partition's first message from (offset, leader epoch) on, or its error.

        Each call has the messages of several partitions.
        """
        remaining = list(starts.items())
        while remaining:
            batch, remaining = dict(remaining[:_BATCH_PARTITIONS]), remaining[_BATCH_PARTITIONS:]
            with closing(self._client()) as client:
                _consume_first(client, batch, handle)

    def _client(self) -> Consumer:
        settings = {
            **_ONE_RECORD, **READING, "isolation.level": "read_uncommitted", "group.id": "lakebackup-reader",
            "log_level": 0,
        }  # fmt: skip
        try:
            return Consumer({**self._config, **settings})
        except KafkaException as error:
            raise UsageProblem(
                f"The Kafka client could not be set up: {error.args[0].str()}.",
                hint="Correct the setting that it names, in the file of --kafka-config.",
            ) from None


def record_times(config: Mapping[str, str], regions: Collection[RegionState]) -> dict[RegionState, int]:
    """Return the timestamp (ms) of the record at the `end` of each partition.

    An open transaction hides this record from readers of committed records. -1: the record has no timestamp;
    partitions without a record there are left out. Raises EnvironmentProblem when a leader does not answer.
    """
    times = {}

    def store_times(answers: Sequence[tuple[RegionState, Any]]) -> None:
        for region, message in answers:
            if not message.error() and message.offset() == region.end:
                kind, ts = message.timestamp()
                times[region] = ts if kind else -1

    starts: dict[RegionState, tuple[int, int | None]] = {region: (region.end, None) for region in regions}
    Logs(config, lambda _: {})._first_messages(starts, store_times)  # noqa: SLF001
    return times


def _consume_first(
    client: Consumer,
    starts: Mapping[P, tuple[int, int | None]],
    handle: Callable[[Sequence[tuple[P, Any]]], None],
) -> None:
    pending = {(region.scope, int(region.region)): region for region in starts}
    assignments = [
        TopicPartition(region.scope, int(region.region), offset)
        if epoch is None
        else TopicPartition(region.scope, int(region.region), offset, leader_epoch=epoch)
        for region, (offset, epoch) in starts.items()
    ]
    client.assign(assignments)
    deadline = time.monotonic() + PATIENCE_S
    last_error: KafkaError | None = None
    while pending:
        answers: list[tuple[P, Any]] = []
        # Asks for no more messages than are pending: the call would wait for the others too.
        for message in client.consume(len(pending), 0.1):
            error = message.error()
            topic, partition = message.topic(), message.partition()
            if error and error.code() in PASSING and error.code() != PARTITION_EOF:
                last_error = error
                continue
            if error and fatal_event(error.code()):
                raise problem(error.code(), error.str(), f"{topic}[{partition}]")
            if topic is not None and partition is not None:
                region = pending.pop((topic, partition), None)
                if region is not None:
                    answers.append((region, message))
        if answers:
            # Drops the rest of their batches.
            client.pause([TopicPartition(region.scope, int(region.region)) for region, _ in answers])
            handle(answers)
            deadline = time.monotonic() + PATIENCE_S
        if pending and time.monotonic() > deadline:
            topic, partition = next(iter(pending))
            raise EnvironmentProblem(
                f"{topic}[{partition}]: its leader did not report the history of the log within "
                f"{PATIENCE_S:.0f} s{f' ({last_error.str()})' if last_error else ''}.",
                hint="Run it again when all brokers are up.",
            )


def _compare(records: Sequence[tuple[BackupEnd, LogEnd, Any]]) -> dict[BackupEnd, bool | None]:
    """Return for each (backup end, its last data file, message) whether the file ends with the message."""
    return {backup_end: _ends_with(file, message) for backup_end, file, message in records}


def _ends_with(file: LogEnd, message: Any) -> bool | None:
    """Return whether a message is in the last block of a data file; None if the file cannot be read.

    Encodes the message as in the file, without its headers, and searches the block's bytes for it. So no
    record of the block is decoded.
    """
    storage, path, size, _ = file
    try:
        header = storage.get(path, start=0, length=min(size, _HEADER))
        stream = io.BytesIO(header)
        reader = FileReader(stream, path)
        header_end = reader.position
        sync = header[header_end - 16 : header_end]
        tail_size = _TAIL
        while True:
            start = max(header_end - 16, size - tail_size)
            is_read = len(header) == size  # a small file
            data = header[start:] if is_read else storage.get(path, start=start, length=size - start)
            # A sync marker follows the header and each block, so the last one ends the file.
            sync_start = data.rfind(sync, 0, len(data) - 16)
            if sync_start >= 0 or start == header_end - 16:
                break
            tail_size *= 4
        if sync_start < 0 or not data.endswith(sync):
            return None
        # For the reader, the last block follows the header.
        stream.write(data[sync_start + 16 :])
        stream.truncate()
        stream.seek(header_end)
        kind, ts = message.timestamp()
        record = record_start(
            reader.fmt, message.topic(), message.partition(), message.offset(), ts if kind else -1, kind,
            message.key(), message.value(),
        )  # fmt: skip
        return any(
            record in decompress(reader.codec, block).tobytes() for _, _, block in reader.compressed_blocks()
        )
    except LakebackupError:
        return None  # `verify` reports damaged files; they prove nothing about the source's history
