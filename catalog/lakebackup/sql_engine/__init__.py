"""One SQL text, two engines: Spark for jobs, DuckDB for a person's question.

Both offer the views of `lakebackup_sql` over the same Delta tables, which they register as `raw_<table>`.
Texts are in Spark's dialect; values are `:name` parameters and never part of a text.

An engine that looks back (`as_of`) has every relation a second time, as it is now: `now_<relation>`. The
present of its views is that instant, which the view `clock` has.
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
#: What a person asks for; `auto`: see `lakebackup_jobs.lifecycle.planning`.
EngineChoice = Literal["auto", "duckdb", "spark"]
RAW = "raw_"
NOW = "now_"
#: Small views that others depend on, or that Spark plans for long: computed once, not at each use.
KEPT = frozenset(
    {"backups", "coverage", "due_runs", "faults", "faulty_files", "chain_points", "retained_backups"}
)
#: The areas of views that others share begin so; a person does not see these.
INTERNAL = "internal"
#: Opened before the other tables: a backup's rows in those are committed before its own.
FIRST = f"{RAW}backups"
#: The view that has the present; nothing else in a statement looks at a clock.
CLOCK = "clock"
#: The view of when scheduled runs are due, whose rows `due_runs` makes from those of the other.
DUE, NEWEST = "due_runs", "newest_runs"


class Asked(NamedTuple):
    """A query of an engine: its name (`select`: a person's own), its text for Spark, values."""

    engine: EngineName
    name: str
    text: str
    parameters: Mapping[str, Any]


_RECORD: ContextVar[list[Asked] | None] = ContextVar("_RECORD", default=None)


@contextmanager
def recording() -> Iterator[list[Asked]]:
    """The queries of all engines that are created inside the block, in order, in one list."""
    found: list[Asked] = []
    before = _RECORD.set(found)
    try:
        yield found
    finally:
        _RECORD.reset(before)


def new_record() -> list[Asked]:
    """The list in which an engine records its queries: that of `recording`, or one of its own."""
    record = _RECORD.get()
    return [] if record is None else record


class SqlEngine(Protocol):
    """What both engines do, so that a plan is made by either."""

    name: EngineName
    asked: list[Asked]

    def query(self, name: str, **parameters: Any) -> Any:
        """The rows of a statement of `sql/queries` in the engine's own form: Arrow batches, a DataFrame."""
        ...

    def batches(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        """The rows of a statement, however many."""
        ...

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of a statement that gives few, column name -> value."""
        ...

    def define(self, relation: str, text: str, **parameters: Any) -> None:
        """Give the rows of a SELECT in Spark's dialect a name that later queries can use."""
        ...

    def put_back(self, relation: str) -> None:
        """Let a view of the catalog be itself again where `define` gave its name to other rows."""
        ...

    def define_checked(self, relation: str, checked: Checked) -> None:
        """As `define`, of a person's SELECT that was checked. Raises TimedOut after five minutes."""
        ...

    def give(self, relation: str, rows: pa.Table) -> None:
        """Give rows that come from elsewhere a name that later queries can use: a new one, or one of the
        catalog's in its place."""
        ...

    def columns(self, relation: str) -> Sequence[str]:
        """The columns of a relation that was defined or given."""
        ...

    def keep(self, relation: str, text: str, **parameters: Any) -> Any:
        """As `define`, once for all; what is returned stands for the rows, whatever has that name later."""
        ...

    def show(self, relation: str, kept: Any) -> None:
        """Give rows that are kept a name that later queries can use."""
        ...


def relations_in(text: str) -> frozenset[str]:
    """The relations that a SELECT in Spark's dialect reads, those that it defines itself left out."""
    return _translation(text).relations


def clock_at(now_ms: int) -> pa.Table:
    """Rows to `give` in the place of the view `clock`: the present is `now_ms`, ms since 1970 UTC."""
    import pyarrow as pa

    return pa.table({"now_ms": pa.array([now_ms], pa.int64())})


def due_runs(newest: pa.Table) -> pa.Table:
    """Rows in the place of the view `due_runs`: SQL cannot work out cron. `due_ts` is NULL where the schedule
    cannot be read."""
    import pyarrow as pa

    due = pa.array(map(_due, newest.to_pylist()), pa.int64())
    return newest.select(["source", "run"]).append_column("due_ts", due)


def _due(row: Mapping[str, Any]) -> int | None:
    from lakebackup.rules.schedule import parse

    try:
        schedule = parse(row["schedule"], row["time_zone"])
    except UsageProblem:  # an older version took it
        return None
    began = row["backup_id"] is not None or row["run"] == "drill"
    return schedule.next(row["last_ts"]) if began else int(row["last_ts"])


@cache
def steps(text: str) -> tuple[str, ...]:
    """Raw tables and views to register before a SELECT can run, each after those that it depends on."""
    return steps_for(relations_in(text))


def steps_for(relations: Iterable[str]) -> tuple[str, ...]:
    """As `steps`, for relations that are known already."""
    found: dict[str, None] = {}
    views = names("views")
    for relation in sorted(relations):
        name = relation.removeprefix(NOW)
        if name in views:
            prefix = relation.removesuffix(name)
            found |= dict.fromkeys(f"{prefix}{step}" for step in steps(load("views", name)))
            found[relation] = None
        elif name.startswith(RAW):
            found[relation] = None
    return tuple(found)


@cache
def shown_views() -> tuple[str, ...]:
    """The views that a person's SELECT may read, sorted."""
    return tuple(view for view in names("views") if not area("views", view).startswith(INTERNAL))


def view_text(relation: str) -> str:
    """The SELECT behind a view, in Spark's dialect; that of `now_<view>` reads `now_` relations alone."""
    return _of_now(relation.removeprefix(NOW)) if relation.startswith(NOW) else load("views", relation)


@cache
def _of_now(view: str) -> str:
    from sqlglot import exp

    text = load("views", view)
    tree, read = _parsed(text).copy(), relations_in(text)
    for table in tree.find_all(exp.Table):
        if table.name in read:
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
            table.set("this", exp.to_identifier(f"{NOW}{table.name}"))
    return tree.sql(dialect="spark", comments=False)


def to_duckdb(text: str) -> str:
    """The same statement in DuckDB's dialect, `:name` as `$name`."""
    return _translation(text).duckdb


@cache
def _translation(text: str) -> Translation:
    return translation(text) or translate(text)


def translate(text: str) -> Translation:
    """The translation of a statement in Spark's dialect, by sqlglot."""
    from sqlglot import exp

    tree = _parsed(text).copy()
    own = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
    relations = frozenset(table.name for table in tree.find_all(exp.Table)) - own
    for cast in list(tree.find_all(exp.TryCast)):
        # A sum beyond BIGINT is an error, as on Spark: no size in a catalog that is whole adds up to it.
        if isinstance(cast.this, exp.Sum):
            cast.replace(exp.Cast(this=cast.this, to=cast.to))
    return Translation(relations, tree.sql(dialect="duckdb", pretty=True, comments=False))


@cache
def _parsed(text: str) -> exp.Expr:
    """The syntax tree of one statement; shared, so change only a copy."""
    from sqlglot import parse_one

    return parse_one(text, dialect="spark")
