"""Records the contents of a database at many moments, while writers change it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Self

import psycopg
from tests.support.postgres import Postgres

Contents = dict[str, dict[str, dict[str, Any]]]

#: The key as Debezium's JSON has it, and the columns of the row.
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
    # Leaves large columns unchanged that are stored out of line; REPLICA IDENTITY FULL makes Debezium send
    # them.
    ["UPDATE accounts SET balance = balance + 1 WHERE id %% 10 = %(writer)s"],
    ["UPDATE accounts SET tags = tags || 1, body = body || 'more' WHERE id = %(account)s"],
]
# Writers hold this advisory lock shared, `record_moment` holds it exclusively.
_GATE = 4711
EACH = 15


class Moments:
    """A database with a load of writers inside the block. `record_moment` records all of its contents, and
    lets the writers begin another `EACH` transactions.

    `contents_by_ms`: the committed contents at moments, in ms since 1970.
    """

    def __init__(self, postgres: Postgres, database: str, *, writers: int = 3, seed: int = 1) -> None:
        self.contents_by_ms: dict[int, Contents] = {}
        self.transactions = 0
        self._connect: Callable[[], psycopg.Connection[Any]] = lambda: postgres.connect(database)
        self._stop = threading.Event()
        self._permits = threading.Semaphore(EACH)
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
        self._permits.release(len(self._writers))
        for writer in self._writers:
            writer.join()
        if self._failed:
            raise self._failed[0]

    def record_moment(self, *, statement: str = "") -> int:
        """Record the present contents; returns the moment. Nothing is committed in its millisecond."""
        with self._connect() as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", [_GATE])
            if statement:
                connection.execute(statement.encode())
                connection.commit()
            moment = self._clock(connection) + 1
            contents: Contents = {}
            for table, (key, columns) in _TABLES.items():
                rows = connection.execute(
                    f"SELECT {key}::text, row_to_json(r) FROM (SELECT {columns} FROM {table}) AS r".encode()
                )
                contents[table] = {text.replace(" ", ""): row for text, row in rows.fetchall()}
            while self._clock(connection) <= moment:
                pass
            connection.execute("SELECT pg_advisory_unlock(%s)", [_GATE])
        self.contents_by_ms[moment] = contents
        self._permits.release(EACH)
        return moment

    @staticmethod
    def _clock(connection: psycopg.Connection[Any]) -> int:
        [milliseconds] = connection.execute(
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"  # Debezium truncates, too
        ).fetchone() or [0]
        return int(milliseconds)

    def _write(self, dice: random.Random, number: int) -> None:
        try:
            with self._connect() as connection:
                while self._permits.acquire() and not self._stop.is_set():
                    self._transaction(connection, dice, number)
        except BaseException as error:  # noqa: BLE001 - raised at the end of the block
            self._failed.append(error)

    def _transaction(self, connection: psycopg.Connection[Any], dice: random.Random, number: int) -> None:
        # Writers use different rows, so that they do not wait for each other.
        order, account = (dice.randrange(limit) * 10 + number for limit in (10_000, 10))
        try:
            connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [_GATE])
            for _ in range(dice.choice([1, 1, 2, 8])):
                for statement in dice.choice(_STATEMENTS):
                    values = {"order": order, "account": account, "writer": number}
                    connection.execute(statement.encode(), values)
                order += 10
            connection.rollback() if dice.randrange(10) == 0 else connection.commit()
        except psycopg.errors.UniqueViolation:
            connection.rollback()
        self.transactions += 1
