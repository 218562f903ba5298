"""One SQL text, two engines: Spark for jobs, DuckDB for a person's questions.

Both engines offer the views of `lakebackup_sql` over the same Delta tables, which they register as
`raw_<table>`. Statements are in Spark's dialect. Values are `:name` parameters, never part of a statement.

An engine that reads the past (`as_of`) has every relation twice: as it was at that instant, and as
`now_<relation>` how it is now. The view `clock` then tells that instant as the present.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
from sqlglot import exp, parse_one

from lakebackup.errors import UsageProblem
from lakebackup.rules.schedule import parse
from lakebackup.sql_engine.guard.check import Checked
from lakebackup_sql import Translation, area, load, names, translation

EngineName = Literal["duckdb", "spark"]
#: The engine that a person chooses; `auto`: see `lakebackup_jobs.lifecycle.planning`.
EngineChoice = Literal["auto", "duckdb", "spark"]
RAW = "raw_"
NOW_PREFIX = "now_"
#: Small views that other views read, or that take Spark long to plan. They are computed once, not at each
#: use.
MATERIALIZED_VIEWS = frozenset(
    {"backups", "coverage", "due_runs", "faults", "faulty_files", "chain_points", "retained_backups"}
)
#: Those of them that become tables of DuckDB. Not those that can have a million rows, one a restore point: a
#: statement needs few of their columns, and often few topics.
SHARED_VIEWS = MATERIALIZED_VIEWS - {"coverage", "chain_points"}
#: Areas with this prefix hold views that only other views read; a person does not see them.
INTERNAL = "internal"
#: The table that is opened before the others: a backup's rows in those are committed before its row here.
FIRST = f"{RAW}backups"
#: The view with the present time; no statement reads a clock elsewhere.
CLOCK = "clock"
#: The view of when scheduled runs are due, and the view from whose rows the function `due_runs` makes its
#: rows.
DUE, NEWEST = "due_runs", "newest_runs"


class RecordedQuery(NamedTuple):
    """A query that an engine ran: its name (`select`: a person's own), its text for Spark, its values."""

    engine: EngineName
    name: str
    text: str
    parameters: Mapping[str, Any]


_RECORD: ContextVar[list[RecordedQuery] | None] = ContextVar("_RECORD", default=None)


@contextmanager
def recording() -> Iterator[list[RecordedQuery]]:
    """Collect the queries of all engines that are created inside the block, in order, in one list."""
    queries: list[RecordedQuery] = []
    token = _RECORD.set(queries)
    try:
        yield queries
    finally:
        _RECORD.reset(token)


def new_record() -> list[RecordedQuery]:
    """Return the list in which an engine records its queries: that of `recording`, or a new one."""
    record = _RECORD.get()
    return [] if record is None else record


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Relation:
    """Rows that an engine keeps for as long as this object exists. A name may stand for them in statements.

    `rows`: the rows in the engine's own form. `number`: no other relation of the process has it.
    """

    number: int
    rows: Any


#: The names that stand for other rows in a statement than in the catalog, or that the catalog has not.
Bindings: TypeAlias = Mapping[str, Relation]
NO_BINDINGS: Bindings = MappingProxyType({})


class SqlEngine(Protocol):
    """What both engines can do, so that either can make a plan.

    A statement reads the catalog, except for the names in its bindings, also where views read these names.
    """

    name: EngineName
    queries: list[RecordedQuery]

    def query(self, name: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any) -> Any:
        """Run a statement of `sql/queries`; returns its rows in the engine's own form: Arrow batches or a
        DataFrame."""
        ...

    def batches(
        self, name: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any
    ) -> pa.RecordBatchReader:
        """Run a statement of `sql/queries`; returns its rows as a stream, for any number of rows."""
        ...

    def rows(self, name: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any) -> list[dict[str, Any]]:
        """Run a statement of `sql/queries`; returns its rows, column name -> value. There must be few."""
        ...

    def keep_rows(self, rows: Any) -> Relation:
        """Take rows from outside the catalog: a table or dataset of Arrow, or a DataFrame on Spark."""
        ...

    def keep_query(
        self, label: str, text: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any
    ) -> Relation:
        """Compute the rows of a SELECT in Spark's dialect, once. `label` names it among the queries run."""
        ...

    def keep_select(self, label: str, checked: Checked, bindings: Bindings = NO_BINDINGS) -> Relation:
        """Like `keep_query`, for a person's checked SELECT. Raises TimedOut after five minutes."""
        ...

    def columns(self, relation: Relation) -> Sequence[str]:
        """Return the columns of a relation."""
        ...


def relations_in(text: str) -> frozenset[str]:
    """Return the relations that a SELECT in Spark's dialect reads, without those that it defines itself."""
    return _translation(text).relations


def clock_at(now_ms: int) -> pa.Table:
    """Return rows that replace the view `clock`: the present is `now_ms`, in ms since 1970 UTC."""
    return pa.table({"now_ms": pa.array([now_ms], pa.int64())})


def due_runs(newest: pa.Table) -> pa.Table:
    """Return rows that replace the view `due_runs`, since SQL cannot evaluate cron expressions. `due_ts` is
    NULL where the schedule cannot be read."""
    due = pa.array(map(_due, newest.to_pylist()), pa.int64())
    return newest.select(["source", "run"]).append_column("due_ts", due)


def _due(row: Mapping[str, Any]) -> int | None:
    try:
        schedule = parse(row["schedule"], row["time_zone"])
    except UsageProblem:  # an older version of lakebackup accepted this schedule
        return None
    has_previous = row["backup_id"] is not None or row["run"] == "drill"
    return schedule.next(row["last_ts"]) if has_previous else int(row["last_ts"])


@cache
def steps(text: str) -> tuple[str, ...]:
    """Return the raw tables and views to register before a SELECT can run, each after those that it reads."""
    return steps_for(relations_in(text))


def steps_for(relations: Iterable[str], bound: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Like `steps`, for the relations that the SELECT reads.

    The names in `bound` are steps too. What the catalog has under these names is not read.
    """
    return _steps_for(frozenset(relations), bound)


@cache
def _steps_for(relations: frozenset[str], bound: frozenset[str]) -> tuple[str, ...]:
    ordered_steps: dict[str, None] = {}
    views = names("views")
    for relation in sorted(relations):
        name = relation.removeprefix(NOW_PREFIX)
        if relation not in bound:
            if name in views:
                prefix = relation.removesuffix(name)
                read = frozenset(f"{prefix}{read_name}" for read_name in relations_in(load("views", name)))
                ordered_steps |= dict.fromkeys(_steps_for(read, bound))
            elif not name.startswith(RAW):
                continue
        ordered_steps[relation] = None
    return tuple(ordered_steps)


def environment(step: str, bindings: Bindings) -> frozenset[tuple[str, int]]:
    """Return the bound names that a view reads, each with the number of its relation.

    Two statements get the same rows of the view if their environments are equal.
    """
    if not bindings:
        return frozenset()
    return frozenset(
        (name, bindings[name].number) for name in steps_for([step], frozenset(bindings)) if name in bindings
    )


@cache
def shown_views() -> tuple[str, ...]:
    """Return the views that a person's SELECT may read, sorted."""
    return tuple(view for view in names("views") if not area("views", view).startswith(INTERNAL))


def view_text(relation: str) -> str:
    """Return the SELECT of a view, in Spark's dialect; that of `now_<view>` reads `now_` relations only."""
    return (
        _now_view_text(relation.removeprefix(NOW_PREFIX))
        if relation.startswith(NOW_PREFIX)
        else load("views", relation)
    )


@cache
def _now_view_text(view: str) -> str:
    text = load("views", view)
    tree, relations = _parsed(text).copy(), relations_in(text)
    for table in tree.find_all(exp.Table):
        if table.name in relations:
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
            table.set("this", exp.to_identifier(f"{NOW_PREFIX}{table.name}"))
    return tree.sql(dialect="spark", comments=False)


def to_duckdb(text: str) -> str:
    """Translate a statement into DuckDB's dialect; `:name` becomes `$name`."""
    return _translation(text).duckdb


@cache
def _translation(text: str) -> Translation:
    return translation(text) or translate(text)


def translate(text: str) -> Translation:
    """Translate a statement in Spark's dialect with sqlglot."""
    tree = _parsed(text).copy()
    cte_names = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
    relations = frozenset(table.name for table in tree.find_all(exp.Table)) - cte_names
    for cast in list(tree.find_all(exp.TryCast)):
        # A sum beyond BIGINT is an error, as on Spark: only damaged catalogs have sizes that add up to it.
        if isinstance(cast.this, exp.Sum):
            cast.replace(exp.Cast(this=cast.this, to=cast.to))
    return Translation(relations, tree.sql(dialect="duckdb", pretty=True, comments=False))


@cache
def _parsed(text: str) -> exp.Expr:
    """Return the syntax tree of one statement. Callers share it, so they change only copies."""
    return parse_one(text, dialect="spark")
