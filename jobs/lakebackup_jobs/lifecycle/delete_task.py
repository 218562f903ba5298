"""What a Spark task of `prune` does: delete the objects that some of a prune's removals name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import LakebackupError
from lakebackup.storage import open_storage
from lakebackup.store.tombstones import Chunk, read_removals
from lakebackup_jobs.lifecycle.tasks.errors import guarded, told
from lakebackup_jobs.lifecycle.tasks.progress import TaskBoard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from lakebackup.store.roots import Roots

KEYS_DELETED = "objects BIGINT, error STRING"
DELETED = (
    "chunk BIGINT, files BIGINT, bytes BIGINT, spared BIGINT, foreign BIGINT, failed BIGINT, error STRING"
)


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """For `mapInArrow` over rows of unused_key_filters: deletes those objects, but none in a destination that
    is `foreign`."""

    roots: Roots
    foreign: frozenset[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield guarded(KEYS_DELETED, partial(self._delete, batch.to_pylist()))

    def _delete(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        own = [row for row in rows if row["destination"] not in self.foreign]
        for row in own:
            self.roots.open(row["destination"]).delete(row["keys_path"])
        return {"objects": len(own)}


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """For `mapInArrow` over numbers of chunks: deletes what they name, the newest backup's files first.

    Files of the partitions `spared` (topic, epoch, partition) stay for now, those in destinations that are
    `foreign` (ids) for good. An object that cannot be deleted does not keep the others: it is counted, and
    the first of them is told.
    """

    home: str
    folder: str
    roots: Roots
    chunks: tuple[Chunk, ...]
    spared: frozenset[tuple[str, str, str]]
    foreign: frozenset[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield guarded(DELETED, partial(self._delete, number), chunk=number)

    def _delete(self, number: int) -> dict[str, Any]:
        home = open_storage(self.home)
        tell = TaskBoard(home, self.folder).counter(f"{number:06d}")
        rows = read_removals(home, self.chunks[number])
        files = size = spared = foreign = failed = 0
        error = None
        for row in sorted(rows, key=lambda row: (row.backup_id, row.path), reverse=True):
            if (row.scope, row.epoch, row.region) in self.spared:
                spared += 1
                continue
            if row.destination in self.foreign:
                foreign += 1
                continue
            try:
                self.roots.open(row.destination).delete(row.path)
            except LakebackupError as problem:
                failed += 1
                error = error or told(problem)
                continue
            files += 1
            size += row.bytes
            tell(1, row.bytes)
        done = {"chunk": number, "files": files, "bytes": size, "spared": spared, "foreign": foreign}
        return {**done, "failed": failed, "error": error}
