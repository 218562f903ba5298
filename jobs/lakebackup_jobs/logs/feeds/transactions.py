"""The known transactions of a Debezium feed, and how much of each was captured.

A connector that provides transaction metadata writes the end of each transaction to one topic of one
partition, in commit order, with the number of its events. The events are in the topics of their tables, and
may be readable later than the end. A connector that was killed sends some events and ends again.

A connector that was killed within a transaction sends its begin again and continues in the middle. Then the
numbers of the events start again at 1, and the end counts only the events since that begin.

A transaction is complete when as many different event numbers were captured as its end counts. They are
stored as ranges, in which repeated events count once. The checkpoint lies just before the first incomplete
transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged, NotFound, Refused
from lakebackup.storage import Storage, open_storage, working
from lakebackup_jobs.lifecycle.tasks.rows import read_table, write_rows

#: How long after its end was sent (ms, by the newest end) a captured transaction may be repeated. By default,
#: connectors record each minute what they have sent.
AGAIN_MS = 300_000
#: A flush stops reading ends once it has more than this.
MOST = 500_000
#: How many open transactions are remembered. Usually there is one, and those that killed connectors left.
_MOST_OPEN = 1000
_CARRIED = "transactions.parquet"
# Separates id and database in the key of a transaction, where several databases may use the same id.
_DATABASE = "@"

#: One row for each transaction, in commit order. key: the id by which its events name it. seq: greater means
#: later. ts: when it was committed, never less than that of the previous one. sent: when its end was sent the
#: last time. count: number of its events. done: earlier flushes captured all of them. seen: while it is not
#: done, ranges [first, last] of the numbers of the captured events. begun_again: when its begin was sent the
#: last time before its end, null: it was sent once. Only events that were sent since then are counted.
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
RUNS = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("seq", "first", "last")])


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions that a flush knows, in commit order (`rows`), and how far their topic was read.

    `next`: the first offset of the topic (id `epoch`) that was not read. `begin`: the ts of rows of the first
    snapshot, just before the first transaction; None until there is one. `begun`: the ts at which each open
    transaction began, by key. `restarted`: when a begin was sent again, by the same key. `places`: (ts, seq,
    sub) of the last captured change of each partition, by `topic/partition`. `forgot`: the greatest ts of the
    transactions that were removed from `rows`. `leader_epoch`: of the topic's leader when it was read up to
    `next`, None: not known.
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

    def with_ends(self, messages: pa.Table, next_offset: int) -> Transactions:
        """Add the transactions that ended since. `messages`: the answer to debezium_json.ENDS.

        A transaction that ends twice counts once, at its first end. The time of PostgreSQL's begin is used,
        as it is the commit time too: a connector that was killed before it sent the end sends it with the
        time of the next transaction. Raises Refused for a transaction that may have been removed from `rows`,
        because it would overwrite later changes.
        """
        begin_ts, restarted = dict(self.begun), dict(self.restarted)
        keys, counts = (self.rows[name].to_pylist() for name in ("key", "count"))
        ended_keys = set(keys)
        # An earlier version of lakebackup did not put databases into the keys.
        databaseless = {
            key for key, count in zip(keys, counts, strict=True) if count and _DATABASE not in key
        }
        fresh, times, again_ms = [], [], []
        columns = (messages[name].to_pylist() for name in ("status", "key", "own", "ts", "sent"))
        for status, key, own, ts, sent_ms in zip(*columns, strict=True):
            if status == "BEGIN":
                if key in begin_ts and key not in ended_keys:
                    restarted[key] = sent_ms
                begin_ts[key] = begin_ts.get(key, 0) if ts is None else ts
                continue
            fresh.append(key not in ended_keys and key.partition(_DATABASE)[0] not in databaseless)
            ended_keys.add(key)
            times.append(begin_ts.get(key) or ts if own else ts)
            again_ms.append(restarted.get(key))
        ends = messages.filter(pc.equal(messages["status"], "END"))
        keep = pa.array(fresh, pa.bool_())
        repeated_ends = ends.filter(pc.invert(keep))
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
        open_keys = [key for key in begin_ts if key not in ended_keys][-_MOST_OPEN:]
        return replace(
            self,
            rows=_with_last_sent(pa.concat_tables([self.rows, fresh_rows]), repeated_ends),
            next=next_offset,
            begin=int(ts[0]) - 1 if self.begin is None and len(fresh_rows) else self.begin,
            begun={key: begin_ts[key] for key in open_keys},
            restarted={key: restarted[key] for key in open_keys if key in restarted},
        )

    def _check_new(self, ends: pa.Table, ts: Any) -> None:
        forgotten = np.flatnonzero(ts <= self.forgot)
        if len(forgotten):
            key, offset = ends["key"][forgotten[0]], ends["offset"][forgotten[0]]
            raise Refused(
                f"Transaction {key}, which ended at offset {offset} of the connector's transaction topic, "
                f"was committed at {ts[forgotten[0]]}: the connector sends again what it sent more than "
                f"{AGAIN_MS // 60_000} minutes before, or the database's clock went back by as much. It may "
                "be captured already.",
                hint="Start a new task on a connector with a new topic.prefix, which takes a new snapshot; "
                "what this one captured stays restorable.",
            )

    def counted(self, finished: Iterable[Mapping[str, Any]], storage: Storage) -> Transactions:
        """Add what the partitions of a flush captured: updates `done`, `seen` and `places`.

        `finished`: the reports of the partitions' decoders. If the connector was restarted within a
        transaction, not all of its events are counted. Such a transaction is done only if also no partition
        has events that were not read.
        """
        reports = list(finished)
        last_places = {**self.places, **{r["place"]: r["last"] for r in reports}}
        seqs, counts = self.rows["seq"].to_numpy(), self.rows["count"].to_numpy()
        runs = pa.concat_tables(
            [RUNS.empty_table(), *(_report_runs(r, storage) for r in reports), *self._earlier_runs()]
        )
        index = np.searchsorted(seqs, runs["seq"].to_numpy())
        # All transactions share one number line: the numbers of each are shifted beyond those of the
        # previous.
        first, last = (runs[name].to_numpy() + (index << 32) for name in ("first", "last"))
        order = np.argsort(first, kind="stable")
        index, first, last = index[order], first[order], last[order]
        reach = np.maximum.accumulate(last)
        reach_before = np.concatenate([np.array([-1]), reach[:-1]]) if len(reach) else reach
        new_counts = np.maximum(reach - np.maximum(reach_before, first - 1), 0)
        captured = np.zeros(len(seqs), np.int64)
        np.add.at(captured, index, new_counts)
        complete = captured >= counts
        if any(report.get("unread") for report in reports):
            beyond = [seq for report in reports for seq in report.get("beyond", ())]
            uncounted = self.rows["begun_again"].is_valid().to_numpy() | np.isin(seqs, beyond)
            complete &= ~uncounted
        is_done = self.rows["done"].to_numpy() | complete
        ranges = _joined(index, first, reach_before, reach, is_done)
        columns = {
            "done": pa.array(is_done, pa.bool_()),
            "seen": pa.array([ranges.get(i) for i in range(len(seqs))], SCHEMA.field("seen").type),
        }
        rows = self.rows
        for name, column in columns.items():
            rows = rows.set_column(rows.schema.get_field_index(name), SCHEMA.field(name), column)
        return replace(self, rows=rows, places=last_places)

    def _earlier_runs(self) -> Iterator[pa.Table]:
        for row in self.rows.filter(self.rows["seen"].is_valid()).select(["seq", "seen"]).to_pylist():
            yield _runs([[row["seq"], *row["seen"][i : i + 2]] for i in range(0, len(row["seen"]), 2)])

    def checkpoint(self, waits: Sequence[int] = ()) -> int | None:
        """The ts up to which everything is captured, None while there is no transaction.

        It is less than the newest ts, as another transaction may end with the same. `waits`: the times of
        changes whose transactions have not ended. They hold back the checkpoint, because the end of a
        transaction may be lost, while those of later ones arrive.
        """
        if not len(self.rows):
            return None
        is_done = self.rows["done"].to_numpy()
        open_rows = np.flatnonzero(~is_done)
        index = int(open_rows[0]) if len(open_rows) else len(is_done) - 1
        return min([int(self.rows["ts"][index].as_py()), *waits]) - 1

    def needed_later(self) -> Transactions:
        """Only the transactions that the next flush must know."""
        if not len(self.rows):
            return self
        ts, sent_ms, is_done = (self.rows[name].to_numpy() for name in ("ts", "sent", "done"))
        keep = (sent_ms > sent_ms.max() - AGAIN_MS) | ~is_done
        keep[-1] = True
        forgot = max([self.forgot, *ts[~keep][-1:].tolist()])
        return replace(self, rows=self.rows.filter(pa.array(keep)), forgot=forgot)

    def write(self, storage: Storage, path: str) -> None:
        """Write the object. A second attempt replaces it by the same contents."""
        names = ("epoch", "next", "begin", "begun", "restarted", "places", "forgot", "leader_epoch")
        state = {name: getattr(self, name) for name in names}
        schema = self.rows.schema.with_metadata({"feed": json.dumps(state)})
        write_rows(storage, path, schema, self.rows.to_batches())

    @classmethod
    def read(cls, storage: Storage, path: str) -> Transactions:
        """Read what `write` stored. Raises Damaged when the object is missing or invalid."""
        rows = _read_object(storage, path)
        state = json.loads(rows.schema.metadata[b"feed"])
        rows = rows.replace_schema_metadata()
        for column in SCHEMA.names[len(rows.schema.names) :]:  # An earlier version did not write them.
            rows = rows.append_column(SCHEMA.field(column), pa.nulls(len(rows), SCHEMA.field(column).type))
        return cls(rows, **state)


@lru_cache(maxsize=1)
def indexed(uri: str, path: str) -> tuple[Transactions, Mapping[str, int]]:
    """The stored transactions, and the index of each key in `rows`. Raises as `read`.

    The last answer is cached, so that a process reads the object once for all partitions of a flush.
    """
    transactions = Transactions.read(open_storage(uri), path)
    return transactions, {key: i for i, key in enumerate(transactions.rows["key"].to_pylist())}


def carried(folder: str) -> str:
    """The path of the transactions that the next flush must know."""
    return f"{folder}{_CARRIED}"


def prepared(folder: str) -> str:
    """A new path for the transactions that the tasks of a flush read."""
    return f"{folder}known-{uuid4().hex[:12]}.parquet"


def tidy(storage: Storage, folder: str) -> None:
    """Delete the objects that only the tasks of a committed flush needed."""
    paths = [entry.path for entry in storage.list(folder)]
    working.delete(
        storage, (path for path in paths if path.removeprefix(folder).startswith(("known-", "seen-")))
    )


def write_runs(storage: Storage, folder: str, runs: pa.Table) -> str:
    """Write runs (SEEN) to an object of their own; returns its path."""
    path = f"{folder}seen-{uuid4().hex[:12]}.parquet"
    write_rows(storage, path, runs.schema, runs.to_batches())
    return path


def _with_last_sent(rows: pa.Table, ends: pa.Table) -> pa.Table:
    """Update the `sent` of the transactions whose ends were sent again."""
    if not len(ends):
        return rows
    last = dict(zip(ends["key"].to_pylist(), ends["sent"].to_pylist(), strict=True))
    sent_ms = [
        last.get(key, ms) for key, ms in zip(*(rows[n].to_pylist() for n in ("key", "sent")), strict=True)
    ]
    index = SCHEMA.get_field_index("sent")
    return rows.set_column(index, SCHEMA.field(index), pa.array(sent_ms, pa.int64()))


def _report_runs(report: Mapping[str, Any], storage: Storage) -> pa.Table:
    return _read_object(storage, report["path"]) if report.get("path") else _runs(report["runs"])


def _runs(rows: Sequence[Sequence[int]]) -> pa.Table:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return pa.table([pa.array(columns[:, i]) for i in range(3)], schema=RUNS)


def _joined(index: Any, first: Any, reach_before: Any, reach: Any, is_done: Any) -> dict[int, list[int]]:
    """The captured event numbers of each transaction that is not done, as ranges without overlaps.

    Its keys are indexes of `Transactions.rows`. For each run, in the order of `first`: `index` of its
    transaction, `reach`: the greatest last number of the runs up to it, `reach_before`: without it.
    """
    ranges_by_row: dict[int, list[int]] = {}
    for i in np.flatnonzero(~is_done[index]):
        row, begin, end = int(index[i]), int(first[i]), int(reach[i])
        ranges, base = ranges_by_row.setdefault(row, []), row << 32
        if ranges and begin <= int(reach_before[i]) + 1:
            ranges[-1] = end - base
        else:
            ranges += [begin - base, end - base]
    return ranges_by_row


def _read_object(storage: Storage, path: str) -> pa.Table:
    try:
        return read_table(storage, path)
    except NotFound as cause:
        raise Damaged(
            f"{storage.uri}/{path} is missing: without it nothing shows which transactions are whole.",
            hint="Start a new task; what this one captured stays restorable.",
        ) from cause
    except (pa.ArrowException, OSError) as cause:
        raise Damaged(f"{storage.uri}/{path} cannot be read: {cause}") from cause
