"""The catalog's SQL on Spark, by the DataFrame API alone, so that Spark Connect serves too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebackup.engine import RAW, steps
from lakebackup_sql import load

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class SparkEngine:
    """Queries over the Delta tables in the folder `catalog_uri`.

    The views are temporary views of the session under their own names: one catalog at a time in a session.
    """

    def __init__(self, spark: SparkSession, catalog_uri: str) -> None:
        self._spark = spark
        self._uri = catalog_uri.rstrip("/")
        self._registered: set[str] = set()

    def query(self, name: str, **parameters: Any) -> DataFrame:
        """The rows of a statement of `sql/queries`; read them when they are asked for, not before."""
        return self._run(load("queries", name), parameters)

    def define(self, relation: str, text: str, **parameters: Any) -> None:
        """Give the rows of a SELECT a name that later queries can use."""
        self._run(text, parameters).createOrReplaceTempView(relation)

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of a statement that gives few, column name -> value."""
        return [row.asDict() for row in self.query(name, **parameters).collect()]

    def give(self, relation: str, rows: pa.Table) -> None:
        """Give rows that come from elsewhere a name that later queries can use."""
        self._spark.createDataFrame(rows).createOrReplaceTempView(relation)

    def change(self, name: str, **parameters: Any) -> None:
        """Run a statement of `sql/changes`. The caller holds the catalog's lease."""
        self._run(load("changes", name), parameters)

    def table(self, table: str) -> DataFrame:
        """A whole catalog table, uncommitted rows included."""
        return self._spark.read.format("delta").load(f"{self._uri}/{table}")

    def _run(self, text: str, parameters: dict[str, Any]) -> DataFrame:
        for step in steps(text):
            if step not in self._registered:
                rows = (
                    self.table(step.removeprefix(RAW))
                    if step.startswith(RAW)
                    else self._spark.sql(load("views", step))
                )
                rows.createOrReplaceTempView(step)
                self._registered.add(step)
        return self._spark.sql(text, args=parameters)
