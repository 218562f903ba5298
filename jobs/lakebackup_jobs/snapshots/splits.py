"""What each task of a snapshot's backup has to do, as objects: rows of the query snapshot_shares.

An interrupted backup is thereby resumed as it was planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from lakebackup.sql_engine.worker import runs
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.snapshots.source import LISTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

WRITTEN = "task INT, files BIGINT"
#: The order in a split: neighbours one after the other, the name that is copied before its hard links.
ORDER = ("task", "first_scope", "first_region", "first_name", "scope", "region", "name")
#: Columns of the query snapshot_shares.
_COLUMNS = (
    f"{LISTED}, added_in BIGINT, change STRING, same_destination STRING, same_path STRING, "
    "same_position BIGINT, same_sha256 STRING, first_scope STRING, first_region STRING, first_name STRING, "
    "task INT"
)


def split_path(folder: str, task: int) -> str:
    """Where the split of a task is, below a backup's folder."""
    return f"{folder}work/share-{task:06d}.parquet"


@dataclass(frozen=True, slots=True)
class SplitWriter:
    """For `mapInArrow` over rows in `ORDER`, all rows of a task in one call: writes each split."""

    uri: str
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        storage, schema = open_storage(self.uri), arrow_schema(_COLUMNS)
        for task, some in groupby(runs(batches, "task"), itemgetter(0)):
            rows = (batch.select(schema.names).cast(schema) for _, batch in some)
            _, count, _ = write_rows(storage, split_path(self.folder, task), schema, rows)
            yield pa.RecordBatch.from_pylist([{"task": task, "files": count}], arrow_schema(WRITTEN))
