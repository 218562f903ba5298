"""Writers of a small graph: the messages they write to its delta and journal queues, and the graph's state.

Each message has the next tid. The end of a transaction may be written to several partitions, with one tid.
DDL takes a tid but has no message. `state_at` computes the graph's state from the operations alone.
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

QueuePartition = tuple[str, int]
State = dict[str, Any]
COLUMNS = ("name", "age")


@dataclass(frozen=True)
class Op:
    """An operation of a writer. `change` of a write: a row by column, a number to add, or None to delete."""

    tid: int
    kind: str
    transaction: str | None = None
    key: str = ""
    change: Any = None
    ts: int = 0


def state_at(ops: Iterable[Op], tid: int | None = None) -> State:
    """The graph's state when all operations up to a tid are applied and open transactions are left out."""
    all_ops = list(ops)
    ends = {op.transaction: op for op in all_ops if op.kind in ("commit", "rollback")}
    writes: list[tuple[int, int, Op]] = []
    for op in all_ops:
        end = ends.get(op.transaction) if op.transaction else op
        if op.kind == "write" and end and end.kind != "rollback":
            writes.append((end.tid, op.tid, op))
    state: State = {}
    for end_tid, _, op in sorted(writes, key=lambda write: write[:2]):
        if tid is not None and end_tid > tid:
            continue
        if op.change is None:
            state.pop(op.key, None)
        elif isinstance(op.change, int):
            old_value = state.get(op.key)
            state[op.key] = op.change + (old_value if isinstance(old_value, int) else 0)
        else:
            state[op.key] = op.change
    return state


def open_at(ops: Iterable[Op], tid: int | None = None) -> set[str]:
    """The transactions that had begun and not ended."""
    open_transactions: set[str] = set()
    for op in ops:
        if op.transaction and (tid is None or op.tid <= tid):
            (open_transactions.discard if op.kind in ("commit", "rollback") else open_transactions.add)(
                op.transaction
            )
    return open_transactions


def kept_ops(ops: Sequence[Op], tid: int, *, keep_open: bool = False) -> list[Op]:
    """The operations that remain when an engine is restored to a tid."""
    open_transactions = set() if keep_open else open_at(ops, tid)
    return [op for op in ops if op.tid <= tid and op.transaction not in open_transactions]


@dataclass
class Queues:
    """Topics of an engine with their partitions. Each key belongs to one partition."""

    bootstrap: str
    delta: Mapping[str, int]
    journal: Mapping[str, int]

    def create(self) -> None:
        for name, partitions in self.topics.items():
            truth.create_topic(self.bootstrap, name, partitions, retention_ms="-1")

    def delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        existing = admin.list_topics(timeout=30).topics
        names = [name for name in self.topics if name in existing]
        for answer in admin.delete_topics(names, operation_timeout=30).values() if names else ():
            answer.result(30)
        truth.until(lambda: not set(names) & set(admin.list_topics(timeout=30).topics), f"{names} are gone")

    @property
    def topics(self) -> dict[str, int]:
        return {**self.delta, **self.journal}

    @property
    def partitions(self) -> list[QueuePartition]:
        return [(name, p) for name, partitions in self.topics.items() for p in range(partitions)]

    def partition_of(self, key: str) -> QueuePartition:
        """The partition of a key: ids are in the journal queues, rows in the delta queues."""
        topics = self.journal if key.startswith("id:") else self.delta
        topic_partitions = [(name, p) for name, partitions in topics.items() for p in range(partitions)]
        return topic_partitions[zlib.crc32(key.encode()) % len(topic_partitions)]


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
    versions: list[dict[str, Any]] = yaml.safe_load(text)["schemas"]
    return versions


@dataclass
class Writers:
    """All writers to the queues. `ops`: every operation of the current history."""

    queues: Queues
    files: Files
    ops: list[Op] = field(default_factory=list)
    tid: int = 0
    clock: Callable[[], int] = now_ms

    def __post_init__(self) -> None:
        self.producer = Producer({"bootstrap.servers": self.queues.bootstrap, "enable.idempotence": True})
        self.failed: list[KafkaError] = []

    def begin(self) -> str:
        """Begin a transaction. Its name contains its tid, so another history may use the name again."""
        name = f"t-{self.tid + 1}"
        self._send("begin", [self.queues.partition_of(f"v:{name}")], name)
        return name

    def write(self, key: str, change: Any, transaction: str | None = None) -> None:
        columns = self.files.columns_at(self.tid + 1)
        row = isinstance(change, dict)
        change = {name: change.get(name) for name in columns} if row else change
        value = [change[name] for name in columns] if row else change
        self._send("write", [self.queues.partition_of(key)], transaction, key, change, value)

    def end(self, transaction: str, kind: str, *, everywhere: bool = False) -> None:
        """Commit or roll back, by a message in one partition or in each that the transaction has written
        to."""
        transaction_ops = (op for op in self.ops if op.transaction == transaction)
        partitions = list(
            dict.fromkeys(self.queues.partition_of(op.key or f"v:{transaction}") for op in transaction_ops)
        )
        self._send(kind, partitions if everywhere else partitions[-1:], transaction)

    def change_schema(self, columns: Sequence[str]) -> None:
        """Change the schema: DDL takes a tid and has no message."""
        self.tid += 1
        versions = self.files.versions()
        number = 1 + versions[-1]["version"]
        change = {"columns": list(columns)}
        self.files.write(
            [*versions, {"version": number, "tid": self.tid, "change": change, "schema": list(columns)}]
        )
        self.ops.append(Op(self.tid, "schema", ts=self.clock()))

    def open(self) -> set[str]:
        return open_at(self.ops)

    def flush(self) -> None:
        """Wait until everything that was written is in the queues."""
        assert self.producer.flush(60) == 0
        assert not self.failed, self.failed

    def _send(
        self,
        kind: str,
        topic_partitions: list[QueuePartition],
        transaction: str | None,
        key: str = "",
        change: Any = None,
        value: Any = None,
    ) -> None:
        self.tid += 1
        op = Op(self.tid, kind, transaction, key, change, self.clock())
        headers = headers_of(op)
        for topic, partition in topic_partitions:
            self.producer.produce(
                topic, json.dumps(value), key or None, partition, timestamp=op.ts, headers=headers,
                on_delivery=lambda error, _: self.failed.append(error) if error else None,
            )  # fmt: skip
        self.producer.poll(0)
        self.ops.append(op)


def headers_of(op: Op) -> list[tuple[str, bytes]]:
    """The headers of an operation's message. A write outside a transaction has only its tid."""
    headers = [("tid", b"%d" % op.tid)]
    if op.transaction:
        headers += [("transaction", op.transaction.encode()), ("kind", op.kind.encode())]
    return headers
