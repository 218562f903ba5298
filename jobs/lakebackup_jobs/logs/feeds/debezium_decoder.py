"""Decodes change events of Debezium into records of a change feed.

Each change gets a version (ts, seq, sub), by which a restore orders the changes of a key. An event of a
transaction has the ts and seq of the transaction, and its number within it as sub. An event without a
transaction is called untied. It gets the ts and seq of the change before it in its partition, or those that
`Moments` finds for the time when it was sent, if they are greater. Its sub is UNTIED_SUB plus a number that
rises with its offset.

A flush stops in a partition at the first event of a transaction whose end is not known. The decoder reports
which events of each transaction it has read, as ranges of their numbers. From these the feed later finds out
which transactions are complete.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged, EnvironmentProblem, Refused
from lakebackup.formats.logs.events import (
    DELETES,
    PUT,
    PUT_TYPE,
    TRUNCATES,
    WRITE,
    captured_schema,
    marks_schema,
)
from lakebackup.storage import Storage
from lakebackup_jobs.logs.feeds import Decoded, Range
from lakebackup_jobs.logs.feeds.debezium_checks import check_form, check_rows
from lakebackup_jobs.logs.feeds.debezium_json import DIGESTS, EVENTS, ask, key_structures, without_tombstones
from lakebackup_jobs.logs.feeds.debezium_tables import CapturedTable, TableName, Tables, key_form
from lakebackup_jobs.logs.feeds.debezium_topics import Connector, own_changes
from lakebackup_jobs.logs.feeds.moments import Moments
from lakebackup_jobs.logs.feeds.transactions import RUNS, Transactions, write_runs
from lakebackup_jobs.logs.feeds.unavailable import Placeholder

#: The least `sub` of untied events. It is above the numbers of a transaction's events, so that rows of a
#: snapshot follow the change before them.
UNTIED_SUB = 1 << 30
# A report with more runs than this names an object that holds them.
_FEW_RUNS = 500


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a flush knows besides the transactions. A value is None when it is not known.

    `first_sent`: when the first end of a transaction was sent. `resolved_ts`: the previous checkpoint.
    `ends`: the end offset of each partition, by `topic/partition`. `settled`: the partitions
    (`topic/partition`) that had changes or rows of the first snapshot. `tables`: the tables that had events
    before.
    """

    connector: Connector | None = None
    first_sent: int | None = None
    resolved_ts: int | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    settled: frozenset[str] | None = None
    tables: Tables = field(default_factory=Tables)


_NO_OUTLOOK, _DEFAULT_PLACEHOLDER = Outlook(), Placeholder()


