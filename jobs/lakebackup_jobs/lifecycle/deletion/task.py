"""The tasks of `prune`: delete objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from lakebackup.errors import LakebackupError
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store.roots import Roots
from lakebackup.store.tombstones import Chunk, read_removals
from lakebackup_jobs.lifecycle.tasks.errors import guarded
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import Task

KEYS_DELETED = "objects BIGINT, error STRING"


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """For `mapInArrow` over rows of unused_key_filters: deletes the objects, except in `foreign`
    destinations."""

    roots: Roots
    foreign: frozenset[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield guarded(KEYS_DELETED, partial(self._delete, batch.to_pylist()))

    def _delete(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        own = [row for row in rows if row["destination"] not in self.foreign]
        for row in own:
            self.roots.open(row["destination"]).delete(self._path_of(row))
        return {"objects": len(own)}

    def _path_of(self, row: dict[str, Any]) -> str:
        path: str = row["keys_path"]
        return path


class DeleteDataKeys(DeleteKeys):
    """For `mapInArrow` over rows of unused_data_keys: deletes the objects as `DeleteKeys`."""

    __slots__ = ()

    def _path_of(self, row: dict[str, Any]) -> str:
        return layout.data_key_path(row["source"], row["backup_id"], row["key_id"])


@dataclass(frozen=True, slots=True)
class DeleteObjects(Task):
    """Deletes the files of a chunk, those of the newest backup first.

    Skips the files of `spared` partitions (topic, epoch, partition) for now, and files in `foreign`
    destinations (ids) for good. If it fails to delete an object, it counts it and continues; the column
    `first` is the first error.
    """

    COLUMNS = (
        "files BIGINT, bytes BIGINT, spared BIGINT, foreign BIGINT, failed BIGINT, first STRING, error STRING"
    )

    home: str
    folder: str
    roots: Roots
    chunks: tuple[Chunk, ...]
    spared: frozenset[tuple[str, str, str]]
    foreign: frozenset[str]

    def run(self, number: int) -> dict[str, Any]:
        home = open_storage(self.home)
        count = TaskProgress(home, self.folder).counter(f"{number:06d}")
        rows = read_removals(home, self.chunks[number])
        counts = dict.fromkeys(("files", "bytes", "spared", "foreign", "failed"), 0)
        first_error = None
        for row in sorted(rows, key=lambda row: (row.backup_id, row.path), reverse=True):
            if (row.scope, row.epoch, row.region) in self.spared:
                counts["spared"] += 1
                continue
            if row.destination in self.foreign:
                counts["foreign"] += 1
                continue
            try:
                self.roots.open(row.destination).delete(row.path)
            except LakebackupError as problem:
                counts["failed"] += 1
                first_error = first_error or problem.message
                continue
            counts["files"] += 1
            counts["bytes"] += row.bytes
            count(1, row.bytes)
        return {**counts, "first": first_error}
