"""What a database really held at many moments, while others wrote to it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Self

import psycopg
from tests.support.postgres import Postgres

Contents = dict[str, dict[str, dict[str, Any]]]

#: Text of the key as Debezium writes it, and the row.
_TABLES = {
    "accounts": ("json_build_object('id', id)", "id, owner, balance, active, tags, words, body"),
    "orders": ("json_build_object('id', id)", "id, account, note"),
    "lines": ("json_build_object('order_id', order_id, 'line', line)", "order_id, line, amount"),
}
_MAKE = """
    CREATE TABLE accounts (
        id int PRIMARY KEY, owner text, balance bigint, active bool, tags int[], words text[], body text
    );
    ALTER TABLE accounts ALTER tags SET STORAGE EXTERNAL, ALTER words SET STORAGE EXTERNAL,
        ALTER body SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
    CREATE TABLE orders (id int PRIMARY KEY, account int, note text);
    CREATE TABLE lines (order_id int, line int, amount float8, PRIMARY KEY (order_id, line));
    INSERT INTO accounts SELECT n, 'owner ' || n, n * 1000000007::bigint, n % 2 = 0
        , CASE WHEN n % 3 > 0 THEN array_fill(n, ARRAY[1000]) END
        , CASE WHEN n % 3 > 0 THEN array_fill('wörd '::text || n, ARRAY[500]) END, repeat('b', n * 100)
    FROM generate_series(1, 50) AS n;
    INSERT INTO orders SELECT n, n, 'there before' FROM generate_series(1, 20) AS n;
"""
_STATEMENTS = [
    [
        "INSERT INTO orders VALUES (%(order)s, %(account)s, 'né') ON CONFLICT DO NOTHING",
        """INSERT INTO lines SELECT %(order)s, n, n / 3.0 FROM generate_series(1, 3) AS n
        ON CONFLICT (order_id, line) DO UPDATE SET amount = lines.amount + 1""",
    ],
    ["DELETE FROM orders WHERE id %% 10 = %(writer)s AND id > %(order)s"],
    ["DELETE FROM lines WHERE order_id %% 10 = %(writer)s AND order_id > %(order)s"],
    ["UPDATE orders SET id = id + 100000 WHERE id = %(order)s"],
    [
        """INSERT INTO accounts (id, owner, balance) VALUES (%(account)s, 'new', 9007199254740993)
        ON CONFLICT (id) DO UPDATE SET active = NOT accounts.active"""
    ],
    # Leaves columns as they were that are stored apart; Debezium sends them, for REPLICA IDENTITY is FULL.
    ["UPDATE accounts SET balance = balance + 1 WHERE id %% 10 = %(writer)s"],
    ["UPDATE accounts SET tags = tags || 1, body = body || 'more' WHERE id = %(account)s"],
]
# Whoever writes shares it; whoever looks has it alone.
_GATE = 4711
EACH = 15


class Moments:
    """A database under a load of writers, until the block is left; `take` looks at all of it, and lets them
    begin another `EACH` transactions.

    `seen`: what it held at moments, in ms since 1970: everything that was committed up to then.
    """

    def __init__(self, postgres: Postgres, database: str, *, writers: int = 3, seed: int = 1) -> None:
        self.seen: dict[int, Contents] = {}
        self.transactions = 0
        self._connect: Callable[[], psycopg.Connection[Any]] = lambda: postgres.connect(database)
        self._stop = threading.Event()
        self._may = threading.Semaphore(EACH)
        self._failed: list[BaseException] = []
        self._writers = [
            threading.Thread(target=self._write, args=(random.Random(f"{seed} {n}"), n))
            for n in range(writers)
        ]
        with self._connect() as connection:
            connection.execute(_MAKE)

    def __enter__(self) -> Self:
        for writer in self._writers:
            writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._may.release(len(self._writers))
        for writer in self._writers:
            writer.join()
        if self._failed:
            raise self._failed[0]

    def take(self, *, before: str = "") -> int:
        """What the database holds now; the moment. Nothing is committed in its millisecond."""
        with self._connect() as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", [_GATE])
            if before:
                connection.execute(before.encode())
                connection.commit()
            moment = self._clock(connection) + 1
            found: Contents = {}
            for table, (key, columns) in _TABLES.items():
                rows = connection.execute(
                    f"SELECT {key}::text, row_to_json(r) FROM (SELECT {columns} FROM {table}) AS r".encode()
                )
                found[table] = {text.replace(" ", ""): row for text, row in rows.fetchall()}
            while self._clock(connection) <= moment:
                pass
            connection.execute("SELECT pg_advisory_unlock(%s)", [_GATE])
        self.seen[moment] = found
        self._may.release(EACH)
        return moment

    @staticmethod
    def _clock(connection: psycopg.Connection[Any]) -> int:
        [now] = connection.execute(
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"  # Debezium cuts off, too
        ).fetchone() or [0]
        return int(now)

    def _write(self, chance: random.Random, number: int) -> None:
        try:
            with self._connect() as connection:
                while self._may.acquire() and not self._stop.is_set():
                    self._transaction(connection, chance, number)
        except BaseException as error:  # noqa: BLE001 - raised where the block is left
            self._failed.append(error)

    def _transaction(self, connection: psycopg.Connection[Any], chance: random.Random, number: int) -> None:
        # No two writers wait for each other's rows.
        order, account = (chance.randrange(most) * 10 + number for most in (10_000, 10))
        try:
            connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [_GATE])
            for _ in range(chance.choice([1, 1, 2, 8])):
                for statement in chance.choice(_STATEMENTS):
                    values = {"order": order, "account": account, "writer": number}
                    connection.execute(statement.encode(), values)
                order += 10
            connection.rollback() if chance.randrange(10) == 0 else connection.commit()
        except psycopg.errors.UniqueViolation:
            connection.rollback()
        self.transactions += 1
