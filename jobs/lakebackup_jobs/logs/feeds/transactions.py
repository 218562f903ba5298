"""Which transactions of a Debezium feed are known, and how much of each was captured.

A connector that provides transaction metadata writes the end of each transaction to one topic of one
partition, in commit order, with the number of its events. The events are in the topics of their tables, and
may be readable later than the end is; a connector that was killed sends some of both again.

One that was killed within a transaction sends its begin again, and goes on in the middle: the numbers of the
events start again at 1, and the end counts only what came since.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged, NotFound, Refused
from lakebackup.storage import open_storage, working
from lakebackup_jobs.lifecycle.tasks.rows import read_table, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakebackup.storage import Storage

#: How long after its end was sent (ms, by the newest one) a transaction that was captured may come again:
#: connectors record each minute, by default, what they have sent.
AGAIN_MS = 300_000
#: More are left for the next flush.
MOST = 500_000
#: How many that began and did not end are remembered: there is one, and what killed connectors left.
_BEGUN = 1000
_CARRIED = "transactions.parquet"
# Before the database in the key of a transaction, where other databases may have the same id.
_DATABASE = "@"

#: key: how its events name it. seq: greater means later. ts: when it was committed, never less than that of
#: the one before. sent: when its end was, the last time. count: events. done: all were captured by an earlier
#: flush. seen: of those that are not done, ranges [first, last] of the numbers of the captured events.
#: begun_again: when its begin was sent the last time before its end, null: it was sent once. Only events that
#: were sent since are counted.
SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),
        pa.field("sent", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("done", pa.bool_(), nullable=False),
        pa.field("seen", pa.list_(pa.int64())),
        pa.field("begun_again", pa.int64()),
    ]
)
#: Runs of event numbers that a partition held of a transaction.
SEEN = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("seq", "first", "last")])


@dataclass(frozen=True, slots=True)
class Transactions:
    """In commit order. `next`: the first offset of the topic (id `epoch`) that was not read.

    `begin`: where rows of the first snapshot belong, just before the first transaction; None before there was
    one. `begun`: by key, ts of those that began and have not ended; `restarted`: of these, when the begin was
    sent again. `places`: by `topic/partition`, (ts, seq,
    sub) of the last change that was captured. `forgot`: the greatest ts of those that are not in `rows` any
    more. `leader_epoch`: of the topic's leader when it was read up to `next`, None: not known.
    """

    rows: pa.Table
    epoch: str
    next: int = 0
    begin: int | None = None
    begun: Mapping[str, int] = field(default_factory=dict)
    restarted: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, Sequence[int]] = field(default_factory=dict)
    forgot: int = -1
    leader_epoch: int | None = None

    @classmethod
    def none(cls, epoch: str) -> Transactions:
        return cls(SCHEMA.empty_table(), epoch)

    def with_ends(self, found: pa.Table, next_offset: int) -> Transactions:
        """With those that ended since. `found`: the answer to debezium_json.ENDS.

        One that ends twice counts once, where it ended first. PostgreSQL's begin has the commit time too: a
        connector that was killed before it sent the end sends it with the time of the next transaction.
        Raises Refused for one that may have been forgotten: it would overwrite what came after it.
        """
        begun, restarted = dict(self.begun), dict(self.restarted)
        keys, counts = (self.rows[name].to_pylist() for name in ("key", "count"))
        ended = set(keys)
        # An earlier version did not know the databases of transactions.
        databaseless = {
            key for key, count in zip(keys, counts, strict=True) if count and _DATABASE not in key
        }
        fresh, times, again_ms = [], [], []
        columns = (found[name].to_pylist() for name in ("status", "key", "own", "ts", "sent"))
        for status, key, own, ts, sent_ms in zip(*columns, strict=True):
            if status == "BEGIN":
                if key in begun and key not in ended:
                    restarted[key] = sent_ms
                begun[key] = begun.get(key, 0) if ts is None else ts
                continue
            fresh.append(key not in ended and key.partition(_DATABASE)[0] not in databaseless)
            ended.add(key)
            times.append(begun.get(key) or ts if own else ts)
            again_ms.append(restarted.get(key))
        ends = found.filter(pc.equal(found["status"], "END"))
        keep = pa.array(fresh, pa.bool_())
        again = ends.filter(pc.invert(keep))
        ends, own_ts = ends.filter(keep), pa.array(times, pa.int64()).filter(keep).to_numpy()
        self._check_new(ends, own_ts)
        high = self.rows["ts"][-1].as_py() if len(self.rows) else 0
        ts = np.maximum.accumulate(np.maximum(own_ts, high))
        fresh_rows = pa.table(
            {
                "key": ends["key"],
                "seq": pa.array(ends["offset"].to_numpy() + 1),  # 0 is before every transaction
                "ts": pa.array(ts, pa.int64()),
                "sent": ends["sent"],
                "count": ends["count"],
                "done": pa.array(np.zeros(len(ends), bool)),
                "seen": pa.nulls(len(ends), SCHEMA.field("seen").type),
                "begun_again": pa.array(again_ms, pa.int64()).filter(keep),
            },
            schema=SCHEMA,
        )
        open_keys = [key for key in begun if key not in ended][-_BEGUN:]
        return replace(
            self,
            rows=_sent_again(pa.concat_tables([self.rows, fresh_rows]), again),
            next=next_offset,
            begin=int(ts[0]) - 1 if self.begin is None and len(fresh_rows) else self.begin,
            begun={key: begun[key] for key in open_keys},
            restarted={key: restarted[key] for key in open_keys if key in restarted},
        )

    def _check_new(self, ends: pa.Table, ts: Any) -> None:
        again = np.flatnonzero(ts <= self.forgot)
        if len(again):
            key, at = ends["key"][again[0]], ends["offset"][again[0]]
            raise Refused(
                f"Transaction {key}, which ended at offset {at} of the connector's transaction topic, was "
                f"committed at {ts[again[0]]}: the connector sends again what it sent more than "
                f"{AGAIN_MS // 60_000} minutes before, or the database's clock went back by as much. It may "
                "be captured already.",
                hint="Start a new task on a connector with a new topic.prefix, which takes a new snapshot; "
                "what this one captured stays restorable.",
            )

    def counted(self, finished: Iterable[Mapping[str, Any]], storage: Storage) -> Transactions:
        """With what the partitions of a flush held: `done` and `seen` are as after it.

        Of a transaction within which the connector was restarted, not all events are counted: it is done when
        besides no partition has events that were not read.
        """
        reports = list(finished)
        places = {**self.places, **{one["place"]: one["last"] for one in reports}}
        seqs, counts = self.rows["seq"].to_numpy(), self.rows["count"].to_numpy()
        runs = pa.concat_tables(
            [SEEN.empty_table(), *(_seen(one, storage) for one in reports), *self._seen_before()]
        )
        index = np.searchsorted(seqs, runs["seq"].to_numpy())
        # One number line for all transactions: that of each begins where those before cannot reach.
        first, last = (runs[name].to_numpy() + (index << 32) for name in ("first", "last"))
        order = np.argsort(first, kind="stable")
        index, first, last = index[order], first[order], last[order]
        reach = np.maximum.accumulate(last)
        before = np.concatenate([np.array([-1]), reach[:-1]]) if len(reach) else reach
        news = np.maximum(reach - np.maximum(before, first - 1), 0)
        captured = np.zeros(len(seqs), np.int64)
        np.add.at(captured, index, news)
        complete = captured >= counts
        if any(report.get("unread") for report in reports):
            beyond = [seq for report in reports for seq in report.get("beyond", ())]
            uncounted = self.rows["begun_again"].is_valid().to_numpy() | np.isin(seqs, beyond)
            complete &= ~uncounted
        done = self.rows["done"].to_numpy() | complete
        seen = _joined(index, first, before, reach, done)
        columns = {
            "done": pa.array(done, pa.bool_()),
            "seen": pa.array([seen.get(i) for i in range(len(seqs))], SCHEMA.field("seen").type),
        }
        rows = self.rows
        for name, column in columns.items():
            rows = rows.set_column(rows.schema.get_field_index(name), SCHEMA.field(name), column)
        return replace(self, rows=rows, places=places)

    def _seen_before(self) -> Iterator[pa.Table]:
        for row in self.rows.filter(self.rows["seen"].is_valid()).select(["seq", "seen"]).to_pylist():
            yield _runs([[row["seq"], *row["seen"][i : i + 2]] for i in range(0, len(row["seen"]), 2)])

    def checkpoint(self, waits: Sequence[int] = ()) -> int | None:
        """Up to which ts all is captured: another transaction may still end at that of the newest one.

        `waits`: when changes were made whose transactions have not ended. An end that was lost never comes,
        though those of later transactions do.
        """
        if not len(self.rows):
            return None
        done = self.rows["done"].to_numpy()
        open_ones = np.flatnonzero(~done)
        at = int(open_ones[0]) if len(open_ones) else len(done) - 1
        return min([int(self.rows["ts"][at].as_py()), *waits]) - 1

    def kept(self) -> Transactions:
        """Those that the next flush must know."""
        if not len(self.rows):
            return self
        ts, sent, done = (self.rows[name].to_numpy() for name in ("ts", "sent", "done"))
        wanted = (sent > sent.max() - AGAIN_MS) | ~done
        wanted[-1] = True
        forgot = max([self.forgot, *ts[~wanted][-1:].tolist()])
        return replace(self, rows=self.rows.filter(pa.array(wanted)), forgot=forgot)

    def write(self, storage: Storage, path: str) -> None:
        """Put it, perhaps in place of the same by another attempt."""
        names = ("epoch", "next", "begin", "begun", "restarted", "places", "forgot", "leader_epoch")
        state = {name: getattr(self, name) for name in names}
        schema = self.rows.schema.with_metadata({"feed": json.dumps(state)})
        write_rows(storage, path, schema, self.rows.to_batches())

    @classmethod
    def read(cls, storage: Storage, path: str) -> Transactions:
        """Raises Damaged when it is not there or is none."""
        rows = _get(storage, path)
        state = json.loads(rows.schema.metadata[b"feed"])
        rows = rows.replace_schema_metadata()
        for column in SCHEMA.names[len(rows.schema.names) :]:  # an earlier version did not write it
            rows = rows.append_column(SCHEMA.field(column), pa.nulls(len(rows), SCHEMA.field(column).type))
        return cls(rows, **state)


@lru_cache(maxsize=1)
def indexed(uri: str, path: str) -> tuple[Transactions, Mapping[str, int]]:
    """What `write` stored, and the place of each key in `rows`: read once for all partitions of a flush in a
    process. Raises as `read`."""
    known = Transactions.read(open_storage(uri), path)
    return known, {key: i for i, key in enumerate(known.rows["key"].to_pylist())}


def carried(folder: str) -> str:
    """Where a flush keeps what the next one must know."""
    return f"{folder}{_CARRIED}"


def prepared(folder: str) -> str:
    """Where a flush's tasks find what is known."""
    return f"{folder}known-{uuid4().hex[:12]}.parquet"


