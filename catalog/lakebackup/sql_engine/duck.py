"""The catalog's SQL on DuckDB over the Delta tables: no JVM, nothing else reachable.

Delta's log and statistics choose the Parquet files; each is verified before it is read, since DuckDB and
others read a flipped bit without a word.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from threading import Event, Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, finalize

import duckdb

from lakebackup.errors import NotFound, TooLarge, UsageProblem
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine import (
    CLOCK,
    DUE,
    FIRST,
    KEPT,
    NEWEST,
    NOW,
    RAW,
    Asked,
    SqlEngine,
    clock_at,
    due_runs,
    new_record,
    shown_views,
    steps,
    steps_for,
    to_duckdb,
    view_text,
)
from lakebackup.sql_engine.arrow import as_durations, durations
from lakebackup.sql_engine.delta.as_of import open_then, open_version, require_then
from lakebackup.sql_engine.delta.dataset import small_or_dataset
from lakebackup.sql_engine.delta.log import folder_of, prefetch, until_fork
from lakebackup.sql_engine.delta.table import newest_version, versions_then
from lakebackup.sql_engine.failures import damaged_catalog, damaged_table, error_in
from lakebackup.sql_engine.guard.macros import OF_CATALOG, needed_macros
from lakebackup.sql_engine.guard.place import of_engine
from lakebackup.sql_engine.limits import Limits
from lakebackup.storage.scratch_folder import FolderLock, sweep
from lakebackup_sql import load

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    from lakebackup.sql_engine import EngineName
    from lakebackup.sql_engine.guard.check import Checked

_LOCKED: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": False,
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "memory_limit": "1GB",
    "max_temp_directory_size": "20GB",
    "preserve_insertion_order": False,
    "disabled_optimizers": "join_order,build_side_probe_side",
}
# Of a million restore points a statement wants few columns, and often few topics.
_KEPT = KEPT - {"coverage", "chain_points"}
# How DuckDB reports pyarrow's error for a file that is missing or damaged.
_TORN = re.compile(r"stream registered as 'raw_|IOError|CRC|checksum|[Pp]arquet")
# Errors that quote a value, which may hold such a word: the path of a file.
_OF_VALUE = re.compile(r"(?:Conversion|Out of Range) Error: ")
# Where its plans say that a relation is, before the relation's name.
_DATABASE = re.compile(r'"temp"\.main\.("[^"]*"|\w+)')
# Answers that may have rows left.
_unread: WeakSet[Generator[pa.RecordBatch]] = WeakSet()
_cut_short = Event()
_making = Lock()


@atexit.register
def _end() -> None:
    """End what still reads ahead: its threads would crash Python at its end, or keep it from ending."""
    for answer in (unread := list(_unread)):
        with suppress(ValueError):  # it runs in another thread
            answer.close()
    if verified := sys.modules.get("lakebackup.sql_engine.delta.verified"):
        verified.open_no_more(reading=bool(unread) or _cut_short.is_set())


class DuckEngine(SqlEngine):
    """Queries over the Delta tables in the folder `catalog_uri`, as they were when each was first read, or
    at the instant `as_of` (us since 1970); then `now_<relation>` is what a relation is now.

    `versions`: what another engine's `pinned` gave, of the tables that are to be as they were there.
    Joins are made in the order of their text, each with its right side in memory: DuckDB does not know how
    large a Delta table is, and else may hold the rows of a million files.
    Raises NotFound when there was no catalog at `as_of`.
    """

    name: EngineName = "duckdb"

    def __init__(
        self,
        catalog_uri: str,
        *,
        as_of: int | None = None,
        versions: Mapping[str, int | None] | None = None,
    ) -> None:
        self._uri = catalog_uri.rstrip("/")
        self._as_of, self._versions = as_of, versions or {}
        if as_of is not None:
            require_then(self._uri, as_of)
        self._opened: dict[str, DeltaTable | None] = {}
        self._known: set[str] = set()  # tables that were looked at together
        self._registered: set[str] = set()
        self._kept = count()
        self.asked = new_record()
        # Its relations are temporary: no other connection sees them, and they end with this one.
        self._connection = database().cursor()
        self._spilled = _spilled()  # stays as long as the connection
        if as_of is not None:
            self.give(CLOCK, clock_at(as_of // 1000))

    def query(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        text = load("queries", name)
        self.asked.append(Asked(self.name, name, text, parameters))
        return self.run(to_duckdb(text), steps(text), parameters)

    batches = query

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        return [row for batch in self.query(name, **parameters) for row in batch.to_pylist()]

    def select(self, checked: Checked) -> pa.RecordBatchReader:
        """The rows of a person's SELECT that was checked."""
        self.asked.append(Asked(self.name, "select", checked.spark, {}))
        text = checked.text("duckdb")
        _make_macros(text)
        rows = self.run(text, steps_for(checked.relations), {}, checked)
        return _plan(rows) if checked.explained else rows

    def define(self, relation: str, text: str, **parameters: Any) -> None:
        self.asked.append(Asked(self.name, relation, text, parameters))
        self._create(f"of_{relation}", to_duckdb(text), steps(text), parameters)
        self.show(relation, f"of_{relation}")  # it may have read what it takes the place of

    def put_back(self, relation: str) -> None:
        text = to_duckdb(view_text(relation))
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {_name(relation)} AS {text}")

    def define_checked(self, relation: str, checked: Checked) -> None:
        self.asked.append(Asked(self.name, relation, checked.spark, {}))
        text = checked.selected("duckdb")
        _make_macros(text)
        with Limits(self.interrupt).running():
            self._create(relation, text, steps_for(checked.relations), {}, checked)

    def keep(self, relation: str, text: str, **parameters: Any) -> str:
        """Compute the rows of a SELECT once; returns the table of their own that `show` gives a name to."""
        self.asked.append(Asked(self.name, relation, text, parameters))
        kept = f"kept_{next(self._kept)}"
        self._create(kept, to_duckdb(text), steps(text), parameters)
        return kept

    def show(self, relation: str, kept: str) -> None:
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {_name(relation)} AS FROM {_name(kept)}")

    def give(self, relation: str, rows: pa.Table) -> None:
        # In the place of one of the catalog's only as long as nothing was asked of that yet.
        self._connection.register(relation, rows)
        self._registered.add(relation)

    def interrupt(self) -> None:
        """Stop the query that runs now, from another thread; it raises an error."""
        self._connection.interrupt()

    def columns(self, relation: str) -> list[str]:
        return list(self._connection.table(_name(relation)).columns)

    def relation(self, name: str) -> pa.Table:
        """All rows of a view, for one that is small."""
        self._prepare(steps_for([name]))
        with self._explained():
            return self._connection.table(name).to_arrow_table()

    def version(self, table: str) -> int | None:
        """The Delta version of a table that is read here; None when there was no such table at `as_of`."""
        opened = self.open(f"{RAW}{table}")
        return None if opened is None else opened.version()

    def pinned(self) -> dict[str, int | None]:
        """What was read here: the step of each table -> its Delta version, None when there was no table."""
        return {step: None if table is None else table.version() for step, table in self._opened.items()}

    def count(self, table: str) -> int:
        """How many rows a table has, by its log alone."""
        self.open(FIRST)
        opened = self.open(f"{RAW}{table}")
        files = opened.get_add_actions(flatten=True) if opened else None
        if files is None or "num_records" not in files.schema.names:
            return 0
        return sum(number or 0 for number in files.column("num_records").to_pylist())

    def behind(self) -> list[str]:
        """Tables that lost commits: they are behind the versions recorded in the log of `backups`."""
        self.open(FIRST)
        then = versions_then(self._uri)
        if folder_of(self._uri) is None:
            prefetch(f"{self._uri}/{table}" for table in then.keys() - self._known)
            self._known |= then.keys()
        return [
            table
            for table, version in then.items()
            if newest_version(f"{self._uri}/{table}", known=True) < version
        ]

    def _create(
        self,
        relation: str,
        statement: str,
        needs: tuple[str, ...],
        parameters: Mapping[str, Any],
        checked: Checked | None = None,
    ) -> None:
        self._prepare(needs)
        with self._explained(checked):
            table = f"CREATE OR REPLACE TEMP TABLE {_name(relation)} AS {statement}"
            self._connection.execute(table, dict(parameters) or None)

    def run(
        self,
        statement: str,
        needs: tuple[str, ...],
        parameters: Mapping[str, Any],
        checked: Checked | None = None,
    ) -> pa.RecordBatchReader:
        """The rows of a statement in DuckDB's dialect that reads the relations `needs`. `checked`: the
        person's SELECT that it is.

        Raises Damaged when a table's files are not whole, UsageProblem when the statement is wrong.
        """
        import pyarrow as pa

        self._prepare(needs)
        with self._explained(checked):
            found = self._connection.sql(statement, params=dict(parameters) or None)
            if found is None:
                raise UsageProblem("Only a SELECT gives rows.")
            reader = found.to_arrow_reader(10_000)
            # The sum of whole numbers, which is BIGINT on Spark.
            whole = [number for number, kind in enumerate(found.types) if checked and str(kind) == "HUGEINT"]
        batches = self._batches(reader, checked, whole)
        _unread.add(batches)
        return pa.RecordBatchReader.from_batches(durations(reader.schema, whole), batches)

    def _prepare(self, needs: Sequence[str]) -> None:
        """Register what a statement reads."""
        if self._as_of is None and folder_of(self._uri) is None:
            missing = {step for step in needs if step.startswith(RAW)} - self._registered - set(self._opened)
            if FIRST in missing:
                self.open(FIRST)
            tables = {step.removeprefix(RAW) for step in missing - {FIRST}} - self._known
            prefetch(f"{self._uri}/{table}" for table in tables)
            self._known |= tables
        for step in needs:
            self._register(step)

    def _register(self, step: str) -> None:
        if step in self._registered:
            return
        name = step.removeprefix(NOW)
        if name.startswith(RAW):
            table = name.removeprefix(RAW)
            opened = self.open(step)
            with self._explained():
                rows = (
                    ARROW_SCHEMAS[table].empty_table()
                    if opened is None
                    else small_or_dataset(f"{self._uri}/{table}", opened)
                )
            self._add(step, rows)
        elif name == DUE:
            self._add(step, due_runs(self.relation(step.replace(DUE, NEWEST))))
        else:
            form = "TABLE" if name in _KEPT else "VIEW"
            with self._explained():
                self._connection.execute(f"CREATE TEMP {form} {_name(step)} AS {to_duckdb(view_text(step))}")
        self._registered.add(step)

    def _add(self, step: str, rows: pa.Table | ds.Dataset) -> None:
        # Where DuckDB knows that a table has no rows, it leaves out the joins with it and the columns that
        # only they need: the paths of all files, where none was removed.
        if getattr(rows, "num_rows", None) != 0:
            self._connection.register(step, rows)
            return
        given = f"none_{step}"
        self._connection.register(given, rows)
        self._connection.execute(f"CREATE TEMP VIEW {_name(step)} AS FROM {_name(given)} LIMIT 0")

    def open(self, step: str) -> DeltaTable | None:
        """The table of a step, opened once, so that all that is asked sees one version of it."""
        if step not in self._opened:
            table = step.removeprefix(NOW).removeprefix(RAW)
            uri = f"{self._uri}/{table}"
            if step in self._versions:
                version = self._versions[step]
                self._opened[step] = None if version is None else open_version(uri, version)
            else:
                as_of = None if step.startswith(NOW) else self._as_of
                self._opened[step] = open_then(uri, as_of, known=table in self._known)
        return self._opened[step]

    def _batches(
        self, reader: pa.RecordBatchReader, checked: Checked | None, whole: Sequence[int]
    ) -> Generator[pa.RecordBatch]:
        try:
            with self._explained(checked):
                for batch in reader:
                    yield as_durations(batch, whole)
        except GeneratorExit:
            _cut_short.set()
            raise
        finally:
            reader.close()

    @contextmanager
    def _explained(self, checked: Checked | None = None) -> Iterator[None]:
        """Errors as this program's own; those of a person's SELECT with their place in it."""
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise TooLarge(
                f"The query needs more than the {_LOCKED['memory_limit']} of memory and the "
                f"{_LOCKED['max_temp_directory_size']} of temporary files that it may use.",
                hint="Ask for fewer rows or columns, or run it on Spark.",
            ) from error
        except (
            duckdb.ParserException,
            duckdb.BinderException,
            duckdb.CatalogException,
            duckdb.NotImplementedException,
        ) as error:
            if checked is not None:
                raise of_engine(checked.given, error, unbound=True) from error
            raise UsageProblem(f"The query cannot run: {error}") from error
        except (duckdb.Error, OSError, ValueError) as error:  # pyarrow's errors are of the last two kinds
            text = str(error)
            if checked is None and isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException):
                reason = text.partition("\n")[0]
                raise damaged_catalog(f"Impossible numbers in the catalog {self._uri}: {reason}") from error
            if found := error_in(error):
                raise found from error
            if _TORN.search(text) and not _OF_VALUE.match(text):
                reason = text.splitlines()[0].partition(" Detail: Python exception")[0]
                raise damaged_table(f"the catalog at {self._uri}", reason) from error
            if checked is not None:  # of a later row, DuckDB's error comes as pyarrow's
                raise of_engine(checked.given, text) from error
            raise UsageProblem(f"The query failed: {text}") from error


