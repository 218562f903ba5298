"""Backups made by hand: real files and real tables, without a broker and without Java."""

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
    """A destination and its catalog, to which backups are added one after another. An existing catalog is
    used."""

    def __init__(self, folder: Path, source: str = "prod") -> None:
        self.folder, self.source = folder, source
        self.storage = open_storage(str(folder))
        self.catalog = open_storage(f"{folder}/catalog")
        self.destination = destination_id(self.storage)
        exists = (folder / "catalog").exists()
        for path, data in () if exists else _empty_catalog().items():
            file = folder / "catalog" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        self.number = self._base = self._seq = 0
        self._rows: dict[str, list[Row]] = {}
        self._planner: CatalogReader | None = None

    def reader(self) -> CatalogReader:
        """A new reader of the catalog, after a flush."""
        self.flush()
        return CatalogReader(str(self.folder))

    def planner(self) -> CatalogReader:
        """A reader of the rows that are not committed yet, without tables: a plan's queries take half the
        time.

        The same reader is returned until rows are added.
        """
        if self._planner is None:
            self._planner = reader_of(self.folder, [row for rows in self._rows.values() for row in rows])
        return self._planner

    def flush(self) -> None:
        """Commit the pending rows, a commit a table, those of `backups` last."""
        for table, rows in sorted(
            self._rows.items(), key=lambda table_and_rows: table_and_rows[0] == "backups"
        ):
            append(self.catalog, table, rows, uuid4().hex)
        self._rows = {}

    def add(self, *rows: Row) -> None:
        """Add rows of any tables; `flush` commits them."""
        self._planner = None
        for row in rows:
            self._rows.setdefault(table_of(type(row)), []).append(row)

    def change(self, table: str, change: Callable[[Any], Row]) -> None:
        """Change the pending rows of a table."""
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
        """Add a backup with a file for each sequence of records of one partition. Its end_ts is 1000 *
        number."""
        source = source or self.source
        self.number += 1
        number, name = self.number, backup_id(self.number)
        if full or not self._base:
            self._base = number
        rows: list[DataFile] = []
        with KeyFilters(self.storage, source, name, 0) as key_filters:
            for records in files:
                row = self._file(records, number, topic, generation, key_filters, filters, epoch, source)
                rows.append(row)
            key_filters.commit()
        end_ts = 1000 * number if end_ts is None else end_ts
        source_columns = {"source": source, "destination": self.destination}
        scope_columns = {"backup_id": name, "source": source, "scope": topic, "epoch": epoch}
        self.add(
            *rows,
            made_backup(
                number,
                rows,
                full_number=self._base,
                **source_columns,
                end_ts=end_ts,
                finished_at=1000 * end_ts,
            ),
            made_scope(**scope_columns, regions=8, generation=generation),
        )
        for region in sorted({row.region for row in rows}):
            region_rows = [row for row in rows if row.region == region]
            start = (low or {}).get(int(region), min(row.start_position for row in region_rows))
            end = max(row.end_position for row in region_rows)
            self.add(made_position(start, end, **scope_columns, region=region, ts=end_ts))
        return name

    def _file(
        self,
        records: Sequence[Record],
        number: int,
        topic: str,
        generation: int,
        key_filters: KeyFilters,
        filters: bool,
        epoch: str,
        source: str,
    ) -> DataFile:
        path = layout.data_path(source, epoch, topic, records[0].partition, self._seq)
        stats = put_data_file(self.storage, path, block_of(topic, records))
        self._seq += 1
        partition_columns = {
            "source": source,
            "scope": topic,
            "epoch": epoch,
            "region": str(records[0].partition),
        }
        file_columns = {
            "destination": self.destination,
            "path": path,
            "codec": "zstandard",
            "generation": generation,
        }
        return file_row(
            number,
            **partition_columns,
            **file_columns,
            **stats.columns(),
            **(key_filters.add(stats.keys, (topic, "", "", 0)) if filters else {}),
        )


@cache
def _empty_catalog() -> Mapping[str, bytes]:
    """The files of a catalog without rows and without CHECK constraints: path below its folder -> content."""
    with tempfile.TemporaryDirectory() as folder:
        for table in TABLES:
            ddl = declaration(table)
            statistics_setting = re.findall(r"'(delta.dataSkippingStatsColumns)' = '([^']*)'", ddl)
            write_deltalake(
                f"{folder}/{table}",
                ARROW_SCHEMAS[table].empty_table(),
                configuration=dict(statistics_setting),
            )
        migrations = [
            Migration(version=n, name=m, applied_at=0) for n, m in enumerate(names("migrations"), 1)
        ]
        append(open_storage(folder), "migrations", migrations, "m")
        files = [file for file in Path(folder).rglob("*") if file.is_file()]
        return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def reader_of(folder: Path, rows: Iterable[Row]) -> CatalogReader:
    """A reader of these rows, without tables."""
    reader = CatalogReader(str(folder))
    tables: dict[str, list[Row]] = {table: [] for table in TABLES}
    for row in rows:
        tables[table_of(type(row))].append(row)
    for table, table_rows in tables.items():
        reader = reader.with_rows(
            f"raw_{table}", pa.Table.from_pylist([as_row(row) for row in table_rows], ARROW_SCHEMAS[table])
        )
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
    """Write a data file of one block; returns its statistics."""
    stats = columns.stats()
    with storage.writer() as sink:
        writer = FileWriter(sink, **metadata)
        writer.write_block(Block(columns.data, stats, hashes=hashes_of(columns)))
        file_stats = writer.finish()
        sink.commit(path)
    return file_stats
