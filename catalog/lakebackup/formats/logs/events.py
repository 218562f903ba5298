"""The columns of change events, as decoders return them and as log files hold them.

The model is TiDB's MVCC: a transaction prewrites values (column family `default`, key and start ts), then
commits keys (family `write`, key and commit ts; the value is the start ts). A rollback deletes the prewritten
values. Feeds of committed rows (Debezium) have only events of family `write`, which hold the values.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import pyarrow as pa

Domain = Literal["tso", "ms"]

#: Column families. TiDB's third family, `lock`, is not captured, because a restore needs no locks.
DEFAULT, WRITE = "default", "write"
PUT, DELETE = "put", "delete"

#: The type of a write: it sets a value, deletes the key, only locked the key, was rolled back, or deletes all
#: rows of the table (then its key is empty). Locks and rollbacks change no value.
PUT_TYPE, DELETES, LOCKS, ROLLBACK, TRUNCATES = "P", "D", "L", "R", "T"

#: Prefix of meta keys, which describe databases and tables. They are in log files of their own.
META_PREFIX = b"m"
#: `table_id` of meta keys.
META_TABLE = 0


@cache
def captured_schema() -> pa.Schema:
    """The columns of an event as a decoder returns it.

    store: the node that sent the event. region: the shard of the feed. cf: DEFAULT or WRITE. op: PUT or
    DELETE. type: PUTS ... TRUNCATES for a put in WRITE, else null. value: set by puts in DEFAULT, and by
    writes that hold their value. start_ts, commit_ts (null in DEFAULT): in the feed's domain. seq, sub: the
    later of two writes of a key has the greater (commit_ts, seq, sub). offset: of the event's message in its
    partition of the feed.
    """
    return pa.schema(
        [
            pa.field("store", pa.string(), nullable=False),
            pa.field("region", pa.int64(), nullable=False),
            pa.field("table_id", pa.int64(), nullable=False),
            pa.field("cf", pa.string(), nullable=False),
            pa.field("op", pa.string(), nullable=False),
            *stored_schema(),
            pa.field("offset", pa.int64(), nullable=False),
        ]
    )


@cache
def stored_schema() -> pa.Schema:
    """The columns of an event in a log file. The file's path has its store, region, table, cf and op."""
    return pa.schema(
        [
            pa.field("key", pa.binary(), nullable=False),
            pa.field("value", pa.binary()),
            pa.field("start_ts", pa.int64(), nullable=False),
            pa.field("commit_ts", pa.int64()),
            pa.field("type", pa.string()),
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("sub", pa.int32(), nullable=False),
        ]
    )


@cache
def marks_schema() -> pa.Schema:
    """The columns of resolved timestamps: a region's changes up to `resolved_ts` precede `offset` in its
    partition.

    `closed`: the region ended; `successors` are the regions that hold its keys from then on.
    """
    return pa.schema(
        [
            pa.field("store", pa.string(), nullable=False),
            pa.field("region", pa.int64(), nullable=False),
            pa.field("resolved_ts", pa.int64(), nullable=False),
            pa.field("closed", pa.bool_(), nullable=False),
            pa.field("successors", pa.list_(pa.int64())),
            pa.field("offset", pa.int64(), nullable=False),
        ]
    )