_SPILL_PREFIX = "lakebackup-query-"


class _Spilled:
    """A folder for rows that memory has no room for, which no other user reads; "" where none can be made."""

    def __init__(self) -> None:
        try:
            self.folder = tempfile.mkdtemp(prefix=_SPILL_PREFIX)
            self.lock = FolderLock(self.folder)
        except OSError:  # a question needs nothing that can be written
            self.folder = ""
        else:  # at the end of the process too
            finalize(self, _remove_in, os.getpid(), self.folder)
            sweep(tempfile.gettempdir(), _SPILL_PREFIX)  # those of queries whose process was killed


def _remove_in(process: int, folder: str) -> None:
    """Remove a folder, but not in a fork of the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


@until_fork
def _spilled() -> _Spilled:
    """That of the database below."""
    return _Spilled()


@until_fork
def database() -> duckdb.DuckDBPyConnection:
    """The database of all engines of a process: to open one takes 15 ms."""
    connection = duckdb.connect(":memory:", config=_LOCKED | {"temp_directory": _spilled().folder})
    connection.execute("; ".join(f"CREATE MACRO {macro}" for macro in OF_CATALOG))
    # Not the machine's: a time means the same everywhere, and the same as on Spark.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


def _make_macros(text: str) -> None:
    """Make the macros that a person's SELECT uses, each once: all take longer than most questions."""
    with _making:
        if macros := needed_macros(text, _macros_made()):
            database().execute("; ".join(f"CREATE MACRO {macro}" for macro in macros))


