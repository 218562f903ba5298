"""Writers of a small graph: what they put in its delta and journal queues, and what the graph is by that.

Each message has a tid, one more than the one before; a transaction's end may be told in many partitions, at
one tid. DDL has a tid and no message. `state_at` knows the graph from what was done alone.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from tests.support import kafka_truth as truth
from tests.support.runs import now_ms

Place = tuple[str, int]
State = dict[str, Any]
COLUMNS = ("name", "age")


@dataclass(frozen=True)
class Op:
    """What a writer did. `change` of a write: a row by its columns, a number to add, or None: deleted."""

    tid: int
    kind: str
    transaction: str | None = None
    key: str = ""
    change: Any = None
    ts: int = 0


def state_at(ops: Iterable[Op], tid: int | None = None) -> State:
    """What the graph is when everything up to a tid is done, nothing else being open to it."""
    known = list(ops)
    ends = {op.transaction: op for op in known if op.kind in ("commit", "rollback")}
    done: list[tuple[int, int, Op]] = []
    for op in known:
        end = ends.get(op.transaction) if op.transaction else op
        if op.kind == "write" and end and end.kind != "rollback":
            done.append((end.tid, op.tid, op))
    found: State = {}
    for at, _, op in sorted(done, key=lambda each: each[:2]):
        if tid is not None and at > tid:
            continue
        if op.change is None:
            found.pop(op.key, None)
        elif isinstance(op.change, int):
            before = found.get(op.key)
            found[op.key] = op.change + (before if isinstance(before, int) else 0)
        else:
            found[op.key] = op.change
    return found


def open_at(ops: Iterable[Op], tid: int | None = None) -> set[str]:
    """Transactions that had begun and not ended."""
    seen: set[str] = set()
    for op in ops:
        if op.transaction and (tid is None or op.tid <= tid):
            (seen.discard if op.kind in ("commit", "rollback") else seen.add)(op.transaction)
    return seen


def kept(ops: Sequence[Op], tid: int, *, keep_open: bool = False) -> list[Op]:
    """What is left of a history in an engine that was put back to a tid."""
    leave = set() if keep_open else open_at(ops, tid)
    return [op for op in ops if op.tid <= tid and op.transaction not in leave]


@dataclass
class Queues:
    """Topics of an engine with their partitions. A key has its place in one of them."""

    bootstrap: str
    delta: Mapping[str, int]
    journal: Mapping[str, int]

    def create(self) -> None:
        for name, partitions in self.topics.items():
            truth.create_topic(self.bootstrap, name, partitions, retention_ms="-1")

    def delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        there = admin.list_topics(timeout=30).topics
        gone = [name for name in self.topics if name in there]
        for answer in admin.delete_topics(gone, operation_timeout=30).values() if gone else ():
            answer.result(30)
        truth.until(lambda: not set(gone) & set(admin.list_topics(timeout=30).topics), f"{gone} are gone")

    @property
    def topics(self) -> dict[str, int]:
        return {**self.delta, **self.journal}

    @property
    def places(self) -> list[Place]:
        return [(name, p) for name, partitions in self.topics.items() for p in range(partitions)]

    def place(self, key: str) -> Place:
        """Ids are in the journal queues, rows in the delta queues."""
        topics = self.journal if key.startswith("id:") else self.delta
        places = [(name, p) for name, partitions in topics.items() for p in range(partitions)]
        return places[zlib.crc32(key.encode()) % len(places)]


@dataclass
class Files:
    """The engine's config.yaml and delta_schema_history.yaml."""

    folder: Path

    def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        first = {"version": 1, "tid": 0, "change": "created", "schema": list(COLUMNS)}
        self.write([first])

    def write(self, schemas: list[dict[str, Any]]) -> None:
        self.schema.write_text(yaml.safe_dump({"schemas": schemas}))
        self.config.write_text(yaml.safe_dump({"engine": "graph", "schema_version": schemas[-1]["version"]}))

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def schema(self) -> Path:
        return self.folder / "delta_schema_history.yaml"

    def versions(self) -> list[dict[str, Any]]:
        return _versions(self.schema.read_text())

    def columns_at(self, tid: int) -> list[str]:
        columns: list[str] = max((v for v in self.versions() if v["tid"] <= tid), key=lambda v: v["tid"])[
            "schema"
        ]
        return columns


@lru_cache(8)
def _versions(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(text)["schemas"]
    return found


@dataclass
class Writers:
    """All that write into the queues. `ops`: what they did since ever, of the history that is there now."""

    queues: Queues
    files: Files
    ops: list[Op] = field(default_factory=list)
    tid: int = 0
    clock: Callable[[], int] = now_ms

    def __post_init__(self) -> None:
        self.producer = Producer({"bootstrap.servers": self.queues.bootstrap, "enable.idempotence": True})
        self.failed: list[KafkaError] = []

    def begin(self) -> str:
        """Its name comes of its tid: it may come again in another history."""
        name = f"t-{self.tid + 1}"
        self._send("begin", [self.queues.place(f"v:{name}")], name)
        return name

    def write(self, key: str, change: Any, transaction: str | None = None) -> None:
        columns = self.files.columns_at(self.tid + 1)
        row = isinstance(change, dict)
        change = {name: change.get(name) for name in columns} if row else change
        value = [change[name] for name in columns] if row else change
        self._send("write", [self.queues.place(key)], transaction, key, change, value)

    def end(self, transaction: str, kind: str, *, everywhere: bool = False) -> None:
        """Commit or roll back: told in one partition, or in each that the transaction has written to."""
        own = (op for op in self.ops if op.transaction == transaction)
        places = list(dict.fromkeys(self.queues.place(op.key or f"v:{transaction}") for op in own))
        self._send(kind, places if everywhere else places[-1:], transaction)

    def change_schema(self, columns: Sequence[str]) -> None:
        """DDL: takes a tid, and no message."""
        self.tid += 1
        before = self.files.versions()
        number = 1 + before[-1]["version"]
        change = {"columns": list(columns)}
        self.files.write(
            [*before, {"version": number, "tid": self.tid, "change": change, "schema": list(columns)}]
        )
        self.ops.append(Op(self.tid, "schema", ts=self.clock()))

    def open(self) -> set[str]:
        return open_at(self.ops)

    def flush(self) -> None:
        """All that was written is in the queues."""
        assert self.producer.flush(60) == 0
        assert not self.failed, self.failed

    def _send(
        self,
        kind: str,
        places: list[Place],
        transaction: str | None,
        key: str = "",
        change: Any = None,
        value: Any = None,
    ) -> None:
        self.tid += 1
        op = Op(self.tid, kind, transaction, key, change, self.clock())
        headers = headers_of(op)
        for topic, partition in places:
            self.producer.produce(
                topic, json.dumps(value), key or None, partition, timestamp=op.ts, headers=headers,
                on_delivery=lambda error, _: self.failed.append(error) if error else None,
            )  # fmt: skip
        self.producer.poll(0)
        self.ops.append(op)


def headers_of(op: Op) -> list[tuple[str, bytes]]:
    """As messages have them. A write outside a transaction says no more than its tid."""
    found = [("tid", b"%d" % op.tid)]
    if op.transaction:
        found += [("transaction", op.transaction.encode()), ("kind", op.kind.encode())]
    return found
