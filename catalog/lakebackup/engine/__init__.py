"""One SQL text, two engines: Spark for jobs, DuckDB for a person's question.

Both offer the views of `lakebackup_sql` over the same Delta tables, which they register as `raw_<table>`.
Texts are in Spark's dialect; values are `:name` parameters and never part of a text.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from lakebackup_sql import load, names

if TYPE_CHECKING:
    from collections.abc import Iterable

RAW = "raw_"


class SqlEngine(Protocol):
    """What both engines do; `query` returns rows in the engine's own form (Arrow batches, a DataFrame)."""

    def query(self, name: str, **parameters: Any) -> Any:
        """The rows of a statement of `sql/queries`."""
        ...

    def define(self, relation: str, text: str, **parameters: Any) -> None:
        """Give the rows of a SELECT in Spark's dialect a name that later queries can use."""
        ...


@cache
def relations_in(text: str) -> frozenset[str]:
    """The relations that a SELECT in Spark's dialect reads, those that it defines itself left out."""
    from sqlglot import exp, parse_one

    tree = parse_one(text, dialect="spark")
    own = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
    return frozenset(table.name for table in tree.find_all(exp.Table)) - own


@cache
def steps(text: str) -> tuple[str, ...]:
    """Raw tables and views to register before a SELECT can run, each after what it stands on itself."""
    return steps_for(relations_in(text))


def steps_for(relations: Iterable[str]) -> tuple[str, ...]:
    """As `steps`, for relations that are known already."""
    found: dict[str, None] = {}
    views = names("views")
    for relation in sorted(relations):
        if relation in views:
            found |= dict.fromkeys(steps(load("views", relation)))
            found[relation] = None
        elif relation.startswith(RAW):
            found[relation] = None
    return tuple(found)


@cache
def to_duckdb(text: str) -> str:
    """The same statement in DuckDB's dialect, `:name` as `$name`."""
    from sqlglot import transpile

    (statement,) = transpile(text, read="spark", write="duckdb", pretty=True, comments=False)
    return statement
