"""Stores the rows of the table `translations` as objects of a restore, and appends them to the table.

    restores/<restore_id>/translation/<epoch>/<region>-<from_position>.parquet

There is one object for each transaction and partition. The rows are appended when the restore ends. The
objects stay in the destination, so that a rebuilt catalog gets the rows back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakebackup.errors import Damaged, LakebackupError, NotFound
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.rows.topics import Translation
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import Storage, open_storage, working
from lakebackup.store.delta_append import Groups, grouped
from lakebackup.store.writer import CatalogWriter

Rows: TypeAlias = "npt.NDArray[np.int64]"
_TABLE = "translations"
_COLUMNS = ("from_position", "first_position", "to_position", "target_position")
# The number of objects that one Spark task reads.
_OBJECTS = 500


def object_path(identity: Translation, rows: Rows) -> str:
    """Return the path of the object with a transaction's rows. A repeated transaction replaces the object."""
    return f"{folder(identity.restore_id)}{identity.epoch}/{identity.region}-{int(rows[0, 0]):020d}.parquet"


def folder(restore_id: str) -> str:
    """The folder of a restore's translation, ending in `/`."""
    return f"{layout.restore_folder(restore_id)}translation/"


def put_rows(storage: Storage, parts: Iterable[tuple[Translation, Rows]]) -> None:
    """Put the rows of one transaction for each partition, side by side.

    `rows` is int64[n, 4], n > 0: the columns `_COLUMNS`. The translation, the identity, has the other
    columns.
    """
    storage.put_all(
        {object_path(identity, rows): encode(table_of(identity, rows)) for identity, rows in parts}
    )


def table_of(identity: Translation, rows: Rows) -> pa.Table:
    """Return rows, as `put_rows` takes them, with all columns of the table."""
    values = as_row(identity)
    return pa.table(
        [
            pa.array(rows[:, _COLUMNS.index(field.name)])
            if field.name in _COLUMNS
            else pa.repeat(pa.scalar(values[field.name], field.type), len(rows))
            for field in ARROW_SCHEMAS[_TABLE]
        ],
        schema=ARROW_SCHEMAS[_TABLE],
    )


def encode(table: pa.Table) -> bytes:
    """Return a table of translations as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    # Positions grow in small steps, so the delta encoding keeps the object small for any number of rows.
    pq.write_table(
        table,
        sink,
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=[field.name for field in table.schema if field.name not in _COLUMNS],
        column_encoding=dict.fromkeys(_COLUMNS, "DELTA_BINARY_PACKED"),
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_rows(storage: Storage, path: str) -> Rows | None:
    """Return the rows of an object, in the form of `put_rows`; None when there is no such object."""
    try:
        return positions(read_table(storage, path))
    except NotFound:
        return None


@dataclass(frozen=True, slots=True)
class _ObjectRows(PerNumber):
    """Reads the rows of the objects `paths[number]`."""

    uri: str
    paths: Groups

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        storage = open_storage(self.uri)
        for path in self.paths[number]:
            yield from read_table(storage, path).to_batches()


def publish(writer: CatalogWriter, restore_id: str, transaction: str | None = None) -> None:
    """Append the rows of a restore to the catalog. A repeated call adds nothing. Raises Damaged."""
    paths = [stored_object.path for stored_object in writer.home.list(folder(restore_id))]
    if paths:
        count = -(-len(paths) // _OBJECTS)
        source = _ObjectRows(writer.home.uri, grouped(paths, count))
        writer.append_read(_TABLE, source, count, transaction or f"translation-{restore_id}")


def rebuild(writer: CatalogWriter, run_id: str) -> list[str]:
    """Append all translations in the destination to a catalog that has none. Return messages about damage.

    Translations of an interrupted restore are included, because its transactions were committed. `run_id`
    identifies this rebuild. Without it, the appends would have the names of those of a rebuild that died. The
    table's log remembers those even after their rows were removed, so they would be skipped.
    """
    problems = []
    for restore_id in writer.home.folders(f"{layout.RESTORES_FOLDER}/"):
        try:
            publish(writer, restore_id, f"rebuild-{run_id}-translation-{restore_id}")
        except LakebackupError as error:
            problems.append(error.message)
    return problems


def positions(table: pa.Table) -> Rows:
    """Return the positions of a table of translations, in the form of `put_rows`."""
    return np.column_stack([table.column(name).to_numpy() for name in _COLUMNS])


def read_table(storage: Storage, path: str) -> pa.Table:
    """Read an object with rows of the table. Raises NotFound, Damaged."""
    data = pa.BufferReader(working.read_latest(storage, path))
    try:
        table = pq.read_table(data, page_checksum_verification=True)
        if not table.schema.equals(ARROW_SCHEMAS[_TABLE]):
            raise ValueError("it has other columns")
        return table
    except (pa.ArrowException, ValueError, OSError) as error:
        raise Damaged(
            f"{path} is not as a restore wrote it: {error}.",
            hint="Take it from another copy of the repository.",
        ) from error
