"""A database whose changes arrive as a key-value change feed, and its contents at every moment.

    feed = ChangeFeed(partitions=2)
    orders = feed.create_table("shop", "orders")
    with feed.begin() as txn:               # commits at its end
        txn.put(orders, b"1", b"paid")
    feed.resolve()                          # every region sends its resolved ts
    feed.send(bootstrap, topic)             # or feed.records(partition): no broker
    assert feed.rows(feed.now) == {"shop.orders": {row_key(orders, b"1"): b"paid"}}

Each region has a queue of events. They reach the topic when `deliver` (or `send`, for all) is called. So a
test can keep regions behind each other, while each region keeps its own order.
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
#: Values up to this many bytes are stored in the write record itself.
SHORT = 8


def row_key(table_id: int, key: bytes) -> bytes:
    """The complete key of a row."""
    return b"t" + table_id.to_bytes(8, "big") + b"_r" + key


def long(number: int) -> bytes:
    """A number in Avro's encoding of a long."""
    remaining = ((number << 1) ^ (number >> 63)) & (2**64 - 1)
    encoded = bytearray()
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


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
    """The value of an event's record; a unit test compares it with fastavro's."""
    name = store.encode()
    successors_field = long(len(successors)) + b"".join(map(long, successors)) if successors else b""
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
            successors_field + b"\0",
        )
    )


def write_value(letter: str, start_ts: int, short: bytes | None = None) -> bytes:
    """The value of a write record."""
    return letter.encode() + start_ts.to_bytes(8, "big") + (b"" if short is None else b"v" + short)


