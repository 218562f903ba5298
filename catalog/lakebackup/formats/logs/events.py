"""Events of a change feed, as decoders return them and as log files hold them.

The model is TiDB's MVCC: a transaction prewrites values (column family `default`, key and start ts), then
commits keys (family `write`, key and commit ts; the value is the start ts). A rollback deletes the prewritten
values. Feeds of committed rows (Debezium) have only events of `write`, which hold the values.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

Domain = Literal["tso", "ms"]

#: Column families. TiDB's third one, `lock`, is not captured: a restore needs no locks.
DEFAULT, WRITE = "default", "write"
PUT, DELETE = "put", "delete"

#: The type of a write: sets a value, deletes the key, only locked the key, was rolled back (neither of these
#: two changes the value), or deletes all rows of the table (its key is empty).
PUTS, DELETES, LOCKS, ROLLBACK, TRUNCATES = "P", "D", "L", "R", "T"

#: Prefix of meta keys, which describe databases and tables. They have separate log files.
META_PREFIX = b"m"
#: `table_id` of meta keys.
META_TABLE = 0


@cache
def captured_schema() -> pa.Schema:
    """An event as a decoder returns it.

    store: the node that sent it. region: shard of the feed. cf: DEFAULT or WRITE. op: PUT or DELETE. type:
    PUTS ... TRUNCATES if it is a put in WRITE, else null. value: set by puts in DEFAULT, and by writes that
    hold their value. start_ts, commit_ts (null in DEFAULT): in the feed's domain. seq, sub: of two writes of
    a key, the later has the greater (commit_ts, seq, sub). offset: of its message in the feed's partition.
    """
    import pyarrow as pa

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
    """An event as a log file holds it: store, region, table, cf and op are in the file's path instead."""
    import pyarrow as pa

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
    """Resolved timestamps: every change of a region up to `resolved_ts` is before `offset` in its partition.

    `closed`: the region ended; `successors` are the regions that hold its keys from then on.
    """
    import pyarrow as pa

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
