"""A JDBC client: Hive's driver, in the JVM that all tests share."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession


class Jdbc:
    """A connection to a Thrift server, with its own session."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        java: Any = spark._jvm
        java.java.lang.Class.forName("org.apache.hive.jdbc.HiveDriver")
        self._connection = java.java.sql.DriverManager.getConnection(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a statement, empty if it returns none; times have no zone. Raises Py4JJavaError."""
        statement = self._connection.createStatement()
        try:
            if not statement.execute(sql):
                return []
            result_set = statement.getResultSet()
            metadata = result_set.getMetaData()
            columns = range(1, metadata.getColumnCount() + 1)
            typed_columns = {
                metadata.getColumnLabel(column): (column, metadata.getColumnTypeName(column))
                for column in columns
            }
            rows = []
            while result_set.next():
                rows.append(
                    {
                        name: _value(result_set, *column_and_type)
                        for name, column_and_type in typed_columns.items()
                    }
                )
            return rows
        finally:
            statement.close()


def _value(result_set: Any, column: int, kind: str) -> Any:
    parse = {"timestamp": datetime.fromisoformat, "date": date.fromisoformat}.get(kind.lower())
    if parse is None:
        return result_set.getObject(column)
    text = result_set.getString(column)
    return None if text is None else parse(text)
