"""The catalog's SQL on Spark. It uses the DataFrame API only, so that Spark Connect works too.

Small tables become part of a query's plan, because Delta needs longer to plan a scan of one than to read it.
Views that several others read are computed by DuckDB while all that they read is small.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakebackup.rows.tables import ARROW_SCHEMAS, SPARK_TYPES, columns
from lakebackup.sql_engine import (
    CLOCK,
    FIRST,
    KEPT,
    NOW,
    RAW,
    Asked,
    SqlEngine,
    clock_at,
    new_record,
    shown_views,
    steps,
    steps_for,
    view_text,
)
from lakebackup.sql_engine.delta.as_of import open_then, require_then
from lakebackup.sql_engine.delta.log import folder_of, prefetch
from lakebackup.sql_engine.delta.table import newest_version
from lakebackup.sql_engine.failures import select_errors, task_errors
from lakebackup.sql_engine.limits import Limits
from lakebackup_sql import load, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.sql_engine import EngineName
    from lakebackup.sql_engine.guard.check import Checked


# The most rows of a table that becomes part of the plan.
_FEW_ROWS = 10_000
_BATCH_ROWS = 10_000
# The type TIMESTAMP in a schema as JSON.
_TIMESTAMPS = re.compile(r'"((?:t|elementT|keyT|valueT)ype)":"timestamp"')
_LIST = re.compile(r"ARRAY_CONTAINS\(SPLIT\(:(\w+), ','\), ([\w.]+)\)")


class SparkEngine(SqlEngine):
    """Queries over the Delta tables in the folder `catalog_uri`, as they are now, or as they were at the
    instant `as_of` (us since 1970). With `as_of`, `now_<relation>` is a relation as it is now. `opened` opens
    the table of a step; with it, tables stay at the versions that it opens.

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
        opened: Callable[[str], DeltaTable | None] | None = None,
    ) -> None:
        self._spark, self._open_pinned = spark, opened
        self._uri = catalog_uri.rstrip("/")
        self._remote = folder_of(self._uri) is None
        self._as_of = as_of
        if as_of is not None:
            require_then(self._uri, as_of)
        self._registered: set[str] = set()
        self._replaced: dict[str, DataFrame] = {}
        self._narrowed: set[str] = set()  # views that `define` replaced by some of their own rows
        # The tables that are part of plans: their versions (None: pinned) and rows.
        self._inlined_versions: dict[str, int | None] = {}
        self._inlined_rows: dict[str, pa.Table] = {}
        self.asked = new_record()
        if as_of is not None:
            self.give(CLOCK, clock_at(as_of // 1000))

    def query(self, name: str, **parameters: Any) -> DataFrame:
        """Run a statement of `sql/queries`; Spark reads the rows when the DataFrame is used, not before."""
        return self._run(name, load("queries", name), parameters)

    def batches(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        return streamed(self.query(name, **parameters))

    def select(self, sql: str) -> DataFrame:
        """Run a person's SELECT over the views. Raises UsageProblem when the SQL is anything else."""
        from lakebackup.sql_engine.duck import view_columns
        from lakebackup.sql_engine.guard.check import check_select

        return self._run_select("select", check_select(sql, view_columns(now=self._as_of is not None)))

    def define(self, relation: str, text: str, **parameters: Any) -> None:
        if relation not in names("views"):
            self._bind(relation, self._run(relation, text, parameters))
            return
        # The SELECT may read the view that it replaces. Nothing else needs the view's other rows.
        self._narrowed.add(relation)
        self._bind(relation, self._run(relation, text, parameters).localCheckpoint())

    def put_back(self, relation: str) -> None:
        del self._replaced[relation]
        self._narrowed.discard(relation)
        self._unregister(relation)

    def define_checked(self, relation: str, checked: Checked) -> None:
        with Limits(self._spark.interruptAll, memory=False).running(), select_errors(checked.given):
            checked.selected("spark")
            self._bind(relation, self._run_select(relation, checked).localCheckpoint())

    def keep(self, relation: str, text: str, **parameters: Any) -> DataFrame:
        """Compute the rows of a SELECT once, in Spark's own storage; `show` names them."""
        with task_errors():
            return self._run(relation, text, parameters).localCheckpoint()

    def show(self, relation: str, kept: DataFrame) -> None:
        kept.createOrReplaceTempView(relation)

    def columns(self, relation: str) -> list[str]:
        return self._spark.table(relation).columns

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        with task_errors():
            return [row.asDict() for row in self.query(name, **parameters).collect()]

    def give(self, relation: str, rows: pa.Table) -> None:
        self._bind(relation, self._to_frame(rows))

    def replace(self, relation: str, rows: DataFrame) -> None:
        """Replace a relation of the catalog with other rows."""
        self._replaced[relation] = rows
        self._unregister(relation)

    def _unregister(self, relation: str) -> None:
        """Forget a relation that has changed, and the views that read it."""
        self._registered = {step for step in self._registered if relation not in (step, *steps_for([step]))}

    def table(self, table: str) -> DataFrame:
        """Return all rows of a catalog table, also those of backups that are not committed yet."""
        return self._table(f"{RAW}{table}")

    def register(self, relations: Iterable[str] | None = None) -> None:
        """Make the catalog's views temporary views of the session; None: all views. They show the small
        tables as they are at this call, not later rows."""
        self._prepare(steps_for(shown_views() if relations is None else relations))

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
        return self._open_pinned is None and (self._as_of is None or step.startswith(NOW))

    def _open(self, step: str) -> DeltaTable | None:
        if self._open_pinned is not None:
            return self._open_pinned(step)
        if not self._is_live(step):
            return open_then(f"{self._uri}/{_table_of(step)}", self._as_of)
        return open_then(f"{self._uri}/{_table_of(step)}", None, known=self._remote and step.startswith(RAW))

    def _forget(self) -> None:
        self._registered.clear()
        self._inlined_versions.clear()
        self._inlined_rows.clear()

    def _prepare(self, needs: Sequence[str]) -> None:
        """Register the relations that a statement reads, small tables with their present rows."""
        if self._any_changed():
            self._forget()
        if self._remote:
            missing = {step for step in needs if step.startswith(RAW)} - self._registered
            for batch in (missing & {FIRST}, missing - {FIRST}):
                prefetch(f"{self._uri}/{_table_of(step)}" for step in batch)
                if FIRST in batch:
                    self._register(FIRST)
        for step in needs:
            self._register(step)

    def _register(self, step: str) -> None:
        if step in self._registered:
            return
        name = step.removeprefix(NOW)
        if step in self._replaced:
            rows = self._replaced[step]
        elif name.startswith(RAW):
            small = self._small_table(step)
            rows = self._table(step) if small is None else small
        elif name in KEPT and self._is_small(step):
            rows = self._computed_view(step)
        elif name in KEPT and self._open_pinned is not None and step not in self._narrowed:
            # The tables that the view reads are pinned, so its rows do not change.
            with task_errors():
                rows = self._spark.sql(view_text(step)).localCheckpoint()
        else:
            rows = self._spark.sql(view_text(step))
        rows.createOrReplaceTempView(step)
        self._registered.add(step)

    def _is_small(self, step: str) -> bool:
        """Whether all tables that a view reads are part of the plan, and none of its relations was
        replaced."""
        reads = set(steps_for([step]))
        tables = {relation for relation in reads if RAW in relation}
        return tables <= set(self._inlined_versions) and not reads & set(self._replaced)

    def _bind(self, relation: str, rows: DataFrame) -> None:
        if relation.startswith(RAW) or relation in names("views"):
            self.replace(relation, rows)
        else:
            rows.createOrReplaceTempView(relation)

    def _run_select(self, name: str, checked: Checked) -> DataFrame:
        self.asked.append(Asked(self.name, name, checked.spark, {}))
        self._prepare(steps_for(checked.relations))
        return run_checked(self._spark, checked)

    def _to_frame(self, rows: pa.Table) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        # Spark Connect does not take the column types from a table that has no rows.
        return self._spark.createDataFrame(rows, from_arrow_schema(rows.schema))

    def _small_table(self, step: str) -> DataFrame | None:
        """Return the rows of a small table, which become part of the plan; None when there are many. Delta
        needs longer to plan a scan than to read so few rows."""
        from lakebackup.sql_engine.delta.dataset import rows_of

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

    def _computed_view(self, step: str) -> DataFrame:
        """Return the rows of a view that many views read, computed by DuckDB: Spark would compute it again at
        each use."""
        from lakebackup.sql_engine.duck import DuckEngine

        engine = DuckEngine(self._uri)
        # DuckDB reads the same versions as this engine.
        for table_step in set(steps_for([step])) & set(self._inlined_rows):
            engine.give(table_step, self._inlined_rows[table_step])
        rows = engine.relation(step)
        return self._to_frame(rows.cast(as_spark_reads(rows.schema)))

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

    def _run(self, name: str, text: str, parameters: dict[str, Any]) -> DataFrame:
        self.asked.append(Asked(self.name, name, text, parameters))
        self._prepare(steps(text))
        return self._spark.sql(*in_lists(text, parameters))


def as_spark_reads(schema: pa.Schema) -> pa.Schema:
    """Return a schema of DuckDB's rows with UTC as the zone of times: without a zone, Spark reads another
    type."""
    import pyarrow as pa

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
    with select_errors(checked.given):
        rows = spark.sql(checked.text("spark"))
        return rows.selectExpr(r"explode(split(plan, '\n')) AS plan") if checked.explained else rows


def streamed(frame: DataFrame, given: str | None = None) -> pa.RecordBatchReader:
    """Stream the rows of a DataFrame in batches. `given`: the text of the person's SELECT that the DataFrame
    runs; its errors are raised as `select_errors` says."""
    import pyarrow as pa
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = to_arrow_schema(frame.schema)
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
        with task_errors() if given is None else select_errors(given):
            rows = frame.toDF(*names).select(columns).toLocalIterator()
            while chunk := [row.asDict(recursive=True) for row in islice(rows, _BATCH_ROWS)]:
                batch = pa.RecordBatch.from_pylist(chunk, by_number)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _table_of(step: str) -> str:
    return step.removeprefix(NOW).removeprefix(RAW)