class DebeziumDecoder:
    """Decodes one partition's change events; see Decoder.

    `of` is the range of offsets to read. `transactions` are the known ones, and `index` maps the key of each
    to its row. Long reports are written to `folder`, that of the flush.
    """

    def __init__(
        self,
        storage: Storage,
        of: Range,
        folder: str,
        transactions: Transactions,
        index: Mapping[str, int],
        outlook: Outlook = _NO_OUTLOOK,
        placeholder: Placeholder = _DEFAULT_PLACEHOLDER,
    ) -> None:
        self._storage, self._folder, self._begin = storage, folder, transactions.begin
        self._connector = outlook.connector
        self._moments = Moments(
            transactions.rows, transactions.begin, outlook.first_sent, outlook.resolved_ts
        )
        # Whether the partition has events that this flush does not read.
        self._unread = of.end < outlook.ends.get(f"{of.topic}/{of.partition}", of.end)
        self._last_sent: int | None = None
        self._topic = of.topic
        self._origin, self._partition = f"{of.topic}[{of.partition}]", f"{of.topic}/{of.partition}"
        self._region = region_of(of.topic, of.partition)
        self._ends = transactions.rows
        self._index = index
        last = transactions.places.get(self._partition)
        first_version = (transactions.begin or 0, 0, UNTIED_SUB)
        self._last_version: tuple[int, int, int] = tuple(last) if last else first_version  # type: ignore[assignment]
        # Whether the partition had changes, or rows of the first snapshot.
        self._settled = last is not None and (outlook.settled is None or self._partition in outlook.settled)
        self._runs: list[pa.Table] = []
        # The highest event number of the last transaction. Numbers start again at 1 when the connector
        # restarts; later events must still get greater ones.
        self._highest = (
            {self._last_version[1]: self._last_version[2]} if self._last_version[2] < UNTIED_SUB else {}
        )
        # The seq of each transaction with an event whose number is above the count of its end.
        self._beyond: set[int] = set()
        self._known_tables = outlook.tables
        self._placeholder = placeholder
        self._tables: dict[int, list[Any]] = {}
        self._flush_tables: dict[int, CapturedTable] = {}
        self._key_structure: str | None = None
        self._has_events = False
        self._waits_ms: int | None = None

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See Decoder. Raises Damaged for messages that are no change events, and Refused as the checks
        do."""
        messages = without_tombstones(records)
        if len(messages):
            self._last_sent = messages["timestamp"][-1].as_py()
        try:
            events = ask(EVENTS, messages, self._origin)
            events = own_changes(events, messages, self._topic, self._origin, self._connector)
            # Drops logical messages that were written outside of transactions.
            untied = pc.and_(pc.equal(events["op"], "m"), events["transaction"].is_null())
            events = _without(events, untied)
            check_form(events, self._origin, self._hint())
        except Damaged as error:
            error.hint = error.hint or self._hint()
            raise
        events = self._with_transactions(events)
        events, upto = self._before_unfinished(events)
        versions = self._versions(events)
        events = events.append_column("commit_ts", pa.array(versions[0], pa.int64()))
        events = events.append_column("order", pa.array(versions[1], pa.int64()))
        events = events.set_column(
            events.schema.get_field_index("sub"), "sub", pa.array(versions[2], pa.int32())
        )
        # Earlier flushes have all events of a transaction that is done. A connector sends some of them again.
        events = _without(events, events["done"])
        self._count_events(events)
        changed = _without(events, pc.equal(events["op"], "m"))
        check_rows(changed, self._origin, self._placeholder)
        return Decoded(self._records(self._with_digests(changed, messages)), self._marks(events), upto)

    def skip(self, records: pa.RecordBatch) -> None:
        """See Decoder. Skipped events that name their transaction count as captured."""
        for index in range(len(records)):
            with suppress(Damaged, EnvironmentProblem):  # It is no event, so no transaction counts it.
                events = self._with_transactions(ask(EVENTS, records.slice(index, 1), self._origin))
                counted = pc.and_(events["seq"].is_valid(), events["sub"].is_valid())
                self._count_events(events.filter(counted))
                self._has_events = True

    def finish(self) -> Mapping[str, Any] | None:
        """See Decoder. Returns a report for `Transactions.counted` and the fold, None when there is nothing.

        `place`: the partition. `last`: the version of its last change. `tables`: [id, db, name, least ts] of
        the tables that occurred. `names`: [id, parts of the name, form of the key]. `beyond`: the
        transactions with an event whose number is above the count of their end. `unread`: whether there are
        events that this flush does not read. `runs`: the numbers of the captured events as ranges; for many
        ranges, `path` of the object that holds them.

        `waits`: the time (ms) of the change that waits for the end of its transaction; None if none does.
        Untied events that are left for later flushes have that time or a later one.
        """
        if self._unread and self._last_sent is not None:
            least_ts = self._moments.ts_before(self._last_sent)
            self._waits_ms = least_ts if self._waits_ms is None else min(self._waits_ms, least_ts)
        if not self._has_events and self._waits_ms is None:
            return None
        runs = pa.concat_tables([RUNS.empty_table(), *self._runs])
        report: dict[str, Any] = {
            "place": self._partition,
            "last": list(self._last_version),
            "waits": self._waits_ms,
        }
        report |= {"settled": self._settled, "unread": self._unread, "beyond": sorted(self._beyond)}
        report["names"] = [
            [number, list(table.name), table.key] for number, table in self._flush_tables.items()
        ]
        if len(runs) > _FEW_RUNS:
            report["path"] = write_runs(self._storage, self._folder, runs)
        else:
            report["runs"] = [list(row.values()) for row in runs.to_pylist()]
        return report | {"tables": [[table, *fields] for table, fields in sorted(self._tables.items())]}

    def _hint(self) -> str:
        return (
            "The connector must write Debezium's own envelope, by the JsonConverter. A topic that has no "
            "table can be left out: stop the task, and start it with one more "
            f"--pattern '!{re.escape(self._topic)}'."
        )

    def _with_transactions(self, events: pa.Table) -> pa.Table:
        """Add the columns of the transaction of each event, null for an unknown one, and the event's `number`
        in it."""
        ends: pa.Array | None = None
        for column in ("transaction", "transaction_db"):
            if ends is not None and events[column].null_count == len(events):
                continue
            keys = _flat(events[column], pa.string()).dictionary_encode()
            rows = pa.array([self._index.get(key) for key in keys.dictionary.to_pylist()], pa.int64())
            rows = rows.take(keys.indices)
            ends = rows if ends is None else pc.coalesce(rows, ends)
        for name in ("seq", "ts", "done", "count", "begun_again"):
            events = events.append_column(name, self._ends[name].take(ends))
        return events.append_column("number", events["sub"])

    def _before_unfinished(self, events: pa.Table) -> tuple[pa.Table, int | None]:
        """Return the events before the first one that must wait, and the offset of that event; None if none
        must.

        An event waits if the end of its transaction is not known, or, for an untied event, the next end.
        """
        if self._begin is None:  # No end is known, so all events wait, those of a snapshot too.
            first = 0 if len(events) else -1
        else:
            waits = pc.and_(events["transaction"].is_valid(), events["seq"].is_null())
            untied = self._placed_by_time(events) & ~self._moments.locate(*_instants(events))[2]
            first = pc.index(pc.or_(waits, pa.array(untied)), True).as_py()
        if first < 0:
            return events, None
        if self._begin is not None and events["transaction"][first].is_valid:
            self._waits_ms = events["source_ms"][first].as_py()
        return events.slice(0, first), events["offset"][first].as_py()

    def _placed_by_time(self, events: pa.Table) -> Any:
        """Return whether each event is untied and gets its place from the time when it was sent.

        These are all untied events except the rows of the first snapshot, which come before every
        transaction.
        """
        untied = events["transaction"].is_null().to_numpy()
        incremental = pc.fill_null(pc.equal(events["snapshot"], "incremental"), fill_value=False).to_numpy()
        truncates = pc.equal(events["op"], "t").to_numpy()
        return untied & (incremental | truncates | ~self._moments.is_initial(events["sent"].to_numpy()))

    def _versions(self, events: pa.Table) -> tuple[Any, Any, Any]:
        """Return the versions of the events as three arrays: ts, seq and sub.

        An untied event comes after the change before it in its partition, and between the two ends of
        transactions between which it was sent.
        """
        seq = pc.fill_null(events["seq"], -1).to_numpy()
        has_seq = seq >= 0
        by_time = self._placed_by_time(events)
        self._check_snapshots(events, has_seq, by_time)
        # The row of the last event with a transaction up to each event; -1 if there is none in this batch.
        last_tied = np.maximum.accumulate(np.where(has_seq, np.arange(len(seq)), -1))
        ts0, seq0, _ = self._last_version
        ts = np.where(last_tied < 0, ts0, pc.fill_null(events["ts"], 0).to_numpy()[last_tied])
        order = np.where(last_tied < 0, seq0, seq[last_tied])
        if by_time.any():
            placed_ts, placed_seq, _ = self._moments.locate(*_instants(events))
            for column, located in ((ts, placed_ts), (order, placed_seq)):
                column[by_time] = np.maximum(column, located)[by_time]
        for column in (ts, order):
            column[~has_seq] = np.maximum.accumulate(column[~has_seq])
        untied_sub = UNTIED_SUB + 1 + events["offset"].to_numpy() % (UNTIED_SUB - 2)
        number = self._ascending(seq, pc.fill_null(events["number"], 0).to_numpy(), has_seq)
        sub = np.where(has_seq, number, untied_sub)
        if len(seq):
            self._last_version = (int(ts[-1]), int(order[-1]), int(sub[-1]))
            self._has_events = True
        return ts, order, sub

    def _ascending(self, seq: Any, number: Any, has_seq: Any) -> Any:
        """Return the numbers of events within their transactions, raised where later events have no greater
        ones."""
        rows = np.flatnonzero(has_seq)
        if not len(rows):
            return number
        own_seq, numbers = seq[rows], number[rows]
        continues = own_seq[1:] == own_seq[:-1]
        highest = self._highest.get(int(own_seq[0]), 0)
        if (continues & (numbers[1:] <= numbers[:-1])).any() or numbers[0] <= highest:
            numbers = numbers.copy()
            for i in range(len(rows)):
                previous = numbers[i - 1] if i and continues[i - 1] else highest if i == 0 else 0
                numbers[i] = max(numbers[i], previous + 1)
            number = number.copy()
            number[rows] = numbers
        self._highest = {int(own_seq[-1]): int(numbers[-1])}
        return number

    def _check_snapshots(self, events: pa.Table, has_seq: Any, by_time: Any) -> None:
        """Raise Refused for rows of a new snapshot. It does not show which rows were deleted before it, so a
        restore would keep them.

        A row of a snapshot belongs to a new one in three cases: the partition had a change before it; it is
        placed by time, and the partition had a change or a row of the first snapshot; or it is a snapshot's
        first row, and another row of a snapshot came before it. Rows of an incremental snapshot are never
        refused.
        """
        kind = pc.fill_null(events["snapshot"], "")
        rows = pc.equal(events["op"], "r").to_numpy() & pc.not_equal(kind, "incremental").to_numpy()
        if not rows.any():
            self._settled |= bool(has_seq.any())
            return
        initial = rows & ~by_time
        settled = _any_before(has_seq | initial, self._settled)
        deletable = np.where(by_time, settled, _any_before(has_seq, self._last_version[1] > 0))
        starts = pc.starts_with(kind, "first").to_numpy() & _any_before(
            rows, self._last_version[2] > UNTIED_SUB
        )
        refused = np.flatnonzero(rows & (deletable | starts))
        if len(refused):
            raise Refused(
                f"{self._origin} offset {events['offset'][refused[0]]}: the connector started a new "
                "snapshot, which does not show the rows that were deleted before it.",
                hint="Start a new task on a connector with a new topic.prefix.",
            )
        self._settled |= bool((has_seq | initial).any())

    def _count_events(self, events: pa.Table) -> None:
        """Record which events of which transactions occurred, as ranges of their numbers."""
        numbers = events.select(["seq", "number", "count", "sent", "begun_again"])
        tied = numbers.filter(events["transaction"].is_valid())
        since = pc.fill_null(pc.greater_equal(tied["sent"], tied["begun_again"]), fill_value=True)
        tied = tied.filter(since)
        counted = pc.less_equal(tied["number"], tied["count"])
        self._beyond |= set(tied.filter(pc.invert(counted))["seq"].unique().to_pylist())
        tied = tied.filter(counted)
        if not len(tied):
            return
        seq, sub = tied["seq"].to_numpy(), tied["number"].to_numpy().astype(np.int64)
        starts = np.flatnonzero(np.concatenate([[True], (seq[1:] != seq[:-1]) | (sub[1:] != sub[:-1] + 1)]))
        ends = np.concatenate([starts[1:], [len(seq)]]) - 1
        self._runs.append(
            pa.table([pa.array(seq[starts]), pa.array(sub[starts]), pa.array(sub[ends])], schema=RUNS)
        )

    def _with_digests(self, events: pa.Table, messages: pa.RecordBatch) -> pa.Table:
        """Add the column `digest`, which distinguishes rows without a key. It is null for other rows."""
        keyless = events["key"].is_null()
        column = pa.chunked_array([pa.nulls(len(events), pa.string())])
        if pc.any(keyless).as_py():
            offsets = events["offset"].filter(keyless).combine_chunks()
            digests = ask(DIGESTS, messages.filter(pc.is_in(messages["offset"], offsets)), self._origin)
            indices = pc.index_in(events["offset"], digests["offset"].combine_chunks())
            column = digests["digest"].combine_chunks().take(indices.combine_chunks())
        return events.append_column("digest", column)

    def _records(self, events: pa.Table) -> pa.RecordBatch:
        n, op = len(events), events["op"]
        truncates = pc.equal(op, "t")
        kind = pc.if_else(truncates, TRUNCATES, pc.if_else(pc.equal(op, "d"), DELETES, PUT_TYPE))
        # Rows without a key can only be added, so each gets a key of its own. It holds a digest because a
        # connector that was killed sends some events again, and may give the numbers of earlier events to
        # others.
        order, sub, number = (events[name].cast(pa.string()) for name in ("order", "sub", "number"))
        numbered = pc.binary_join_element_wise("#", order, number, events["digest"], ".")
        own = pc.if_else(
            events["transaction"].is_valid(), numbered, pc.binary_join_element_wise("#", order, sub, ".")
        )
        key = pc.if_else(truncates, "", pc.coalesce(events["key"].cast(pa.string()), own))
        value = pc.if_else(pc.equal(kind, PUT_TYPE), events["after"], pa.scalar(None, pa.string()))
        columns = {
            "store": events["store"],
            "region": pa.array(np.full(n, self._region)),
            "table_id": self._table_ids(events),
            "cf": pa.array([WRITE]).take(pa.array(np.zeros(n, np.int32))),
            "op": pa.array([PUT]).take(pa.array(np.zeros(n, np.int32))),
            "key": key.cast(pa.binary()),
            "value": value.cast(pa.binary()),
            "start_ts": events["commit_ts"],
            "commit_ts": events["commit_ts"],
            "type": kind,
            "seq": events["order"],
            "sub": events["sub"],
            "offset": events["offset"],
        }
        schema = captured_schema()
        return pa.RecordBatch.from_arrays([_flat(columns[f.name], f.type) for f in schema], schema=schema)

    def _table_ids(self, events: pa.Table) -> pa.Array:
        """The number of the table of each event. Raises Refused for a table whose key changed."""
        structures = key_structures(events["key"], self._key_structure)
        columns = [events[name] for name in ("store", "kind", "db", "schema", "name")]
        kinds = _row_numbers([*columns, structures, pc.equal(events["op"], "t")])
        ts, indices = events["commit_ts"].to_numpy(), kinds.indices.to_numpy()
        ids = []
        for i in range(len(kinds.dictionary)):
            rows = np.flatnonzero(indices == i)
            first = {name: events[name][int(rows[0])].as_py() for name in events.schema.names}
            name = TableName(first["db"], first["schema"], first["name"])
            number = self._known_tables.number(first["store"], name)
            self._key_structure = structures[int(rows[0])].as_py() or self._key_structure
            key = None if first["op"] == "t" else key_form(structures[int(rows[0])].as_py())
            message_name = f"{self._origin} offset {first['offset']}"
            self._known_tables = self._known_tables.with_tables(
                [(number, CapturedTable(name, key))], message_name
            )
            self._flush_tables[number] = self._known_tables.by_number[number]
            database, least_ts = self._known_tables.database(first["kind"], name), int(ts[rows].min())
            row = self._tables.setdefault(number, [database, name.table, least_ts])
            row[2] = min(row[2], least_ts)
            ids.append(number)
        return pa.array(ids, pa.int64()).take(kinds.indices)

    def _marks(self, events: pa.Table) -> pa.RecordBatch:
        rows: list[dict[str, Any]] = []
        if len(events):  # The resolved ts is one less than the last ts, of which more events may follow.
            rows.append(
                {
                    "store": events["store"][-1].as_py(),
                    "region": self._region,
                    "resolved_ts": max(0, events["commit_ts"][-1].as_py() - 1),
                    "closed": False,
                    "successors": None,
                    "offset": events["offset"][-1].as_py(),
                }
            )
        return pa.RecordBatch.from_pylist(rows, marks_schema())


def region_of(topic: str, partition: int) -> int:
    """Return the number that identifies a partition as a region in log files."""
    digest = hashlib.sha256(topic.encode()).digest()
    return (int.from_bytes(digest[:8], "big") & (2**63 - 1)) ^ partition


def _without(events: pa.Table, excluded: Any) -> pa.Table:
    """Drop the excluded rows, which most batches do not have. Rows for which `excluded` is null stay."""
    has_excluded = pc.any(excluded).as_py()
    return events.filter(pc.invert(pc.fill_null(excluded, fill_value=False))) if has_excluded else events


def _row_numbers(columns: list[Any]) -> pa.DictionaryArray:
    """Return a number for each row, as a dictionary array. Rows that agree in all columns have the same
    number."""
    numbers = pa.array(np.zeros(len(columns[0]), np.int64)).dictionary_encode()
    for column in columns:
        encoded = _encoded(column)
        if len(encoded.dictionary) > 1:
            pairs = numbers.indices.to_numpy().astype(np.int64) * len(encoded.dictionary)
            numbers = pa.array(pairs + encoded.indices.to_numpy()).dictionary_encode()
    return numbers


def _encoded(column: Any) -> pa.DictionaryArray:
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return flat if pa.types.is_dictionary(flat.type) else flat.dictionary_encode(null_encoding="encode")


def _any_before(flags: Any, initial: bool) -> Any:
    """Return for each flag whether one before it is set, or `initial` is."""
    return np.logical_or.accumulate(np.concatenate([[initial], flags]))[:-1]


def _instants(events: pa.Table) -> tuple[Any, Any]:
    """Return the times (ms) when events were sent, and the times of the changes, which they name."""
    return events["sent"].to_numpy(), pc.fill_null(events["source_ms"], 0).to_numpy()


def _flat(column: Any, kind: pa.DataType) -> pa.Array:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column if column.type == kind else column.cast(kind)
