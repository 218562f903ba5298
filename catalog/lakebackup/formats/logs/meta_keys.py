"""Follow the names of databases and tables through the meta keys of a key-value change feed. It does no I/O.

The value of `mDB<id>` is JSON {"id", "name"} of a database, that of `mDB<id>_Table<id>` is that of a table.
Meta keys are written in transactions like other keys, so each name is valid from a commit ts on. Other keys
that begin with `m` (next ids, sequences, policies, the history of schema changes) are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from lakebackup.errors import Damaged
from lakebackup.rules.stored_json import NO_JSON

#: Matches the meta keys that are captured, in the syntax of RE2; Python's `re` spells `\z` as `\Z`. Group 1
#: is the database's id, group 2 the table's.
CAPTURED_KEYS = r"\AmDB([0-9]{1,18})(?:_Table([0-9]{1,18}))?\z"
_KEY = re.compile(CAPTURED_KEYS.replace(r"\z", r"\Z").encode())

Action = Literal["create", "rename", "truncate", "drop"]


class MetaWrite(NamedTuple):
    """A committed write of a meta key. `value` is JSON, or None when the key was deleted."""

    commit_ts: int
    start_ts: int
    key: bytes
    value: bytes | None


class Naming(NamedTuple):
    """The name of a table from `from_ts` on. For a database, `table_id` is minus its id, and `name` is empty.

    `replaces` is the id of the truncated table that this one replaces.
    """

    table_id: int
    db: str
    name: str
    from_ts: int
    action: Action
    replaces: int | None = None


@dataclass(slots=True)
class _Table:
    db_id: int
    db: str
    name: str


class Names:
    """The current names of databases and tables. `apply` brings them up to date with later writes."""

    def __init__(self, previous_namings: Iterable[Naming] = ()) -> None:
        """Start with the names in `previous_namings`, which has the last Naming of each id."""
        namings = list(previous_namings)
        self._dbs = {-n.table_id: n.db for n in namings if n.table_id < 0 and n.action != "drop"}
        ids = {name: number for number, name in self._dbs.items()}
        self._tables = {
            # A database whose meta key was never read has no Naming; its tables give its name as DB<id>.
            n.table_id: _Table(ids.get(n.db, _id_in_name(n.db)), n.db, n.name)
            for n in namings
            if n.table_id > 0 and n.action != "drop"
        }

    def apply(self, writes: Iterable[MetaWrite]) -> Iterator[Naming]:
        """Apply the writes of complete transactions in the order of their commits, and yield each new Naming.

        Raises Damaged for an invalid value. The message has its key and its commit ts.
        """
        transaction: list[MetaWrite] = []
        # A feed may repeat events: drop duplicates.
        for write in sorted(dict.fromkeys(writes), key=lambda w: (w.commit_ts, w.start_ts, w.key)):
            if transaction and transaction[0][:2] != write[:2]:
                yield from self._transaction(transaction)
                transaction = []
            transaction.append(write)
        if transaction:
            yield from self._transaction(transaction)

    def _transaction(self, writes: list[MetaWrite]) -> Iterator[Naming]:
        """Apply the writes of one transaction. First all writes are sorted into databases and into removed
        and added tables, since a rename or a truncation is a removal and an addition in one transaction."""
        ts = writes[0].commit_ts
        dbs: dict[int, str | None] = {}
        removed: dict[int, _Table] = {}
        added: dict[int, _Table] = {}
        for write in writes:
            match = _KEY.match(write.key)
            if match is None:
                continue
            db_id = int(match[1])
            if match[2] is None:
                dbs[db_id] = None if write.value is None else _name(write)
            elif write.value is not None:
                added[int(match[2])] = _Table(db_id, "", _name(write))
            elif (table := self._tables.get(int(match[2]))) and table.db_id == db_id:
                removed[int(match[2])] = table
        yield from self._database_changes(ts, dbs, removed, added)
        yield from self._table_changes(ts, removed, added)

    def _database_changes(
        self, ts: int, dbs: dict[int, str | None], removed: dict[int, _Table], added: dict[int, _Table]
    ) -> Iterator[Naming]:
        """Yield the changes of databases. Adds the tables of dropped databases to `removed`, and those of
        renamed ones to `added`."""
        for db_id, name in dbs.items():
            old_name = self._dbs.get(db_id)
            if name == old_name:
                continue
            tables = {i: t for i, t in self._tables.items() if t.db_id == db_id and i not in added}
            if name is None:
                del self._dbs[db_id]
                yield Naming(-db_id, old_name or "", "", ts, "drop")
                removed.update(tables)
            else:
                self._dbs[db_id] = name
                yield Naming(-db_id, name, "", ts, "create" if old_name is None else "rename")
                added.update({i: _Table(db_id, name, t.name) for i, t in tables.items() if i not in removed})

    def _table_changes(
        self, ts: int, removed: dict[int, _Table], added: dict[int, _Table]
    ) -> Iterator[Naming]:
        """Yield the changes of tables.

        A truncation removes a table and adds one with another id and the same name in the same database.
        """
        for table in added.values():
            table.db = self._dbs.get(table.db_id, f"DB{table.db_id}")
        dropped = {(t.db_id, t.name): i for i, t in removed.items() if i not in added}
        for table_id in sorted(dropped.values()):
            table = self._tables.pop(table_id)
            yield Naming(table_id, table.db, table.name, ts, "drop")
        for table_id, table in sorted(added.items()):
            old_table = self._tables.get(table_id)
            self._tables[table_id] = table
            if old_table is None:
                replaces = dropped.get((table.db_id, table.name))
                action: Action = "create" if replaces is None else "truncate"
                yield Naming(table_id, table.db, table.name, ts, action, replaces)
            elif (old_table.db, old_table.name) != (table.db, table.name):
                yield Naming(table_id, table.db, table.name, ts, "rename")


def _id_in_name(db: str) -> int:
    """Return the id in a name DB<id>; 0 for any other name."""
    return int(db[2:]) if re.fullmatch("DB[0-9]{1,18}", db) else 0


def _name(write: MetaWrite) -> str:
    try:
        value: Any = json.loads(write.value or b"")
        name = value["name"]
        if not (isinstance(name, str) and name):
            raise TypeError(name)
    except (TypeError, KeyError, *NO_JSON):
        raise Damaged(
            f"Meta key {write.key.decode(errors='replace')!r}, committed at {write.commit_ts}: "
            "its value is not JSON with a name."
        ) from None
    return name
