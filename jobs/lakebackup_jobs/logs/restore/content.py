"""What a restore of a log writes into a target, whichever engine finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakebackup.encryption.objects import BackupKey
from lakebackup.plan.logs.restore import LogRestorePlan
from lakebackup.sql_engine.worker import Cluster
from lakebackup_jobs.logs.restore.shares import LogShares
from lakebackup_jobs.targets import RestoredSpan
from lakebackup_jobs.targets.delta import DeltaTarget

# Uncompressed bytes that a task of a shuffle reads, and may hold in memory. Logs of more than 12 TiB have
# more for each task; up to 400 TB they still fit into an array of Arrow's.
_PIECE = 64 << 20
_MOST_PIECES = 200_000
# The bytes of a full's rows in memory for each byte of its compressed files, at most, as a rule.
_RAW_BYTES_PER_BYTE = 4
# Name in the summary -> metric of the commit to the Delta table.
_METRICS = {
    "inserted": "numTargetRowsInserted",
    "updated": "numTargetRowsUpdated",
    "deleted": "numTargetRowsDeleted",
}


def pieces(raw_bytes: int) -> int:
    """The number of tasks that share the keys of a log of `raw_bytes` uncompressed bytes."""
    return min(_MOST_PIECES, raw_bytes // _PIECE + 1)


def is_small(plan: LogRestorePlan) -> bool:
    """Whether one task can restore the log without SQL, since it can hold all changes and the full."""
    full_bytes = plan.full.bytes * _RAW_BYTES_PER_BYTE if plan.full else 0
    return pieces(plan.raw_bytes + full_bytes) == 1


@dataclass(frozen=True, slots=True)
class LogContent:
    """A log's changes within a span.

    `cluster`: what runs the tasks; None: threads of this process. `old_contents`: what the target already
    holds, `new_contents`: what it holds after the restore.
    """

    cluster: Cluster | None
    shares: LogShares
    plan: LogRestorePlan
    old_contents: RestoredSpan | None
    new_contents: RestoredSpan

    @property
    def commit(self) -> Mapping[str, Any]:
        """Options of the commit, in which it records what the table holds."""
        return {"userMetadata": self.new_contents.text()}

    @property
    def dropped_ids(self) -> list[int]:
        """The ids of the tables that were dropped within the span."""
        return [table for table in self.plan.without if table in self.plan.changed]

    def in_table(self, table: DeltaTarget) -> dict[str, int]:
        """The summary of the last commit to a table: `entries`, and the counts of _METRICS that it has."""
        metrics = table.metrics()
        counts = {name: int(metrics[metric]) for name, metric in _METRICS.items() if metric in metrics}
        entries = int(metrics.get("numOutputRows", 0)) if self.old_contents is None else sum(counts.values())
        return {"entries": entries, **counts}

    def empties_tables(self) -> bool:
        """Whether a table was truncated in the span."""
        raise NotImplementedError

    def write_files(self, path: str, *, with_truncates: bool = True) -> dict[str, int]:
        """Write the latest change of each key as Parquet files of CHANGES, which replace those in the folder.

        `type`: P, D (the value is null), or T (the key is empty). T says that the table was truncated, so its
        keys without a change have no value any more. Without `with_truncates` there are no rows T. Returns
        the summary: `entries`, the number of rows.
        """
        raise NotImplementedError

    def seal_files(self, uri: str, folder: str, key: BackupKey) -> list[str]:
        """Write the latest change of each key as Parquet objects of CHANGES, encrypted with `key`, below a
        folder of the storage at `uri`. There are no rows T. Returns the paths of the objects."""
        raise NotImplementedError
