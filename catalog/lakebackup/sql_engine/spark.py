"""The catalog's SQL on Spark. It uses the DataFrame API only, so that Spark Connect works too.

Small tables become part of a query's plan, because Delta needs longer to plan a scan of one than to read it.
Statements that read few rows run on DuckDB over the same versions of the tables, because Spark needs longer
to plan them than DuckDB to answer. So do views that several others read.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, finalize

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from lakebackup.errors import TooLarge
from lakebackup.rows.tables import ARROW_SCHEMAS, SPARK_TYPES, columns
from lakebackup.sql_engine import (
    CLOCK,
    FIRST,
    MATERIALIZED_VIEWS,
    NO_BINDINGS,
    NOW_PREFIX,
    RAW,
    Bindings,
    EngineName,
    RecordedQuery,
    Relation,
    SqlEngine,
    clock_at,
    environment,
    new_record,
    relations_in,
    shown_views,
    steps_for,
    view_text,
)
from lakebackup.sql_engine.delta.as_of import open_then, require_then
from lakebackup.sql_engine.delta.dataset import rows_of
from lakebackup.sql_engine.delta.log import folder_of, prefetch
from lakebackup.sql_engine.delta.table import newest_version
from lakebackup.sql_engine.duck import DuckEngine, view_columns
from lakebackup.sql_engine.failures import select_errors, task_errors
from lakebackup.sql_engine.guard.check import Checked, check_select
from lakebackup.sql_engine.limits import Limits
from lakebackup.sql_engine.worker import MESSAGES, as_messages
from lakebackup_sql import load

T = TypeVar("T")

# The most rows of a table that becomes part of the plan.
_FEW_ROWS = 10_000
# The most rows that a statement reads on DuckDB. Files that it skips by their statistics do not count. DuckDB
# reads so many rows in about the time in which Spark plans a statement.
_DUCKDB_ROWS = 5_000_000
# The most rows of a view, computed on DuckDB, that become part of a plan.
_VIEW_ROWS = 250_000
_BATCH_ROWS = 10_000
# The type TIMESTAMP in a schema as JSON.
_TIMESTAMPS = re.compile(r'"((?:t|elementT|keyT|valueT)ype)":"timestamp"')
# The numbers of relations and views. A session's temporary views are those of several engines.
_numbers = count(1)
_visible_in_sessions: WeakKeyDictionary[SparkSession, dict[str, int]] = WeakKeyDictionary()
# The name by which DuckDB returns the rows of a relation.
_BOUND = "bound"
_LIST = re.compile(r"ARRAY_CONTAINS\(SPLIT\(:(\w+), ','\), ([\w.]+)\)")


@dataclass(slots=True)
class _Rows:
    """The rows of a relation, in Spark's form, in DuckDB's, or in both."""

    frame: DataFrame | None = None
    on_duckdb: Relation | None = None


class SparkEngine(SqlEngine):
    """Queries over the Delta tables in the folder `catalog_uri`, as they are now, or as they were at the
    instant `as_of` (us since 1970). With `as_of`, `now_<relation>` is a relation as it is now. `tables`: an
    engine of the same catalog and instant. With it, tables stay at the versions that it opens, and it runs
    the statements that read few rows.

    The views are temporary views of the session, under their own names: a session can have one catalog at a
    time. Raises NotFound when there was no catalog at `as_of`.
    """

    name: EngineName = "spark"

    def __init__(
        self,
        spark: SparkSession,
        catalog_uri: str,
        *,
        as_of: int | None = None,
        tables: DuckEngine | None = None,
    ) -> None:
        self._spark, self._tables = spark, tables
        self._uri = catalog_uri.rstrip("/")
        self._remote = folder_of(self._uri) is None
        self._as_of = as_of
        if as_of is not None:
            require_then(self._uri, as_of)
        self._frames: dict[tuple[str, frozenset[tuple[str, int]]], tuple[int, DataFrame]] = {}
        self._unused: deque[int] = deque()  # the numbers of relations that no reader has any more
        # The tables that are part of plans: their versions (None: pinned) and rows.
        self._inlined_versions: dict[str, int | None] = {}
        self._inlined_rows: dict[str, pa.Table] = {}
        self.queries = new_record() if tables is None else tables.queries

    def query(self, name: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any) -> DataFrame:
        """Run a statement of `sql/queries`; Spark reads the rows when the DataFrame is used, not before."""
        return self._run(name, load("queries", name), parameters, bindings)

    def batches(
        self, name: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any
    ) -> pa.RecordBatchReader:
        def run(tables: DuckEngine, on_duckdb: Bindings) -> pa.RecordBatchReader:
            rows = tables.query(name, on_duckdb, **parameters)
            first_batches = list(islice(rows, 1))  # DuckDB begins to read with the first batch
            return pa.RecordBatchReader.from_batches(rows.schema, chain(first_batches, rows))

        rows = self._on_duckdb(relations_in(load("queries", name)), bindings, run)
        return batches_of(self.query(name, bindings, **parameters)) if rows is None else rows

    def select(self, sql: str) -> DataFrame:
        """Run a person's SELECT over the views. Raises UsageProblem when the SQL is anything else."""
        return self._run_select(
            "select", check_select(sql, view_columns(with_now_views=self._as_of is not None))
        )

    def keep_rows(self, rows: pa.Table | ds.Dataset | DataFrame) -> Relation:
        if not isinstance(rows, pa.Table | ds.Dataset):
            return self._new_relation(_Rows(rows))
        if self._tables is None:
            return self._new_relation(_Rows(self._to_frame(rows)))
        return self._new_relation(_Rows(on_duckdb=self._tables.keep_rows(rows)))

    def keep_query(
        self, label: str, text: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any
    ) -> Relation:
        """Compute the rows of a SELECT once, in the storage of the engine that runs it."""

        def run(tables: DuckEngine, on_duckdb: Bindings) -> Relation:
            return tables.keep_query(label, text, on_duckdb, **parameters)

        relation = self._on_duckdb(relations_in(text), bindings, run)
        if relation is not None:
            return self._new_relation(_Rows(on_duckdb=relation))
        with task_errors():
            return self._new_relation(_Rows(self._run(label, text, parameters, bindings).localCheckpoint()))

    def keep_select(self, label: str, checked: Checked, bindings: Bindings = NO_BINDINGS) -> Relation:
        with Limits(self._spark.interruptAll, memory=False).running(), select_errors(checked.select):
            checked.selected("spark")
            return self._new_relation(_Rows(self._run_select(label, checked, bindings).localCheckpoint()))

    def columns(self, relation: Relation) -> list[str]:
        return list(self.frame_of(relation).columns)

    def rows(self, name: str, bindings: Bindings = NO_BINDINGS, /, **parameters: Any) -> list[dict[str, Any]]:
        def run(tables: DuckEngine, on_duckdb: Bindings) -> list[dict[str, Any]]:
            return tables.rows(name, on_duckdb, **parameters)

        rows = self._on_duckdb(relations_in(load("queries", name)), bindings, run)
        if rows is not None:
            return rows
        with task_errors():
            return [row.asDict() for row in self.query(name, bindings, **parameters).collect()]

    def _on_duckdb(
        self,
        relations: Iterable[str],
        bindings: Bindings,
        run: Callable[[DuckEngine, Bindings], T],
    ) -> T | None:
        """Let `run` run a statement that reads some relations on DuckDB, and return its result. None: Spark
        must run the statement, which reads many rows, or rows that only Spark has."""
        if self._tables is None:
            return None
        on_duckdb: dict[str, Relation] = {}
        for name in set(steps_for(relations, frozenset(bindings))) & bindings.keys():
            relation = bindings[name].rows.on_duckdb
            if relation is None:
                return None
            on_duckdb[name] = relation
        query_count = len(self.queries)
        try:
            with self._tables.reading_at_most(_DUCKDB_ROWS):
                return run(self._tables, on_duckdb)
        except TooLarge:
            del self.queries[query_count:]  # only the engine that answers has run it
            return None

    def frame_of(self, relation: Relation) -> DataFrame:
        """Return the rows of a relation of this engine."""
        rows: _Rows = relation.rows
        if rows.frame is None:
            assert self._tables is not None  # noqa: S101 (DuckDB has the rows)
            assert rows.on_duckdb is not None  # noqa: S101
            table = self._tables.relation(_BOUND, {_BOUND: rows.on_duckdb})
            rows.frame = self._to_frame(table.cast(as_spark_reads(table.schema)))
        return rows.frame

    def _new_relation(self, rows: _Rows) -> Relation:
        relation = Relation(next(_numbers), rows)
        end = finalize(relation, self._unused.append, relation.number)
        end.atexit = False  # type: ignore[misc]
        return relation

    def table(self, table: str) -> DataFrame:
        """Return all rows of a catalog table, also those of backups that are not committed yet."""
        return self._table(f"{RAW}{table}")

    def register(self, relations: Iterable[str] | None = None) -> None:
        """Make the catalog's views temporary views of the session; None: all views. They show the small
        tables as they are at this call, not later rows."""
        self._prepare(shown_views() if relations is None else relations, NO_BINDINGS)

    def _table(self, step: str) -> DataFrame:
        reader = self._spark.read.format("delta")
        if not self._is_live(step):
            delta_table = self._open(step)
            if delta_table is None:
                return self._to_frame(ARROW_SCHEMAS[_table_of(step)].empty_table())
            reader = reader.option("versionAsOf", delta_table.version())
        with task_errors():
            rows = reader.load(f"{self._uri}/{_table_of(step)}")
        # The catalog may not have gone through the migration that adds a column.
        missing_columns = [column for column in columns(_table_of(step)) if column.name not in rows.columns]
        return rows.selectExpr(
            "*", *(f"CAST(NULL AS {SPARK_TYPES[c.type]}) AS {c.name}" for c in missing_columns)
        )

    def _is_live(self, step: str) -> bool:
        """Whether each query reads the newest version of a table."""
        return self._tables is None and (self._as_of is None or step.startswith(NOW_PREFIX))

    def _open(self, step: str) -> DeltaTable | None:
        if self._tables is not None:
            return self._tables.open(step)
        if not self._is_live(step):
            return open_then(f"{self._uri}/{_table_of(step)}", self._as_of)
        return open_then(f"{self._uri}/{_table_of(step)}", None, cached=self._remote and step.startswith(RAW))

    def _forget(self) -> None:
        self._frames.clear()
        self._inlined_versions.clear()
        self._inlined_rows.clear()

    def _prepare(self, relations: Iterable[str], bindings: Bindings) -> None:
        """Let each name that a statement reads, directly or through views, stand for its rows. Small tables
        have their present rows."""
        if self._any_changed():
            self._forget()
        while self._unused:
            number = self._unused.popleft()
            for key in [key for key in self._frames if number in {bound for _, bound in key[1]}]:
                del self._frames[key]
        needs = steps_for(relations, frozenset(bindings))
        if self._remote:
            raw_steps = {step for step in needs if step.startswith(RAW) and step not in bindings}
            missing = raw_steps - {step for step, _ in self._frames}
            for batch in (missing & {FIRST}, missing - {FIRST}):
                prefetch(f"{self._uri}/{_table_of(step)}" for step in batch)
                if FIRST in batch:
                    self._show(FIRST, NO_BINDINGS)
        for step in needs:
            self._show(step, bindings)

    def _show(self, step: str, bindings: Bindings) -> None:
        """Let a name stand for its rows in the session."""
        if step in bindings:
            number, rows = bindings[step].number, self.frame_of(bindings[step])
        else:
            key = step, environment(step, bindings)
            if key not in self._frames:
                self._frames[key] = next(_numbers), self._frame(step, bindings)
            number, rows = self._frames[key]
        visible = _visible_in_sessions.setdefault(self._spark, {})
        if visible.get(step) != number:
            rows.createOrReplaceTempView(step)
            visible[step] = number

    def _frame(self, step: str, bindings: Bindings) -> DataFrame:
        """Return the rows of a relation of the catalog, once those that it reads are shown."""
        name = step.removeprefix(NOW_PREFIX)
        if step == CLOCK and self._as_of is not None:
            return self._to_frame(clock_at(self._as_of // 1000))
        if name.startswith(RAW):
            small = self._small_table(step)
            return self._table(step) if small is None else small
        if name in MATERIALIZED_VIEWS and (table := self._computed_view(step, bindings)) is not None:
            return self._to_frame(table.cast(as_spark_reads(table.schema)))
        rows = self._spark.sql(view_text(step))
        if name in MATERIALIZED_VIEWS and self._tables is not None:
            # The tables that the view reads are pinned, so its rows do not change.
            with task_errors():
                return rows.localCheckpoint()
        return rows

    def _is_small(self, step: str) -> bool:
        """Whether all tables that a view reads are part of the plan, and it reads the present time."""
        reads = set(steps_for([step]))
        tables = {relation for relation in reads if RAW in relation}
        return tables <= set(self._inlined_versions) and (self._as_of is None or CLOCK not in reads)

    def _run_select(self, name: str, checked: Checked, bindings: Bindings = NO_BINDINGS) -> DataFrame:
        self.queries.append(RecordedQuery(self.name, name, checked.spark, {}))
        self._prepare(checked.relations, bindings)
        return run_checked(self._spark, checked)

    def _to_frame(self, rows: pa.Table) -> DataFrame:
        # Spark Connect does not take the column types from a table that has no rows.
        return self._spark.createDataFrame(rows, from_arrow_schema(rows.schema))

    def _small_table(self, step: str) -> DataFrame | None:
        """Return the rows of a small table, which become part of the plan; None when there are many. Delta
        needs longer to plan a scan than to read so few rows."""
        uri = f"{self._uri}/{_table_of(step)}"
        delta_table = self._open(step)
        if delta_table is None:
            return self._to_frame(ARROW_SCHEMAS[_table_of(step)].empty_table())
        files = delta_table.get_add_actions(flatten=True)
        counts = files.column("num_records").to_pylist() if "num_records" in files.schema.names else [None]
        if None in counts or sum(counts) > _FEW_ROWS:
            return None
        rows = rows_of(uri, delta_table).cast(ARROW_SCHEMAS[_table_of(step)])
        self._inlined_versions[step] = delta_table.version() if self._is_live(step) else None
        self._inlined_rows[step] = rows
        return self._to_frame(rows)

    def _computed_view(self, step: str, bindings: Bindings) -> pa.Table | None:
        """Return the rows of a view that many views read, computed by DuckDB: Spark would compute it again at
        each use. None: it reads many rows, or rows that DuckDB has not."""
        if self._tables is not None:
            return self._on_duckdb(
                [step], bindings, lambda tables, bound: tables.relation(step, bound, most_rows=_VIEW_ROWS)
            )
        if environment(step, bindings) or not self._is_small(step):
            return None
        engine = DuckEngine(self._uri)
        # DuckDB reads the same versions as this engine.
        tables = set(steps_for([step])) & set(self._inlined_rows)
        return engine.relation(step, {table: engine.keep_rows(self._inlined_rows[table]) for table in tables})

    def _any_changed(self) -> bool:
        """Whether a table that is part of the plan has a newer version. In object storage that takes a
        request per table; they are sent in parallel."""
        live = {step: version for step, version in self._inlined_versions.items() if version is not None}
        uris = [f"{self._uri}/{_table_of(step)}" for step in live]
        if not self._remote:
            newest = map(newest_version, uris)
            return any(new != old for new, old in zip(newest, live.values(), strict=True))
        if not uris:
            return False
        with ThreadPoolExecutor(len(uris)) as pool:
            return list(pool.map(newest_version, uris)) != list(live.values())

    def _run(
        self, name: str, text: str, parameters: dict[str, Any], bindings: Bindings = NO_BINDINGS
    ) -> DataFrame:
        self.queries.append(RecordedQuery(self.name, name, text, parameters))
        self._prepare(relations_in(text), bindings)
        return self._spark.sql(*in_lists(text, parameters))


def as_spark_reads(schema: pa.Schema) -> pa.Schema:
    """Return a schema of DuckDB's rows with UTC as the zone of times: without a zone, Spark reads another
    type."""
    instant = pa.timestamp("us", "UTC")
    return pa.schema(
        [field.with_type(instant) if pa.types.is_timestamp(field.type) else field for field in schema]
    )


def in_lists(text: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Replace the parameters that are lists (names separated by commas) by one parameter a name. Returns the
    statement, in which ARRAY_CONTAINS became IN, and its parameters.

    Delta's statistics skip files by `IN`, but not by ARRAY_CONTAINS; DuckDB skips files by both.
    """
    all_parameters = dict(parameters)

    def as_in_list(match: re.Match[str]) -> str:
        name, column = match.groups()
        if parameters.get(name) is None:
            return match[0]
        values = {f"{name}_{n}": value for n, value in enumerate(parameters[name].split(","))}
        all_parameters.update(values)
        return f"{column} IN ({', '.join(f':{value}' for value in values)})"

    return _LIST.sub(as_in_list, text), all_parameters


def run_checked(spark: SparkSession, checked: Checked) -> DataFrame:
    """Run a person's SELECT; returns its rows, or the lines of its plan if it is an EXPLAIN. Raises
    UsageProblem that shows the place which Spark rejects."""
    with select_errors(checked.select):
        rows = spark.sql(checked.text("spark"))
        return rows.selectExpr(r"explode(split(plan, '\n')) AS plan") if checked.explained else rows


def batches_of(frame: DataFrame) -> pa.RecordBatchReader:
    """Stream the rows of a statement of `sql/queries`. Tasks write them as messages of Arrow, so this process
    makes no object of Python for each row. Use `streamed` for a person's SELECT, which may return types that
    Arrow does not have."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    messages = frame.mapInArrow(as_messages, MESSAGES)

    def batches() -> Iterator[pa.RecordBatch]:
        with task_errors():
            for row in messages.toLocalIterator(prefetchPartitions=True):
                for batch in pa.ipc.open_stream(row["message"]):
                    yield batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def streamed(frame: DataFrame, select: str | None = None) -> pa.RecordBatchReader:
    """Stream the rows of a DataFrame in batches. `select`: the text of the person's SELECT that the DataFrame
    runs; its errors are raised as `select_errors` says."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    names = [f"c{number}" for number in range(len(schema))]  # several columns may have one name
    by_number = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    # PySpark would convert times with a zone to the time zone of this machine.
    without_zone = StructType.fromJson(
        json.loads(_TIMESTAMPS.sub(r'"\1":"timestamp_ntz"', frame.schema.json()))
    )
    columns = [
        sf.col(name).cast(field.dataType).alias(name)
        for name, field in zip(names, without_zone.fields, strict=True)
    ]

    def batches() -> Iterator[pa.RecordBatch]:
        with task_errors() if select is None else select_errors(select):
            rows = frame.toDF(*names).select(columns).toLocalIterator()
            while chunk := [row.asDict(recursive=True) for row in islice(rows, _BATCH_ROWS)]:
                batch = pa.RecordBatch.from_pylist(chunk, by_number)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _table_of(step: str) -> str:
    return step.removeprefix(NOW_PREFIX).removeprefix(RAW)
