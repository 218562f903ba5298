"""The record of a prune in the destination, written before anything is deleted.

`removals-*.jsonl` list the files to delete, one JSON object a line. Then `prune.json` (JSON with a checksum)
makes the prune exist. It holds the totals of the files, the backups that are deleted completely, and the
positions from which partitions can still be restored. `done` is written when every object is deleted. From
these records a rebuilt catalog knows what was deleted, and an interrupted prune can be resumed.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged, Refused, UsageProblem
from lakebackup.rows.backups import Floor, Removal
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.rules import layout
from lakebackup.rules.stored_json import NO_JSON
from lakebackup.sql_engine.worker import PerNumber, in_chunks, task_number
from lakebackup.storage import Storage, open_storage, working
from lakebackup.store.manifest import from_json, get_verified, mark, read_record, write_record
from lakebackup.store.reader import CatalogReader

CHUNK_ROWS = 20_000
# Columns of removals that differ between a plan and its prune: they are added, or null.
_OF_PRUNE = ("prune_id", "at", "files")


@dataclass(frozen=True, slots=True)
class Chunk:
    """An object with removals: the number of files that it lists, their bytes, and the object's SHA-256."""

    path: str
    files: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Prune:
    """A prune.

    `chunks` are in the order of deletion: files of the newest backups come first. `backups` has (id, reason)
    of each backup that is deleted completely, before the backups that it depends on.
    """

    prune_id: str
    at: int
    actor: str
    source: str
    asked: str
    floors: tuple[Floor, ...]
    chunks: tuple[Chunk, ...]
    backups: tuple[tuple[str, str], ...] = ()

    @property
    def files(self) -> int:
        return sum(chunk.files for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks)


def write_prune(storage: Storage, prune: Prune) -> None:
    """Write `prune.json`: from then on the prune exists, and later runs resume it."""
    write_record(storage, layout.prune_path(prune.prune_id), prune)


def read_prune(storage: Storage, prune_id: str) -> Prune:
    """The prune with that id.

    Raises NotFound (it does not exist), Damaged, or UsageProblem (a newer version wrote it).
    """
    path = layout.prune_path(prune_id)
    prune = read_record(storage, path, Prune)
    if prune.prune_id != prune_id:
        raise Damaged(f"{path} is the record of prune {prune.prune_id}.")
    return prune


def prune_ids(storage: Storage) -> Iterator[str]:
    """Ids of all prunes that exist, oldest first."""
    for prune_id in storage.folders(f"{layout.PRUNES_FOLDER}/"):
        with suppress(UsageProblem):
            if storage.exists(layout.prune_path(prune_id)):
                yield prune_id


def incomplete(storage: Storage) -> list[str]:
    """Ids of the prunes that have not recorded that all their objects are deleted."""
    return [
        prune_id for prune_id in prune_ids(storage) if not storage.exists(layout.prune_done_path(prune_id))
    ]


def require_not_pruned(storage: Storage, source: str, *backup_ids: str) -> None:
    """Raise Refused when an incomplete prune deletes one of these backups."""
    for prune_id in incomplete(storage):
        prune = read_prune(storage, prune_id)
        deleted = set(backup_ids) & dict(prune.backups).keys() if prune.source == source else ()
        if deleted:
            raise Refused(
                f"Prune {prune_id} was interrupted while it deleted backup {min(deleted)}.",
                hint="Run `lakebackup prune --delete` again to resume it.",
            )


def require_recorded(storage: Storage, source: str, reader: CatalogReader) -> None:
    """Raise Refused when the catalog still lists objects that an incomplete prune will delete.

    For a caller that holds the source's lease and is about to add references to stored objects.
    """
    for prune_id in incomplete(storage):
        prune = read_prune(storage, prune_id)
        # Once the removals are in the catalog, it no longer lists these objects as stored.
        if prune.source != source or not prune.chunks:
            continue
        if not reader.rows("prune_on_record", prune_id=prune_id)[0]["removals"]:
            raise Refused(
                f"Prune {prune_id} was interrupted before the catalog recorded what it deletes.",
                hint="Run `lakebackup prune --delete` again to resume it. Then back up.",
            )


def discard_unrecorded(storage: Storage, source: str) -> None:
    """Delete removals of prunes that were interrupted before they wrote `prune.json`.

    The caller holds the source's lease, so no prune of the source is running.
    """
    for prune_id in storage.folders(f"{layout.PRUNES_FOLDER}/"):
        with suppress(UsageProblem):
            if not storage.exists(layout.prune_path(prune_id)):
                for stored_object in list(storage.list(layout.prune_folder(prune_id))):
                    if _source_of(storage, stored_object.path) == source:
                        working.delete(storage, [stored_object.path])


def _source_of(storage: Storage, path: str) -> object:
    """Return the source that the first row of an object names; None when the row cannot be read."""
    with suppress(*NO_JSON), storage.open(path) as lines:
        row = json.loads(lines.readline())
        return row.get("source") if isinstance(row, dict) else None
    return None


def finish(storage: Storage, prune_id: str) -> None:
    """Record that every object of a prune is deleted."""
    mark(storage, layout.prune_done_path(prune_id))


def read_removals(storage: Storage, chunk: Chunk) -> list[Removal]:
    """All rows of a chunk. Raises NotFound, Damaged (its SHA-256 differs)."""
    data = get_verified(storage, chunk.path, chunk.sha256)
    return [from_json(Removal, line) for line in data.splitlines()]


def removals_schema() -> pa.Schema:
    """The columns of a planned removal: those of `removals` that are known before the prune exists."""
    return pa.schema([field for field in ARROW_SCHEMAS["removals"] if field.name not in _OF_PRUNE])


@dataclass(frozen=True, slots=True)
class WriteRemovals:
    """Writes planned removals as the chunks of a prune, in their order, and yields a row for each `Chunk`.

    `time_us` in us. Memory holds the rows of one chunk at a time. Raises EnvironmentProblem.
    """

    COLUMNS: ClassVar[str] = "path STRING, files BIGINT, bytes BIGINT, sha256 STRING"

    destination_uri: str
    prune_id: str
    time_us: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = open_storage(self.destination_uri)
        columns = {"prune_id": self.prune_id, "at": self.time_us}
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        for rows in in_chunks(batches, removals_schema(), CHUNK_ROWS):
            data = "".join(f"{encode({**columns, **row})}\n" for row in rows.to_pylist()).encode()
            path = layout.removals_path(self.prune_id, task_number(), secrets.token_hex(8))
            storage.put(path, data, if_absent=True)
            size = pc.sum(rows["bytes"]).as_py()
            chunk = Chunk(path, len(rows), size, hashlib.sha256(data).hexdigest())
            yield pa.RecordBatch.from_pylist([asdict(chunk)])


@dataclass(frozen=True, slots=True)
class RemovalReader(PerNumber):
    """Reads the rows of `chunks[number]`."""

    destination_uri: str
    chunks: tuple[Chunk, ...]

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        removals = read_removals(open_storage(self.destination_uri), self.chunks[number])
        yield pa.RecordBatch.from_pylist([asdict(row) for row in removals], ARROW_SCHEMAS["removals"])
