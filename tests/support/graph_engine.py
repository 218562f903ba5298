"""A small engine: a graph in RocksDB that applies the messages of its delta and journal queues.

It reads a partition from after its newest watermark, or from its start if there is none. It holds the writes
of a transaction back until the message that ends it. It reads a row by the columns that were valid at the
message's tid. It asserts that no message comes twice, and that messages come in the order of their tids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from rocksdict import Checkpoint, Options, Rdict
from tests.support.graph_writers import Files, QueuePartition, Queues, State

WATERMARK = "lakebackup-watermark"
_META = "\x00"  # the prefix of the engine's own keys


@dataclass(frozen=True)
class Message:
    """One message of a queue, as the engine reads it."""

    offset: int
    tid: int
    kind: str
    transaction: str | None
    key: str
    value: Any


class Engine:
    """Applies the queues. `folder` is its RocksDB, new or restored."""

    def __init__(self, queues: Queues, folder: Path, files: Files) -> None:
        self.queues, self.files = queues, files
        self.db = Rdict(str(folder), Options())
        self.closed = False
        self.tid: int = self.db.get(f"{_META}tid") or 0
        self.open: dict[str, list[Message]] = {}
        self.first: dict[QueuePartition, dict[str, int]] = {partition: {} for partition in queues.partitions}
        self.position: dict[QueuePartition, int] = {}
        self.waiting: dict[QueuePartition, list[Message]] = {partition: [] for partition in queues.partitions}
        self.newest = dict.fromkeys(queues.partitions, 0)
        self.ended_transactions: set[str] = set()
        self.watermark: dict[str, Any] | None = None
        self._begin()

    def close(self) -> None:
        """Close the database; may be called again."""
        if not self.closed:
            self.closed = True
            self.db.close()

    def state(self) -> State:
        return {k: json.loads(v) for k, v in self.db.items() if not k.startswith(_META)}

    def play(self, until: int | None = None) -> Iterator[tuple[int, State]]:
        """Apply the available messages, tid after tid; yields the state after each that may have changed
        it."""
        self._read()
        waiting = sorted(
            (
                (m.tid, partition, m)
                for partition, messages in self.waiting.items()
                for m in messages
                if until is None or m.tid <= until
            ),
            key=lambda entry: entry[0],
        )
        for tid, partition, message in waiting:
            self.waiting[partition].remove(message)
            if self._apply(partition, message):
                yield tid, self.state()

    def run(self, until: int | None = None) -> State:
        for _ in self.play(until):
            pass
        return self.state()

    def snapshot(self, folder: Path, *, described: bool = True, name: str | None = "social") -> Path:
        """Write a checkpoint of what is applied, and if `described`, snapshot.json beside it; returns its
        path."""
        folder.mkdir(parents=True)
        self.db.flush()
        Checkpoint(self.db).create_checkpoint(str(folder / "snapshot"))
        if described:
            queues = [
                {
                    "topic": topic,
                    "partition": partition,
                    "position": self._applied((topic, partition)),
                    "max_no_transaction_pos": min(
                        [self._applied((topic, partition)), *self.first[topic, partition].values()]
                    ),
                }
                for topic, partition in self.queues.partitions
            ]
            content = {"format": 1, "last_tid": self.tid, "queues": queues} | (
                {"graph": name} if name else {}
            )
            (folder / "snapshot.json").write_text(json.dumps(content))
        return folder / "snapshot"

    def _applied(self, partition: QueuePartition) -> int:
        return min([self.position[partition], *(m.offset for m in self.waiting[partition])])

    def _apply(self, partition: QueuePartition, message: Message) -> bool:
        """Apply a message; returns whether the state may have changed."""
        name = message.transaction
        if name is None or message.kind not in ("begin", "write"):
            assert message.tid > self.tid or name in self.ended_transactions, (
                f"{message} at {partition} is applied twice"
            )
        assert message.kind != "write" or name not in self.ended_transactions, (
            f"{message} at {partition}: its transaction ended"
        )
        if message.tid > self.tid:
            self.tid = self.db[f"{_META}tid"] = message.tid
        if name is None:
            self._do(message)
            return True
        if message.kind in ("begin", "write"):
            self.first[partition].setdefault(name, message.offset)
            self.open.setdefault(name, []).append(message)
            return False
        writes = [] if name in self.ended_transactions else self.open.pop(name, None)
        assert writes is not None, f"{message} at {partition} ends what never began"
        self.ended_transactions.add(name)
        for first_offsets in self.first.values():
            first_offsets.pop(name, None)
        for write in writes if message.kind == "commit" else ():
            if write.kind == "write":
                self._do(write)
        return bool(writes)

    def _do(self, message: Message) -> None:
        key, value = message.key, message.value
        if value is None:
            if key in self.db:
                del self.db[key]
        elif isinstance(value, int):
            old_value = json.loads(self.db.get(key) or "0")
            self.db[key] = json.dumps(value + (old_value if isinstance(old_value, int) else 0))
        else:
            row = dict(zip(self.files.columns_at(message.tid), value, strict=True))
            self.db[key] = json.dumps(row)

    def _begin(self) -> None:
        """Set each partition's position to after its newest watermark."""
        start, watermarks = dict.fromkeys(self.queues.partitions, 0), {}
        for partition, offset, _, value, headers in self._messages(start):
            if WATERMARK in headers:
                start[partition], watermarks[partition] = offset + 1, json.loads(value)
        self.position = start
        for partition in self.queues.partitions if watermarks else ():
            self.watermark = watermarks[partition]
            assert self.watermark["last_tid"] == self.tid, "this snapshot is not the one of the watermark"

    def _read(self) -> None:
        for partition, offset, key, value, headers in self._messages(dict(self.position)):
            assert WATERMARK not in headers, f"a watermark came to {partition} at {offset} unasked"
            message = Message(
                offset,
                int(headers["tid"]),
                headers.get("kind", b"write").decode(),
                headers["transaction"].decode() if "transaction" in headers else None,
                key,
                json.loads(value),
            )
            assert message.tid > self.newest[partition], (
                f"{message} came to {partition} behind {self.newest[partition]}"
            )
            self.newest[partition] = message.tid
            self.waiting[partition].append(message)

    def _messages(
        self, start: Mapping[QueuePartition, int]
    ) -> Iterator[tuple[QueuePartition, int, str, bytes, dict[str, bytes]]]:
        """The messages from these offsets to the present ends; moves `position` to these ends."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.queues.bootstrap, "group.id": "engine", "enable.auto.commit": False,
                "isolation.level": "read_committed", "enable.partition.eof": True,
                "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20,
            }
        )  # fmt: skip
        try:
            consumer.assign([TopicPartition(*partition, offset) for partition, offset in start.items()])
            unread = set(start)
            while unread:
                message = consumer.poll(60)
                assert message is not None, f"{unread} never ended"
                partition: Any = message.topic(), message.partition()
                offset: Any = message.offset()
                if partition not in unread:
                    continue  # messages after the seen end are left for the next reading
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    self.position[partition] = offset
                    unread.discard(partition)
                    continue
                key: Any = message.key() or b""
                value: Any = message.value()
                headers: dict[str, Any] = dict(message.headers() or ())
                yield partition, offset, key.decode(), value, headers
        finally:
            consumer.close()
