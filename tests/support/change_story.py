"""Random histories of a database with a change feed, step by step, for Hypothesis."""

# ruff: noqa: ARG002 (every step has three numbers, though not every step needs them all)

from __future__ import annotations

from hypothesis import strategies as st
from tests.support.change_feed import ChangeFeed, Transaction, row_key

Step = tuple[str, int, int, int]

#: Hypothesis draws a kind as often as it is listed.
KINDS = (
    *("begin", "begin", "begin", "write", "write", "write", "prewrite", "commit", "commit", "commit_some"),
    *(
        "rollback",
        "resolve",
        "resolve",
        "deliver",
        "deliver",
        "deliver_some",
        "flush",
        "straggle",
        "straggle",
    ),
    *("create", "rename", "truncate", "drop", "drop_database", "empty"),
    *("split", "merge", "move", "roll_call", "repeat", "collect"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.integers(0, 7), st.integers(0, 2)),
    min_size=10,
    max_size=80,
)


class Story:
    """A feed and its open transactions. `play` takes any step; a step that makes no sense does nothing.

    Transactions never wait for each other: no step writes a key that another open transaction has written.
    """

    def __init__(self) -> None:
        self.feed = ChangeFeed(partitions=2, regions=3)
        self.feed.create_table("shop", "orders")
        self.feed.create_table("shop", "items")
        self.working: list[Transaction] = []
        self._locked_keys: dict[int, set[tuple[int, bytes]]] = {}

    def play(self, step: Step) -> bool:
        """Play a step; returns whether a flush follows."""
        kind, a, b, c = step
        getattr(self, f"_{kind}")(a, b, c)
        return kind in ("flush", "straggle")

    def finish(self) -> None:
        """Commit every open transaction and deliver everything to the topic."""
        for txn in list(self.working):
            self._end(txn, "commit")
        self.feed.resolve()
        self.feed.deliver()

    def _table(self, number: int) -> int | None:
        live = sorted(self.feed.names(self.feed.last_ts))
        return live[number % len(live)] if live else None

    def _txn(self, number: int) -> Transaction | None:
        return self.working[number % len(self.working)] if self.working else None

    def _begin(self, a: int, b: int, c: int) -> None:
        txn = self.feed.begin()
        self.working.append(txn)
        self._locked_keys[txn.start_ts] = set()
        self._write(len(self.working) - 1, a, b)

    def _write(self, a: int, b: int, c: int) -> None:
        """Write one of four keys of a table: a short or long put, a delete or a lock."""
        txn, table = self._txn(a), self._table(b)
        if txn is None or table is None or txn.open or txn.commit_ts is not None:
            return
        key = b"k%d" % (b % 4)
        rival_keys = (keys for ts, keys in self._locked_keys.items() if ts != txn.start_ts)
        if any((table, key) in keys for keys in rival_keys):
            return
        self._locked_keys[txn.start_ts].add((table, key))
        if c == 0:
            txn.put_row(table, key, b"a long value written at %d" % txn.start_ts)
        elif c == 1:
            txn.put_row(table, key, b"" if a % 4 == 0 else b"s%d" % txn.start_ts)
        else:
            (txn.lock if a % 4 == 0 else txn.delete)(table, key)

    def _prewrite(self, a: int, b: int, c: int) -> None:
        txn = self._txn(a)
        if txn is not None and not txn.open and txn.commit_ts is None:
            txn.prewrite()
            if not txn.open:
                self._end(txn, "rollback")

    def _commit(self, a: int, b: int, c: int) -> None:
        if (txn := self._txn(a)) is not None:
            self._end(txn, "commit")

    def _commit_some(self, a: int, b: int, c: int) -> None:
        txn = self._txn(a)
        if txn is not None:
            txn.commit(1)
            if not txn.open:
                self._end(txn, "commit")

    def _rollback(self, a: int, b: int, c: int) -> None:
        txn = self._txn(a)
        if txn is not None and txn.commit_ts is None:
            self._end(txn, "rollback")

    def _end(self, txn: Transaction, method: str) -> None:
        self.working.remove(txn)
        getattr(txn, method)()
        del self._locked_keys[txn.start_ts]

    # Tables change only while no open transaction writes to them, as their database would ensure.

    def _idle(self, number: int) -> int | None:
        table = self._table(number)
        return (
            None
            if any(table == key_table for keys in self._locked_keys.values() for key_table, _ in keys)
            else table
        )

    def _create(self, a: int, b: int, c: int) -> None:
        self.feed.create_table(f"db{c}", f"t{self.feed.last_ts}")

    def _rename(self, a: int, b: int, c: int) -> None:
        if (table := self._table(a)) is not None:
            self.feed.rename_table(table, f"db{c}", f"t{self.feed.last_ts}")

    def _truncate(self, a: int, b: int, c: int) -> None:
        if (table := self._idle(a)) is not None:
            self.feed.truncate_table(table)

    def _drop(self, a: int, b: int, c: int) -> None:
        if (table := self._idle(a)) is not None:
            self.feed.drop_table(table)

    def _drop_database(self, a: int, b: int, c: int) -> None:
        dbs = sorted({name.partition(".")[0] for name in self.feed.names(self.feed.last_ts).values()})
        if dbs and not any(self._locked_keys.values()) and c == 0:
            self.feed.drop_database(dbs[a % len(dbs)])

    def _empty(self, a: int, b: int, c: int) -> None:
        if (table := self._idle(a)) is not None:
            with self.feed.begin() as txn:
                txn.empty(table)

    def _resolve(self, a: int, b: int, c: int) -> None:
        self.feed.resolve(None if c == 0 else self.feed.regions[a % len(self.feed.regions)])

    def _deliver(self, a: int, b: int, c: int) -> None:
        self.feed.deliver(None if c == 0 else self.feed.regions[a % len(self.feed.regions)])

    def _deliver_some(self, a: int, b: int, c: int) -> None:
        self.feed.deliver(self.feed.regions[a % len(self.feed.regions)], b)

    def _flush(self, a: int, b: int, c: int) -> None:
        """Does nothing: `play` reports the flush."""

    def _straggle(self, a: int, b: int, c: int) -> None:
        """Deliver all regions but one."""
        self.feed.resolve()
        for number, region in enumerate(self.feed.regions):
            if number != a % len(self.feed.regions):
                self.feed.deliver(region)

    def _split(self, a: int, b: int, c: int) -> None:
        if (table := self._table(a)) is not None:
            self.feed.split(b"mDB2" if b == 7 else row_key(table, b"k%d" % (b % 4)))

    def _merge(self, a: int, b: int, c: int) -> None:
        self.feed.merge(a % len(self.feed.regions))

    def _move(self, a: int, b: int, c: int) -> None:
        self.feed.move(self.feed.regions[a % len(self.feed.regions)])

    def _roll_call(self, a: int, b: int, c: int) -> None:
        self.feed.roll_call()

    def _repeat(self, a: int, b: int, c: int) -> None:
        self.feed.repeat(a * 8 + b)

    def _collect(self, a: int, b: int, c: int) -> None:
        self.feed.collect_garbage(self.feed.last_ts - a)
