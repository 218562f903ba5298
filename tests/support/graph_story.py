"""Random histories of a graph's writers: transactions, plain writes and changes of schemas."""

from __future__ import annotations

import random

from tests.support.graph_writers import Writers

SCHEMAS = (("name", "age"), ("age", "name", "city"), ("city", "name"), ("name", "city", "age", "note"))
OPEN = 4


def some_writes(writers: Writers, dice: random.Random, count: int, *, schemas: bool = True) -> None:
    """Write `count` tids: overlapping transactions, writes outside of transactions, changes of schemas."""
    working = sorted(writers.open())
    end = writers.tid + count
    while writers.tid < end:
        chance = dice.random()
        if chance < 0.02 and schemas:
            writers.change_schema(dice.choice(SCHEMAS))
        elif chance < 0.12 and len(working) < OPEN:
            working.append(writers.begin())
        elif chance < 0.25 and working:
            name = working.pop(dice.randrange(len(working)))
            writers.end(name, dice.choice(["commit", "commit", "rollback"]), everywhere=dice.random() < 0.5)
        else:
            name = dice.choice(working) if working and dice.random() < 0.7 else None
            a_write(writers, dice, name)
    writers.flush()


def a_write(writers: Writers, dice: random.Random, transaction: str | None) -> None:
    """Write a row, add to a number, delete something, or assign an id."""
    kind, n = dice.randrange(4), dice.randrange(12)
    if kind == 0:
        writers.write(f"v:{n}", {"name": f"n{n}", "age": dice.randrange(99), "city": "c"}, transaction)
    elif kind == 1:
        writers.write(f"n:{n}", dice.randrange(1, 99), transaction)
    elif kind == 2:
        writers.write(dice.choice([f"v:{n}", f"n:{n}", f"id:{n}"]), None, transaction)
    else:
        writers.write(f"id:{n}", dice.randrange(1, 99), transaction)
