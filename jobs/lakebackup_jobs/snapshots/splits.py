"""The splits of a snapshot's backup: objects with the rows of the query snapshot_shares, one for each task.

They are written before the tasks start, so an interrupted backup is resumed as it was planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from lakebackup.sql_engine.worker import runs
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.snapshots.source import LISTED

SPLIT_COLUMNS = "task INT, files BIGINT"
#: The order of rows in a split: all hard links of a file together, the name that is copied first.
ORDER = ("task", "first_scope", "first_region", "first_name", "scope", "region", "name")
#: Columns of the query snapshot_shares.
_COLUMNS = (
    f"{LISTED}, added_in BIGINT, change STRING, same_destination STRING, same_path STRING, "
    "same_position BIGINT, same_sha256 STRING, first_scope STRING, first_region STRING, first_name STRING, "
    "task INT"
)


def split_path(folder: str, task: int) -> str:
    """Return the path of a task's split, below a backup's folder."""
    return f"{folder}work/share-{task:06d}.parquet"


@dataclass(frozen=True, slots=True)
class SplitWriter:
    """A function for `mapInArrow` over rows in `ORDER`, with all rows of a task in one call: it writes the
    splits, and its output has the columns of WRITTEN."""

    uri: str
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage, schema = open_storage(self.uri), arrow_schema(_COLUMNS)
        for task, group in groupby(runs(batches, "task"), itemgetter(0)):
            task_batches = (batch.select(schema.names).cast(schema) for _, batch in group)
            _, count, _ = write_rows(storage, split_path(self.folder, task), schema, task_batches)
            yield pa.RecordBatch.from_pylist([{"task": task, "files": count}], arrow_schema(SPLIT_COLUMNS))
