"""Backups made by hand, real files and real tables, without a broker and without Java."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
import pyarrow as pa
from deltalake import write_deltalake
from tests.support.catalogs import EPOCH, backup_id, made_backup, made_position, made_scope
from tests.support.made_up import declaration
from tests.support.rows import file_row

from lakebackup.rows.backups import DataFile
from lakebackup.rows.base import Row
from lakebackup.rows.tables import ARROW_SCHEMAS, TABLES, as_row, table_of
from lakebackup.rows.upkeep import Migration
from lakebackup.rules import layout
from lakebackup.sql_engine.delta.table import append
from lakebackup.storage import Storage, open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup_jobs.kafka.format.container import FileWriter
from lakebackup_jobs.kafka.format.key_filter import KeyFilters, hashes_of
from lakebackup_jobs.kafka.format.records import Block, Columns, FileStats, decode_block
from lakebackup_jobs.kafka.format.schemas import SCHEMA_V2, TIMESTAMP_TYPES
from lakebackup_sql import names

_AVRO = fastavro.parse_schema(json.loads(SCHEMA_V2))


@dataclass(frozen=True)
class Record:
    """A record of a partition of the test's topic."""

    partition: int
    offset: int
    ts: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class MadeBackups:
    """A destination and its catalog, to which backups are added one after another. A catalog that is there
    already is used."""

    def __init__(self, folder: Path, source: str = "prod") -> None:
        self.folder, self.source = folder, source
        self.storage = open_storage(str(folder))
        self.catalog = open_storage(f"{folder}/catalog")
        self.destination = destination_id(self.storage)
        made = (folder / "catalog").exists()
        for path, data in () if made else _empty_catalog().items():
            file = folder / "catalog" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        self.number = self._base = self._seq = 0
        self._rows: dict[str, list[Row]] = {}
        self._planner: CatalogReader | None = None

    def reader(self) -> CatalogReader:
        """The catalog with all that was added."""
        self.flush()
        return CatalogReader(str(self.folder))

    def planner(self) -> CatalogReader:
        """A catalog of the rows that are held, without tables: a plan asks the same, in half the time.

        The same one until rows are added.
        """
        if self._planner is None:
            self._planner = reader_of(self.folder, [row for rows in self._rows.values() for row in rows])
        return self._planner

    def flush(self) -> None:
        """Commit the rows that are held, a commit a table, those of `backups` last."""
        for table, rows in sorted(self._rows.items(), key=lambda held: held[0] == "backups"):
            append(self.catalog, table, rows, uuid4().hex)
        self._rows = {}

    def add(self, *rows: Row) -> None:
        """Hold rows of any tables until they are asked for."""
        self._planner = None
        for row in rows:
            self._rows.setdefault(table_of(type(row)), []).append(row)

    def change(self, table: str, change: Callable[[Any], Row]) -> None:
        """Change the rows of a table that are held."""
        self._planner = None
        self._rows[table] = [*map(change, self._rows[table])]

    def backup(
        self,
        files: Sequence[Sequence[Record]],
        *,
        full: bool = False,
        topic: str = "orders",
        low: Mapping[int, int] | None = None,
        end_ts: int | None = None,
        generation: int = 0,
        filters: bool = True,
        epoch: str = EPOCH,
        source: str | None = None,
    ) -> str:
        """One more backup: a file of each run of records of one partition. Its end_ts is 1000 a number."""
        source = source or self.source
        self.number += 1
        number, name = self.number, backup_id(self.number)
        if full or not self._base:
            self._base = number
        rows: list[DataFile] = []
        with KeyFilters(self.storage, source, name, 0) as kept:
            for records in files:
                row = self._file(records, number, topic, generation, kept, filters, epoch, source)
                rows.append(row)
            kept.commit()
        end_ts = 1000 * number if end_ts is None else end_ts
        known = {"source": source, "destination": self.destination}
        own = {"backup_id": name, "source": source, "scope": topic, "epoch": epoch}
        self.add(
            *rows,
            made_backup(number, rows, on=self._base, **known, end_ts=end_ts, finished_at=1000 * end_ts),
            made_scope(**own, regions=8, generation=generation),
        )
        for region in sorted({row.region for row in rows}):
            mine = [row for row in rows if row.region == region]
            start = (low or {}).get(int(region), min(row.start_position for row in mine))
            end = max(row.end_position for row in mine)
            self.add(made_position(start, end, **own, region=region, ts=end_ts))
        return name

    def _file(
        self,
        records: Sequence[Record],
        number: int,
        topic: str,
        generation: int,
        kept: KeyFilters,
        filters: bool,
        epoch: str,
        source: str,
    ) -> DataFile:
        path = layout.data_path(source, epoch, topic, records[0].partition, self._seq)
        found = put_data_file(self.storage, path, block_of(topic, records))
        self._seq += 1
        place = {"source": source, "scope": topic, "epoch": epoch, "region": str(records[0].partition)}
        own = {"destination": self.destination, "path": path, "codec": "zstandard", "generation": generation}
        return file_row(
            number, **place, **own, **found.columns(), **(kept.add(found.keys) if filters else {})
        )


@cache
def _empty_catalog() -> Mapping[str, bytes]:
    """The files of a catalog without rows and without CHECK constraints: path below its folder -> content."""
    with tempfile.TemporaryDirectory() as folder:
        for table in TABLES:
            ddl = declaration(table)
            counted = re.findall(r"'(delta.dataSkippingStatsColumns)' = '([^']*)'", ddl)
            write_deltalake(
                f"{folder}/{table}", ARROW_SCHEMAS[table].empty_table(), configuration=dict(counted)
            )
        done = [Migration(version=n, name=m, applied_at=0) for n, m in enumerate(names("migrations"), 1)]
        append(open_storage(folder), "migrations", done, "m")
        files = [file for file in Path(folder).rglob("*") if file.is_file()]
        return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def reader_of(folder: Path, rows: Iterable[Row]) -> CatalogReader:
    """A catalog of these rows, without tables."""
    reader = CatalogReader(str(folder))
    tables: dict[str, list[Row]] = {table: [] for table in TABLES}
    for row in rows:
        tables[table_of(type(row))].append(row)
    for table, some in tables.items():
        reader.give(f"raw_{table}", pa.Table.from_pylist([as_row(row) for row in some], ARROW_SCHEMAS[table]))
    return reader


def block_of(topic: str, records: Iterable[Record]) -> Columns:
    """Records as a block of a data file."""
    data, rows = io.BytesIO(), list(records)
    for record in rows:
        row = {
            "topic": topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.ts,
            "timestamp_type": TIMESTAMP_TYPES[1],
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
        }
        fastavro.schemaless_writer(data, _AVRO, row)
    return decode_block(data.getvalue(), len(rows))


def put_data_file(storage: Storage, path: str, columns: Columns, **metadata: Any) -> FileStats:
    """Put a data file of one block; its figures."""
    stats = columns.stats()
    with storage.writer() as sink:
        writer = FileWriter(sink, **metadata)
        writer.write_block(Block(columns.data, stats, hashes=hashes_of(columns)))
        found = writer.finish()
        sink.commit(path)
    return found
