"""The catalog's SQL on Spark, by the DataFrame API alone, so that Spark Connect serves too."""

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


# A table that is part of the plan has no more rows.
_FEW_ROWS = 10_000
_ROWS_AT_ONCE = 10_000
# In a schema as JSON.
_TIMESTAMPS = re.compile(r'"((?:t|elementT|keyT|valueT)ype)":"timestamp"')
_LIST = re.compile(r"ARRAY_CONTAINS\(SPLIT\(:(\w+), ','\), ([\w.]+)\)")


class SparkEngine(SqlEngine):
    """Queries over the Delta tables in the folder `catalog_uri`, as they are, or at the instant `as_of` (us
    since 1970); then `now_<relation>` is what a relation is now. `opened`: how to open the table of a step,
    for those that are to stay as they were when they were opened first.

    The views are temporary views of the session under their own names: one catalog at a time in a session.
    Raises NotFound when there was no catalog at `as_of`.
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
        self._spark, self._opened = spark, opened
        self._uri = catalog_uri.rstrip("/")
        self._remote = folder_of(self._uri) is None
        self._as_of = as_of
        if as_of is not None:
            require_then(self._uri, as_of)
        self._registered: set[str] = set()
        self._replaced: dict[str, DataFrame] = {}
        self._narrowed: set[str] = set()  # views in whose place a few of their rows are defined
        self._inlined: dict[str, int | None] = {}
        self._rows: dict[str, pa.Table] = {}  # of those
        self.asked = new_record()
        if as_of is not None:
            self.give(CLOCK, clock_at(as_of // 1000))

    def query(self, name: str, **parameters: Any) -> DataFrame:
        """The rows of a statement of `sql/queries`; read them when they are asked for, not before."""
        return self._run(name, load("queries", name), parameters)

    def batches(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        return streamed(self.query(name, **parameters))

    def select(self, sql: str) -> DataFrame:
        """The rows of a person's SELECT over the views. Raises UsageProblem when it is not just that."""
        from lakebackup.sql_engine.duck import view_columns
        from lakebackup.sql_engine.guard.check import check_select

        return self._checked("select", check_select(sql, view_columns(now=self._as_of is not None)))

    def define(self, relation: str, text: str, **parameters: Any) -> None:
        if relation not in names("views"):
            self._name(relation, self._run(relation, text, parameters))
            return
        # It may read the view that it takes the place of, of which nobody else needs the other rows.
        self._narrowed.add(relation)
        self._name(relation, self._run(relation, text, parameters).localCheckpoint())

    def put_back(self, relation: str) -> None:
        del self._replaced[relation]
        self._narrowed.discard(relation)
        self._unregister(relation)

    def define_checked(self, relation: str, checked: Checked) -> None:
        with Limits(self._spark.interruptAll, memory=False).running(), select_errors(checked.given):
            checked.selected("spark")
            self._name(relation, self._checked(relation, checked).localCheckpoint())

    def keep(self, relation: str, text: str, **parameters: Any) -> DataFrame:
        """Compute the rows of a SELECT once, in Spark's own storage; `show` gives them a name."""
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
        self._name(relation, self._given(rows))

    def replace(self, relation: str, rows: DataFrame) -> None:
        """Give rows the name of a relation of the catalog, in its place."""
        self._replaced[relation] = rows
        self._unregister(relation)

    def _unregister(self, relation: str) -> None:
        """A relation, and what reads it, is another one now."""
        self._registered = {step for step in self._registered if relation not in (step, *steps_for([step]))}

    def table(self, table: str) -> DataFrame:
        """A whole catalog table, uncommitted rows included."""
        return self._table(f"{RAW}{table}")

    def register(self, relations: Iterable[str] | None = None) -> None:
        """Make views of the catalog (all of them unless named) temporary views of the session: the catalog as
        it is now, as far as its tables are small."""
        self._prepare(steps_for(shown_views() if relations is None else relations))

    def _table(self, step: str) -> DataFrame:
        reader = self._spark.read.format("delta")
        if not self._is_live(step):
            opened = self._open(step)
            if opened is None:
                return self._given(ARROW_SCHEMAS[_table_of(step)].empty_table())
            reader = reader.option("versionAsOf", opened.version())
        with task_errors():
            rows = reader.load(f"{self._uri}/{_table_of(step)}")
        # As it is before the migration that adds a column.
        lacking = [column for column in columns(_table_of(step)) if column.name not in rows.columns]
        return rows.selectExpr("*", *(f"CAST(NULL AS {SPARK_TYPES[c.type]}) AS {c.name}" for c in lacking))

    def _is_live(self, step: str) -> bool:
        """Whether a table is read as it is whenever something is asked."""
        return self._opened is None and (self._as_of is None or step.startswith(NOW))

    def _open(self, step: str) -> DeltaTable | None:
        if self._opened is not None:
            return self._opened(step)
        if not self._is_live(step):
            return open_then(f"{self._uri}/{_table_of(step)}", self._as_of)
        return open_then(f"{self._uri}/{_table_of(step)}", None, known=self._remote and step.startswith(RAW))

    def _forget(self) -> None:
        self._registered.clear()
        self._inlined.clear()
        self._rows.clear()

    def _prepare(self, needs: Sequence[str]) -> None:
        """Register what a statement reads, with its small tables in the plan as they are now."""
        if self._any_changed():
            self._forget()
        if self._remote:
            missing = {step for step in needs if step.startswith(RAW)} - self._registered
            for together in (missing & {FIRST}, missing - {FIRST}):
                prefetch(f"{self._uri}/{_table_of(step)}" for step in together)
                if FIRST in together:
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
            few = self._few(step)
            rows = self._table(step) if few is None else few
        elif name in KEPT and self._is_small(step):
            rows = self._kept(step)
        elif name in KEPT and self._opened is not None and step not in self._narrowed:
            # Nothing that it reads changes.
            with task_errors():
                rows = self._spark.sql(view_text(step)).localCheckpoint()
        else:
            rows = self._spark.sql(view_text(step))
        rows.createOrReplaceTempView(step)
        self._registered.add(step)

    def _is_small(self, step: str) -> bool:
        """Whether all that a view reads is part of the plan, and the catalog's own."""
        reads = set(steps_for([step]))
        tables = {read for read in reads if RAW in read}
        return tables <= set(self._inlined) and not reads & set(self._replaced)

    def _name(self, relation: str, rows: DataFrame) -> None:
        if relation.startswith(RAW) or relation in names("views"):
            self.replace(relation, rows)
        else:
            rows.createOrReplaceTempView(relation)

    def _checked(self, name: str, checked: Checked) -> DataFrame:
        self.asked.append(Asked(self.name, name, checked.spark, {}))
        self._prepare(steps_for(checked.relations))
        return run_checked(self._spark, checked)

    def _given(self, rows: pa.Table) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        # Spark Connect does not take the types of a table without rows from it.
        return self._spark.createDataFrame(rows, from_arrow_schema(rows.schema))

    def _few(self, step: str) -> DataFrame | None:
        """The rows of a small table, to be part of the plan: Delta takes longer to plan one scan than reading
        them takes. None when they are many."""
        from lakebackup.sql_engine.delta.dataset import rows_of

        uri = f"{self._uri}/{_table_of(step)}"
        opened = self._open(step)
        if opened is None:
            return self._given(ARROW_SCHEMAS[_table_of(step)].empty_table())
        files = opened.get_add_actions(flatten=True)
        counts = files.column("num_records").to_pylist() if "num_records" in files.schema.names else [None]
        if None in counts or sum(counts) > _FEW_ROWS:
            return None
        rows = rows_of(uri, opened).cast(ARROW_SCHEMAS[_table_of(step)])
        self._inlined[step] = opened.version() if self._is_live(step) else None
        self._rows[step] = rows
        return self._given(rows)

    def _kept(self, step: str) -> DataFrame:
        """A view that many depend on, computed by DuckDB: Spark would do it again wherever it is named."""
        from lakebackup.sql_engine.duck import DuckEngine

        engine = DuckEngine(self._uri)
        for raw in set(steps_for([step])) & set(self._rows):  # of the same versions as all else here
            engine.give(raw, self._rows[raw])
        rows = engine.relation(step)
        return self._given(rows.cast(as_spark_reads(rows.schema)))

    def _any_changed(self) -> bool:
        """Whether a table that is part of the plan has a newer version; in object storage each is a request,
        made side by side."""
        live = {step: version for step, version in self._inlined.items() if version is not None}
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
    """The schema of DuckDB's rows, its times in UTC: without a zone Spark reads them as another type."""
    import pyarrow as pa

    instant = pa.timestamp("us", "UTC")
    return pa.schema(
        [field.with_type(instant) if pa.types.is_timestamp(field.type) else field for field in schema]
    )


