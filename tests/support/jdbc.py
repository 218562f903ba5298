"""A client of JDBC: Hive's own driver, in the JVM that all tests share."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession


class Jdbc:
    """A connection to a Thrift server, a session of its own there."""

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
        """The rows of a statement, none where it gives none; times without a zone. Raises Py4JJavaError."""
        statement = self._connection.createStatement()
        try:
            if not statement.execute(sql):
                return []
            found = statement.getResultSet()
            about = found.getMetaData()
            places = range(1, about.getColumnCount() + 1)
            kinds = {about.getColumnLabel(at): (at, about.getColumnTypeName(at)) for at in places}
            rows = []
            while found.next():
                rows.append({name: _value(found, *kind) for name, kind in kinds.items()})
            return rows
        finally:
            statement.close()


def _value(found: Any, at: int, kind: str) -> Any:
    read = {"timestamp": datetime.fromisoformat, "date": date.fromisoformat}.get(kind.lower())
    if read is None:
        return found.getObject(at)
    text = found.getString(at)
    return None if text is None else read(text)
