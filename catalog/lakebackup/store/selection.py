"""Rows that a plan consists of. The engine that selected them holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebackup.sql_engine import SqlEngine
    from lakebackup.store.reader import ArrowJob, CatalogReader


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows that a statement selected for a plan.

    The engine holds them. They do not change, whatever is planned later, and can be read any number of times.
    Statements call them `relation`.
    """

    reader: CatalogReader
    _engine: SqlEngine
    relation: str
    _kept: Any

    def query(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        """Like `CatalogReader.query`, for a statement that reads these rows."""
        return self._reader_of_rows().query(name, **parameters)

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """Like `CatalogReader.rows`, for a statement that reads these rows."""
        return self._reader_of_rows().rows(name, **parameters)

    def choose(self, relation: str, name: str, **parameters: Any) -> Selection:
        """Like `CatalogReader.choose`, for a statement that reads these rows."""
        return self._reader_of_rows().choose(relation, name, **parameters)

    def narrowed(self, name: str, **parameters: Any) -> Selection:
        """Those of these rows that a statement selects, as a selection with the same name."""
        return self.choose(self.relation, name, **parameters)

    def map(self, job: ArrowJob, columns: str, name: str, **options: Any) -> list[dict[str, Any]]:
        """Like `CatalogReader.map`, for a statement that reads these rows."""
        return self._reader_of_rows().map(job, columns, name, **options)

    def _reader_of_rows(self) -> CatalogReader:
        """The reader, in which `relation` now names these rows."""
        self._engine.show(self.relation, self._kept)
        return self.reader
