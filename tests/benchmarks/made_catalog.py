"""Made-up catalogs: their tables are real, their data files are not. Rows are SELECTs of DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine.delta.table import commit, write_rows
from lakebackup.storage import open_storage
from lakebackup.store.writer import CatalogWriter

LOOSE = 50  # the newest backups' rows are in files of their own, as commits leave them
ROWS_A_FILE = 50_000  # of departures


@dataclass(frozen=True)
class Part:
    """Rows of a table: those of the backups [first, beyond) and topics [from_topic, to_topic), in one file;
    loose: a file for each backup."""

    table: str
    first: int
    beyond: int
    from_topic: int = 0
    to_topic: int = 0
    loose: bool = False


def selected(connection: duckdb.DuckDBPyConnection, text: str, **parameters: int) -> duckdb.DuckDBPyRelation:
    """The rows of a SELECT, given those of the parameters that it names."""
    return connection.sql(text, params={name: n for name, n in parameters.items() if f"${name}" in text})


def make(
    folder: Path, parts: Sequence[Part], rows: Callable[..., duckdb.DuckDBPyRelation], number: str
) -> list[int]:
    """A catalog of these parts; how many rows each has. `number`: the column with a backup's number."""
    writer = CatalogWriter(None, str(folder))
    writer.migrate()
    writer.register_home()
    storage = open_storage(writer.catalog_uri)
    with pool() as workers:
        made = list(workers.map(partial(_write, writer.catalog_uri, rows, number), parts))
    settled: dict[str, list[str]] = {}
    for part, (added, _) in zip(parts, made, strict=True):
        if not part.loose:
            settled.setdefault(part.table, []).extend(added)
    for table, added in settled.items():
        commit(storage, table, added, "settled")
    for part, (added, _) in zip(parts, made, strict=True):
        for at, one in enumerate(added if part.loose else (), part.first):
            commit(storage, part.table, [one], f"backup-{at}")
    return [count for _, count in made]


def pool() -> ProcessPoolExecutor:
    """Two processes."""
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


def _write(
    catalog_uri: str, rows_of: Callable[..., duckdb.DuckDBPyRelation], number: str, part: Part
) -> tuple[list[str], int]:
    schema, storage = ARROW_SCHEMAS[part.table], open_storage(catalog_uri)
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        rows = rows_of(connection, part).to_arrow_table()
    number = "gone_in" if part.table == "departures" else number
    each = [rows]
    if part.loose:
        each = [rows.filter(pc.equal(rows[number], one)) for one in range(part.first, part.beyond)]
    elif part.table == "departures":
        rows = rows.sort_by("gone_in")
        each = [rows.slice(at, ROWS_A_FILE) for at in range(0, len(rows), ROWS_A_FILE)]
    files = [write_rows(storage, part.table, _complete(one, schema)) for one in each]
    return files, len(rows)


def _complete(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the table's columns; those that a later version added are NULL."""
    columns = [
        rows[one.name] if one.name in rows.column_names else pa.nulls(len(rows), one.type) for one in schema
    ]
    return pa.Table.from_arrays(columns, names=schema.names).cast(schema)
