"""Rows that a plan consists of, kept by the engine that chose them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebackup.sql_engine.failures import task_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakebackup.sql_engine import SqlEngine
    from lakebackup.store.reader import CatalogReader


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows that a statement chose, of which a plan consists: they stay those, whatever is planned later, and
    are read as often as needed, where the engine keeps them. Statements call them `relation`."""

    reader: CatalogReader
    engine: SqlEngine
    relation: str
    _kept: Any

    def query(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        """As `CatalogReader.query`, of a statement that reads these rows."""
        return self._shown().reader.query(name, **parameters)

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """As `CatalogReader.rows`, of a statement that reads these rows."""
        return self._shown().reader.rows(name, **parameters)

    def narrowed(self, name: str, **parameters: Any) -> Selection:
        """What a statement that reads these rows chooses of them."""
        return self._shown().reader.choose(self.relation, name, **parameters)

    def map(
        self,
        job: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        columns: str,
        name: str,
        *,
        spread: Callable[[DataFrame], DataFrame] | None = None,
        **parameters: Any,
    ) -> list[dict[str, Any]]:
        """What `job` returns, few rows of `columns`, for the rows of a statement that reads these rows.

        On DuckDB it runs here and takes them in the statement's order. On Spark it runs in tasks, the driver
        never has them: `spread` says how they are dealt to tasks and sorted there.
        """
        if self.engine.name == "duckdb":
            return [row for batch in job(self.query(name, **parameters)) for row in batch.to_pylist()]
        frame: DataFrame = self._shown().engine.query(name, **parameters)
        with task_errors():
            rows = (spread(frame) if spread else frame).mapInArrow(job, columns).collect()
        return [row.asDict() for row in rows]

    def _shown(self) -> Selection:
        self.engine.show(self.relation, self._kept)
        return self