def in_lists(text: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A statement whose lists in one parameter (names separated by commas) are lists of parameters: Delta's
    statistics choose files by `IN`, as DuckDB does by either, and not by ARRAY_CONTAINS."""
    given = dict(parameters)

    def listed(found: re.Match[str]) -> str:
        name, column = found.groups()
        if parameters.get(name) is None:
            return found[0]
        values = {f"{name}_{n}": value for n, value in enumerate(parameters[name].split(","))}
        given.update(values)
        return f"{column} IN ({', '.join(f':{value}' for value in values)})"

    return _LIST.sub(listed, text), given


def run_checked(spark: SparkSession, checked: Checked) -> DataFrame:
    """The rows of a person's SELECT, or the lines of its plan. Raises UsageProblem, with the place in it that
    Spark does not take."""
    with select_errors(checked.given):
        rows = spark.sql(checked.text("spark"))
        return rows.selectExpr(r"explode(split(plan, '\n')) AS plan") if checked.explained else rows


def streamed(frame: DataFrame, given: str | None = None) -> pa.RecordBatchReader:
    """The rows of a DataFrame, some at a time. `given`: the person's SELECT whose rows they are, see
    `select_errors`."""
    import pyarrow as pa
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = to_arrow_schema(frame.schema)
    names = [f"c{number}" for number in range(len(schema))]  # several columns may have one name
    by_number = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    # PySpark would make times of this machine's zone of them.
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
            while some := [row.asDict(recursive=True) for row in islice(rows, _ROWS_AT_ONCE)]:
                batch = pa.RecordBatch.from_pylist(some, by_number)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _table_of(step: str) -> str:
    return step.removeprefix(NOW).removeprefix(RAW)