@dataclass
class Region:
    """A range of keys, from `begin` to the next region's `begin`. `queue`: events that are not delivered
    yet."""

    id: int
    store: str
    partition: int
    begin: bytes
    queue: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Change:
    """A transaction's change of a key: P puts a value, D deletes it, L only locks it, T empties the table."""

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

    def put_row(self, table_id: int, key: bytes, value: bytes) -> None:
        self._change(Change("P", table_id, row_key(table_id, key), value))

    def delete(self, table_id: int, key: bytes) -> None:
        self._change(Change("D", table_id, row_key(table_id, key)))

    def lock(self, table_id: int, key: bytes) -> None:
        self._change(Change("L", table_id, row_key(table_id, key)))

    def empty(self, table_id: int) -> None:
        """Remove every row of a table, in one event."""
        self._changes[row_key(table_id, b"")] = Change("T", table_id, b"")

    def describe(self, key: bytes, value: Mapping[str, Any] | None) -> None:
        """Put or delete a meta key."""
        text = None if value is None else json.dumps(value).encode()
        self._change(Change("D" if value is None else "P", 0, key, text))

    def _change(self, change: Change) -> None:
        self._changes[change.key] = change

    def prewrite(self) -> None:
        """Lock all keys, and write the values that are too long for the write records."""
        if self._changes:
            self.feed.open.append(self)
        for key, change in self._changes.items():
            self.open[key] = change
            common = {"table_id": change.table_id, "key": change.key, "start_ts": self.start_ts}
            self.feed.emit(key, "put", cf="lock", value=change.letter.encode(), **common)
            if change.prewritten:
                self.feed.emit(key, "put", cf="default", value=change.value, **common)

    def commit(self, keys: int | None = None) -> int:
        """Commit all keys, or the first `keys` of those that are still open; returns the commit ts."""
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
        """Remove the prewritten values; some keys get a rollback record, which stops a late prewrite."""
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
    """The database, its regions and the feed's partitions. `first_ts`: the newest timestamp."""

    def __init__(
        self, *, partitions: int = 2, regions: int = 2, stores: int = 2, first_ts: int = 100
    ) -> None:
        self.last_ts = first_ts
        self.partitions = partitions
        self.stores = stores
        self.open: list[Transaction] = []
        #: In the order of commits: start ts, commit ts, key, change.
        self.history: list[tuple[int, int, bytes, Change]] = []
        # An id of a database or a table is used once.
        self._last_database_id = self._last_table_id = 0
        self.delivered_events: list[list[bytes]] = [[] for _ in range(partitions)]
        self._read_counts = [0] * partitions
        self._emitted: list[tuple[bytes, str, dict[str, Any]]] = []
        self._next_id = 0
        self._databases: dict[str, int] = {}
        # Ids of tables start at 1; the regions are split so that the first tables are in different ones.
        begins = [b"", *(row_key(number, b"") for number in range(2, regions + 1))]
        self.regions = [self._region(begin) for begin in begins]
        self.roll_call()

    # --- time and regions

    def tick(self) -> int:
        """A new timestamp, greater than all earlier ones."""
        self.last_ts += 1
        return self.last_ts

    def _region(self, begin: bytes) -> Region:
        self._next_id += 1
        number = self._next_id
        return Region(number, str(number % self.stores + 1), number % self.partitions, begin)

    def region_of(self, key: bytes) -> Region:
        return self.regions[bisect_right([region.begin for region in self.regions], key) - 1]

    def resolved_ts(self, region: Region) -> int:
        """The region's promise: none of its later commits is at or below this ts."""
        limits = (txn.start_ts - 1 for txn in self.open if any(self.region_of(k) is region for k in txn.open))
        return min(limits, default=self.last_ts)

    def roll_call(self) -> None:
        """Send the list of regions, in the partition of the root region."""
        ids = [region.id for region in self.regions]
        event = encode("closed", ROOT_REGION, self.regions[0].store, resolved_ts=0, successors=ids)
        self.delivered_events[ROOT_REGION % self.partitions].append(event)

    def resolve(self, region: Region | None = None) -> None:
        """Send the resolved ts of a region; None: of all regions."""
        for target in self.regions if region is None else [region]:
            target.queue.append(
                encode("resolved", target.id, target.store, resolved_ts=self.resolved_ts(target))
            )

    def split(self, key: bytes) -> None:
        """Split the region that contains `key` into two; the second one starts at `key`."""
        old = self.region_of(key)
        if old.begin != key:
            self._replace([old], [old.begin, key])

    def merge(self, number: int) -> None:
        """Merge region number `number`, counted from 0 by key, and the next one."""
        pair = self.regions[number : number + 2]
        if len(pair) == 2:
            self._replace(pair, [pair[0].begin])

    def move(self, region: Region) -> None:
        """Have another store send a region's events from here on."""
        region.store = str(int(region.store) % self.stores + 1)

    def _replace(self, old: list[Region], begins: list[bytes]) -> None:
        index = self.regions.index(old[0])
        new = [self._region(begin) for begin in begins]
        resolved_by_id = {region.id: self.resolved_ts(region) for region in old}
        self.regions[index : index + len(old)] = new
        for region in new:
            self.resolve(region)
        # Undelivered events of the old regions stay in order before their ends.
        for region in old:
            ids = [successor.id for successor in new]
            region.queue.append(
                encode(
                    "closed", region.id, region.store, resolved_ts=resolved_by_id[region.id], successors=ids
                )
            )
            self.deliver(region)

    def emit(self, region_key: bytes, kind: str, **event: Any) -> None:
        """Append an event to the queue of the region that contains the key `region_key`."""
        self._emitted.append((region_key, kind, event))
        region = self.region_of(region_key)
        region.queue.append(encode(kind, region.id, region.store, **event))

    def repeat(self, number: int) -> None:
        """Send an event again that was emitted before, perhaps long ago."""
        if self._emitted:
            key, kind, event = self._emitted[number % len(self._emitted)]
            self.emit(key, kind, **event)

    # --- transactions

    def begin(self) -> Transaction:
        return Transaction(self)

    def collect_garbage(self, safe_ts: int) -> None:
        """Delete the versions of keys, and their values, that no reader at or after `safe_ts` sees."""
        newest = {k: ts for _, ts, k, change in self.history if ts <= safe_ts and change.letter in "PD"}
        for start_ts, ts, key, change in self.history:
            if change.letter in "PD" and ts < newest.get(key, 0):
                common: dict[str, Any] = {"table_id": change.table_id, "key": change.key}
                self.emit(key, "delete", cf="write", commit_ts=ts, **common)
                if change.prewritten:
                    self.emit(key, "delete", cf="default", start_ts=start_ts, **common)

    # --- tables

    def create_database(self, name: str) -> int:
        self._last_database_id += 1
        number = self._databases[name] = self._last_database_id
        with self.begin() as txn:
            txn.describe(b"mDB%d" % number, {"id": number, "name": name})
        return number

    def create_table(self, db: str, name: str) -> int:
        """Create a table; returns its id."""
        number = self._databases.get(db) or self.create_database(db)
        self._last_table_id += 1
        with self.begin() as txn:
            self._describe(txn, number, self._last_table_id, name)
            txn.describe(b"mDB%d_TID%d" % (number, self._last_table_id), {"next": 1})
        return self._last_table_id

    def rename_table(self, table_id: int, db: str, name: str) -> None:
        target = self._databases.get(db) or self.create_database(db)
        number, _ = self._database_and_name(table_id)
        with self.begin() as txn:
            if number != target:
                txn.describe(b"mDB%d_Table%d" % (number, table_id), None)
            self._describe(txn, target, table_id, name)

    def truncate_table(self, table_id: int) -> int:
        """Truncate a table; returns its new id."""
        number, name = self._database_and_name(table_id)
        self._last_table_id += 1
        with self.begin() as txn:
            txn.describe(b"mDB%d_Table%d" % (number, table_id), None)
            self._describe(txn, number, self._last_table_id, name)
        return self._last_table_id

    def drop_table(self, table_id: int) -> None:
        number, _ = self._database_and_name(table_id)
        with self.begin() as txn:
            txn.describe(b"mDB%d_Table%d" % (number, table_id), None)

    def drop_database(self, name: str) -> None:
        with self.begin() as txn:
            txn.describe(b"mDB%d" % self._databases.pop(name), None)

    def _describe(self, txn: Transaction, db: int, table_id: int, name: str) -> None:
        txn.describe(b"mDB%d_Table%d" % (db, table_id), {"id": table_id, "name": name})

    def _database_and_name(self, table_id: int) -> tuple[int, str]:
        for key, change in self._meta(self.last_ts).items():
            db, _, table = key[3:].partition(b"_Table")
            if table == b"%d" % table_id:
                return int(db), json.loads(change.value or b"")["name"]
        raise KeyError(table_id)

    # --- the contents at a moment

    def _meta(self, ts: int) -> dict[bytes, Change]:
        latest = {
            key: change
            for _, commit_ts, key, change in self.history
            if commit_ts <= ts and change.table_id == 0
        }
        return {key: change for key, change in latest.items() if change.letter == "P"}

    def names(self, ts: int) -> dict[int, str]:
        """Table id -> db.name at a moment."""
        meta = self._meta(ts)
        dbs = {key: json.loads(c.value or b"")["name"] for key, c in meta.items() if b"_" not in key}
        names = {}
        for key, change in meta.items():
            db, _, table = key.partition(b"_Table")
            if table and db in dbs:
                names[int(table)] = f"{dbs[db]}.{json.loads(change.value or b'')['name']}"
        return names

    def rows(self, ts: int) -> dict[str, dict[bytes, bytes]]:
        """The contents of every table at a moment: db.name -> key -> value; with empty tables."""
        names = self.names(ts)
        tables: dict[int, dict[bytes, bytes]] = {table_id: {} for table_id in names}
        for _, commit_ts, key, change in self.history:
            if commit_ts > ts or change.table_id not in tables:
                continue
            if change.letter == "T":
                tables[change.table_id].clear()
            elif change.letter == "P" and change.value is not None:
                tables[change.table_id][key] = change.value
            elif change.letter == "D":
                tables[change.table_id].pop(key, None)
        return {names[table_id]: rows for table_id, rows in tables.items()}

    # --- the topic

    def deliver(self, region: Region | None = None, count: int | None = None) -> None:
        """Move a region's first `count` events to the topic; None: of all regions, all events."""
        for target in self.regions if region is None else [region]:
            self.delivered_events[target.partition].extend(target.queue[:count])
            target.queue = [] if count is None else target.queue[count:]

    def unread_events(self) -> Iterator[tuple[int, bytes]]:
        """Partition and value of the events that reached the topic and were not yielded yet."""
        for partition, events in enumerate(self.delivered_events):
            for event in events[self._read_counts[partition] :]:
                yield partition, event
            self._read_counts[partition] = len(events)

    def send(self, bootstrap: str, topic: str, *, deliver: bool = True) -> int:
        """Produce what was not sent yet; returns the number of events. `deliver=False`: only delivered
        ones."""
        if deliver:
            self.deliver()
        return produce(bootstrap, topic, self.unread_events())

    def records(self, partition: int, start: int = 0, end: int | None = None) -> pa.RecordBatch:
        """Events [start, end) of a partition in the form that a decoder gets."""
        return batch(self.delivered_events[partition][start:end], start)


def batch(events: Sequence[bytes], start: int = 0) -> pa.RecordBatch:
    """Records of a partition with these values, from offset `start` on."""
    count = len(events)
    offsets = pa.array(range(start, start + count), pa.int64())
    keys = pa.nulls(count, pa.binary())
    values = pa.array(events, pa.binary())
    return pa.RecordBatch.from_arrays([offsets, offsets, keys, values], schema=RECORDS)


def produce(bootstrap: str, topic: str, events: Iterable[tuple[int, bytes]]) -> int:
    """Produce values into their partitions, in order; returns their number."""
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
