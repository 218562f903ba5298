"""A database whose changes arrive as a key-value change feed, and what it held at every moment.

    feed = ChangeFeed(partitions=2)
    orders = feed.create_table("shop", "orders")
    with feed.begin() as txn:               # commits at its end
        txn.put(orders, b"1", b"paid")
    feed.resolve()                          # every region says how far it is
    feed.send(bootstrap, topic)             # or feed.records(partition): no broker
    assert feed.rows(feed.now) == {"shop.orders": {row_key(orders, b"1"): b"paid"}}

Events go through a queue a region, and reach the topic when `deliver` (or `send`, for all) is called: so
regions are behind each other as a test likes, while each keeps its own order.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from lakebackup.formats.logs.br_event import FAMILIES, KINDS, ROOT_REGION, VERSION

RECORDS = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
#: Values up to this many bytes stand in the write itself.
SHORT = 8


def row_key(table_id: int, key: bytes) -> bytes:
    """The whole key of a row."""
    return b"t" + table_id.to_bytes(8, "big") + b"_r" + key


def long(number: int) -> bytes:
    """Avro's long."""
    rest = ((number << 1) ^ (number >> 63)) & (2**64 - 1)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(value: bytes | None) -> bytes:
    return b"\0" if value is None else b"\2" + long(len(value)) + value


def _long(value: int | None) -> bytes:
    return b"\0" if value is None else b"\2" + long(value)


def encode(
    kind: str,
    region: int,
    store: str,
    *,
    table_id: int = 0,
    cf: str | None = None,
    key: bytes | None = None,
    value: bytes | None = None,
    start_ts: int | None = None,
    commit_ts: int | None = None,
    resolved_ts: int | None = None,
    successors: Sequence[int] = (),
) -> bytes:
    """A record's value; a unit test compares it with fastavro's."""
    name = store.encode()
    after = long(len(successors)) + b"".join(map(long, successors)) if successors else b""
    return b"".join(
        (
            bytes([VERSION]),
            long(KINDS.index(kind)),
            long(region),
            long(len(name)) + name,
            long(table_id),
            b"\0" if cf is None else b"\2" + long(FAMILIES.index(cf)),
            _bytes(key),
            _bytes(value),
            _long(start_ts),
            _long(commit_ts),
            _long(resolved_ts),
            after + b"\0",
        )
    )


def write_value(letter: str, start_ts: int, short: bytes | None = None) -> bytes:
    """What a write record holds."""
    return letter.encode() + start_ts.to_bytes(8, "big") + (b"" if short is None else b"v" + short)


@dataclass
class Region:
    """A range of keys, from `begin` up to the next region's; `queue`: events on their way to the topic."""

    id: int
    store: str
    partition: int
    begin: bytes
    queue: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Change:
    """What a transaction does to a key: P a value, D none, L nothing, T the whole table is emptied."""

    letter: str
    table_id: int
    key: bytes
    value: bytes | None = None

    @property
    def prewritten(self) -> bool:
        return self.letter == "P" and len(self.value or b"") > SHORT


