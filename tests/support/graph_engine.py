"""A small engine: a graph in RocksDB, made of what its delta and journal queues hold.

It reads a queue from behind its newest watermark, else from its start, holds a transaction's writes back
until the message that ends it, and reads a row by the columns that were valid at the message's tid. It takes
no message twice, and none in another order than they were written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from rocksdict import Checkpoint, Options, Rdict
from tests.support.graph_writers import Files, Place, Queues, State

WATERMARK = "lakebackup-watermark"
_META = "\x00"  # the keys of the engine itself begin so


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
    """What applies the queues. `folder` is its RocksDB, new or restored."""

    def __init__(self, queues: Queues, folder: Path, files: Files) -> None:
        self.queues, self.files = queues, files
        self.db = Rdict(str(folder), Options())
        self.closed = False
        self.tid: int = self.db.get(f"{_META}tid") or 0
        self.open: dict[str, list[Message]] = {}
        self.first: dict[Place, dict[str, int]] = {place: {} for place in queues.places}
        self.position: dict[Place, int] = {}
        self.waiting: dict[Place, list[Message]] = {place: [] for place in queues.places}
        self.newest = dict.fromkeys(queues.places, 0)
        self.ended: set[str] = set()
        self.watermark: dict[str, Any] | None = None
        self._begin()

    def close(self) -> None:
        """Can be done again."""
        if not self.closed:
            self.closed = True
            self.db.close()

    def state(self) -> State:
        return {k: json.loads(v) for k, v in self.db.items() if not k.startswith(_META)}

    def play(self, until: int | None = None) -> Iterator[tuple[int, State]]:
        """Apply what there is, tid after tid; gives the state after each that did something."""
        self._read()
        waiting = sorted(
            (
                (m.tid, place, m)
                for place, found in self.waiting.items()
                for m in found
                if until is None or m.tid <= until
            ),
            key=lambda each: each[0],
        )
        for tid, place, message in waiting:
            self.waiting[place].remove(message)
            if self._apply(place, message):
                yield tid, self.state()

    def run(self, until: int | None = None) -> State:
        for _ in self.play(until):
            pass
        return self.state()

    def snapshot(self, folder: Path, *, told: bool = True, name: str | None = "social") -> Path:
        """A checkpoint of what is applied, and snapshot.json beside it unless untold."""
        folder.mkdir(parents=True)
        self.db.flush()
        Checkpoint(self.db).create_checkpoint(str(folder / "snapshot"))
        if told:
            queues = [
                {
                    "topic": topic,
                    "partition": partition,
                    "position": self._applied((topic, partition)),
                    "max_no_transaction_pos": min(
                        [self._applied((topic, partition)), *self.first[topic, partition].values()]
                    ),
                }
                for topic, partition in self.queues.places
            ]
            said = {"format": 1, "last_tid": self.tid, "queues": queues} | ({"graph": name} if name else {})
            (folder / "snapshot.json").write_text(json.dumps(said))
        return folder / "snapshot"

    def _applied(self, place: Place) -> int:
        return min([self.position[place], *(m.offset for m in self.waiting[place])])

    def _apply(self, place: Place, message: Message) -> bool:
        """Whether the state may be another now."""
        name = message.transaction
        if name is None or message.kind not in ("begin", "write"):
            assert message.tid > self.tid or name in self.ended, f"{message} at {place} is applied twice"
        assert message.kind != "write" or name not in self.ended, (
            f"{message} at {place}: its transaction ended"
        )
        if message.tid > self.tid:
            self.tid = self.db[f"{_META}tid"] = message.tid
        if name is None:
            self._do(message)
            return True
        if message.kind in ("begin", "write"):
            self.first[place].setdefault(name, message.offset)
            self.open.setdefault(name, []).append(message)
            return False
        writes = [] if name in self.ended else self.open.pop(name, None)
        assert writes is not None, f"{message} at {place} ends what never began"
        self.ended.add(name)
        for held in self.first.values():
            held.pop(name, None)
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
            before = json.loads(self.db.get(key) or "0")
            self.db[key] = json.dumps(value + (before if isinstance(before, int) else 0))
        else:
            row = dict(zip(self.files.columns_at(message.tid), value, strict=True))
            self.db[key] = json.dumps(row)

    def _begin(self) -> None:
        """Stand behind the newest watermark of each partition."""
        start, marks = dict.fromkeys(self.queues.places, 0), {}
        for place, offset, _, value, headers in self._messages(start):
            if WATERMARK in headers:
                start[place], marks[place] = offset + 1, json.loads(value)
        self.position = start
        for place in self.queues.places if marks else ():
            self.watermark = marks[place]
            assert self.watermark["last_tid"] == self.tid, "this snapshot is not the one of the watermark"

    def _read(self) -> None:
        for place, offset, key, value, headers in self._messages(dict(self.position)):
            assert WATERMARK not in headers, f"a watermark came to {place} at {offset} unasked"
            message = Message(
                offset,
                int(headers["tid"]),
                headers.get("kind", b"write").decode(),
                headers["transaction"].decode() if "transaction" in headers else None,
                key,
                json.loads(value),
            )
            assert message.tid > self.newest[place], f"{message} came to {place} behind {self.newest[place]}"
            self.newest[place] = message.tid
            self.waiting[place].append(message)

    def _messages(
        self, start: Mapping[Place, int]
    ) -> Iterator[tuple[Place, int, str, bytes, dict[str, bytes]]]:
        """From these offsets to the ends now, where the next reading begins then."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.queues.bootstrap, "group.id": "engine", "enable.auto.commit": False,
                "isolation.level": "read_committed", "enable.partition.eof": True,
                "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20,
            }
        )  # fmt: skip
        try:
            consumer.assign([TopicPartition(*place, offset) for place, offset in start.items()])
            left = set(start)
            while left:
                message = consumer.poll(60)
                assert message is not None, f"{left} never ended"
                place: Any = message.topic(), message.partition()
                offset: Any = message.offset()
                if place not in left:
                    continue  # what came since its end was seen is for the next time
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    self.position[place] = offset
                    left.discard(place)
                    continue
                key: Any = message.key() or b""
                value: Any = message.value()
                headers: dict[str, Any] = dict(message.headers() or ())
                yield place, offset, key.decode(), value, headers
        finally:
            consumer.close()
