"""Hash the rows of backups, to compare those of the catalog with those that are signed.

The rows of a table are hashed as a set for each backup, each row as the line of JSON that this version would
write: earlier ones wrote fewer columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from lakebackup.rows.backups import DataFile, Gap, Position, Scope
from lakebackup.rows.base import Row, pick
from lakebackup.rows.tables import TABLES, json_line
from lakebackup.rows.topics import Group
from lakebackup.signing.set_hash import SetHash
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.store.delta_append import LISTED_BY, ListedRows
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import FOLDED

#: The queries of the rows that a manifest has, and their kinds.
IN_MANIFESTS: Mapping[str, type[Row]] = {
    "signed_files": DataFile,
    "signed_positions": Position,
    "signed_scopes": Scope,
    "signed_gaps": Gap,
    "signed_groups": Group,
}
_COLUMNS = "backup_id STRING, sums BINARY"
_MOST_TASKS = 64


@dataclass(frozen=True, slots=True)
class HashRows:
    """For `CatalogReader.map`: hashes rows of a table. `id_column` has the id of their backup."""

    COLUMNS: ClassVar[str] = _COLUMNS

    kind: type[Row]
    id_column: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hashes: defaultdict[str, SetHash] = defaultdict(SetHash)
        for batch in batches:
            for row in batch.to_pylist():
                hashes[row[self.id_column]].add(json_line(pick(self.kind, row)).encode())
        for backup_id, rows_hash in hashes.items():
            yield pa.RecordBatch.from_pylist([{"backup_id": backup_id, "sums": rows_hash.sums}])


@dataclass(frozen=True, slots=True)
class HashListed(PerNumber):
    """Hashes the rows of a table that are listed beside backups.

    `parts`: the id of each backup, with the path of a part. A part is signed, and has the SHA-256 of each
    object that lists rows.
    """

    destination_uri: str
    table: str
    parts: tuple[tuple[str, str], ...]

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        backup_id, part = self.parts[number]
        batches = ListedRows(self.destination_uri, self.table, ((part,),)).rows(0)
        sums = of(pick(TABLES[self.table], row) for batch in batches for row in batch.to_pylist())
        yield pa.RecordBatch.from_pylist([{"backup_id": backup_id, "sums": sums}])


def listed_tables(source_kind: str) -> tuple[str, ...]:
    """The tables whose rows are listed beside the backups of a kind. Tables that are folded lose rows that
    are not needed any more, so they are left out."""
    return tuple(table for table in LISTED_BY.get(source_kind, ()) if table not in FOLDED)


def in_catalog(
    reader: CatalogReader, query: str, kind: type[Row], source: str, id_column: str = "backup_id"
) -> dict[str, bytes]:
    """The hash of the catalog's rows of each backup that counts, by the backup's id."""
    return _merged(reader.map(HashRows(kind, id_column), HashRows.COLUMNS, query, source=source))


def listed(
    reader: CatalogReader, table: str, parts: tuple[tuple[str, str], ...], source: str
) -> dict[str, bytes]:
    """The hash of the listed rows of each backup. Runs where the reader's statements run.

    Raises NotFound and Damaged: an object is gone or is not the one that its part names.
    """
    job = HashListed(reader.home.uri, table, parts)
    if reader.engine == "duckdb":
        return _merged(job.each(range(len(parts))))
    session = reader.frame(f"listed_{table}", source=source).sparkSession
    return _merged(job.reports(session, range(len(parts)), _COLUMNS, _MOST_TASKS))


def of(rows: Iterable[Row]) -> bytes:
    """The hash of some rows."""
    rows_hash = SetHash()
    for row in rows:
        rows_hash.add(json_line(row).encode())
    return rows_hash.sums


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """The hash of the rows of each backup, from the hashes of its parts."""
    hashes: defaultdict[str, SetHash] = defaultdict(SetHash)
    for part in parts:
        hashes[part["backup_id"]].merge(bytes(part["sums"]))
    return {backup_id: rows_hash.sums for backup_id, rows_hash in hashes.items()}
