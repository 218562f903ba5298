"""The simplest backup tool: confluent-kafka and fastavro in one process, one Python object for each record.

`python -m tests.benchmarks.plain VERB BOOTSTRAP TOPIC FOLDER` writes one Avro file for each partition (zstd
level 1) with its sha256. `compact`, `merge`, `copy` and `hashed` read lakebackup's data files below FOLDER;
`compact` keeps the latest record of each key. FOLDER/count then holds the number of records, or of bytes for
`copy` and `hashed`.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import FileIO
from operator import itemgetter
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from fastavro.write import Writer
from tests.benchmarks.data import produce_records

_BYTES = ["null", "bytes"]
_HEADER = {
    "type": "record",
    "name": "Header",
    "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": _BYTES}],
}
SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Record",
        "fields": [
            {"name": "topic", "type": "string"},
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "timestamp", "type": "long"},
            {"name": "key", "type": _BYTES},
            {"name": "value", "type": _BYTES},
            {"name": "headers", "type": {"type": "array", "items": _HEADER}},
        ],
    }
)


class _HashedFile(FileIO):
    """A file that computes the sha256 of what is written to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "wb")
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return super().write(data)


@contextmanager
def _avro(path: Path) -> Iterator[Writer]:
    """Yield a writer of records into `<path>.avro`, and write the file's sha256 beside it."""
    file = _HashedFile(path.with_suffix(".avro"))
    writer = Writer(file, SCHEMA, codec="zstandard", sync_interval=4 << 20, compression_level=1)
    yield writer
    writer.flush()
    file.close()
    path.with_suffix(".sha256").write_text(file.sha256.hexdigest(), "utf-8")


def backup(bootstrap: str, topic: str, folder: Path) -> int:
    """Back up a topic. Returns the number of records written."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 0,
        }
    )
    open_partitions = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in open_partitions])
    with ExitStack() as stack:
        writers = {p: stack.enter_context(_avro(folder / str(p))) for p in open_partitions}
        count = _consume(consumer, topic, open_partitions, writers)
    consumer.close()
    return count


def _consume(consumer: Consumer, topic: str, open_partitions: set[int], writers: Mapping[int, Writer]) -> int:
    count = 0
    while open_partitions:
        for message in consumer.consume(10_000, timeout=1.0):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_partitions.discard(message.partition())
                continue
            record: dict[str, Any] = {
                "topic": topic,
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
                "key": message.key(),
                "value": message.value(),
                "headers": [{"key": key, "value": value} for key, value in message.headers() or ()],
            }
            writers[message.partition()].write(record)
            count += 1
    return count


def restore(bootstrap: str, topic: str, folder: Path) -> int:
    """Restore a topic. Returns the number of records produced."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 400_000,
            "compression.type": "zstd",
            "delivery.report.only.error": True,
        }
    )
    count = 0
    for count, record in enumerate(_records(sorted(folder.glob("*.avro"))), 1):
        headers = [(header["key"], header["value"]) for header in record["headers"]]
        options = {"partition": record["partition"], "timestamp": record["timestamp"], "headers": headers}
        produce_records(producer, topic, record["value"], record["key"], **options)
        if count % 1000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0
    return count


def _records(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        with path.open("rb") as stream:
            for record in fastavro.reader(stream):
                assert isinstance(record, dict)
                yield record


def compact(_: str, topic: str, folder: Path) -> int:
    """Keep the latest record of each key. Returns the number of records kept."""
    count = 0
    for number, files in enumerate(_partitions(topic, folder)):
        latest = {record["key"]: record for record in _records(files)}
        with _avro(folder / str(number)) as writer:
            for record in sorted(latest.values(), key=itemgetter("offset")):
                writer.write(record)
        count += len(latest)
    return count


def merge(_: str, topic: str, folder: Path) -> int:
    """Merge the files of each partition into one, record by record. Returns the number of records."""
    count = 0
    for number, files in enumerate(_partitions(topic, folder)):
        with _avro(folder / str(number)) as writer:
            for record in _records(files):
                writer.write(record)
                count += 1
    return count


def copy(_: str, topic: str, folder: Path) -> int:
    """Append the files of each partition to one file, without decoding. Returns the number of bytes."""
    return _copy(topic, folder, with_hashes=False)


def hashed(_: str, topic: str, folder: Path) -> int:
    """Like `copy`, and compute the sha256 of each file read and of the file written."""
    return _copy(topic, folder, with_hashes=True)


def _copy(topic: str, folder: Path, *, with_hashes: bool) -> int:
    count = 0
    for number, files in enumerate(_partitions(topic, folder)):
        written_hash = hashlib.sha256()
        with (folder / f"{number}.copy").open("wb") as output:
            for path in files:
                read_hash = hashlib.sha256()
                with path.open("rb") as stream:
                    while piece := stream.read(4 << 20):
                        if with_hashes:
                            read_hash.update(piece)
                            written_hash.update(piece)
                        output.write(piece)
                        count += len(piece)
            output.flush()
            os.fsync(output.fileno())
    return count


def _partitions(topic: str, folder: Path) -> Iterator[list[Path]]:
    for partition in sorted(folder.glob(f"*/*/topics/{topic}/partition=*")):
        yield sorted(partition.glob("*.data"))


if __name__ == "__main__":
    verb, bootstrap, topic, folder = sys.argv[1:]
    verbs = {
        "backup": backup, "restore": restore, "compact": compact, "merge": merge, "copy": copy,
        "hashed": hashed,
    }  # fmt: skip
    (Path(folder) / "count").write_text(str(verbs[verb](bootstrap, topic, Path(folder))), "ascii")
