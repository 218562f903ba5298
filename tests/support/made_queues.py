"""Backups of an engine's queues made by hand: real data files and rows as the job leaves them, no Kafka.

`MadeQueues` keeps the messages of each partition of the queues and computes what each backup must contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from tests.support.catalogs import EPOCH, backup_id, made_backup, made_position, made_scope, publish
from tests.support.given_snapshots import MadeSnapshots
from tests.support.queue_objects import Message, QueueObjects, QueuePartition

from lakebackup.formats.queues.schema_history import parse
from lakebackup.rows.backups import Gap
from lakebackup.rows.base import QUEUES, Row
from lakebackup.rows.queues import QueuePoint, QueuePosition, QueueRestore, QueueSchema, QueueTransaction
from lakebackup.rows.tables import as_row
from lakebackup.rows.upkeep import Hold
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter

CONFIG = b"threads: 4\n"
SETTINGS = '{"cleanup.policy": "delete", "retention.ms": "1"}'


@dataclass
class Point:
    """Where a backup ended. `open`: transaction -> partition -> (first position, first tid, messages)."""

    backup_id: str
    number: int
    base: str
    chain_position: int
    end_ts: int
    last_tid: int
    full: bool
    snapshot: str | None
    ends: dict[QueuePartition, int]
    open: dict[str, dict[QueuePartition, tuple[int, int, int]]]

    def start(self, partition: QueuePartition) -> int:
        """The position of a partition from which every open transaction is read completely."""
        firsts = [partitions[partition][0] for partitions in self.open.values() if partition in partitions]
        return min([*firsts, self.ends[partition]])


@dataclass
class MadeQueues:
    """An engine that is backed up repeatedly. `root` holds a catalog. `queues`: topic -> partitions."""

    root: Path
    writer: CatalogWriter
    source: str = "social"
    queues: Mapping[str, int] = field(default_factory=lambda: {"delta.0": 2, "journal.0": 1})
    epoch: str = EPOCH
    config: bytes = CONFIG
    schemas: list[dict[str, Any]] = field(default_factory=lambda: [{"version": 1, "tid": 0, "schema": {}}])
    number: int = 0

    def __post_init__(self) -> None:
        self.storage = open_storage(str(self.root))
        self.objects = QueueObjects(self.storage, destination_id(self.storage), self.source)
        self.snapshots = MadeSnapshots(self.root, self.writer, layout.snapshot_source(self.source))
        self.partitions = [(topic, n) for topic, count in self.queues.items() for n in range(count)]
        self.log: dict[QueuePartition, list[Message]] = {partition: [] for partition in self.partitions}
        self.points: dict[str, Point] = {}
        self.newest: Point | None = None
        # After a restore: its id, the point that the next backup builds on, where that backup starts in each
        # partition, and its time in ms.
        self.restore: tuple[str, Point, dict[QueuePartition, int], int] | None = None
        self._restores = 0

    def send(self, *messages: Message) -> None:
        """Append messages to the queues."""
        for message in messages:
            self.log[message.queue, message.partition].append(message)

    def write(self, tid: int, *, queue: str = "delta.0", partition: int = 0, **fields: Any) -> None:
        """Append one message, whose time is its tid."""
        self.send(Message(queue, partition, tid, **{"ts": tid, **fields}))

    def full(self, end_ts: int, files: Mapping[str, bytes] | None = None, *, gaps: Sequence[Gap] = ()) -> str:
        """Take a full of an engine that has applied everything in its queues; returns its id."""
        name = self._next()
        snapshot = self.snapshots.back_up(files or {"a": b"a", "CURRENT": str(self.number).encode()})
        hold = f"the full {name} of {self.source} stands on it"
        hold_fields: dict[str, Any] = {"source": self.snapshots.source, "at": 1000 * end_ts, "actor": "test"}
        self.writer.record(Hold(backup_id=snapshot, reason=hold, **hold_fields))
        ends = {partition: len(log) for partition, log in self.log.items()}
        tids = [message.tid for log in self.log.values() for message in log if message.kind != "watermark"]
        self.newest = Point(
            backup_id=name,
            number=self.number,
            base=name,
            chain_position=0,
            end_ts=end_ts,
            last_tid=max(tids, default=0),
            full=True,
            snapshot=snapshot,
            ends=ends,
            open=self._open({}, dict.fromkeys(self.partitions, 0), {}),
        )
        starts = dict(ends)
        self.restore = None
        return self._publish(self.newest, None, starts, [], 0, kind="full", start_ts=end_ts - 1, gaps=gaps)

    def differential(self, end_ts: int) -> str:
        """Take a backup of everything since the last full; returns its id."""
        point = self.restore[1] if self.restore else self.newest
        return self._child(self.points[point.base], end_ts, "cumulative")

    def incremental(self, end_ts: int) -> str:
        """Take a backup of everything since the last backup; returns its id."""
        point = self.restore[1] if self.restore else self.newest
        return self._child(point, end_ts, "differential")

    def restored(
        self, name: str, instant_ms: int, *, upto: int | None = None, epoch: str | None = None
    ) -> str:
        """Restore the engine to the end of a backup, or to a tid `upto` within it, at an instant (ms).

        Its queues continue, or new ones of another epoch begin. Returns the restore's id.
        """
        point = self.points[name]
        self._restores += 1
        full, restore_id = self.points[point.base], backup_id(7200 + self._restores)
        messages = self._chain(point, upto)
        if epoch is not None:
            self.epoch, self.log = epoch, {partition: [] for partition in self.partitions}
        for partition in self.partitions:
            self.log[partition].append(Message(*partition, -1, kind="watermark"))
        bases = {partition: len(log) for partition, log in self.log.items()}
        self.send(*messages)
        to_end = upto is None or upto == point.last_tid
        self.writer.record_once(
            [
                QueueRestore(
                    restore_id=restore_id,
                    at=1000 * instant_ms,
                    actor="test",
                    source=self.source,
                    backup_id=name,
                    full_id=full.backup_id,
                    whole=to_end,
                    last_tid=point.last_tid if upto is None else upto,
                    cluster="c1",
                    **self._region(partition),
                    base_position=base,
                    end_position=len(self.log[partition]),
                )
                for partition, base in bases.items()
            ],
            f"queue-restore-{restore_id}",
        )
        ends = {partition: len(log) for partition, log in self.log.items()}
        parent = point if to_end else full
        self.restore = (restore_id, parent, bases if parent.full else ends, instant_ms)
        return restore_id

    # --- the messages of a backup

    def _chain(self, point: Point, upto: int | None) -> list[Message]:
        """The messages that a restore to a point writes, in the order of each partition."""
        ended_transactions = {
            transaction
            for partition, log in self.log.items()
            for transaction in _ended_transactions(log[: point.ends[partition]])
        }
        full = self.points[point.base]
        messages = []
        for partition, log in self.log.items():
            for position, message in enumerate(log[: point.ends[partition]]):
                if message.kind == "watermark" or (
                    message.transaction and message.transaction not in ended_transactions
                ):
                    continue
                if position >= full.ends[partition] or message.transaction in full.open:
                    messages.append(message)
        return [message for message in messages if upto is None or message.tid <= upto]

    def _open(
        self,
        parent_open: Mapping[str, dict[QueuePartition, tuple[int, int, int]]],
        starts: Mapping[QueuePartition, int],
        own_starts: Mapping[QueuePartition, int],
    ) -> dict[str, dict[QueuePartition, tuple[int, int, int]]]:
        open_transactions = {name: dict(partitions) for name, partitions in parent_open.items()}
        for partition, log in self.log.items():
            for position, message in enumerate(log):
                if (
                    position < max(starts[partition], own_starts.get(partition, 0))
                    or message.transaction is None
                ):
                    continue
                first, tid, count = open_transactions.setdefault(message.transaction, {}).get(
                    partition, (position, message.tid, 0)
                )
                open_transactions[message.transaction][partition] = first, tid, count + 1
        ended_transactions = {
            name
            for partition, log in self.log.items()
            for name in _ended_transactions(log[starts[partition] :])
            if name in open_transactions
        }
        return {
            name: partitions
            for name, partitions in open_transactions.items()
            if name not in ended_transactions
        }

    def _child(self, parent: Point, end_ts: int, kind: Literal["cumulative", "differential"]) -> str:
        restore, name = self.restore, self._next()
        if restore:
            starts = own_starts = restore[2]
            parent_open: Mapping[str, Any] = {}
            start_ts, carried = restore[3], []
        else:
            own_starts = parent.ends
            starts = {p: parent.start(p) for p in self.partitions} if parent.full else own_starts
            parent_open, start_ts = parent.open, parent.end_ts
            carried = [
                (partition, position, message)
                for partition, log in self.log.items()
                for position, message in enumerate(
                    log[starts[partition] : own_starts[partition]], starts[partition]
                )
                if message.transaction in parent.open
            ]
        rows = [
            *carried,
            *(
                (partition, position, message)
                for partition, log in self.log.items()
                for position, message in enumerate(log[own_starts[partition] :], own_starts[partition])
                if message.kind != "watermark"
            ),
        ]
        tids = [message.tid for _, _, message in rows]
        self.newest = Point(
            backup_id=name,
            number=self.number,
            base=parent.base,
            chain_position=parent.chain_position + 1,
            end_ts=end_ts,
            last_tid=max([*tids, parent.last_tid]),
            full=False,
            snapshot=None,
            ends={partition: len(log) for partition, log in self.log.items()},
            open=self._open(parent_open, own_starts, own_starts),
        )
        self.restore = None
        optional_columns = {
            "restore_id": restore[0] if restore else None,
            "first_tid": min(tids, default=None),
        }
        messages = (starts, rows, len(carried))
        return self._publish(self.newest, parent, *messages, kind=kind, start_ts=start_ts, **optional_columns)

    def _next(self) -> str:
        self.number += 1
        return backup_id(3600 + self.number)

    # --- the objects and rows of a backup

    def _publish(
        self,
        point: Point,
        parent: Point | None,
        starts: Mapping[QueuePartition, int],
        messages: Sequence[tuple[QueuePartition, int, Message]],
        carried: int,
        *,
        kind: Literal["full", "cumulative", "differential"],
        start_ts: int,
        restore_id: str | None = None,
        first_tid: int | None = None,
        gaps: Sequence[Gap] = (),
    ) -> str:
        name = point.backup_id
        self.points[name] = point
        data = [
            self.objects.messages(
                name,
                point.number,
                self.epoch,
                partition,
                [
                    (position, message)
                    for message_partition, position, message in messages
                    if message_partition == partition
                ],
            )
            for partition in self.partitions
            if any(read_partition == partition for read_partition, _, _ in messages)
        ]
        history = yaml.safe_dump({"schemas": self.schemas}).encode()
        keys = {"backup_id": name, "source": self.source}
        listed: list[Row] = [
            QueuePoint(
                **keys,
                first_tid=first_tid,
                last_tid=point.last_tid,
                snapshot_id=point.snapshot,
                restore_id=restore_id,
                carried=carried,
                open_transactions=len(point.open),
            ),
            *(
                QueuePosition(
                    **keys,
                    **self._region(partition),
                    no_transaction_position=point.start(partition),
                    last_tid=max((message.tid for message in self.log[partition]), default=None),
                )
                for partition in self.partitions
            ),
            *(
                QueueTransaction(
                    **keys,
                    transaction_id=transaction,
                    **self._region(partition),
                    first_position=first,
                    first_tid=tid,
                    entries=count,
                )
                for transaction, partitions in point.open.items()
                for partition, (first, tid, count) in partitions.items()
            ),
            *(
                QueueSchema(
                    **keys,
                    version=schema.version,
                    from_tid=schema.tid,
                    change=schema.change,
                    definition=schema.schema,
                )
                for schema in parse(history)
            ),
        ]
        objects = [
            *self.objects.listed(name, point.number, listed),
            self.objects.own_file(name, point.number, point.end_ts, "config.yaml", self.config),
            self.objects.own_file(name, point.number, point.end_ts, "delta_schema_history.yaml", history),
        ]
        files = [*data, *objects]
        manifest = sidecar.Manifest(
            backup=made_backup(
                point.number,
                files,
                **keys,
                source_kind=QUEUES,
                destination=self.objects.destination,
                kind=kind,
                level=0 if parent is None else 1,
                parent=parent.backup_id if parent else None,
                base=point.base,
                chain_position=point.chain_position,
                parent_place=parent.number if parent else None,
                start_ts=start_ts,
                end_ts=point.end_ts,
                started_at=1000 * point.end_ts,
                finished_at=1000 * point.end_ts,
            ),
            positions=[
                made_position(
                    starts[partition],
                    point.ends[partition],
                    **keys,
                    **self._region(partition),
                    ts=point.end_ts,
                )
                for partition in self.partitions
            ],
            scopes=[
                made_scope(**keys, scope=topic, epoch=self.epoch, regions=count, settings=SETTINGS)
                for topic, count in self.queues.items()
            ],
            gaps=[Gap(**{**as_row(gap), **keys, "epoch": self.epoch}) for gap in gaps],
            parts=2,
        )
        publish(self.storage, self.writer, (manifest, [data, objects]))
        return name

    def _region(self, partition: QueuePartition) -> dict[str, str]:
        return {"scope": partition[0], "epoch": self.epoch, "region": str(partition[1])}


def _ended_transactions(messages: Iterable[Message]) -> set[str]:
    return {
        message.transaction
        for message in messages
        if message.transaction and message.kind in ("commit", "rollback")
    }
