"""The schema changes of a connector that a log still has to apply, and their places among the transactions.

A message names no transaction, and has a topic of its own. So it is placed between the ends of the two
transactions between which it was sent. A table that was dropped or truncated gets a write that ends all of
its rows. A change that such a write cannot express is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from lakebackup.errors import Damaged, NotFound, Refused
from lakebackup.storage import Storage
from lakebackup_jobs.logs.feeds.debezium_ddl import Effect, effect_of, identity
from lakebackup_jobs.logs.feeds.debezium_tables import NEW_TASK, CapturedTable, TableName, Tables
from lakebackup_jobs.logs.feeds.transactions import Transactions

_STATE = "schema-changes.json"
# The number of newest schema changes that are recognised when a connector sends them again.
_REMEMBERED = 1000
# Transaction ids of MySQL and MariaDB. Their last numbers rise while the text before them stays the same.
_POSITIONS = (re.compile(r"^(file=.*?)(\d+),pos=(\d+)$"), re.compile(r"^(.+[:-])(\d+)$"))
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


@dataclass(frozen=True, slots=True)
class Emptied:
    """A schema change that ends all rows of `tables` (their numbers).

    `sent_ms`: when the message was sent. `ms`: when the database made the change. `position`: in the
    database's log. `ts`, `seq`: its place among the transactions, None: not known yet.
    """

    offset: int
    sent_ms: int
    ms: int | None
    tables: tuple[int, ...]
    position: str | None = None
    ts: int | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """The schema changes that a flush knows, and how far their topic was read.

    `next`: the first offset of the topic (id `epoch`) that was not read. `waiting`: the changes that were not
    captured yet. `hashes`: of the newest changes. `tables`: those that had events. `first_sent`: when the
    first end of a transaction was sent. `settled`: see Outlook.
    """

    epoch: str | None = None
    next: int = 0
    waiting: tuple[Emptied, ...] = ()
    hashes: tuple[str, ...] = ()
    tables: Tables = field(default_factory=lambda: Tables(by_parts=False))
    first_sent: int | None = None
    settled: frozenset[str] = frozenset()

    def with_messages(
        self,
        messages: Iterable[Mapping[str, Any]],
        next_offset: int,
        topic: str,
        topics: Sequence[str],
        *,
        after_ms: int | None = None,
    ) -> SchemaChanges:
        """Add messages: rows of debezium_ddl.SCHEMA_CHANGES up to offset `next_offset`.

        `topic`: the connector's prefix, and the topic of the messages. `topics`: of the connector.
        `after_ms`: messages that were sent up to then are ignored, since the log was captured by a version
        that did not read them. Raises Damaged for an invalid message, Refused for a change that no write can
        express.
        """
        waiting, hashes = list(self.waiting), list(self.hashes)
        for row in messages:
            if after_ms is not None and row["sent"] <= after_ms:
                continue
            if (row["snapshot"] or "false") != "false":  # a statement with which a snapshot begins
                continue
            digest = sha256(identity(dict(row)).encode()).hexdigest()[:16]
            if digest in hashes:
                continue
            hashes.append(digest)
            tables = self._emptied(row, topic, topics)
            if tables:
                position = _position(row)
                waiting.append(Emptied(row["offset"], row["sent"], row["ms"], tables, position))
        return replace(self, next=next_offset, waiting=tuple(waiting), hashes=tuple(hashes[-_REMEMBERED:]))

    def _emptied(self, row: Mapping[str, Any], topic: str, topics: Sequence[str]) -> tuple[int, ...]:
        location = f"{topic}[0] offset {row['offset']}"
        try:
            effect = effect_of(row["db"], row["schema"], row["ddl"], row["changes"])
        except (ValueError, AttributeError, TypeError):
            raise Damaged(f"{location} is no schema change of Debezium.", hint=NEW_TASK) from None
        moved = [name for name in effect.moved if self._number_of_captured(name, topic, topics) is not None]
        if moved:
            raise Refused(
                f"{location}: table {moved[0].text} was {effect.change}, and no event shows what became of "
                f"its rows{_quoted(row['ddl'])}.",
                hint=NEW_TASK,
            )
        numbers = [self._number_of_captured(name, topic, topics) for name in effect.emptied]
        return tuple(sorted({*filter(None, numbers), *self._of_database(effect, location, topic, topics)}))

    def _number_of_captured(self, name: TableName, topic: str, topics: Sequence[str]) -> int | None:
        """The number of a table that had events or has a topic, None for a table that is not captured."""
        number = self.tables.number(topic, name)
        if number in self.tables.by_number:
            return number
        for number, table in self.tables.by_number.items():
            if _is_same(table.name, name):
                return number
        parts = [part for part in name if part is not None]
        names = {
            _ILLEGAL.sub("_", f"{topic}.{'.'.join(parts[start:])}").casefold()
            for start in range(len(parts) - 1)
        }
        return number if any(topic_name.casefold() in names for topic_name in topics) else None

    def _of_database(self, effect: Effect, location: str, topic: str, topics: Sequence[str]) -> list[int]:
        if effect.dropped_db is None:
            return []
        dropped = effect.dropped_db.casefold()
        numbers = [
            number
            for number, table in self.tables.by_number.items()
            if dropped in ((table.name.db or "").casefold(), (table.name.schema or "").casefold())
        ]
        topic_prefix = _ILLEGAL.sub("_", f"{topic}.{dropped}.").casefold()
        if sum(name.casefold().startswith(topic_prefix) for name in topics) > len(numbers):
            raise Refused(
                f"{location}: database {effect.dropped_db} was dropped, and tables of it were not captured "
                "yet.",
                hint=NEW_TASK,
            )
        return numbers

    def placed(
        self, transactions: Transactions, ends: pa.Table, topic: str, resolved_ts: int | None
    ) -> SchemaChanges:
        """Set the places of the changes after which another transaction ended.

        `transactions`: with those that ended last. `ends`: the ends of the same transactions in the order of
        their topic, as `as_sent` returns them. Raises Refused for a change whose place is ambiguous.
        """
        waiting = tuple(
            self._located(change, transactions, ends, topic, resolved_ts) for change in self.waiting
        )
        first_sent = (
            int(pc.min(ends["sent"]).as_py()) if self.first_sent is None and len(ends) else self.first_sent
        )
        return replace(self, waiting=waiting, first_sent=first_sent)

    def _located(
        self, change: Emptied, transactions: Transactions, ends: pa.Table, topic: str, resolved_ts: int | None
    ) -> Emptied:
        if change.ts is not None or not len(ends):
            return change
        sent_ms, offsets = ends["sent"].to_numpy(), ends["offset"].to_numpy()
        is_earlier = sent_ms < change.sent_ms
        for index in np.flatnonzero(sent_ms == change.sent_ms).tolist():
            is_earlier[index] = _is_before(
                ends["key"][index].as_py(), ends["ts"][index].as_py(), change, topic
            )
        last = int(np.flatnonzero(is_earlier).max()) if is_earlier.any() else -1
        rows = transactions.rows
        index = int(np.searchsorted(rows["seq"].to_numpy(), offsets[last] + 1, "right")) if last >= 0 else 0
        if index >= len(rows):
            return change
        earliest = int(rows["ts"][index - 1].as_py()) if index else transactions.begin or 0
        ts = min(max(change.ms or 0, earliest), int(rows["ts"][index].as_py()))
        if resolved_ts is not None and ts <= resolved_ts:
            raise Refused(
                f"{topic}[0] offset {change.offset} was readable only after changes that came after it were "
                "captured: it ends rows at a time up to which the log was promised to be complete.",
                hint=NEW_TASK,
            )
        return replace(change, ts=ts, seq=int(rows["seq"][index - 1].as_py()) if index else 0)

    def captured(self, up_to: int, reports: Iterable[Mapping[str, Any]]) -> SchemaChanges:
        """Update the state after a flush that captured the topic up to an offset.

        `reports`: what the flush's decoders returned from `finish`. Raises Refused as `Tables.with_tables`
        does.
        """
        tables, settled = self.tables, set(self.settled)
        for report in reports:
            report_tables = [
                (number, CapturedTable(TableName(*name), key))
                for number, name, key in report.get("names", ())
            ]
            tables = tables.with_tables(report_tables, f"A change in {report.get('place')}")
            if report.get("settled"):
                settled.add(report["place"])
        waiting = tuple(change for change in self.waiting if change.offset >= up_to)
        return replace(self, waiting=waiting, tables=tables, settled=frozenset(settled))

    def write(self, storage: Storage, path: str) -> None:
        storage.put(path, _STATES.dump_json(self))

    @classmethod
    def read(cls, storage: Storage, path: str) -> SchemaChanges | None:
        """Read what `write` stored; None: an earlier version stored nothing. Raises Damaged."""
        try:
            return _STATES.validate_json(storage.get(path))
        except NotFound:
            return None
        except ValueError as cause:
            raise Damaged(f"{storage.uri}/{path} cannot be read: {cause}") from cause


_STATES = TypeAdapter(SchemaChanges)


def state_path(folder: str) -> str:
    """The path of the schema changes that a flush stores for the next one."""
    return f"{folder}{_STATE}"


def as_sent(rows: pa.Table, ends: pa.Table | None) -> pa.Table:
    """The ends of transactions in the order of their topic: offset, sent, key, ts.

    `rows`: the transactions that were known before (transactions.SCHEMA). `ends`: the answer to
    debezium_json.ENDS over the messages that were read since, None: none were.
    """
    columns = ["offset", "sent", "key", "ts"]
    offsets = pc.subtract(rows["seq"], 1)
    earlier = pa.table([offsets, rows["sent"], rows["key"], rows["ts"]], names=columns)
    if ends is None:
        return earlier
    return pa.concat_tables(
        [earlier, ends.filter(pc.equal(ends["status"], "END")).select(columns).cast(earlier.schema)]
    )


def _is_same(name: TableName, other_name: TableName) -> bool:
    """Whether two names mean one table: statements write names in another case, and leave out parts."""
    parts = zip(name, other_name, strict=True)
    return all(a is None or b is None or a.casefold() == b.casefold() for a, b in parts)


def _is_before(key: str, ts: int, change: Emptied, topic: str) -> bool:
    """Whether a transaction whose end was sent in the same millisecond came before a schema change."""
    for pattern in _POSITIONS:
        first, second = (pattern.match(text or "") for text in (key, change.position))
        if first and second and first[1] == second[1]:
            return [*map(int, first.groups()[1:])] < [*map(int, second.groups()[1:])]
    if change.ms is not None and ts != change.ms:
        return ts < change.ms
    raise Refused(
        f"{topic}[0] offset {change.offset} was sent in the same millisecond as the end of transaction "
        f"{key}: it cannot be told whether rows that this one wrote are among those that it ends.",
        hint=NEW_TASK,
    )


def _position(row: Mapping[str, Any]) -> str | None:
    """The position of a schema change in the database's log, in the form of a transaction id."""
    if row["gtid"]:
        return str(row["gtid"])
    return f"file={row['file']},pos={row['pos']}" if row["file"] and row["pos"] is not None else None


def _quoted(ddl: str | None) -> str:
    text = re.sub(r"\s+", " ", ddl or "")
    return f" ({text[:200]}{'…' if len(text) > 200 else ''})" if text else ""
