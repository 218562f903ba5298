"""`records('orders')` in FROM: the records inside the backups as a relation.

Each call in the syntax tree is replaced by a relation with a new name. The caller that runs the SELECT
supplies the rows of that relation.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

FUNCTION = "records"
#: The columns and their Spark types. docs/ask.md#records-inside-the-backups explains them.
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
    """One call `records(topic, point)`: the relation that replaces it, and the columns that the SELECT
    needs."""

    relation: str
    topic: str
    point: str | None
    columns: tuple[str, ...]


def is_call(table: exp.Table) -> bool:
    """Whether a table in FROM is a call of the function, with any arguments."""
    return isinstance(table.this, exp.Anonymous) and table.this.name.lower() == FUNCTION


def arguments(table: exp.Table) -> list[str] | None:
    """Return the arguments of a call; None when they are not one or two string literals."""
    expressions = table.this.expressions
    if not 1 <= len(expressions) <= 2 or not all(
        isinstance(expression, exp.Literal) and expression.is_string for expression in expressions
    ):
        return None
    return [str(expression.this) for expression in expressions]


def take_calls(tree: exp.Expr) -> tuple[RecordsCall, ...]:
    """Replace each call in `tree` by a plain relation; returns the calls. Their arguments must be checked
    before."""
    tables = list(tree.find_all(exp.Table))
    columns = _columns(tree)
    used_names = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    calls = []
    number = 0
    for table in tables:
        if not is_call(table):
            continue
        number += 1
        while f"{FUNCTION}_{number}" in used_names:
            number += 1
        relation = f"{FUNCTION}_{number}"
        topic, *point = arguments(table) or [""]
        calls.append(RecordsCall(relation, topic, point[0] if point else None, columns))
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(FUNCTION)))
        table.set("this", exp.to_identifier(relation))
    return tuple(calls)


def _columns(tree: exp.Expr) -> tuple[str, ...]:
    """Return the columns that the SELECT may need: those that it names, or all when it selects `*` or renames
    columns by position."""
    stars = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    if stars or any(alias.columns for alias in tree.find_all(exp.TableAlias)):
        return tuple(COLUMNS)
    names = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    return tuple(column for column in COLUMNS if column in names) or ("kafka_offset",)
