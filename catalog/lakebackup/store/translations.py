"""Rows of `translations` as objects of a restore: put by its tasks, appended to the table when it is done.

    restores/<restore_id>/translation/<epoch>/<region>-<from_position>.parquet    one a transaction
    restores/<restore_id>/aside/<epoch>-<region>.parquet                          of a transaction in doubt

They stay in the destination, so that a lost catalog gets its rows back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebackup.errors import Damaged, LakebackupError, NotFound
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import open_storage, working
from lakebackup.store.delta_append import grouped

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from lakebackup.rows.topics import Translation
    from lakebackup.storage import Storage
    from lakebackup.store.delta_append import Groups
    from lakebackup.store.writer import CatalogWriter

    Rows = npt.NDArray[np.int64]

_TABLE = "translations"
_COLUMNS = ("from_position", "first_position", "to_position", "target_position")
_POSITION = b"position"
# Objects that one Spark task turns into rows.
_OBJECTS = 500


def object_path(identity: Translation, rows: Rows) -> str:
    """Where the rows of a transaction are; a repeated one replaces the first."""
    return f"{folder(identity.restore_id)}{identity.epoch}/{identity.region}-{int(rows[0, 0]):020d}.parquet"


def aside_path(identity: Translation) -> str:
    """Where the rows of a transaction are until its place in the target is known to be as they say."""
    return f"{layout.restore_folder(identity.restore_id)}aside/{identity.epoch}-{identity.region}.parquet"


def folder(restore_id: str) -> str:
    """The folder of a restore's translation, ending in `/`."""
    return f"{layout.restore_folder(restore_id)}translation/"


def put_rows(
    storage: Storage, path: str, identity: Translation, rows: Rows, position: int | None = None
) -> None:
    """Put rows, int64[n, 4] of from, first, to and target position; all other columns are `identity`'s.

    `position` is kept beside them, for `take_aside`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = as_row(identity)
    table = pa.table(
        [
            pa.array(rows[:, _COLUMNS.index(field.name)])
            if field.name in _COLUMNS
            else pa.repeat(pa.scalar(values[field.name], field.type), len(rows))
            for field in ARROW_SCHEMAS[_TABLE]
        ],
        schema=ARROW_SCHEMAS[_TABLE],
    )
    if position is not None:
        table = table.replace_schema_metadata({_POSITION: str(position)})
    sink = pa.BufferOutputStream()
    # Runs go up by little: differences make the object small however many there are.
    pq.write_table(
        table,
        sink,
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=[field.name for field in table.schema if field.name not in _COLUMNS],
        column_encoding=dict.fromkeys(_COLUMNS, "DELTA_BINARY_PACKED"),
    )
    storage.put(path, sink.getvalue().to_pybytes())


def take_aside(storage: Storage, path: str) -> tuple[int, Rows] | None:
    """The position and the rows that were put aside; None when there are none."""
    try:
        table = _read(storage, path)
    except NotFound:
        return None
    return int(table.schema.metadata[_POSITION]), _positions(table)


def read_rows(storage: Storage, path: str) -> Rows | None:
    """The rows of an object, as `put_rows` takes them; None when there is no such object."""
    try:
        return _positions(_read(storage, path))
    except NotFound:
        return None


@dataclass(frozen=True, slots=True)
class _ObjectRows(PerNumber):
    """The rows of the objects `paths[number]`."""

    uri: str
    paths: Groups

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        storage = open_storage(self.uri)
        for path in self.paths[number]:
            yield from _read(storage, path).to_batches()


def publish(writer: CatalogWriter, restore_id: str, transaction: str | None = None) -> None:
    """Append the translation of a restore to the catalog; repeating it adds nothing. Raises Damaged."""
    paths = [found.path for found in writer.home.list(folder(restore_id))]
    if paths:
        count = -(-len(paths) // _OBJECTS)
        source = _ObjectRows(writer.home.uri, grouped(paths, count))
        writer.append_read(_TABLE, source, count, transaction or f"translation-{restore_id}")


def rebuild(writer: CatalogWriter, run_id: str) -> list[str]:
    """All translations in the destination, as rows of a catalog that has none; returns what cannot be read.

    Those of an interrupted restore too: its committed transactions are facts. `run_id`: of this rebuild. The
    log remembers what one that died has appended, though its rows were removed.
    """
    problems = []
    for restore_id in writer.home.folders(f"{layout.RESTORES_FOLDER}/"):
        try:
            publish(writer, restore_id, f"rebuild-{run_id}-translation-{restore_id}")
        except LakebackupError as error:
            problems.append(error.message)
    return problems


def _positions(table: pa.Table) -> Rows:
    import numpy as np

    return np.column_stack([table.column(name).to_numpy() for name in _COLUMNS])


def _read(storage: Storage, path: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = pa.BufferReader(working.get(storage, path))
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
