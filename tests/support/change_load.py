"""A change feed under load, for benchmarks: real timestamps, as many events a second as wanted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from tests.support.change_feed import encode, long, produce, row_key, write_value

from lakebackup.formats.logs.br_event import ROOT_REGION

#: Table ids of a load begin here.
TABLE = 101


def tso(ms: float | None = None) -> int:
    """A timestamp as TiDB gives them: ms since 1970, and 18 bits for what comes within one; None: now."""
    return int(time.time() * 1000 if ms is None else ms) << 18


def load(bootstrap: str, topic: str, *, events: int, partitions: int, **more: Any) -> int:
    """Produce what is `made`; how many events it was. One processor makes 300,000 a second."""
    return produce(bootstrap, topic, made(events, partitions, **more))


def made(
    events: int,
    partitions: int,
    rate: float | None = None,
    tables: int = 4,
    value_bytes: int = 100,
    rows: int = 16,
    mark_every_s: float = 1.0,
) -> Iterator[tuple[int, bytes]]:
    """About `events` events as fast as it goes, or `rate` a second, with partitions: one region each.

    Tables load.t0, load.t1, ... are made first. Then transactions of `rows` new keys, prewritten and
    committed at once; every `mark_every_s`, and at the end, each region says how far it is.
    """
    regions = range(1, partitions + 1)
    yield 0, encode("closed", ROOT_REGION, "1", resolved_ts=0, successors=regions)
    yield from ((0, event) for event in _tables(tables))
    begun = marked = time.monotonic()
    # What does not change between events of a region and table: all before the key, and before the value.
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
            ahead = begun + count / rate - time.monotonic()
            if ahead > 0.005:
                time.sleep(ahead)
        if time.monotonic() - marked >= mark_every_s or count >= events:
            marked = time.monotonic()
            yield from ((r - 1, encode("resolved", r, "1", resolved_ts=ts)) for r in regions)


def _tables(tables: int) -> Iterator[bytes]:
    named = [(b"mDB1", {"id": 1, "name": "load"})]
    for number in range(tables):
        table = TABLE + number
        named.append((b"mDB1_Table%d" % table, {"id": table, "name": f"t{number}"}))
    start = tso()
    for key, value in named:
        text = json.dumps(value).encode()
        yield encode("put", 1, "1", cf="default", key=key, value=text, start_ts=start)
    for key, _ in named:
        value_of_write = write_value("P", start)
        yield encode(
            "put", 1, "1", cf="write", key=key, value=value_of_write, start_ts=start, commit_ts=start + 1
        )