def tidy(storage: Storage, folder: str) -> None:
    """Delete what only the tasks of a committed flush needed."""
    paths = [item.path for item in storage.list(folder)]
    working.delete(
        storage, (path for path in paths if path.removeprefix(folder).startswith(("known-", "seen-")))
    )


def put_seen(storage: Storage, folder: str, runs: pa.Table) -> str:
    """Put runs as an object of their own; its path."""
    path = f"{folder}seen-{uuid4().hex[:12]}.parquet"
    write_rows(storage, path, runs.schema, runs.to_batches())
    return path


def _sent_again(rows: pa.Table, ends: pa.Table) -> pa.Table:
    """With when their ends were sent last."""
    if not len(ends):
        return rows
    last = dict(zip(ends["key"].to_pylist(), ends["sent"].to_pylist(), strict=True))
    sent = [
        last.get(key, ms) for key, ms in zip(*(rows[n].to_pylist() for n in ("key", "sent")), strict=True)
    ]
    at = SCHEMA.get_field_index("sent")
    return rows.set_column(at, SCHEMA.field(at), pa.array(sent, pa.int64()))


def _seen(report: Mapping[str, Any], storage: Storage) -> pa.Table:
    return _get(storage, report["path"]) if report.get("path") else _runs(report["runs"])


def _runs(rows: Sequence[Sequence[int]]) -> pa.Table:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return pa.table([pa.array(columns[:, i]) for i in range(3)], schema=SEEN)


def _joined(index: Any, first: Any, before: Any, reach: Any, done: Any) -> dict[int, list[int]]:
    """Of each transaction that is not done, what was seen as ranges without overlaps."""
    found: dict[int, list[int]] = {}
    for i in np.flatnonzero(~done[index]):
        at, begin, end = int(index[i]), int(first[i]), int(reach[i])
        ranges, base = found.setdefault(at, []), at << 32
        if ranges and begin <= int(before[i]) + 1:
            ranges[-1] = end - base
        else:
            ranges += [begin - base, end - base]
    return found


def _get(storage: Storage, path: str) -> pa.Table:
    try:
        return read_table(storage, path)
    except NotFound as cause:
        raise Damaged(
            f"{storage.uri}/{path} is missing: without it nothing shows which transactions are whole.",
            hint="Start a new task; what this one captured stays restorable.",
        ) from cause
    except (pa.ArrowException, OSError) as cause:
        raise Damaged(f"{storage.uri}/{path} cannot be read: {cause}") from cause