class Transaction:
    """Changes of some keys that become visible together; `prewrite`, then `commit` or `rollback`."""

    def __init__(self, feed: ChangeFeed) -> None:
        self.feed = feed
        self.start_ts = feed.tick()
        self.commit_ts: int | None = None
        self._changes: dict[bytes, Change] = {}
        #: Keys that are locked: prewritten, not committed.
        self.open: dict[bytes, Change] = {}

    def put(self, table_id: int, key: bytes, value: bytes) -> None:
        self._change(Change("P", table_id, row_key(table_id, key), value))

    def delete(self, table_id: int, key: bytes) -> None:
        self._change(Change("D", table_id, row_key(table_id, key)))

    def lock(self, table_id: int, key: bytes) -> None:
        self._change(Change("L", table_id, row_key(table_id, key)))

    def empty(self, table_id: int) -> None:
        """Take every row of a table, in one event."""
        self._changes[row_key(table_id, b"")] = Change("T", table_id, b"")

    def describe(self, key: bytes, value: Mapping[str, Any] | None) -> None:
        """Put or delete a meta key."""
        text = None if value is None else json.dumps(value).encode()
        self._change(Change("D" if value is None else "P", 0, key, text))

    def _change(self, change: Change) -> None:
        self._changes[change.key] = change

    def prewrite(self) -> None:
        """Lock all keys and write what does not stand in the writes themselves."""
        if self._changes:
            self.feed.open.append(self)
        for key, change in self._changes.items():
            self.open[key] = change
            common = {"table_id": change.table_id, "key": change.key, "start_ts": self.start_ts}
            self.feed.emit(key, "put", cf="lock", value=change.letter.encode(), **common)
            if change.prewritten:
                self.feed.emit(key, "put", cf="default", value=change.value, **common)

    def commit(self, keys: int | None = None) -> int:
        """Commit all keys, or so many of those that are still open; returns the commit ts."""
        if not self._changes:
            return self.start_ts
        if self.commit_ts is not None and not self.open:
            return self.commit_ts
        if self.commit_ts is None:
            if not self.open:
                self.prewrite()
            self.commit_ts = self.feed.tick()
            for key, change in self._changes.items():
                self.feed.history.append((self.start_ts, self.commit_ts, key, change))
        for key in list(self.open)[:keys]:
            change = self.open.pop(key)
            short = change.value if change.letter == "P" and not change.prewritten else None
            self.feed.emit(
                key,
                "put",
                cf="write",
                table_id=change.table_id,
                key=change.key,
                value=write_value(change.letter, self.start_ts, short),
                start_ts=self.start_ts,
                commit_ts=self.commit_ts,
            )
            self.feed.emit(key, "delete", cf="lock", table_id=change.table_id, key=change.key)
        if not self.open:
            self.feed.open.remove(self)
        return self.commit_ts

    def rollback(self) -> None:
        """Take back what was prewritten; some keys are marked so that a late prewrite cannot come."""
        for number, (key, change) in enumerate(self.open.items()):
            common: dict[str, Any] = {"table_id": change.table_id, "key": change.key}
            if change.prewritten:
                self.feed.emit(key, "delete", cf="default", start_ts=self.start_ts, **common)
            if number % 2 == 0 and change.letter != "T":
                value = write_value("R", self.start_ts)
                self.feed.emit(key, "put", cf="write", value=value, commit_ts=self.start_ts, **common)
            self.feed.emit(key, "delete", cf="lock", **common)
        if self.open:
            self.feed.open.remove(self)
        self.open = {}

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, _e: object, _t: TracebackType | None) -> None:
        if kind is None:
            self.commit()


