"""The catalog's SQL on DuckDB over the Delta tables, without a JVM. DuckDB can reach nothing else.

Delta's log and statistics choose the Parquet files. Each file is verified before it is read, since DuckDB and
other readers do not notice a flipped bit.
"""

from __future__ import annotations

import atexit
import re
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from threading import Event, Lock
from typing import Any
from weakref import WeakSet, finalize

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from lakebackup.errors import NotFound, TooLarge, UsageProblem
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine import (
    CLOCK,
    DUE,
    FIRST,
    MATERIALIZED_VIEWS,
    NEWEST,
    NO_BINDINGS,
    NOW_PREFIX,
    RAW,
    SHARED_VIEWS,
    Bindings,
    EngineName,
    RecordedQuery,
    Relation,
    SqlEngine,
    clock_at,
    due_runs,
    environment,
    new_record,
    relations_in,
    shown_views,
    steps_for,
    to_duckdb,
    view_text,
)
from lakebackup.sql_engine.arrow import as_durations, duration_schema
from lakebackup.sql_engine.delta.as_of import open_then, open_version, require_then
from lakebackup.sql_engine.delta.dataset import ScanLimit, small_or_dataset
from lakebackup.sql_engine.delta.log import folder_of, prefetch, until_fork
from lakebackup.sql_engine.delta.table import newest_version, versions_then
from lakebackup.sql_engine.failures import damaged_catalog, damaged_table, error_in
from lakebackup.sql_engine.guard.check import Checked
from lakebackup.sql_engine.guard.macros import OF_CATALOG, needed_macros
from lakebackup.sql_engine.guard.place import of_engine
from lakebackup.sql_engine.limits import Limits
from lakebackup.storage.scratch_folder import PrivateFolder
from lakebackup_sql import load

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": False,
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "memory_limit": "1GB",
    "max_temp_directory_size": "20GB",
    "preserve_insertion_order": False,
    "disabled_optimizers": "join_order,build_side_probe_side",
}
_COMPUTED = SHARED_VIEWS | {DUE}
# The numbers in the names of an engine's own relations.
_numbers = count(1)
# Words in DuckDB's messages for a file that pyarrow could not read: it is missing or damaged.
_DAMAGED_FILE = re.compile(r"stream registered as 'raw_|IOError|CRC|checksum|[Pp]arquet")
# Errors that quote a value, such as a file's path, which may contain one of those words.
_VALUE_ERROR = re.compile(r"(?:Conversion|Out of Range) Error: ")
# How plans of DuckDB qualify the name of a relation.
_DATABASE = re.compile(r'"temp"\.main\.("[^"]*"|\w+)')
# Answers of which not all rows may have been read.
_unread: WeakSet[Generator[pa.RecordBatch]] = WeakSet()
_cut_short = Event()
_macro_lock = Lock()


@atexit.register
def _close_answers() -> None:
    """Stop the threads that read ahead: at the end of the process they would crash Python or block it."""
    for answer in (unread := list(_unread)):
        with suppress(ValueError):  # another thread runs this generator
            answer.close()
    if verified := sys.modules.get("lakebackup.sql_engine.delta.verified"):
        verified.open_no_more(reading=bool(unread) or _cut_short.is_set())


