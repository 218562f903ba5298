"""A prune's own description in the destination, put there before anything is deleted.

`removals-*.jsonl` name the files that go, a JSON object a line; the sealed `prune.json` says what they add
up to, which backups go whole and from where on partitions can be restored, and alone makes the
prune exist; `done` says that every object is gone. From these a lost catalog learns what was let go of, and a
prune that was cut off goes on.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged, Refused, UsageProblem
from lakebackup.rows.backups import Floor, Removal
from lakebackup.rows.tables import ARROW_SCHEMAS, from_row
from lakebackup.rules import layout
from lakebackup.rules.layout import FORMAT
from lakebackup.sql_engine.worker import settle
from lakebackup.storage import open_storage
from lakebackup.store.manifest import get_sealed, mark, marked, put_sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from lakebackup.storage import Storage

CHUNK_ROWS = 20_000
# What a task that wrote removals tells of each object it wrote.
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
    """Put `prune.json`: from now on the prune exists, and goes on until it is done."""
    content = {"format": FORMAT, **{f.name: getattr(prune, f.name) for f in fields(prune)}}
    content["floors"] = [asdict(row) for row in prune.floors]
    content["chunks"] = [asdict(chunk) for chunk in prune.chunks]
    put_sealed(storage, layout.prune_path(prune.prune_id), content)


def read_prune(storage: Storage, prune_id: str) -> Prune:
    """The prune of that id. Raises NotFound (it does not exist), Damaged, UsageProblem (a newer version)."""
    path = layout.prune_path(prune_id)
    content = get_sealed(storage, path)
    try:
        found = Prune(
            **{
                **content,
                "floors": tuple(from_row(Floor, row) for row in content["floors"]),
                "chunks": tuple(Chunk(**chunk) for chunk in content["chunks"]),
                "backups": tuple((str(name), str(reason)) for name, reason in content["backups"]),
            }
        )
        if found.prune_id != prune_id or not isinstance(found.at, int):
            raise ValueError(f"it is that of prune {found.prune_id}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(f"{path}: {error}.", hint="Take it from another copy of the destination.") from error
    return found


def prune_ids(storage: Storage) -> Iterator[str]:
    """Ids of all prunes that came to exist, in the order of their time."""
    for prune_id in storage.folders(f"{layout.PRUNES_FOLDER}/"):
        with suppress(UsageProblem):
            if marked(storage, layout.prune_path(prune_id)):
                yield prune_id


def unfinished(storage: Storage) -> list[str]:
    """Ids of the prunes of which some object may still be there."""
    return [name for name in prune_ids(storage) if not marked(storage, layout.prune_done_path(name))]


def require_staying(storage: Storage, source: str, *backup_ids: str) -> None:
    """Refused when a prune that has not finished deletes one of these backups."""
    for name in unfinished(storage):
        found = read_prune(storage, name)
        going = set(backup_ids) & dict(found.backups).keys() if found.source == source else ()
        if going:
            raise Refused(
                f"Prune {name} was cut off while it let go of backup {min(going)}.",
                hint="Run `lakebackup prune --delete` again: it goes on.",
            )


def sweep(storage: Storage, source: str) -> None:
    """Take away what prunes of a source put down that died before they came to exist.

    The caller holds the source's lease, so that none is at work.
    """
    for name in storage.folders(f"{layout.PRUNES_FOLDER}/"):
        with suppress(UsageProblem, ValueError):
            if marked(storage, layout.prune_path(name)):
                continue
            for found in list(storage.list(layout.prune_folder(name))):
                with storage.open(found.path) as lines:
                    first = json.loads(lines.readline())
                if isinstance(first, dict) and first.get("source") == source:
                    storage.delete(found.path)


def finish(storage: Storage, prune_id: str) -> None:
    """Say that every object of a prune is gone."""
    mark(storage, layout.prune_done_path(prune_id))


def read_removals(storage: Storage, chunk: Chunk) -> list[Removal]:
    """The rows of one chunk, all or none. Raises NotFound, Damaged (not as it was written)."""
    data = storage.get(chunk.path)
    if hashlib.sha256(data).hexdigest() != chunk.sha256:
        raise Damaged(
            f"{chunk.path}: its contents do not match the SHA-256 in prune.json.",
            hint="This run deleted nothing that it names. Take it from another copy of the destination.",
        )
    return [from_row(Removal, json.loads(line)) for line in data.splitlines()]


@dataclass(frozen=True, slots=True)
class RemovalWriter:
    """For `mapInArrow` over rows of removals: writes them as chunks, one row of WRITTEN each."""

    destination_uri: str
    prune_id: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        held: list[dict[str, Any]] = []
        for batch in batches:
            held += batch.to_pylist()
            while len(held) >= CHUNK_ROWS:
                yield pa.RecordBatch.from_pylist([self._put(task, held[:CHUNK_ROWS])])
                held = held[CHUNK_ROWS:]
        if held:
            yield pa.RecordBatch.from_pylist([self._put(task, held)])
        settle()

    def _put(self, task: int, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        data = "".join(
            f"{json.dumps(row, ensure_ascii=False, separators=(',', ':'))}\n" for row in rows
        ).encode()
        path = layout.removals_path(self.prune_id, task, secrets.token_hex(4))
        open_storage(self.destination_uri).put(path, data, if_absent=True)
        size = sum(row["bytes"] for row in rows)
        return asdict(Chunk(path, len(rows), size, hashlib.sha256(data).hexdigest()))


@dataclass(frozen=True, slots=True)
class RemovalReader:
    """For `mapInArrow` over numbers: the rows of the chunks of these numbers."""

    destination_uri: str
    chunks: tuple[Chunk, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        storage = open_storage(self.destination_uri)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = [asdict(row) for row in read_removals(storage, self.chunks[number])]
                yield pa.RecordBatch.from_pylist(rows, ARROW_SCHEMAS["removals"])
        settle()
