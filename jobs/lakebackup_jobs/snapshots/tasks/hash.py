"""Spark tasks that hash files which may be stored already, for --verify-unchanged and --find-same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebackup.sql_engine.pace import Throttle
from lakebackup.sql_engine.worker import trim_worker
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.snapshots.source import Listed, SourceFile

HASHED = "scope STRING, region STRING, name STRING, sha256 STRING"


@dataclass(frozen=True, slots=True)
class HashRows:
    """A function for `mapInArrow` over rows of snapshot_to_hash; its output has the columns of HASHED.

    `rate`: the greatest number of bytes a second; None: no limit.
    """

    rate: float | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.rows(batches)
        trim_worker()

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hash the files of the rows, in any process.

        Raises Refused (a file is not as it was listed), EnvironmentProblem.
        """
        throttle = Throttle(self.rate)
        for batch in batches:
            rows = [{**row, "sha256": _sha256(row, throttle)} for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, arrow_schema(HASHED))


def _sha256(row: Mapping[str, Any], throttle: Throttle) -> str:
    listed = Listed(f"{row['folder']}/{row['name']}", row["bytes"], row["mtime_ns"], row["inode"])
    with SourceFile(listed, throttle.spend) as stream:
        for _ in stream.pieces():
            pass
        return stream.sha256
