"""What the tasks of a backup report about the files that they wrote, and the sums of that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from lakebackup.rows.backups import DataFile
from lakebackup.rows.digest import LANES, Digest
from lakebackup.rows.tables import json_line
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.tasks.errors import raise_first

OUTCOME = (
    "task INT, files BIGINT, bytes BIGINT, entries BIGINT, "
    + ", ".join(f"lane{i} BIGINT" for i in range(LANES))
    + ", error STRING"
)


def totals(task: int, rows: Sequence[DataFile]) -> dict[str, object]:
    """What a task reports about the files that it wrote: values for the columns OUTCOME."""
    digest = Digest()
    for row in rows:
        digest.add(json_line(row))
    return {
        "task": task,
        "files": len(rows),
        "bytes": sum(row.bytes for row in rows),
        "entries": sum(row.entries for row in rows),
        **{f"lane{i}": lane for i, lane in enumerate(digest.lanes)},
    }


class Totals:
    """The sums of what the tasks of a backup wrote."""

    def __init__(self) -> None:
        self.files = self.bytes = self.entries = 0
        self.digest = Digest()

    def add(self, rows: Iterable[Any]) -> None:
        """Add the rows of OUTCOME that tasks reported. Raises the first error among them."""
        rows = list(rows)
        raise_first(row.error for row in rows)
        for row in rows:
            self.files += row.files
            self.bytes += row.bytes
            self.entries += row.entries
            self.digest.add_lanes([row.lane0, row.lane1, row.lane2, row.lane3])

    def merge(self, totals: Totals) -> None:
        """Add the sums of other tasks of the same backup."""
        self.files += totals.files
        self.bytes += totals.bytes
        self.entries += totals.entries
        self.digest.add_lanes(list(totals.digest.lanes))

    def columns(self) -> dict[str, Any]:
        """The columns of the row of a backup that ends now: its totals, when it ended, who wrote it, and the
        tool."""
        return {
            "files": self.files,
            "bytes": self.bytes,
            "entries": self.entries,
            "digest": self.digest.hex(),
            "finished_at": micros(datetime.now(UTC)),
            "created_by": holder(),
            "tool": f"lakebackup {version('lakebackup')}",
        }
