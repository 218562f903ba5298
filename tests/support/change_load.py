"""A change feed under load, for benchmarks: real timestamps, and a chosen number of events a second."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from tests.support.change_feed import encode, long, produce, row_key, write_value

from lakebackup.formats.logs.br_event import ROOT_REGION

#: The first table id of a load.
TABLE = 101


def tso(ms: float | None = None) -> int:
    """A timestamp as TiDB assigns it: ms since 1970, and 18 bits of a counter within one ms; None: now."""
    return int(time.time() * 1000 if ms is None else ms) << 18


def load(bootstrap: str, topic: str, *, events: int, partitions: int, **options: Any) -> int:
    """Produce the events of `load_events`; returns their number. One processor makes 300,000 a second."""
    return produce(bootstrap, topic, load_events(events, partitions, **options))


def load_events(
    events: int,
    partitions: int,
    rate: float | None = None,
    tables: int = 4,
    value_bytes: int = 100,
    rows: int = 16,
    mark_every_s: float = 1.0,
) -> Iterator[tuple[int, bytes]]:
    """Yield about `events` events with their partitions, as fast as possible or `rate` a second.

    Each partition is one region. First come the tables load.t0, load.t1, ... Then come transactions of
    `rows` new keys, prewritten and committed at once. Every `mark_every_s` seconds, and at the end, each
    region sends its resolved ts.
    """
    regions = range(1, partitions + 1)
    yield 0, encode("closed", ROOT_REGION, "1", resolved_ts=0, successors=regions)
    yield from ((0, event) for event in _tables(tables))
    started_at = last_mark = time.monotonic()
    # The constant start of the events of a region and table: all bytes before the key, and before the value.
    heads = {
        (region, table, cf): encode("put", region, "1", table_id=table, cf=cf)[:-6] + b"\2" + long(19)
        for region in regions
        for table in range(TABLE, TABLE + tables)
        for cf in ("default", "write")
    }
    value = b"\2" + long(value_bytes) + b"v" * value_bytes
    write_head = b"\2" + long(9) + b"P"
    count = number = 0
    ts = tso()
    while count < events:
        region, table = regions[number % partitions], TABLE + number % tables
        start, commit = ts + 1, ts + 2
        default, write = heads[region, table, "default"], heads[region, table, "write"]
        row = row_key(table, b"")
        starts = b"\2" + long(start)
        default_tail = value + starts + b"\0\0\0"
        write_tail = write_head + start.to_bytes(8, "big") + starts + b"\2" + long(commit) + b"\0\0"
        keys = [row + (number * rows + i).to_bytes(8, "big") for i in range(rows)]
        for key in keys:
            yield region - 1, default + key + default_tail
        for key in keys:
            yield region - 1, write + key + write_tail
        count += 2 * rows
        number += 1
        ts = max(tso(), commit)
        if rate is not None:
            ahead_s = started_at + count / rate - time.monotonic()
            if ahead_s > 0.005:
                time.sleep(ahead_s)
        if time.monotonic() - last_mark >= mark_every_s or count >= events:
            last_mark = time.monotonic()
            yield from ((r - 1, encode("resolved", r, "1", resolved_ts=ts)) for r in regions)


def _tables(tables: int) -> Iterator[bytes]:
    meta_values = [(b"mDB1", {"id": 1, "name": "load"})]
    for number in range(tables):
        table = TABLE + number
        meta_values.append((b"mDB1_Table%d" % table, {"id": table, "name": f"t{number}"}))
    start = tso()
    for key, value in meta_values:
        text = json.dumps(value).encode()
        yield encode("put", 1, "1", cf="default", key=key, value=text, start_ts=start)
    for key, _ in meta_values:
        value_of_write = write_value("P", start)
        yield encode(
            "put", 1, "1", cf="write", key=key, value=value_of_write, start_ts=start, commit_ts=start + 1
        )