class ChangeFeed:
    """The database, its regions and the feed's partitions. `now`: the last timestamp given out."""

    def __init__(self, *, partitions: int = 2, regions: int = 2, stores: int = 2, now: int = 100) -> None:
        self.now = now
        self.partitions = partitions
        self.stores = stores
        self.open: list[Transaction] = []
        #: In the order of commits: start ts, commit ts, key, what becomes of it.
        self.history: list[tuple[int, int, bytes, Change]] = []
        # Ids of databases and tables are given out once.
        self._made = self._tables = 0
        self.sent: list[list[bytes]] = [[] for _ in range(partitions)]
        self._taken = [0] * partitions
        self._emitted: list[tuple[bytes, str, dict[str, Any]]] = []
        self._next_id = 0
        self._databases: dict[str, int] = {}
        # Tables get their ids from 1 on: so that the first ones are in different regions.
        begins = [b"", *(row_key(number, b"") for number in range(2, regions + 1))]
        self.regions = [self._region(begin) for begin in begins]
        self.roll_call()

    # --- time and regions

    def tick(self) -> int:
        """A new timestamp, greater than all before."""
        self.now += 1
        return self.now

    def _region(self, begin: bytes) -> Region:
        self._next_id += 1
        number = self._next_id
        return Region(number, str(number % self.stores + 1), number % self.partitions, begin)

    def region_of(self, key: bytes) -> Region:
        return self.regions[bisect_right([region.begin for region in self.regions], key) - 1]

    def resolved_ts(self, region: Region) -> int:
        """No commit of this region will be at or below it."""
        held = (txn.start_ts - 1 for txn in self.open if any(self.region_of(k) is region for k in txn.open))
        return min(held, default=self.now)

    def roll_call(self) -> None:
        """Say, in partition 0, which regions there are."""
        ids = [region.id for region in self.regions]
        event = encode("closed", ROOT_REGION, self.regions[0].store, resolved_ts=0, successors=ids)
        self.sent[ROOT_REGION % self.partitions].append(event)

    def resolve(self, region: Region | None = None) -> None:
        """A region says how far it is; None: all do."""
        for one in self.regions if region is None else [region]:
            one.queue.append(encode("resolved", one.id, one.store, resolved_ts=self.resolved_ts(one)))

    def split(self, key: bytes) -> None:
        """The region that holds `key` becomes two, the second one from `key` on."""
        old = self.region_of(key)
        if old.begin != key:
            self._replace([old], [old.begin, key])

    def merge(self, number: int) -> None:
        """Region number `number`, counted from 0 by key, and the next one become one."""
        pair = self.regions[number : number + 2]
        if len(pair) == 2:
            self._replace(pair, [pair[0].begin])

    def move(self, region: Region) -> None:
        """Another store sends a region's events from here on."""
        region.store = str(int(region.store) % self.stores + 1)

    def _replace(self, old: list[Region], begins: list[bytes]) -> None:
        at = self.regions.index(old[0])
        new = [self._region(begin) for begin in begins]
        done = {region.id: self.resolved_ts(region) for region in old}
        self.regions[at : at + len(old)] = new
        for region in new:
            self.resolve(region)
        # What they still have to send stays in order before their ends.
        for region in old:
            ids = [one.id for one in new]
            region.queue.append(
                encode("closed", region.id, region.store, resolved_ts=done[region.id], successors=ids)
            )
            self.deliver(region)

    def emit(self, place: bytes, kind: str, **event: Any) -> None:
        """Put an event at the end of the region that holds the key `place`."""
        self._emitted.append((place, kind, event))
        region = self.region_of(place)
        region.queue.append(encode(kind, region.id, region.store, **event))

    def repeat(self, number: int) -> None:
        """Send an event again that was sent before, perhaps long ago."""
        if self._emitted:
            place, kind, event = self._emitted[number % len(self._emitted)]
            self.emit(place, kind, **event)

    # --- transactions

    def begin(self) -> Transaction:
        return Transaction(self)

    def collect_garbage(self, before: int) -> None:
        """Take what no reader at or after `before` sees: older versions of keys, and their values."""
        newest = {k: ts for _, ts, k, change in self.history if ts <= before and change.letter in "PD"}
        for start_ts, ts, key, change in self.history:
            if change.letter in "PD" and ts < newest.get(key, 0):
                common: dict[str, Any] = {"table_id": change.table_id, "key": change.key}
                self.emit(key, "delete", cf="write", commit_ts=ts, **common)
                if change.prewritten:
                    self.emit(key, "delete", cf="default", start_ts=start_ts, **common)

    # --- tables

    def create_database(self, name: str) -> int:
        self._made += 1
        number = self._databases[name] = self._made
        with self.begin() as txn:
            txn.describe(b"mDB%d" % number, {"id": number, "name": name})
        return number

    def create_table(self, db: str, name: str) -> int:
        """Returns the table's id."""
        number = self._databases.get(db) or self.create_database(db)
        self._tables += 1
        with self.begin() as txn:
            self._describe(txn, number, self._tables, name)
            txn.describe(b"mDB%d_TID%d" % (number, self._tables), {"next": 1})
        return self._tables

    def rename_table(self, table_id: int, db: str, name: str) -> None:
        target = self._databases.get(db) or self.create_database(db)
        number, _ = self._named(table_id)
        with self.begin() as txn:
            if number != target:
                txn.describe(b"mDB%d_Table%d" % (number, table_id), None)
            self._describe(txn, target, table_id, name)

    def truncate_table(self, table_id: int) -> int:
        """Returns the id that the table has from now on."""
        number, name = self._named(table_id)
        self._tables += 1
        with self.begin() as txn:
            txn.describe(b"mDB%d_Table%d" % (number, table_id), None)
            self._describe(txn, number, self._tables, name)
        return self._tables

    def drop_table(self, table_id: int) -> None:
        number, _ = self._named(table_id)
        with self.begin() as txn:
            txn.describe(b"mDB%d_Table%d" % (number, table_id), None)

    def drop_database(self, name: str) -> None:
        with self.begin() as txn:
            txn.describe(b"mDB%d" % self._databases.pop(name), None)

    def _describe(self, txn: Transaction, db: int, table_id: int, name: str) -> None:
        txn.describe(b"mDB%d_Table%d" % (db, table_id), {"id": table_id, "name": name})

    def _named(self, table_id: int) -> tuple[int, str]:
        for key, change in self._meta(self.now).items():
            db, _, table = key[3:].partition(b"_Table")
            if table == b"%d" % table_id:
                return int(db), json.loads(change.value or b"")["name"]
        raise KeyError(table_id)

    # --- what it held

    def _meta(self, ts: int) -> dict[bytes, Change]:
        found = {key: change for _, at, key, change in self.history if at <= ts and change.table_id == 0}
        return {key: change for key, change in found.items() if change.letter == "P"}

    def names(self, ts: int) -> dict[int, str]:
        """Table id to db.name at a moment."""
        meta = self._meta(ts)
        dbs = {key: json.loads(c.value or b"")["name"] for key, c in meta.items() if b"_" not in key}
        found = {}
        for key, change in meta.items():
            db, _, table = key.partition(b"_Table")
            if table and db in dbs:
                found[int(table)] = f"{dbs[db]}.{json.loads(change.value or b'')['name']}"
        return found

    def rows(self, ts: int) -> dict[str, dict[bytes, bytes]]:
        """What every table held at a moment: db.name to key to value; empty tables too."""
        named = self.names(ts)
        tables: dict[int, dict[bytes, bytes]] = {table_id: {} for table_id in named}
        for _, at, key, change in self.history:
            if at > ts or change.table_id not in tables:
                continue
            if change.letter == "T":
                tables[change.table_id].clear()
            elif change.letter == "P" and change.value is not None:
                tables[change.table_id][key] = change.value
            elif change.letter == "D":
                tables[change.table_id].pop(key, None)
        return {named[table_id]: rows for table_id, rows in tables.items()}

    # --- the topic

    def deliver(self, region: Region | None = None, count: int | None = None) -> None:
        """Let a region's first `count` events reach the topic; None: of all regions, all events."""
        for one in self.regions if region is None else [region]:
            self.sent[one.partition].extend(one.queue[:count])
            one.queue = [] if count is None else one.queue[count:]

    def take(self) -> Iterator[tuple[int, bytes]]:
        """Partition and value of what reached the topic and was not taken yet."""
        for partition, events in enumerate(self.sent):
            for event in events[self._taken[partition] :]:
                yield partition, event
            self._taken[partition] = len(events)

    def send(self, bootstrap: str, topic: str, *, deliver: bool = True) -> int:
        """Produce what was not sent yet; returns how many events. `deliver=False`: what is delivered."""
        if deliver:
            self.deliver()
        return produce(bootstrap, topic, self.take())

    def records(self, partition: int, start: int = 0, end: int | None = None) -> pa.RecordBatch:
        """Events [start, end) of a partition as a decoder gets them."""
        return batch(self.sent[partition][start:end], start)


def batch(events: Sequence[bytes], start: int = 0) -> pa.RecordBatch:
    """Records of a partition with these values, from offset `start` on."""
    count = len(events)
    offsets = pa.array(range(start, start + count), pa.int64())
    keys = pa.nulls(count, pa.binary())
    values = pa.array(events, pa.binary())
    return pa.RecordBatch.from_arrays([offsets, offsets, keys, values], schema=RECORDS)


def produce(bootstrap: str, topic: str, events: Iterable[tuple[int, bytes]]) -> int:
    """Put values into their partitions, in order; returns how many."""
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
        }
    )
    count = 0
    for partition, value in events:
        count += 1
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
        if count % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed, failed[0]
    return count
