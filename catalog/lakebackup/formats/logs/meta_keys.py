"""Meta keys: how a database with a key-value change feed describes its databases and tables. Pure.

The value of `mDB<id>` is JSON {"id", "name"} of a database, that of `mDB<id>_Table<id>` of a table. They are
written in transactions like other keys, so each name is valid from a commit ts on. Other keys that begin with
`m` (next ids, sequences, policies, the history of schema changes) are ignored.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lakebackup.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: The meta keys that are captured (valid in RE2 too); group 1: the database's id, 2: the table's.
CAPTURED_KEYS = r"\AmDB([0-9]{1,18})(?:_Table([0-9]{1,18}))?\z"
_KEY = re.compile(CAPTURED_KEYS.replace(r"\z", r"\Z").encode())

Action = Literal["create", "rename", "truncate", "drop"]


class MetaWrite(NamedTuple):
    """A committed write of a meta key; `value`: JSON, None when the key was deleted."""

    commit_ts: int
    start_ts: int
    key: bytes
    value: bytes | None


class Naming(NamedTuple):
    """The name of a table from `from_ts` on. For a database, `table_id` is its id negated, `name` is empty.

    `replaces`: id of the truncated table that this one replaces.
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
    """The present names of databases and tables; `apply` applies later writes."""

    def __init__(self, before: Iterable[Naming] = ()) -> None:
        """`before`: the last Naming of each id."""
        known = list(before)
        self._dbs = {-n.table_id: n.db for n in known if n.table_id < 0 and n.action != "drop"}
        ids = {name: number for number, name in self._dbs.items()}
        self._tables = {
            # A database whose meta key was never read is called DB<id>.
            n.table_id: _Table(ids.get(n.db, _id_in_name(n.db)), n.db, n.name)
            for n in known
            if n.table_id > 0 and n.action != "drop"
        }

    def apply(self, writes: Iterable[MetaWrite]) -> Iterator[Naming]:
        """Apply writes of complete transactions, in the order of their commits; returns what changed.

        Raises Damaged, with key and commit ts, for an invalid value.
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
        ts = writes[0].commit_ts
        dbs: dict[int, str | None] = {}
        removed: dict[int, _Table] = {}
        added: dict[int, _Table] = {}
        for write in writes:
            found = _KEY.match(write.key)
            if found is None:
                continue
            db_id = int(found[1])
            if found[2] is None:
                dbs[db_id] = None if write.value is None else _name(write)
            elif write.value is not None:
                added[int(found[2])] = _Table(db_id, "", _name(write))
            elif (table := self._tables.get(int(found[2]))) and table.db_id == db_id:
                removed[int(found[2])] = table
        yield from self._database_changes(ts, dbs, removed, added)
        yield from self._table_changes(ts, removed, added)

    def _database_changes(
        self, ts: int, dbs: dict[int, str | None], removed: dict[int, _Table], added: dict[int, _Table]
    ) -> Iterator[Naming]:
        """Changes of databases; the tables of a dropped or renamed one are dropped or renamed too."""
        for db_id, name in dbs.items():
            before = self._dbs.get(db_id)
            if name == before:
                continue
            tables = {i: t for i, t in self._tables.items() if t.db_id == db_id and i not in added}
            if name is None:
                del self._dbs[db_id]
                yield Naming(-db_id, before or "", "", ts, "drop")
                removed.update(tables)
            else:
                self._dbs[db_id] = name
                yield Naming(-db_id, name, "", ts, "create" if before is None else "rename")
                added.update({i: _Table(db_id, name, t.name) for i, t in tables.items() if i not in removed})

    def _table_changes(
        self, ts: int, removed: dict[int, _Table], added: dict[int, _Table]
    ) -> Iterator[Naming]:
        for table in added.values():
            table.db = self._dbs.get(table.db_id, f"DB{table.db_id}")
        dropped = {(t.db_id, t.name): i for i, t in removed.items() if i not in added}
        for table_id in sorted(dropped.values()):
            table = self._tables.pop(table_id)
            yield Naming(table_id, table.db, table.name, ts, "drop")
        for table_id, table in sorted(added.items()):
            before = self._tables.get(table_id)
            self._tables[table_id] = table
            if before is None:
                replaces = dropped.get((table.db_id, table.name))
                action: Action = "create" if replaces is None else "truncate"
                yield Naming(table_id, table.db, table.name, ts, action, replaces)
            elif (before.db, before.name) != (table.db, table.name):
                yield Naming(table_id, table.db, table.name, ts, "rename")


def _id_in_name(db: str) -> int:
    return int(db[2:]) if re.fullmatch("DB[0-9]{1,18}", db) else 0


def _name(write: MetaWrite) -> str:
    try:
        value: Any = json.loads(write.value or b"")
        name = value["name"]
        if not (isinstance(name, str) and name):
            raise TypeError(name)
    except (ValueError, TypeError, KeyError):
        raise Damaged(
            f"Meta key {write.key.decode(errors='replace')!r}, committed at {write.commit_ts}: "
            "its value is not JSON with a name."
        ) from None
    return name
