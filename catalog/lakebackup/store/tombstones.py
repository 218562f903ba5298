"""A prune's own description in the destination, put there before anything is deleted.

`removals-*.jsonl` name the files to delete, a JSON object a line; the sealed `prune.json` says what they add
up to, which backups are deleted whole and from where on partitions can be restored, and alone makes the
prune exist; `done` says that every object is deleted. From these a lost catalog learns what was deleted, and
an interrupted prune resumes.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lakebackup.errors import Damaged, Refused, UsageProblem
from lakebackup.rows.backups import Floor, Removal
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import PerNumber, in_chunks, settle, task_number
from lakebackup.storage import open_storage
from lakebackup.store.manifest import from_json, get_whole, mark, read_record, write_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader

CHUNK_ROWS = 20_000
# What a task that wrote removals reports of each object it wrote.
WRITTEN = "path STRING, files BIGINT, bytes BIGINT, sha256 STRING"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One object of removals: how many files it names, their bytes, and the SHA-256 of the object itself."""

    path: str
    files: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Prune:
    """One prune; `chunks` in the order in which their objects go, the newest backups' first.

    `backups`: ids of those that are deleted whole, each before those that it depends on, and why.
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
    """Put `prune.json`: from now on the prune exists, and is resumed until it is done."""
    write_record(storage, layout.prune_path(prune.prune_id), prune)


def read_prune(storage: Storage, prune_id: str) -> Prune:
    """The prune of that id. Raises NotFound (it does not exist), Damaged, UsageProblem (a newer version)."""
    path = layout.prune_path(prune_id)
    found = read_record(storage, path, Prune)
    if found.prune_id != prune_id:
        raise Damaged(f"{path}: it is that of prune {found.prune_id}.")
    return found


def prune_ids(storage: Storage) -> Iterator[str]:
    """Ids of all prunes that came to exist, in the order of their time."""
    for prune_id in storage.folders(f"{layout.PRUNES_FOLDER}/"):
        with suppress(UsageProblem):
            if storage.exists(layout.prune_path(prune_id)):
                yield prune_id


def incomplete(storage: Storage) -> list[str]:
    """Ids of the prunes of which some object may still be there."""
    return [name for name in prune_ids(storage) if not storage.exists(layout.prune_done_path(name))]


def require_not_pruned(storage: Storage, source: str, *backup_ids: str) -> None:
    """Refused when a prune that has not finished deletes one of these backups."""
    for name in incomplete(storage):
        found = read_prune(storage, name)
        going = set(backup_ids) & dict(found.backups).keys() if found.source == source else ()
        if going:
            raise Refused(
                f"Prune {name} was interrupted while it deleted backup {min(going)}.",
                hint="Run `lakebackup prune --delete` again to resume it.",
            )


def require_recorded(storage: Storage, source: str, reader: CatalogReader) -> None:
    """Refused when the catalog counts objects of a source as stored that a prune deletes when it resumes.
    The caller holds the source's lease, and is about to refer to what is stored.
    """
    for name in incomplete(storage):
        found = read_prune(storage, name)
        # Once its removals are in the catalog, what it deletes does not count as stored.
        if found.source != source or not found.chunks:
            continue
        if not reader.rows("prune_on_record", prune_id=name)[0]["removals"]:
            raise Refused(
                f"Prune {name} was interrupted before the catalog knew what it deletes.",
                hint="Run `lakebackup prune --delete` again to resume it. Then back up.",
            )


def discard_unborn(storage: Storage, source: str) -> None:
    """Delete what prunes of a source wrote that died before they came to exist.

    The caller holds the source's lease, so that none is at work.
    """
    for name in storage.folders(f"{layout.PRUNES_FOLDER}/"):
        with suppress(UsageProblem, ValueError):
            if storage.exists(layout.prune_path(name)):
                continue
            for found in list(storage.list(layout.prune_folder(name))):
                with storage.open(found.path) as lines:
                    first = json.loads(lines.readline())
                if isinstance(first, dict) and first.get("source") == source:
                    storage.delete(found.path)


def finish(storage: Storage, prune_id: str) -> None:
    """Record that every object of a prune is deleted."""
    mark(storage, layout.prune_done_path(prune_id))


def read_removals(storage: Storage, chunk: Chunk) -> list[Removal]:
    """The rows of one chunk, all or none. Raises NotFound, Damaged (not as it was written)."""
    data = get_whole(storage, chunk.path, chunk.sha256)
    return [from_json(Removal, line) for line in data.splitlines()]


@dataclass(frozen=True, slots=True)
class RemovalWriter:
    """For `mapInArrow` over rows of removals: writes them as chunks, one row of WRITTEN each."""

    destination_uri: str
    prune_id: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for rows in in_chunks(batches, ARROW_SCHEMAS["removals"], CHUNK_ROWS):
            yield pa.RecordBatch.from_pylist([asdict(self._put(rows))])
        settle()

    def _put(self, rows: pa.Table) -> Chunk:
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows.to_pylist())
        data = "".join(f"{line}\n" for line in lines).encode()
        path = layout.removals_path(self.prune_id, task_number(), secrets.token_hex(4))
        open_storage(self.destination_uri).put(path, data, if_absent=True)
        return Chunk(path, len(rows), sum(rows["bytes"].to_pylist()), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class RemovalReader(PerNumber):
    """The rows of `chunks[number]`."""

    destination_uri: str
    chunks: tuple[Chunk, ...]

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        found = read_removals(open_storage(self.destination_uri), self.chunks[number])
        yield pa.RecordBatch.from_pylist([asdict(row) for row in found], ARROW_SCHEMAS["removals"])