@until_fork
def _macros_made() -> set[str]:
    """The names of the macros that the database has."""
    return {macro.partition("(")[0] for macro in OF_CATALOG}


def _plan(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """What EXPLAIN gives: a row for each line, in one column, as on Spark."""
    import pyarrow as pa

    (plan,) = rows.read_all().column("explain_value").to_pylist()
    # Spaces keep the box's right side where it is.
    plan = _DATABASE.sub(lambda found: found[1] + " " * len(found[0].removesuffix(found[1])), plan)
    return pa.table({"plan": pa.array(plan.splitlines(), pa.string())}).to_reader()


#: DuckDB's names of types that Spark has others for.
SPARK_NAMES = {"VARCHAR": "STRING", "INTEGER": "INT"}


def view_columns(*, now: bool = False) -> Mapping[str, Sequence[str]]:
    """Names of the columns, in order, of each shown view, with `now_<view>` too when asked; no catalog is
    opened."""
    return _ViewColumns([*shown_views(), *(f"{NOW}{view}" for view in shown_views() if now)])


class _ViewColumns(Mapping[str, "Sequence[str]"]):
    """Looked up when a view's are asked for: a SELECT names few of the views."""

    def __init__(self, views: Sequence[str]) -> None:
        self._views = dict.fromkeys(views)

    def __getitem__(self, view: str) -> Sequence[str]:
        if view not in self._views:
            raise KeyError(view)
        return tuple(view_types(view.removeprefix(NOW)))

    def types(self, relation: str) -> Mapping[str, str]:
        """The columns of a view, and DuckDB's types of them."""
        return view_types(relation.removeprefix(NOW))

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


@cache
def view_types(view: str) -> Mapping[str, str]:
    """Name of each column of a view -> DuckDB's type of it; no catalog is opened."""
    with database().cursor() as connection:
        for step in steps_for([view]):
            if step.startswith(RAW):
                connection.register(step, ARROW_SCHEMAS[step.removeprefix(RAW)].empty_table())
            else:
                connection.execute(f"CREATE TEMP VIEW {_name(step)} AS {to_duckdb(load('views', step))}")
        described = connection.table(view)
        return dict(zip(described.columns, map(str, described.types), strict=True))


def _name(relation: str) -> str:
    if not re.fullmatch(r"[a-z_0-9]+", relation):
        raise NotFound(f"There is no relation {relation!r} in the catalog.")
    return f'"{relation}"'
