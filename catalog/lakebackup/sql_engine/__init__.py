"""One SQL text, two engines: Spark for jobs, DuckDB for a person's questions.

Both engines offer the views of `lakebackup_sql` over the same Delta tables, which they register as
`raw_<table>`. Statements are in Spark's dialect. Values are `:name` parameters, never part of a statement.

An engine that reads the past (`as_of`) has every relation twice: as it was at that instant, and as
`now_<relation>` how it is now. The view `clock` then tells that instant as the present.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from lakebackup.errors import UsageProblem
from lakebackup_sql import Translation, area, load, names, translation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from sqlglot import exp

    from lakebackup.sql_engine.guard.check import Checked

EngineName = Literal["duckdb", "spark"]
#: The engine that a person chooses; `auto`: see `lakebackup_jobs.lifecycle.planning`.
EngineChoice = Literal["auto", "duckdb", "spark"]
RAW = "raw_"
NOW = "now_"
#: Small views that other views read, or that take Spark long to plan. They are computed once, not at each
#: use.
KEPT = frozenset(
    {"backups", "coverage", "due_runs", "faults", "faulty_files", "chain_points", "retained_backups"}
)
#: Areas with this prefix hold views that only other views read; a person does not see them.
INTERNAL = "internal"
#: The table that is opened before the others: a backup's rows in those are committed before its row here.
FIRST = f"{RAW}backups"
#: The view with the present time; no statement reads a clock elsewhere.
CLOCK = "clock"
#: The view of when scheduled runs are due, and the view from whose rows the function `due_runs` makes its
#: rows.
DUE, NEWEST = "due_runs", "newest_runs"


class Asked(NamedTuple):
    """A query that an engine ran: its name (`select`: a person's own), its text for Spark, its values."""

    engine: EngineName
    name: str
    text: str
    parameters: Mapping[str, Any]


_RECORD: ContextVar[list[Asked] | None] = ContextVar("_RECORD", default=None)


@contextmanager
def recording() -> Iterator[list[Asked]]:
    """Collect the queries of all engines that are created inside the block, in order, in one list."""
    queries: list[Asked] = []
    token = _RECORD.set(queries)
    try:
        yield queries
    finally:
        _RECORD.reset(token)


def new_record() -> list[Asked]:
    """Return the list in which an engine records its queries: that of `recording`, or a new one."""
    record = _RECORD.get()
    return [] if record is None else record


class SqlEngine(Protocol):
    """What both engines can do, so that either can make a plan."""

    name: EngineName
    asked: list[Asked]

    def query(self, name: str, **parameters: Any) -> Any:
        """Run a statement of `sql/queries`; returns its rows in the engine's own form: Arrow batches or a
        DataFrame."""
        ...

    def batches(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        """Run a statement of `sql/queries`; returns its rows as a stream, for any number of rows."""
        ...

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """Run a statement of `sql/queries`; returns its rows, column name -> value. There must be few."""
        ...

    def define(self, relation: str, text: str, **parameters: Any) -> None:
        """Name the rows of a SELECT in Spark's dialect, so that later queries can read them."""
        ...

    def put_back(self, relation: str) -> None:
        """Restore a view of the catalog whose name `define` gave to other rows."""
        ...

    def define_checked(self, relation: str, checked: Checked) -> None:
        """Like `define`, for a person's checked SELECT. Raises TimedOut after five minutes."""
        ...

    def give(self, relation: str, rows: pa.Table) -> None:
        """Name rows that come from elsewhere, so that later queries can read them. The name may be new, or
        that of a relation of the catalog, which the rows replace."""
        ...

    def columns(self, relation: str) -> Sequence[str]:
        """Return the columns of a relation that `define` or `give` named."""
        ...

    def keep(self, relation: str, text: str, **parameters: Any) -> Any:
        """Like `define`, but compute the rows now, once. Returns a handle of the rows, which stays valid when
        the name is given to other rows."""
        ...

    def show(self, relation: str, kept: Any) -> None:
        """Name the rows of a handle that `keep` returned, so that later queries can read them."""
        ...


def relations_in(text: str) -> frozenset[str]:
    """Return the relations that a SELECT in Spark's dialect reads, without those that it defines itself."""
    return _translation(text).relations


def clock_at(now_ms: int) -> pa.Table:
    """Return rows that replace the view `clock`: the present is `now_ms`, in ms since 1970 UTC."""
    import pyarrow as pa

    return pa.table({"now_ms": pa.array([now_ms], pa.int64())})


def due_runs(newest: pa.Table) -> pa.Table:
    """Return rows that replace the view `due_runs`, since SQL cannot evaluate cron expressions. `due_ts` is
    NULL where the schedule cannot be read."""
    import pyarrow as pa

    due = pa.array(map(_due, newest.to_pylist()), pa.int64())
    return newest.select(["source", "run"]).append_column("due_ts", due)


def _due(row: Mapping[str, Any]) -> int | None:
    from lakebackup.rules.schedule import parse

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


def steps_for(relations: Iterable[str]) -> tuple[str, ...]:
    """Like `steps`, for the relations that the SELECT reads."""
    ordered_steps: dict[str, None] = {}
    views = names("views")
    for relation in sorted(relations):
        name = relation.removeprefix(NOW)
        if name in views:
            prefix = relation.removesuffix(name)
            ordered_steps |= dict.fromkeys(f"{prefix}{step}" for step in steps(load("views", name)))
            ordered_steps[relation] = None
        elif name.startswith(RAW):
            ordered_steps[relation] = None
    return tuple(ordered_steps)


@cache
def shown_views() -> tuple[str, ...]:
    """Return the views that a person's SELECT may read, sorted."""
    return tuple(view for view in names("views") if not area("views", view).startswith(INTERNAL))


def view_text(relation: str) -> str:
    """Return the SELECT of a view, in Spark's dialect; that of `now_<view>` reads `now_` relations only."""
    return _now_view_text(relation.removeprefix(NOW)) if relation.startswith(NOW) else load("views", relation)


@cache
def _now_view_text(view: str) -> str:
    from sqlglot import exp

    text = load("views", view)
    tree, relations = _parsed(text).copy(), relations_in(text)
    for table in tree.find_all(exp.Table):
        if table.name in relations:
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
            table.set("this", exp.to_identifier(f"{NOW}{table.name}"))
    return tree.sql(dialect="spark", comments=False)


def to_duckdb(text: str) -> str:
    """Translate a statement into DuckDB's dialect; `:name` becomes `$name`."""
    return _translation(text).duckdb


@cache
def _translation(text: str) -> Translation:
    return translation(text) or translate(text)


def translate(text: str) -> Translation:
    """Translate a statement in Spark's dialect with sqlglot."""
    from sqlglot import exp

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
    from sqlglot import parse_one

    return parse_one(text, dialect="spark")
