"""Rows that a plan consists of, kept by the engine that chose them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebackup.sql_engine import SqlEngine
    from lakebackup.store.reader import ArrowJob, CatalogReader


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows that a statement chose, of which a plan consists: they stay those, whatever is planned later, and
    are read as often as needed, where the engine keeps them. Statements call them `relation`."""

    reader: CatalogReader
    _engine: SqlEngine
    relation: str
    _kept: Any

    def query(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        """As `CatalogReader.query`, of a statement that reads these rows."""
        return self._shown().query(name, **parameters)

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """As `CatalogReader.rows`, of a statement that reads these rows."""
        return self._shown().rows(name, **parameters)

    def choose(self, relation: str, name: str, **parameters: Any) -> Selection:
        """As `CatalogReader.choose`, of a statement that reads these rows."""
        return self._shown().choose(relation, name, **parameters)

    def narrowed(self, name: str, **parameters: Any) -> Selection:
        """What a statement that reads these rows chooses of them."""
        return self.choose(self.relation, name, **parameters)

    def map(self, job: ArrowJob, columns: str, name: str, **more: Any) -> list[dict[str, Any]]:
        """As `CatalogReader.map`, of a statement that reads these rows."""
        return self._shown().map(job, columns, name, **more)

    def _shown(self) -> CatalogReader:
        self._engine.show(self.relation, self._kept)
        return self.reader
