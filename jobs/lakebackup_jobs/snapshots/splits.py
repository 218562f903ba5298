"""What each task of a snapshot's backup has to do, written down: rows of the query snapshot_shares.

A backup that was cut off is thereby gone on with as it was planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.lifecycle.tasks.rows import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

WRITTEN = "task INT, files BIGINT"
#: The order in a share: neighbours one after the other, the name that is copied before its hard links.
ORDER = ("task", "first_scope", "first_region", "first_name", "scope", "region", "name")
_COLUMNS = (
    "scope STRING, region STRING, name STRING, role STRING, folder STRING, bytes BIGINT, mtime_ns BIGINT, "
    "mtime_ms BIGINT, mode INT, links INT, device BIGINT, inode BIGINT, added_in BIGINT, change STRING, "
    "same_destination STRING, same_path STRING, same_position BIGINT, same_sha256 STRING, "
    "first_scope STRING, first_region STRING, first_name STRING, task INT"
)


def share_path(folder: str, task: int) -> str:
    """Where the share of a task is, below a backup's folder."""
    return f"{folder}work/share-{task:06d}.parquet"


@cache
def share_schema() -> pa.Schema:
    """Columns of the query snapshot_shares."""
    return arrow_schema(_COLUMNS)


@dataclass(frozen=True, slots=True)
class ShareWriter:
    """For `mapInArrow` over rows in `ORDER`: each task's become its share; all of a task's rows come here."""

    uri: str
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        storage = open_storage(self.uri)
        pieces = (piece for batch in batches for piece in _by_task(batch))
        for task, some in groupby(pieces, lambda piece: piece[0]):
            rows = (batch.select(share_schema().names).cast(share_schema()) for _, batch in some)
            _, count, _ = write_rows(storage, share_path(self.folder, task), share_schema(), rows)
            yield pa.RecordBatch.from_pylist([{"task": task, "files": count}], arrow_schema(WRITTEN))


def _by_task(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A batch cut where the task changes."""
    import pyarrow.compute as pc

    column = batch.column("task")
    start = 0
    while start < len(batch):
        task = column[start].as_py()
        count = pc.sum(pc.equal(column, task)).as_py()  # they are sorted
        yield task, batch.slice(start, count)
        start += count
