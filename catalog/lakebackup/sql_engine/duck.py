"""The catalog's SQL on DuckDB over the Delta tables, without a JVM. DuckDB can reach nothing else.

Delta's log and statistics choose the Parquet files. Each file is verified before it is read, since DuckDB and
other readers do not notice a flipped bit.
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
# The views that become tables. Not those that can have a million rows, one a restore point: a statement needs
# few of their columns, and often few topics.
_MATERIALIZED = KEPT - {"coverage", "chain_points"}
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

    `versions`: the result of another engine's `pinned`; those tables are read at those versions.

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
    ) -> None:
        self._uri = catalog_uri.rstrip("/")
        self._as_of, self._versions = as_of, versions or {}
        if as_of is not None:
            require_then(self._uri, as_of)
        self._opened: dict[str, DeltaTable | None] = {}
        self._prefetched: set[str] = set()  # tables whose logs were read in parallel
        self._registered: set[str] = set()
        self._table_numbers = count()
        self.asked = new_record()
        # The relations are temporary: other connections do not see them, and they end with this connection.
        self._connection = database().cursor()
        self._spill_folder = _spill_folder()  # keeps the folder as long as the connection
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
        """Run a person's checked SELECT; returns its rows, or the lines of its plan if it is an EXPLAIN."""
        self.asked.append(Asked(self.name, "select", checked.spark, {}))
        text = checked.text("duckdb")
        _create_macros(text)
        rows = self.run(text, steps_for(checked.relations), {}, checked)
        return _plan_lines(rows) if checked.explained else rows

    def define(self, relation: str, text: str, **parameters: Any) -> None:
        self.asked.append(Asked(self.name, relation, text, parameters))
        self._create(f"of_{relation}", to_duckdb(text), steps(text), parameters)
        self.show(relation, f"of_{relation}")  # last: the SELECT may read what it replaces

    def put_back(self, relation: str) -> None:
        text = to_duckdb(view_text(relation))
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {_quoted(relation)} AS {text}")

    def define_checked(self, relation: str, checked: Checked) -> None:
        self.asked.append(Asked(self.name, relation, checked.spark, {}))
        text = checked.selected("duckdb")
        _create_macros(text)
        with Limits(self.interrupt).running():
            self._create(relation, text, steps_for(checked.relations), {}, checked)

    def keep(self, relation: str, text: str, **parameters: Any) -> str:
        """Compute the rows of a SELECT once; returns the name of the table that has them, for `show`."""
        self.asked.append(Asked(self.name, relation, text, parameters))
        table = f"kept_{next(self._table_numbers)}"
        self._create(table, to_duckdb(text), steps(text), parameters)
        return table

    def show(self, relation: str, kept: str) -> None:
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {_quoted(relation)} AS FROM {_quoted(kept)}")

    def give(self, relation: str, rows: pa.Table) -> None:
        # Replaces a relation of the catalog only if no query has read that relation yet.
        self._connection.register(relation, rows)
        self._registered.add(relation)

    def interrupt(self) -> None:
        """Stop the query that runs now, which then raises an error. Call it from another thread."""
        self._connection.interrupt()

    def columns(self, relation: str) -> list[str]:
        return list(self._connection.table(_quoted(relation)).columns)

    def relation(self, name: str) -> pa.Table:
        """Return all rows of a view, which must be small."""
        self._prepare(steps_for([name]))
        with self._query_errors():
            return self._connection.table(name).to_arrow_table()

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

    def behind(self) -> list[str]:
        """Return the tables that lost commits: the log of `backups` records newer versions of them."""
        self.open(FIRST)
        recorded_versions = versions_then(self._uri)
        if folder_of(self._uri) is None:
            prefetch(f"{self._uri}/{table}" for table in recorded_versions.keys() - self._prefetched)
            self._prefetched |= recorded_versions.keys()
        return [
            table
            for table, version in recorded_versions.items()
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
        with self._query_errors(checked):
            sql = f"CREATE OR REPLACE TEMP TABLE {_quoted(relation)} AS {statement}"
            self._connection.execute(sql, dict(parameters) or None)

    def run(
        self,
        statement: str,
        needs: tuple[str, ...],
        parameters: Mapping[str, Any],
        checked: Checked | None = None,
    ) -> pa.RecordBatchReader:
        """Run a statement in DuckDB's dialect that reads the relations `needs`; returns its rows. `checked`:
        the person's SELECT, if the statement is one.

        Raises Damaged when files of a table are damaged, UsageProblem when the statement is wrong.
        """
        import pyarrow as pa

        self._prepare(needs)
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
        return pa.RecordBatchReader.from_batches(durations(reader.schema, hugeint_columns), batches)

    def _prepare(self, needs: Sequence[str]) -> None:
        """Register the relations that a statement reads."""
        if self._as_of is None and folder_of(self._uri) is None:
            missing = {step for step in needs if step.startswith(RAW)} - self._registered - set(self._opened)
            if FIRST in missing:
                self.open(FIRST)
            tables = {step.removeprefix(RAW) for step in missing - {FIRST}} - self._prefetched
            prefetch(f"{self._uri}/{table}" for table in tables)
            self._prefetched |= tables
        for step in needs:
            self._register(step)

    def _register(self, step: str) -> None:
        if step in self._registered:
            return
        name = step.removeprefix(NOW)
        if name.startswith(RAW):
            table = name.removeprefix(RAW)
            delta_table = self.open(step)
            with self._query_errors():
                rows = (
                    ARROW_SCHEMAS[table].empty_table()
                    if delta_table is None
                    else small_or_dataset(f"{self._uri}/{table}", delta_table)
                )
            self._add(step, rows)
        elif name == DUE:
            self._add(step, due_runs(self.relation(step.replace(DUE, NEWEST))))
        else:
            form = "TABLE" if name in _MATERIALIZED else "VIEW"
            with self._query_errors():
                self._connection.execute(
                    f"CREATE TEMP {form} {_quoted(step)} AS {to_duckdb(view_text(step))}"
                )
        self._registered.add(step)

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
            table = step.removeprefix(NOW).removeprefix(RAW)
            uri = f"{self._uri}/{table}"
            if step in self._versions:
                version = self._versions[step]
                self._opened[step] = None if version is None else open_version(uri, version)
            else:
                as_of = None if step.startswith(NOW) else self._as_of
                self._opened[step] = open_then(uri, as_of, known=table in self._prefetched)
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
                raise of_engine(checked.given, error, unbound=True) from error
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
                raise of_engine(checked.given, text) from error
            raise UsageProblem(f"The query failed: {text}") from error


_SPILL_PREFIX = "lakebackup-query-"


class _Spilled:
    """A folder for rows that do not fit in memory, which other users cannot read. `folder` is "" where none
    can be created."""

    def __init__(self) -> None:
        try:
            self.folder = tempfile.mkdtemp(prefix=_SPILL_PREFIX)
            self.lock = FolderLock(self.folder)
        except OSError:  # queries work without a folder that can be written
            self.folder = ""
        else:  # the finalizer also runs at the end of the process
            finalize(self, _remove_folder, os.getpid(), self.folder)
            sweep(tempfile.gettempdir(), _SPILL_PREFIX)  # folders of processes that were killed


def _remove_folder(process_id: int, folder: str) -> None:
    """Remove a folder, but not in a fork of the process that created it."""
    if os.getpid() == process_id:
        shutil.rmtree(folder, ignore_errors=True)


@until_fork
def _spill_folder() -> _Spilled:
    """Return the spill folder of the process's database."""
    return _Spilled()


@until_fork
def database() -> duckdb.DuckDBPyConnection:
    """Return the database that all engines of a process share: to open one takes 15 ms."""
    connection = duckdb.connect(":memory:", config=_SETTINGS | {"temp_directory": _spill_folder().folder})
    connection.execute("; ".join(f"CREATE MACRO {macro}" for macro in OF_CATALOG))
    # Not the machine's time zone, so that a time means the same everywhere, and the same as on Spark.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


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
    import pyarrow as pa

    (plan,) = rows.read_all().column("explain_value").to_pylist()
    # The spaces keep the right side of the box in place.
    plan = _DATABASE.sub(lambda match: match[1] + " " * len(match[0].removesuffix(match[1])), plan)
    return pa.table({"plan": pa.array(plan.splitlines(), pa.string())}).to_reader()


#: DuckDB's names of types -> Spark's names, where they differ.
SPARK_NAMES = {"VARCHAR": "STRING", "INTEGER": "INT"}


def view_columns(*, now: bool = False) -> Mapping[str, Sequence[str]]:
    """Return the columns, in order, of each shown view, and of each `now_<view>` if `now`. Opens no
    catalog."""
    return _ViewColumns([*shown_views(), *(f"{NOW}{view}" for view in shown_views() if now)])


class _ViewColumns(Mapping[str, "Sequence[str]"]):
    """View -> its column names, which are computed at the first access: a SELECT names few of the views."""

    def __init__(self, views: Sequence[str]) -> None:
        self._views = dict.fromkeys(views)

    def __getitem__(self, view: str) -> Sequence[str]:
        if view not in self._views:
            raise KeyError(view)
        return tuple(view_types(view.removeprefix(NOW)))

    def types(self, relation: str) -> Mapping[str, str]:
        """Return the columns of a view -> their DuckDB types."""
        return view_types(relation.removeprefix(NOW))

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
                connection.execute(f"CREATE TEMP VIEW {_quoted(step)} AS {to_duckdb(load('views', step))}")
        described = connection.table(view)
        return dict(zip(described.columns, map(str, described.types), strict=True))


def _quoted(relation: str) -> str:
    if not re.fullmatch(r"[a-z_0-9]+", relation):
        raise NotFound(f"There is no relation {relation!r} in the catalog.")
    return f'"{relation}"'
