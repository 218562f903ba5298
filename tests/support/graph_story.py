"""What writers of a graph do when nobody tells them what: a bit of everything."""

from __future__ import annotations

import random

from tests.support.graph_writers import Writers

SCHEMAS = (("name", "age"), ("age", "name", "city"), ("city", "name"), ("name", "city", "age", "note"))
OPEN = 4


def some_writes(writers: Writers, dice: random.Random, count: int, *, schemas: bool = True) -> None:
    """So many tids, of transactions that overlap, of writes outside any, and of DDL."""
    working = sorted(writers.open())
    end = writers.tid + count
    while writers.tid < end:
        does = dice.random()
        if does < 0.02 and schemas:
            writers.change_schema(dice.choice(SCHEMAS))
        elif does < 0.12 and len(working) < OPEN:
            working.append(writers.begin())
        elif does < 0.25 and working:
            name = working.pop(dice.randrange(len(working)))
            writers.end(name, dice.choice(["commit", "commit", "rollback"]), everywhere=dice.random() < 0.5)
        else:
            name = dice.choice(working) if working and dice.random() < 0.7 else None
            a_write(writers, dice, name)
    writers.flush()


def a_write(writers: Writers, dice: random.Random, transaction: str | None) -> None:
    """A row, a number that is added to, a deletion, or an id."""
    which, n = dice.randrange(4), dice.randrange(12)
    if which == 0:
        writers.write(f"v:{n}", {"name": f"n{n}", "age": dice.randrange(99), "city": "c"}, transaction)
    elif which == 1:
        writers.write(f"n:{n}", dice.randrange(1, 99), transaction)
    elif which == 2:
        writers.write(dice.choice([f"v:{n}", f"n:{n}", f"id:{n}"]), None, transaction)
    else:
        writers.write(f"id:{n}", dice.randrange(1, 99), transaction)
