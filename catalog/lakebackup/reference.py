"""docs/sql-reference.md, made from the statements of `sql/` and from the comments of the tables.

`python -m lakebackup.reference [FILE]` prints it or writes it. A view's file begins with comments: what its
rows are, then a line `-- column: meaning` (continued by lines that are indented) for each column that the
view makes itself. A column without such a line has the meaning of the column of that name in the first
relation that the view reads and that has it; in the end that of a table's column, from its DDL.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from lakebackup.rows.tables import SPARK_TYPES, TABLES, columns
from lakebackup.sql_engine import INTERNAL, RAW
from lakebackup.sql_engine.delta.ddl import definition
from lakebackup.sql_engine.duck import SPARK_NAMES, view_types
from lakebackup_sql import area, load, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakebackup.sql_engine.delta.ddl import Definition

_COLUMN = re.compile(r"-- ([a-z][a-z0-9_]*): (.+)")
_START = """\
# SQL reference

Generated from the files in `sql/` by `python -m lakebackup.reference docs/sql-reference.md`.

`lakebackup sql` and notebooks read the [views](#views). Jobs read them by the [queries](#queries), whose
values are parameters. The [tables](#tables) hold more than what counts; they are registered as `raw_<table>`,
and a person's SELECT cannot read them.

`*_ts` are in the unit that `ts_domain` names (Kafka: ms since 1970 UTC), `*_at` in microseconds since 1970
UTC, `*_time` and `time` are TIMESTAMPs in UTC.
"""


@dataclass(frozen=True, slots=True)
class Described:
    """A statement's comment: its text, and the meaning of columns by name."""

    text: str
    columns: Mapping[str, str]


def describe(statement: str) -> Described:
    """The comment at the top of a statement."""
    text: list[str] = []
    meanings: dict[str, str] = {}
    last = None
    for line in statement.splitlines():
        if not line.startswith("--"):
            break
        if found := _COLUMN.fullmatch(line):
            last = found[1]
            meanings[last] = found[2]
        elif last and line.startswith("--   "):
            meanings[last] += f" {line[2:].strip()}"
        else:
            text.append(line[2:].strip())
    return Described(" ".join(text), meanings)


@cache
def meanings(relation: str) -> Mapping[str, str]:
    """The meaning of each column of a view or of a table (`raw_<table>`) that is described."""
    if relation.startswith(RAW):
        return _comments(definition(relation.removeprefix(RAW)))
    own = describe(load("views", relation)).columns
    found: dict[str, str] = dict(own)
    for read in _read_by(relation):
        for column, meaning in meanings(read).items():
            found.setdefault(column, meaning)
    return {column: found[column] for column in view_types(relation) if column in found}


def _read_by(view: str) -> tuple[str, ...]:
    """The relations a view reads, in the order of its text."""
    from sqlglot import exp, parse_one

    tree = parse_one(load("views", view), dialect="spark")
    own = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
    read = dict.fromkeys(table.name for table in tree.find_all(exp.Table, bfs=False))
    return tuple(name for name in read if name not in own)


def _comments(table: Definition) -> Mapping[str, str]:
    return {column.name: column.comment for column in table.columns if column.comment}


def parameters(statement: str) -> tuple[str, ...]:
    """The names of a statement's parameters, in the order of its text."""
    code = "\n".join(line for line in statement.splitlines() if not line.strip().startswith("--"))
    without_text = re.sub(r"'[^']*'", "''", code)
    return tuple(dict.fromkeys(re.findall(r":([a-z_]+)", without_text)))


def reference() -> str:
    """The whole page."""
    return "\n".join([_START, *_views(), *_queries(), *_tables()])


def _views() -> Iterator[str]:
    yield "## Views\n"
    for folder, views in _by_area("views"):
        if folder.startswith(INTERNAL):
            continue
        yield f"### Views: {folder}\n"
        for view in views:
            known = meanings(view)
            yield f"#### {view}\n\n{describe(load('views', view)).text}\n"
            yield "| column | type | meaning |\n|---|---|---|"
            for column, kind in view_types(view).items():
                yield _row(f"`{column}`", SPARK_NAMES.get(kind, kind), known[column])
            yield ""


def _queries() -> Iterator[str]:
    yield "## Queries\n"
    for folder, queries in _by_area("queries"):
        yield f"### Queries: {folder}\n\n| query | parameters | rows |\n|---|---|---|"
        for query in queries:
            text = load("queries", query)
            given = ", ".join(f"`:{name}`" for name in parameters(text))
            yield _row(f"`{query}`", given, describe(text).text)
        yield ""


def _by_area(kind: str) -> Iterator[tuple[str, list[str]]]:
    """The statements of a kind by area, both sorted."""
    found: dict[str, list[str]] = {}
    for name in names(kind):
        found.setdefault(area(kind, name), []).append(name)
    yield from sorted(found.items())


def _tables() -> Iterator[str]:
    yield "## Tables\n"
    for table in TABLES:
        declared = definition(table)
        comments = _comments(declared)
        yield f"### raw_{table}\n\n{declared.comment}.\n"
        yield "| column | type | meaning |\n|---|---|---|"
        for column in columns(table):
            kind = SPARK_TYPES[column.type] + ("" if column.nullable else " NOT NULL")
            yield _row(f"`{column.name}`", kind, comments[column.name])
        for rule in declared.constraints.values():
            yield f"\nAlways: `{rule}`."
        yield ""


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    if any(word.startswith("-") for word in sys.argv[1:]) or len(sys.argv) > 2:
        raise SystemExit("usage: python -m lakebackup.reference [FILE]")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
    else:
        sys.stdout.write(reference())