class DuckEngine(SqlEngine):
    """Queries over the Delta tables in the folder `catalog_uri`: each as it was when it was first read, or as
    it was at the instant `as_of` (us since 1970). With `as_of`, `now_<relation>` is a relation as it is now.

    `versions`: the result of another engine's `pinned`; those tables are read at those versions. `hidden`:
    text columns of tables that are NULL for every statement.

    DuckDB joins in the order of the statement, each time with the right side in memory. It does not know how
    large a Delta table is, and could otherwise choose the rows of a million files for memory.

    Raises NotFound when there was no catalog at `as_of`.
    """

    name: EngineName = "duckdb"

    def __init__(
        self,
        catalog_uri: str,
        *,
        as_of: int | None = None,
        versions: Mapping[str, int | None] | None = None,
        hidden: Mapping[str, Sequence[str]] = {},
    ) -> None:
        self._uri = catalog_uri.rstrip("/")
        self._as_of, self._versions, self._hidden = as_of, versions or {}, hidden
        if as_of is not None:
            require_then(self._uri, as_of)
        self._opened: dict[str, DeltaTable | None] = {}
        self._prefetched: set[str] = set()  # tables whose logs were read in parallel
        self._registered: set[str] = set()  # the catalog's relations that exist
        self._tables: set[str] = set()  # those of them that are tables of DuckDB
        self._aside: set[str] = set()  # those that have another name, since a view has theirs
        self._visible: dict[str, str] = {}  # name -> the relation that a view of that name shows now
        self._computed: dict[tuple[str, frozenset[tuple[str, int]]], str] = {}
        self._limit = ScanLimit()
        self._unused: deque[tuple[int, str]] = deque()  # relations that no reader has any more
        self.queries = new_record()
        # The relations are temporary: other connections do not see them, and they end with this connection.
        self._connection = database().cursor()
        self._spill_folder = _spill_folder()  # keeps the folder as long as the connection
        if as_of is not None:
            self._add(CLOCK, clock_at(as_of // 1000))
            self._registered.add(CLOCK)

    def query(
        self, name: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any
    ) -> pa.RecordBatchReader:
        text = load("queries", name)
        self.queries.append(RecordedQuery(self.name, name, text, parameters))
        return self.run(to_duckdb(text), relations_in(text), parameters, bindings=bindings)

    batches = query

    def rows(self, name: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any) -> list[dict[str, Any]]:
        return [row for batch in self.query(name, bindings, **parameters) for row in batch.to_pylist()]

    def select(self, checked: Checked, bindings: Bindings = NO_BINDINGS) -> pa.RecordBatchReader:
        """Run a person's checked SELECT; returns its rows, or the lines of its plan if it is an EXPLAIN."""
        self.queries.append(RecordedQuery(self.name, "select", checked.spark, {}))
        text = checked.text("duckdb")
        _create_macros(text)
        rows = self.run(text, _relations(checked), {}, checked, bindings=bindings)
        return _plan_lines(rows) if checked.explained else rows

    def keep_rows(self, rows: pa.Table | ds.Dataset) -> Relation:
        relation = self._new_relation()
        self._connection.register(relation.rows, rows)
        return relation

    def keep_query(
        self, label: str, text: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any
    ) -> Relation:
        self.queries.append(RecordedQuery(self.name, label, text, parameters))
        return self._keep(to_duckdb(text), relations_in(text), parameters, bindings)

    def keep_select(self, label: str, checked: Checked, bindings: Bindings = NO_BINDINGS) -> Relation:
        self.queries.append(RecordedQuery(self.name, label, checked.spark, {}))
        text = checked.selected("duckdb")
        _create_macros(text)
        with Limits(self.interrupt).running():
            return self._keep(text, _relations(checked), {}, bindings, checked)

    def _keep(
        self,
        statement: str,
        relations: Iterable[str],
        parameters: Mapping[str, Any],
        bindings: Bindings,
        checked: Checked | None = None,
    ) -> Relation:
        relation = self._new_relation()
        self._prepare(relations, bindings)
        with self._query_errors(checked):
            self._connection.execute(
                f"CREATE TEMP TABLE {_quoted(relation.rows)} AS {statement}", dict(parameters) or None
            )
        self._tables.add(relation.rows)
        return relation

    def _new_relation(self) -> Relation:
        number = next(_numbers)
        relation = Relation(number, f"rows_{number}")
        # A later statement drops the rows: the last reader may end while another thread runs a statement.
        end = finalize(relation, self._unused.append, (number, relation.rows))
        end.atexit = False  # type: ignore[misc]
        return relation

    def _drop_ended(self) -> None:
        while self._unused:
            number, rows = self._unused.popleft()
            stale_views = [key for key in self._computed if number in {bound for _, bound in key[1]}]
            for name in (rows, *map(self._computed.pop, stale_views)):
                for view in [view for view, table in self._visible.items() if table == name]:
                    self._hide(view)
                if name in self._tables:
                    self._tables.remove(name)
                    self._connection.execute(f"DROP TABLE {_quoted(name)}")
                else:
                    self._connection.unregister(name)

    @contextmanager
    def reading_at_most(self, rows: int) -> Iterator[None]:
        """In the block, queries that would read more rows of large tables raise TooLarge. Files that a query
        skips by their statistics do not count."""
        self._limit.rows = rows
        try:
            yield
        finally:
            self._limit.rows = None

    def interrupt(self) -> None:
        """Stop the query that runs now, which then raises an error. Call it from another thread."""
        self._connection.interrupt()

    def columns(self, relation: Relation) -> list[str]:
        return list(self._connection.table(_quoted(relation.rows)).columns)

    def relation(
        self, name: str, bindings: Bindings = NO_BINDINGS, *, most_rows: int | None = None
    ) -> pa.Table:
        """Return all rows of a view, which must be small. Raises TooLarge if there are more than
        `most_rows`."""
        self._prepare([name], bindings)
        with self._query_errors():
            rows = self._connection.table(name)
            if most_rows is None:
                return rows.to_arrow_table()
            table = rows.limit(most_rows + 1).to_arrow_table()
        if len(table) > most_rows:
            raise TooLarge(f"{name} has more than {most_rows:,} rows.")
        return table

    def version(self, table: str) -> int | None:
        """Return the Delta version at which a table is read; None when there was no table at `as_of`."""
        delta_table = self.open(f"{RAW}{table}")
        return None if delta_table is None else delta_table.version()

    def pinned(self) -> dict[str, int | None]:
        """Return the tables opened so far: step -> Delta version, None when there was no table."""
        return {step: None if table is None else table.version() for step, table in self._opened.items()}

    def count(self, table: str) -> int:
        """Return how many rows a table has, from its log alone."""
        self.open(FIRST)
        delta_table = self.open(f"{RAW}{table}")
        files = delta_table.get_add_actions(flatten=True) if delta_table else None
        if files is None or "num_records" not in files.schema.names:
            return 0
        return sum(number or 0 for number in files.column("num_records").to_pylist())

    def tables_behind(self) -> list[str]:
        """Return the tables that lost commits: the log of `backups` records newer versions of them."""
        self.open(FIRST)
        recorded_versions = versions_then(self._uri)
        if folder_of(self._uri) is None:
            prefetch(f"{self._uri}/{table}" for table in recorded_versions.keys() - self._prefetched)
            self._prefetched |= recorded_versions.keys()
        return [
            table
            for table, version in recorded_versions.items()
            if newest_version(f"{self._uri}/{table}", cached=True) < version
        ]

    def run(
        self,
        statement: str,
        relations: Iterable[str],
        parameters: Mapping[str, Any],
        checked: Checked | None = None,
        *,
        bindings: Bindings = NO_BINDINGS,
    ) -> pa.RecordBatchReader:
        """Run a statement in DuckDB's dialect that reads some relations; returns its rows. `checked`: the
        person's SELECT, if the statement is one.

        Raises Damaged when files of a table are damaged, UsageProblem when the statement is wrong.
        """
        self._prepare(relations, bindings)
        with self._query_errors(checked):
            relation = self._connection.sql(statement, params=dict(parameters) or None)
            if relation is None:
                raise UsageProblem("Only a SELECT gives rows.")
            reader = relation.to_arrow_reader(10_000)
            # DuckDB's type for a sum of integers, which is a BIGINT on Spark.
            hugeint_columns = [
                number for number, kind in enumerate(relation.types) if checked and str(kind) == "HUGEINT"
            ]
        batches = self._batches(reader, checked, hugeint_columns)
        _unread.add(batches)
        return pa.RecordBatchReader.from_batches(duration_schema(reader.schema, hugeint_columns), batches)

    def _prepare(self, relations: Iterable[str], bindings: Bindings) -> None:
        """Let each name that a statement reads, directly or through views, stand for its rows."""
        self._drop_ended()
        relations = frozenset(relations)
        needs = steps_for(relations, frozenset(bindings))
        if self._as_of is None and folder_of(self._uri) is None:
            raw_steps = {step for step in needs if step.startswith(RAW) and step not in bindings}
            missing = raw_steps - self._registered - set(self._opened)
            if FIRST in missing:
                self.open(FIRST)
            tables = {step.removeprefix(RAW) for step in missing - {FIRST}} - self._prefetched
            prefetch(f"{self._uri}/{table}" for table in tables)
            self._prefetched |= tables
        for step in needs:
            if step in bindings:
                self._show(step, bindings[step].rows)
            elif (step.removeprefix(NOW_PREFIX) in _COMPUTED) and (bound := environment(step, bindings)):
                self._show(step, self._computed.get((step, bound)) or self._compute(step, bound, bindings))
            else:
                self._show(step, None)
        for name in relations.difference(needs) & self._visible.keys():  # another reader has that name
            self._hide(name)

    def _show(self, name: str, rows: str | None) -> None:
        """Let a name stand for the relation `rows`; None: for what the catalog has under that name."""
        if rows is None:
            if name not in self._registered:
                self._register(name)
            if name not in self._aside:
                return
            rows = f"base_{name}"
        elif name in self._registered and name not in self._aside:
            form = "TABLE" if name in self._tables else "VIEW"
            self._connection.execute(f"ALTER {form} {_quoted(name)} RENAME TO {_quoted(f'base_{name}')}")
            self._aside.add(name)
        if self._visible.get(name) != rows:
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {_quoted(name)} AS FROM {_quoted(rows)}")
            self._visible[name] = rows

    def _hide(self, name: str) -> None:
        del self._visible[name]
        self._connection.execute(f"DROP VIEW {_quoted(name)}")

    def _compute(self, step: str, bound: frozenset[tuple[str, int]], bindings: Bindings) -> str:
        """Compute a view that reads bound names; returns the name of its rows."""
        table = f"computed_{next(_numbers)}"
        self._create(step, table, bindings)
        self._computed[step, bound] = table
        return table

    def _register(self, step: str) -> None:
        """Create a relation of the catalog. It gets another name while a view has its own."""
        table = step
        if step in self._visible:
            table = f"base_{step}"
            self._aside.add(step)
        self._create(step, table, NO_BINDINGS)
        self._registered.add(step)

    def _create(self, step: str, table: str, bindings: Bindings) -> None:
        """Create the relation `table` with the rows of a step, once those that it reads are shown."""
        name = step.removeprefix(NOW_PREFIX)
        if name.startswith(RAW):
            delta_table = self.open(step)
            uri = f"{self._uri}/{name.removeprefix(RAW)}"
            with self._query_errors():
                rows = (
                    ARROW_SCHEMAS[name.removeprefix(RAW)].empty_table()
                    if delta_table is None
                    else small_or_dataset(uri, delta_table, self._limit)
                )
            if hidden := self._hidden.get(name.removeprefix(RAW)):
                self._add(f"full_{table}", rows)
                nulls = ", ".join(f"CAST(NULL AS VARCHAR) AS {_quoted(column)}" for column in hidden)
                self._connection.execute(
                    f"CREATE TEMP VIEW {_quoted(table)} AS "
                    f"FROM {_quoted(f'full_{table}')} SELECT * REPLACE ({nulls})"
                )
                return
            self._add(table, rows)
        elif name == DUE:
            self._add(table, due_runs(self.relation(step.replace(DUE, NEWEST), bindings)))
        else:
            form = "TABLE" if name in SHARED_VIEWS else "VIEW"
            with self._query_errors():
                self._connection.execute(
                    f"CREATE TEMP {form} {_quoted(table)} AS {to_duckdb(view_text(step))}"
                )
            if form == "TABLE":
                self._tables.add(table)

    def _add(self, step: str, rows: pa.Table | ds.Dataset) -> None:
        # Where DuckDB knows that a table has no rows, it leaves out the joins with it, and the columns that
        # only those joins need: the paths of all files, if none was removed.
        if getattr(rows, "num_rows", None) != 0:
            self._connection.register(step, rows)
            return
        empty_relation = f"none_{step}"
        self._connection.register(empty_relation, rows)
        self._connection.execute(
            f"CREATE TEMP VIEW {_quoted(step)} AS FROM {_quoted(empty_relation)} LIMIT 0"
        )

    def open(self, step: str) -> DeltaTable | None:
        """Open the table of a step; None when there was none at `as_of`. It is opened once, so that all
        queries see one version of it."""
        if step not in self._opened:
            table = step.removeprefix(NOW_PREFIX).removeprefix(RAW)
            uri = f"{self._uri}/{table}"
            if step in self._versions:
                version = self._versions[step]
                self._opened[step] = None if version is None else open_version(uri, version)
            else:
                as_of = None if step.startswith(NOW_PREFIX) else self._as_of
                self._opened[step] = open_then(uri, as_of, cached=table in self._prefetched)
        return self._opened[step]

    def _batches(
        self, reader: pa.RecordBatchReader, checked: Checked | None, hugeint_columns: Sequence[int]
    ) -> Generator[pa.RecordBatch]:
        try:
            with self._query_errors(checked):
                for batch in reader:
                    yield as_durations(batch, hugeint_columns)
        except GeneratorExit:
            _cut_short.set()
            raise
        finally:
            reader.close()

    @contextmanager
    def _query_errors(self, checked: Checked | None = None) -> Iterator[None]:
        """Raise errors of DuckDB and pyarrow as lakebackup's own; those of a person's SELECT show the place
        in it."""
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise TooLarge(
                f"The query needs more than the {_SETTINGS['memory_limit']} of memory and the "
                f"{_SETTINGS['max_temp_directory_size']} of temporary files that it may use.",
                hint="Ask for fewer rows or columns, or run it on Spark.",
            ) from error
        except (
            duckdb.ParserException,
            duckdb.BinderException,
            duckdb.CatalogException,
            duckdb.NotImplementedException,
        ) as error:
            if checked is not None:
                raise of_engine(checked.select, error, unbound=True) from error
            raise UsageProblem(f"The query cannot run: {error}") from error
        except (duckdb.Error, OSError, ValueError) as error:  # pyarrow's errors are of the last two kinds
            text = str(error)
            if checked is None and isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException):
                reason = text.partition("\n")[0]
                raise damaged_catalog(f"Impossible numbers in the catalog {self._uri}: {reason}") from error
            if cause := error_in(error):
                raise cause from error
            if _DAMAGED_FILE.search(text) and not _VALUE_ERROR.match(text):
                reason = text.splitlines()[0].partition(" Detail: Python exception")[0]
                raise damaged_table(f"the catalog at {self._uri}", reason) from error
            if checked is not None:  # DuckDB's error for a later row arrives as one of pyarrow
                raise of_engine(checked.select, text) from error
            raise UsageProblem(f"The query failed: {text}") from error


@until_fork
def _spill_folder() -> PrivateFolder:
    """Return the folder of the process's database for rows that do not fit in memory."""
    return PrivateFolder("lakebackup-query-")


@until_fork
def database() -> duckdb.DuckDBPyConnection:
    """Return the database that all engines of a process share: to open one takes 15 ms."""
    connection = duckdb.connect(":memory:", config=_SETTINGS | {"temp_directory": _spill_folder().folder})
    connection.execute("; ".join(f"CREATE MACRO {macro}" for macro in OF_CATALOG))
    # Not the machine's time zone, so that a time means the same everywhere, and the same as on Spark.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


def _relations(checked: Checked) -> list[str]:
    """Return the relations that a person's SELECT reads, also those for its records."""
    return [*checked.relations, *(call.relation for call in checked.records)]


def _create_macros(text: str) -> None:
    """Create the macros that a person's SELECT uses, each once. To create all takes longer than most
    queries."""
    with _macro_lock:
        if macros := needed_macros(text, _existing_macros()):
            database().execute("; ".join(f"CREATE MACRO {macro}" for macro in macros))


@until_fork
def _existing_macros() -> set[str]:
    """Return the names of the macros that the database has; callers add to the set."""
    return {macro.partition("(")[0] for macro in OF_CATALOG}


def _plan_lines(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Convert the rows of an EXPLAIN to one column with a row a line, as on Spark."""
    (plan,) = rows.read_all().column("explain_value").to_pylist()
    # The spaces keep the right side of the box in place.
    plan = _DATABASE.sub(lambda match: match[1] + " " * len(match[0].removesuffix(match[1])), plan)
    return pa.table({"plan": pa.array(plan.splitlines(), pa.string())}).to_reader()


#: DuckDB's names of types -> Spark's names, where they differ.
SPARK_NAMES = {"VARCHAR": "STRING", "INTEGER": "INT"}


def view_columns(*, with_now_views: bool = False) -> Mapping[str, Sequence[str]]:
    """Return the columns, in order, of each shown view, and of each `now_<view>` if `with_now_views`. Opens
    no catalog."""
    return _ViewColumns(
        [*shown_views(), *(f"{NOW_PREFIX}{view}" for view in shown_views() if with_now_views)]
    )


class _ViewColumns(Mapping[str, "Sequence[str]"]):
    """View -> its column names, which are computed at the first access: a SELECT names few of the views."""

    def __init__(self, views: Sequence[str]) -> None:
        self._views = dict.fromkeys(views)

    def __getitem__(self, view: str) -> Sequence[str]:
        if view not in self._views:
            raise KeyError(view)
        return tuple(view_types(view.removeprefix(NOW_PREFIX)))

    def types(self, relation: str) -> Mapping[str, str]:
        """Return the columns of a view -> their DuckDB types."""
        return view_types(relation.removeprefix(NOW_PREFIX))

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


@cache
def view_types(view: str) -> Mapping[str, str]:
    """Return the columns of a view -> their DuckDB types. Opens no catalog."""
    with database().cursor() as connection:
        for step in steps_for([view]):
            if step.startswith(RAW):
                connection.register(step, ARROW_SCHEMAS[step.removeprefix(RAW)].empty_table())
            else:
                # DuckDB plans a view again wherever it is read, which takes seconds where views read views.
                form = "TABLE" if step in MATERIALIZED_VIEWS else "VIEW"
                connection.execute(f"CREATE TEMP {form} {_quoted(step)} AS {to_duckdb(load('views', step))}")
        described = connection.table(view)
        return dict(zip(described.columns, map(str, described.types), strict=True))


def _quoted(relation: str) -> str:
    if not re.fullmatch(r"[a-z_0-9]+", relation):
        raise NotFound(f"There is no relation {relation!r} in the catalog.")
    return f'"{relation}"'
