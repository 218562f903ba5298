"""The catalog's SQL on Spark, by the DataFrame API alone, so that Spark Connect serves too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebackup.engine import KEPT, NOW, RAW, Asked, new_record, steps, steps_for, view_text
from lakebackup.engine.delta import open_then, require_then
from lakebackup.engine.failures import task_errors
from lakebackup.model import ARROW_SCHEMAS
from lakebackup_sql import load, names

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class SparkEngine:
    """Queries over the Delta tables in the folder `catalog_uri`, as they are, or at the instant `as_of` (us
    since 1970); then `now_<relation>` is what a relation is now.

    The views are temporary views of the session under their own names: one catalog at a time in a session.
    Raises NotFound when there was no catalog at `as_of`.
    """

    def __init__(self, spark: SparkSession, catalog_uri: str, *, as_of: int | None = None) -> None:
        self._spark = spark
        self._uri = catalog_uri.rstrip("/")
        self._as_of = as_of
        if as_of is not None:
            require_then(self._uri, as_of)
        self._registered: set[str] = set()
        self.asked = new_record()

    def query(self, name: str, **parameters: Any) -> DataFrame:
        """The rows of a statement of `sql/queries`; read them when they are asked for, not before."""
        return self._run(name, load("queries", name), parameters)

    def select(self, sql: str) -> DataFrame:
        """The rows of a person's SELECT over the views. Raises UsageProblem when it is not just that."""
        from lakebackup.engine.duck import view_columns
        from lakebackup.guard import check_select

        checked = check_select(sql, view_columns(now=self._as_of is not None))
        self.asked.append(Asked("select", checked.spark, {}))
        self.register(checked.relations)
        return self._spark.sql(checked.spark)

    def define(self, relation: str, text: str, **parameters: Any) -> None:
        """Give the rows of a SELECT a name that later queries can use."""
        self._run(relation, text, parameters).createOrReplaceTempView(relation)

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of a statement that gives few, column name -> value."""
        with task_errors():
            return [row.asDict() for row in self.query(name, **parameters).collect()]

    def give(self, relation: str, rows: pa.Table) -> None:
        """Give rows that come from elsewhere a name that later queries can use."""
        self._spark.createDataFrame(rows).createOrReplaceTempView(relation)

    def change(self, name: str, **parameters: Any) -> None:
        """Run a statement of `sql/changes`. The caller holds the catalog's lease."""
        self._run(name, load("changes", name), parameters)

    def table(self, table: str) -> DataFrame:
        """A whole catalog table, uncommitted rows included."""
        return self._table(table, self._as_of)

    def register(self, relations: Iterable[str] | None = None) -> None:
        """Make views of the catalog (all of them unless named) temporary views of the session."""
        for step in steps_for(names("views") if relations is None else relations):
            self._register(step)

    def _table(self, table: str, as_of: int | None) -> DataFrame:
        uri = f"{self._uri}/{table}"
        reader = self._spark.read.format("delta")
        if as_of is not None:
            opened = open_then(uri, as_of)
            if opened is None:
                return self._spark.createDataFrame(ARROW_SCHEMAS[table].empty_table())
            reader = reader.option("versionAsOf", opened.version())
        with task_errors():
            return reader.load(uri)

    def _register(self, step: str) -> None:
        if step in self._registered:
            return
        name = step.removeprefix(NOW)
        if name.startswith(RAW):
            rows = self._table(name.removeprefix(RAW), None if step != name else self._as_of)
        elif name in KEPT and self._uri:
            rows = self._kept(step)
        else:
            rows = self._spark.sql(view_text(step))
        rows.createOrReplaceTempView(step)
        self._registered.add(step)

    def _kept(self, step: str) -> DataFrame:
        """A small view that others stand on, by DuckDB: Spark would plan it anew wherever it is named."""
        from lakebackup.engine.duck import DuckEngine

        beside = DuckEngine(self._uri, as_of=self._as_of)
        found = beside.relation(step)
        return self._spark.createDataFrame(found)

    def _run(self, name: str, text: str, parameters: dict[str, Any]) -> DataFrame:
        self.asked.append(Asked(name, text, parameters))
        for step in steps(text):
            self._register(step)
        return self._spark.sql(text, args=parameters)
