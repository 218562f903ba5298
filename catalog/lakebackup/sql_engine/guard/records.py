"""`records('orders')` in FROM: the records inside the backups as a relation, found in the syntax tree.

Each call gets a relation's name of its own; the caller that runs the SELECT supplies that relation's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp

FUNCTION = "records"
#: Column -> Spark's type. docs/ask.md#records-inside-the-backups explains them.
COLUMNS = {
    "source": "STRING",
    "scope": "STRING",
    "epoch": "STRING",
    "partition": "INT",
    "kafka_offset": "BIGINT",
    "ts": "BIGINT",
    "time": "TIMESTAMP",
    "key": "STRING",
    "key_hex": "STRING",
    "key_json": "STRING",
    "value": "STRING",
    "value_hex": "STRING",
    "value_json": "STRING",
    "headers": "STRING",
    "problem": "STRING",
    "backup_id": "STRING",
    "path": "STRING",
}
USAGE = "Write records('topic'), or records('topic', '2026-11-21T14:05Z') or a backup's id."


@dataclass(frozen=True, slots=True)
class RecordsCall:
    """One `records(topic, point)`: the relation that stands for it and the columns that are asked for."""

    relation: str
    topic: str
    point: str | None
    columns: tuple[str, ...]


def is_call(table: exp.Table) -> bool:
    """Whether a thing in FROM is the function, whatever its arguments."""
    from sqlglot import exp

    return isinstance(table.this, exp.Anonymous) and table.this.name.lower() == FUNCTION


def arguments(table: exp.Table) -> list[str] | None:
    """The texts that the function is called with; None when they are not one or two texts."""
    from sqlglot import exp

    given = table.this.expressions
    if not 1 <= len(given) <= 2 or not all(isinstance(g, exp.Literal) and g.is_string for g in given):
        return None
    return [str(g.this) for g in given]


def take_calls(tree: exp.Expr) -> tuple[RecordsCall, ...]:
    """Put a plain relation in the place of each call, in `tree`; every call's arguments were checked."""
    from sqlglot import exp

    tables = list(tree.find_all(exp.Table))
    columns = _columns(tree)
    taken = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    calls = []
    number = 0
    for table in tables:
        if not is_call(table):
            continue
        number += 1
        while f"{FUNCTION}_{number}" in taken:
            number += 1
        relation = f"{FUNCTION}_{number}"
        topic, *point = arguments(table) or [""]
        calls.append(RecordsCall(relation, topic, point[0] if point else None, columns))
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(FUNCTION)))
        table.set("this", exp.to_identifier(relation))
    return tuple(calls)


def _columns(tree: exp.Expr) -> tuple[str, ...]:
    """The columns that the SELECT may need: all that it names, or all when it takes some by place."""
    from sqlglot import exp

    stars = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    if stars or any(alias.columns for alias in tree.find_all(exp.TableAlias)):
        return tuple(COLUMNS)
    named = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    return tuple(column for column in COLUMNS if column in named) or ("kafka_offset",)
