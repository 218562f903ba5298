"""The Spark task of a merge: it copies several data files into one, block by block.

Blocks are copied as they are stored, without decompression. Only when the key filters of the files cannot be
joined are the blocks decoded too, to build a filter from their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakebackup.errors import Damaged, LakebackupError, NotFound
from lakebackup.plan.topics.merge import group_files
from lakebackup.rows.backups import DataFile
from lakebackup.storage import Storage
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.format.container import Frame
from lakebackup_jobs.kafka.format.key_filter import KeyFilter, KeyFilters, hashes_of, read_filter
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.kafka.key_sums import SEALED_BYTES
from lakebackup_jobs.lifecycle.tasks.batched import batched
from lakebackup_jobs.lifecycle.tasks.part import PartTask
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares, Share
from lakebackup_jobs.topics.tasks.copy import publish

# A task takes small groups of files until the files reach one of these limits.
TASK_BYTES = 128 << 20
TASK_FILES = 1_000


@dataclass(frozen=True, slots=True)
class MergedFile(StoredFile):
    """A data file to copy, with the columns of its row: a row of the query merge_files."""

    raw_bytes: int
    min_ts: int
    max_ts: int
    start_key: str | None
    end_key: str | None
    null_keys: int
    tombstones: int
    generation: int
    key_id: str | None
    keys_path: str | None
    keys_start: int | None
    keys_blocks: int | None


def divide(groups: Iterable[tuple[int, Sequence[MergedFile]]]) -> tuple[list[Share], list[int]]:
    """Divide the groups of `group_files` among tasks.

    Returns each task's share, and the number of its first group in that group's partition.
    """
    size = (lambda group: sum(file.bytes for file in group[1])), TASK_BYTES
    count = (lambda group: len(group[1])), TASK_FILES
    shares, ranks, end = [], [], 0
    for task_groups in batched(groups, size, count):
        first, end = end, end + sum(len(files) for _, files in task_groups)
        shares.append(Share(first, end))
        ranks.append(task_groups[0][0])
    return shares, ranks


@dataclass(frozen=True, kw_only=True)
class Merge(PartTask):
    """Writes the new files of a task, each from a group of files.

    `plan` and `ranks` are of `divide`, `target_bytes` and `rolls` as in `group_files`. `sequences` maps
    (topic, partition) to its first free file number. Raises Damaged (a file differs from its row in the
    catalog). A new file is committed only after all files of its group were verified.
    """

    plan: PlanShares
    ranks: Sequence[int]
    target_bytes: int
    rolls: Mapping[str, int | None]
    roots: Roots
    sequences: Mapping[tuple[str, str], int]

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        count = self.progress(storage, task)
        (files,) = self.plan.rows(task, MergedFile)
        groups = group_files(files, self.target_bytes, self.rolls, rank=self.ranks[task])
        with KeyFilters(storage, self.source, self.backup_id, task, self.key) as keys:
            rows = [self._write(storage, rank, group, keys, count) for rank, group in groups]
            keys.commit()
        return rows

    def check(self, storage: Storage, rows: list[DataFile]) -> None:
        for row in rows:  # until the merge exists, its files are orphans, which a prune may have deleted
            _require_unchanged(storage, row)

    def _write(
        self,
        storage: Storage,
        rank: int,
        files: Sequence[MergedFile],
        keys: KeyFilters,
        count: Callable[[int, int], None],
    ) -> DataFile:
        first = files[0]
        joined_filter = self._joined_filter(files)
        key_filter = joined_filter or KeyFilter()
        combined = _combined_columns(files)
        name = (*first.key, combined["start_position"])
        sealer = self.key.sealer("data", name) if self.key else None
        if sealer:
            combined |= {"start_key": None, "end_key": None}
        with storage.writer() as sink:
            frame = Frame(sink, codec=first.codec, fmt=first.format, sealer=sealer)
            for file in files:
                reader = open_verified(self.roots, file)
                if (reader.codec, reader.fmt) != (file.codec, file.format):
                    raise Damaged(
                        f"{file.path} is {reader.fmt} with codec {reader.codec}; its row says {file.format} "
                        f"with {file.codec}.",
                        hint="`lakebackup verify` shows which files are damaged; nothing was merged.",
                    )
                for block_name, records, block in reader.compressed_blocks():
                    if joined_filter is None:
                        key_filter.add(hashes_of(reader.decode(block_name, records, block)))
                    frame.write(records, block)
                count(file.entries, file.bytes)
            seq = self.sequences.get((first.scope, first.region), 0) + rank
            sha256 = frame.finish()
            path, _ = publish(sink, self.source, first, seq, combined)
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
            **keys.add(key_filter.sealed(sha256), name),
            generation=first.generation,
        )

    def _joined_filter(self, files: Sequence[MergedFile]) -> KeyFilter | None:
        """Join the files' key filters; None when one is missing, or the result would exclude too few keys."""

        def sealed_filters() -> Iterator[tuple[bytes, str]]:
            for file in files:
                read = read_filter(self.roots.open(file.destination), file, self.roots.keys)
                yield read(0, (file.keys_blocks or 0) * SEALED_BYTES) if read else b"", file.sha256

        try:
            return KeyFilter.joined(sealed_filters())
        except LakebackupError:
            return None  # without a stored filter the keys are read, which takes longer, but does no harm


def _require_unchanged(storage: Storage, row: DataFile) -> None:
    try:
        size = storage.stat(row.path).bytes
    except NotFound:
        size = -1
    if size != row.bytes:
        raise Damaged(
            f"{row.path}, which an interrupted merge had written, is missing or was changed.",
            hint="Run the merge again: it starts over.",
        )


def _combined_columns(files: Sequence[MergedFile]) -> dict[str, Any]:
    """The columns of the merged file's row, from the rows of its parts."""
    start_keys = [file.start_key for file in files if file.start_key is not None]
    # A file whose keys have no upper bound of 64 bytes has no end key; then the merged file has none either.
    # Files without a key are left out.
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
