"""What a Spark task of a merge does: make one data file of several, block by block, as they are stored.

Records are neither decompressed nor looked at, unless the key filters of the files cannot be made one: then
their keys are read on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged, LakebackupError, NotFound
from lakebackup_jobs.kafka.format.container import Frame
from lakebackup_jobs.kafka.format.key_filter import KeyFilter, KeyFilters, hashes_of
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.kafka.key_sums import SEALED_BYTES
from lakebackup_jobs.lifecycle.tasks.part import PartTask
from lakebackup_jobs.lifecycle.tasks.splits import batched, read_lines, split_path, write_lines
from lakebackup_jobs.topics.tasks.copy import publish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakebackup.rows.backups import DataFile
    from lakebackup.storage import Storage
    from lakebackup.store.roots import Roots

# A task takes small targets until it has this much.
TASK_BYTES = 128 << 20
TASK_FILES = 1_000


@dataclass(frozen=True, slots=True)
class MergedFile(StoredFile):
    """A data file to be copied, with what its own row says of it: a row of the query merge_files."""

    raw_bytes: int
    min_ts: int
    max_ts: int
    start_key: str | None
    end_key: str | None
    null_keys: int
    tombstones: int
    generation: int
    keys_path: str | None
    keys_start: int | None
    keys_blocks: int | None


@dataclass(frozen=True, slots=True)
class Target:
    """Files that become one; `rank` counts the targets of a partition from 0."""

    rank: int
    files: tuple[MergedFile, ...]


def write_tasks(storage: Storage, folder: str, targets: Iterable[tuple[int, Sequence[MergedFile]]]) -> int:
    """Write below `folder` what each task copies, a target a line; returns the number of tasks."""
    size = (lambda target: sum(file.bytes for file in target[1])), TASK_BYTES
    files = (lambda target: len(target[1])), TASK_FILES
    task = 0
    for task, some in enumerate(batched(targets, size, files), 1):
        rows = ([rank, [[getattr(f, name) for name in _COLUMNS] for f in target]] for rank, target in some)
        write_lines(storage, split_path(folder, task - 1), rows)
    return task


def read(storage: Storage, folder: str, task: int) -> Iterator[Target]:
    """The targets of a task. Raises NotFound."""
    for rank, rows in read_lines(storage, split_path(folder, task)):
        yield Target(rank, tuple(MergedFile(**dict(zip(_COLUMNS, row, strict=True))) for row in rows))


_COLUMNS = MergedFile.__match_args__


@dataclass(frozen=True, kw_only=True)
class Merge(PartTask):
    """Writes the targets of its tasks. `sequences` maps (topic, partition) to its first free number.

    Raises Damaged (a file that is not what the catalog says); nothing is committed of a target before all its
    files are verified.
    """

    roots: Roots
    sequences: Mapping[tuple[str, str], int]

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        done = self.progress(storage, task)
        with KeyFilters(storage, self.source, self.backup_id, task) as keys:
            rows = [self._write(storage, target, keys, done) for target in read(storage, self.folder, task)]
            keys.commit()
        return rows

    def check(self, storage: Storage, rows: list[DataFile]) -> None:
        for row in rows:  # orphans until the merge exists: they may have been deleted
            _require(storage, row)

    def _write(
        self, storage: Storage, target: Target, keys: KeyFilters, done: Callable[[int, int], None]
    ) -> DataFile:
        files = target.files
        first = files[0]
        found = self._joined(files)
        made = found or KeyFilter()
        with storage.writer() as sink:
            frame = Frame(sink, codec=first.codec, fmt=first.format)
            for file in files:
                reader = open_verified(self.roots, file)
                if (reader.codec, reader.fmt) != (file.codec, file.format):
                    raise Damaged(
                        f"{file.path} is {reader.fmt} with codec {reader.codec}; its row says {file.format} "
                        f"with {file.codec}.",
                        hint="`lakebackup verify` shows which files are damaged; nothing was merged.",
                    )
                for where, count, stored in reader.stored():
                    if found is None:
                        made.add(hashes_of(reader.decode(where, count, stored)))
                    frame.write(count, stored)
                done(file.entries, file.bytes)
            seq = self.sequences.get((first.scope, first.region), 0) + target.rank
            combined = _combined(files)
            path, _ = publish(sink, self.source, first, seq, combined)
        sha256 = frame.sha256
        return self.row(
            path=path,
            scope=first.scope,
            epoch=first.epoch,
            region=first.region,
            format=first.format,
            codec=first.codec,
            bytes=frame.bytes,
            sha256=sha256,
            **combined,
            **keys.add(made.sealed(sha256)),
            generation=first.generation,
        )

    def _joined(self, files: Sequence[MergedFile]) -> KeyFilter | None:
        """The filter of all their keys, made of theirs; None when that would keep out too little."""

        def stored() -> Iterator[tuple[bytes, str]]:
            for file in files:
                path, start, blocks = file.keys_path, file.keys_start, file.keys_blocks
                if path is None or start is None or blocks is None:
                    yield b"", file.sha256
                else:
                    there = self.roots.open(file.destination)
                    yield there.get(path, start=start, length=blocks * SEALED_BYTES), file.sha256

        try:
            return KeyFilter.joined(stored())
        except LakebackupError:
            return None  # a filter that is gone costs the reading of the keys, nothing else


def _require(storage: Storage, row: DataFile) -> None:
    try:
        there = storage.stat(row.path).bytes
    except NotFound:
        there = -1
    if there != row.bytes:
        raise Damaged(
            f"{row.path}, which an interrupted merge had written, is missing or was changed.",
            hint="Run the merge again: it starts over.",
        )


def _combined(files: Sequence[MergedFile]) -> dict[str, Any]:
    """What the rows of some files say of the file that is made of them."""
    start_keys = [file.start_key for file in files if file.start_key is not None]
    # Keys without an upper bound of 64 bytes have none; files without a key have no lower one either.
    end_keys = [file.end_key for file in files if file.start_key is not None]
    bounds = [key for key in end_keys if key is not None]
    return {
        "entries": sum(file.entries for file in files),
        "raw_bytes": sum(file.raw_bytes for file in files),
        "min_ts": min(file.min_ts for file in files),
        "max_ts": max(file.max_ts for file in files),
        "start_position": min(file.start_position for file in files),
        "end_position": max(file.end_position for file in files),
        "start_key": min(start_keys, default=None),
        "end_key": max(bounds, default=None) if len(bounds) == len(end_keys) else None,
        "null_keys": sum(file.null_keys for file in files),
        "tombstones": sum(file.tombstones for file in files),
    }
