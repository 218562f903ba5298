"""Events of a change feed, as decoders give them and as log files hold them.

After the change feed below TiDB's MVCC: a transaction prewrites values (column family `default`, under its
start ts), then commits keys (family `write`, under its commit ts, naming the start ts); a rollback deletes
what was prewritten. Feeds of committed rows (Debezium) have writes alone, with their values in them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

Domain = Literal["tso", "ms"]

#: Column families. Events of `lock` are left out: a restore needs no locks.
DEFAULT, WRITE = "default", "write"
PUT, DELETE = "put", "delete"

#: What a write does to its key: a value, none any more, nothing (a lock alone, a rollback's mark), or nothing
#: is left of the whole table (its key is empty).
PUTS, DELETES, LOCKS, ROLLBACK, TRUNCATES = "P", "D", "L", "R", "T"

#: Prefix of meta keys, which describe databases and tables and are in a file of their own.
META_PREFIX = b"m"
#: `table_id` of meta keys.
META_TABLE = 0


@cache
def captured() -> pa.Schema:
    """A record as a decoder gives it.

    store: who sent it. region: shard of the feed. cf: DEFAULT or WRITE; op: PUT or DELETE; type: of a put
    write, one of PUTS ... TRUNCATES, else null. key. value: of a default put, and of a write that carries its
    value itself. start_ts, commit_ts (null in DEFAULT): in the feed's domain. seq, sub: of two writes of one
    key the greater (commit_ts, seq, sub) is the later one. offset: its place in the feed's partition.
    """
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("store", pa.string(), nullable=False),
            pa.field("region", pa.int64(), nullable=False),
            pa.field("table_id", pa.int64(), nullable=False),
            pa.field("cf", pa.string(), nullable=False),
            pa.field("op", pa.string(), nullable=False),
            *stored(),
            pa.field("offset", pa.int64(), nullable=False),
        ]
    )


@cache
def stored() -> pa.Schema:
    """A record as a log file holds it: without what is in its path (store, region, table, cf, op)."""
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
def marks() -> pa.Schema:
    """How far a region is: every change of it up to `resolved_ts` is before `offset` in its partition.

    `closed`: it sends no more, and `successors` hold its keys from then on.
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
