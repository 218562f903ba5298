"""Backups of an engine's queues made by hand: real data files and rows, as the job leaves them, no Kafka.

`MadeQueues` keeps the queues' messages as partitions would, and works out what each backup has to hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from tests.support.catalogs import EPOCH, backup_id, made_backup, made_position, made_scope, publish
from tests.support.given_snapshots import MadeSnapshots
from tests.support.queue_objects import Message, Place, QueueObjects

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
    """Where a backup ended. `open`: transaction -> place -> (first position, first tid, messages)."""

    backup_id: str
    number: int
    base: str
    chain_position: int
    end_ts: int
    last_tid: int
    full: bool
    snapshot: str | None
    ends: dict[Place, int]
    open: dict[str, dict[Place, tuple[int, int, int]]]

    def start(self, place: Place) -> int:
        """From where on every transaction that is open is seen whole."""
        firsts = [at[place][0] for at in self.open.values() if place in at]
        return min([*firsts, self.ends[place]])


@dataclass
class MadeQueues:
    """An engine, backed up again and again. `root` holds a catalog already. `queues`: topic -> partitions."""

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
        self.places = [(topic, n) for topic, count in self.queues.items() for n in range(count)]
        self.log: dict[Place, list[Message]] = {place: [] for place in self.places}
        self.points: dict[str, Point] = {}
        self.newest: Point | None = None
        # Behind a restore: its id, what is stood upon, and from where on is read; when it was, ms.
        self.restore: tuple[str, Point, dict[Place, int], int] | None = None
        self._restores = 0

    def send(self, *messages: Message) -> None:
        """Have messages in the queues."""
        for one in messages:
            self.log[one.queue, one.partition].append(one)

    def write(self, tid: int, *, queue: str = "delta.0", partition: int = 0, **more: Any) -> None:
        """As `send`, of one message; its time is its tid."""
        self.send(Message(queue, partition, tid, **{"ts": tid, **more}))

    def full(self, end_ts: int, files: Mapping[str, bytes] | None = None, *, gaps: Sequence[Gap] = ()) -> str:
        """A full of an engine that has applied all that is in its queues; returns its id."""
        name = self._next()
        snapshot = self.snapshots.take(files or {"a": b"a", "CURRENT": str(self.number).encode()})
        hold = f"the full {name} of {self.source} stands on it"
        told: dict[str, Any] = {"source": self.snapshots.source, "at": 1000 * end_ts, "actor": "test"}
        self.writer.record(Hold(backup_id=snapshot, reason=hold, **told))
        ends = {place: len(log) for place, log in self.log.items()}
        tids = [one.tid for log in self.log.values() for one in log if one.kind != "watermark"]
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
            open=self._open({}, dict.fromkeys(self.places, 0), {}),
        )
        starts = dict(ends)
        self.restore = None
        return self._publish(self.newest, None, starts, [], 0, kind="full", start_ts=end_ts - 1, gaps=gaps)

    def differential(self, end_ts: int) -> str:
        """Everything since the last full."""
        point = self.restore[1] if self.restore else self.newest
        return self._child(self.points[point.base], end_ts, "cumulative")

    def incremental(self, end_ts: int) -> str:
        """Everything since the last backup."""
        point = self.restore[1] if self.restore else self.newest
        return self._child(point, end_ts, "differential")

    def restored(self, name: str, at: int, *, upto: int | None = None, epoch: str | None = None) -> str:
        """The engine is put back to the end of a backup, or to a tid `upto` within it, at an instant (ms);
        its own queues go on, or new ones of an epoch. Returns the restore's id."""
        point = self.points[name]
        self._restores += 1
        full, restore_id = self.points[point.base], backup_id(7200 + self._restores)
        kept = self._chain(point, upto)
        if epoch is not None:
            self.epoch, self.log = epoch, {place: [] for place in self.places}
        for place in self.places:
            self.log[place].append(Message(*place, -1, kind="watermark"))
        bases = {place: len(log) for place, log in self.log.items()}
        self.send(*kept)
        whole = upto is None or upto == point.last_tid
        self.writer.record_once(
            [
                QueueRestore(
                    restore_id=restore_id,
                    at=1000 * at,
                    actor="test",
                    source=self.source,
                    backup_id=name,
                    full_id=full.backup_id,
                    whole=whole,
                    last_tid=point.last_tid if upto is None else upto,
                    cluster="c1",
                    **self._region(place),
                    base_position=base,
                    end_position=len(self.log[place]),
                )
                for place, base in bases.items()
            ],
            f"queue-restore-{restore_id}",
        )
        ends = {place: len(log) for place, log in self.log.items()}
        stands = point if whole else full
        self.restore = (restore_id, stands, bases if stands.full else ends, at)
        return restore_id

    # --- what a backup holds

    def _chain(self, point: Point, upto: int | None) -> list[Message]:
        """The messages that a restore to a point brings, in the order of each partition."""
        done = {t for place, log in self.log.items() for t in _ended(log[: point.ends[place]])}
        full = self.points[point.base]
        found = []
        for place, log in self.log.items():
            for position, one in enumerate(log[: point.ends[place]]):
                if one.kind == "watermark" or (one.transaction and one.transaction not in done):
                    continue
                if position >= full.ends[place] or one.transaction in full.open:
                    found.append(one)
        return [one for one in found if upto is None or one.tid <= upto]

    def _open(
        self,
        before: Mapping[str, dict[Place, tuple[int, int, int]]],
        starts: Mapping[Place, int],
        own: Mapping[Place, int],
    ) -> dict[str, dict[Place, tuple[int, int, int]]]:
        found = {name: dict(at) for name, at in before.items()}
        for place, log in self.log.items():
            for position, one in enumerate(log):
                if position < max(starts[place], own.get(place, 0)) or one.transaction is None:
                    continue
                first, tid, count = found.setdefault(one.transaction, {}).get(place, (position, one.tid, 0))
                found[one.transaction][place] = first, tid, count + 1
        done = {
            name for place, log in self.log.items() for name in _ended(log[starts[place] :]) if name in found
        }
        return {name: at for name, at in found.items() if name not in done}

    def _child(self, parent: Point, end_ts: int, kind: Literal["cumulative", "differential"]) -> str:
        restore, name = self.restore, self._next()
        if restore:
            starts = own = restore[2]
            before: Mapping[str, Any] = {}
            start_ts, carried = restore[3], []
        else:
            own = parent.ends
            starts = {p: parent.start(p) for p in self.places} if parent.full else own
            before, start_ts = parent.open, parent.end_ts
            carried = [
                (place, position, one)
                for place, log in self.log.items()
                for position, one in enumerate(log[starts[place] : own[place]], starts[place])
                if one.transaction in parent.open
            ]
        rows = [
            *carried,
            *(
                (place, position, one)
                for place, log in self.log.items()
                for position, one in enumerate(log[own[place] :], own[place])
                if one.kind != "watermark"
            ),
        ]
        tids = [one.tid for _, _, one in rows]
        self.newest = Point(
            backup_id=name,
            number=self.number,
            base=parent.base,
            chain_position=parent.chain_position + 1,
            end_ts=end_ts,
            last_tid=max([*tids, parent.last_tid]),
            full=False,
            snapshot=None,
            ends={place: len(log) for place, log in self.log.items()},
            open=self._open(before, own, own),
        )
        self.restore = None
        behind = {"restore_id": restore[0] if restore else None, "first_tid": min(tids, default=None)}
        own_rows = (starts, rows, len(carried))
        return self._publish(self.newest, parent, *own_rows, kind=kind, start_ts=start_ts, **behind)

    def _next(self) -> str:
        self.number += 1
        return backup_id(3600 + self.number)

    # --- as the job publishes it

    def _publish(
        self,
        point: Point,
        parent: Point | None,
        starts: Mapping[Place, int],
        messages: Sequence[tuple[Place, int, Message]],
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
                name, point.number, self.epoch, place, [(at, one) for on, at, one in messages if on == place]
            )
            for place in self.places
            if any(where == place for where, _, _ in messages)
        ]
        history = yaml.safe_dump({"schemas": self.schemas}).encode()
        own = {"backup_id": name, "source": self.source}
        listed: list[Row] = [
            QueuePoint(
                **own,
                first_tid=first_tid,
                last_tid=point.last_tid,
                snapshot_id=point.snapshot,
                restore_id=restore_id,
                carried=carried,
                open_transactions=len(point.open),
            ),
            *(
                QueuePosition(
                    **own,
                    **self._region(place),
                    no_transaction_position=point.start(place),
                    last_tid=max((one.tid for one in self.log[place]), default=None),
                )
                for place in self.places
            ),
            *(
                QueueTransaction(
                    **own,
                    transaction_id=transaction,
                    **self._region(place),
                    first_position=first,
                    first_tid=tid,
                    entries=count,
                )
                for transaction, at in point.open.items()
                for place, (first, tid, count) in at.items()
            ),
            *(
                QueueSchema(
                    **own, version=one.version, from_tid=one.tid, change=one.change, definition=one.schema
                )
                for one in parse(history)
            ),
        ]
        objects = [
            *self.objects.listed(name, point.number, listed),
            self.objects.own_file(name, point.number, point.end_ts, "config.yaml", self.config),
            self.objects.own_file(name, point.number, point.end_ts, "delta_schema_history.yaml", history),
        ]
        files = [*data, *objects]
        found = sidecar.Manifest(
            backup=made_backup(
                point.number,
                files,
                **own,
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
                made_position(starts[place], point.ends[place], **own, **self._region(place), ts=point.end_ts)
                for place in self.places
            ],
            scopes=[
                made_scope(**own, scope=topic, epoch=self.epoch, regions=count, settings=SETTINGS)
                for topic, count in self.queues.items()
            ],
            gaps=[Gap(**{**as_row(gap), **own, "epoch": self.epoch}) for gap in gaps],
            parts=2,
        )
        publish(self.storage, self.writer, (found, [data, objects]))
        return name

    def _region(self, place: Place) -> dict[str, str]:
        return {"scope": place[0], "epoch": self.epoch, "region": str(place[1])}


def _ended(messages: Iterable[Message]) -> set[str]:
    return {one.transaction for one in messages if one.transaction and one.kind in ("commit", "rollback")}
