"""Meta keys: how a database with a key-value change feed describes its databases and tables. Pure.

`mDB<id>` holds a database's JSON {"id", "name"}, `mDB<id>_Table<id>` a table's. They are written in
transactions like any other key, so that tables have names by commit ts. What else begins with `m` (next
numbers, sequences, policies, the history of schema changes) does not concern names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lakebackup.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Meta keys that are captured (also as RE2); group 1: the database's id, 2: the table's.
DESCRIBES = r"\AmDB([0-9]{1,18})(?:_Table([0-9]{1,18}))?\z"
_KEY = re.compile(DESCRIBES.replace(r"\z", r"\Z").encode())

Action = Literal["create", "rename", "truncate", "drop"]


class MetaWrite(NamedTuple):
    """A committed write of a meta key; `value`: JSON, None when the key was deleted."""

    commit_ts: int
    start_ts: int
    key: bytes
    value: bytes | None


class Naming(NamedTuple):
    """A name from `from_ts` on; `table_id`: negative: of the database with that id, `name` is empty then."""

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
    """What databases and tables are called; `apply` takes what was committed next."""

    def __init__(self, before: Iterable[Naming] = ()) -> None:
        """`before`: the last naming of each id."""
        known = list(before)
        self._dbs = {-n.table_id: n.db for n in known if n.table_id < 0 and n.action != "drop"}
        ids = {name: number for number, name in self._dbs.items()}
        self._tables = {
            # The name of a database that was never described holds its id.
            n.table_id: _Table(ids.get(n.db, _unnamed_id(n.db)), n.db, n.name)
            for n in known
            if n.table_id > 0 and n.action != "drop"
        }

    def apply(self, writes: Iterable[MetaWrite]) -> Iterator[Naming]:
        """What the writes change, transaction after transaction in the order of their commits.

        Every transaction must be whole. Raises Damaged, naming key and commit ts, for a value that is no
        such JSON.
        """
        together: list[MetaWrite] = []
        # A key may come more than once: a feed repeats events.
        for write in sorted(dict.fromkeys(writes), key=lambda w: (w.commit_ts, w.start_ts, w.key)):
            if together and together[0][:2] != write[:2]:
                yield from self._transaction(together)
                together = []
            together.append(write)
        if together:
            yield from self._transaction(together)

    def _transaction(self, writes: list[MetaWrite]) -> Iterator[Naming]:
        ts = writes[0].commit_ts
        dbs: dict[int, str | None] = {}
        gone: dict[int, _Table] = {}
        come: dict[int, _Table] = {}
        for write in writes:
            found = _KEY.match(write.key)
            if found is None:
                continue
            db_id = int(found[1])
            if found[2] is None:
                dbs[db_id] = None if write.value is None else _name(write)
            elif write.value is not None:
                come[int(found[2])] = _Table(db_id, "", _name(write))
            elif (table := self._tables.get(int(found[2]))) and table.db_id == db_id:
                gone[int(found[2])] = table
        yield from self._databases(ts, dbs, gone, come)
        yield from self._moves(ts, gone, come)

    def _databases(
        self, ts: int, dbs: dict[int, str | None], gone: dict[int, _Table], come: dict[int, _Table]
    ) -> Iterator[Naming]:
        """A database's own rows; its tables go, or get its new name, with it."""
        for db_id, name in dbs.items():
            before = self._dbs.get(db_id)
            if name == before:
                continue
            tables = {i: t for i, t in self._tables.items() if t.db_id == db_id and i not in come}
            if name is None:
                del self._dbs[db_id]
                yield Naming(-db_id, before or "", "", ts, "drop")
                gone.update(tables)
            else:
                self._dbs[db_id] = name
                yield Naming(-db_id, name, "", ts, "create" if before is None else "rename")
                come.update({i: _Table(db_id, name, t.name) for i, t in tables.items() if i not in gone})

    def _moves(self, ts: int, gone: dict[int, _Table], come: dict[int, _Table]) -> Iterator[Naming]:
        for table in come.values():
            table.db = self._dbs.get(table.db_id, f"DB{table.db_id}")
        left = {(t.db_id, t.name): i for i, t in gone.items() if i not in come}
        for table_id in sorted(left.values()):
            table = self._tables.pop(table_id)
            yield Naming(table_id, table.db, table.name, ts, "drop")
        for table_id, table in sorted(come.items()):
            before = self._tables.get(table_id)
            self._tables[table_id] = table
            if before is None:
                replaces = left.get((table.db_id, table.name))
                action: Action = "create" if replaces is None else "truncate"
                yield Naming(table_id, table.db, table.name, ts, action, replaces)
            elif (before.db, before.name) != (table.db, table.name):
                yield Naming(table_id, table.db, table.name, ts, "rename")


def _unnamed_id(db: str) -> int:
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
            "its value is no JSON with a name."
        ) from None
    return name
