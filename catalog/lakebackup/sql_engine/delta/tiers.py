"""Which small files of a table to merge, from their sizes alone.

Every commit adds a file, and every reader opens all files. As in an LSM tree, the files are in tiers by their
size. When a tier has `MERGE_AT` files, they become one file, which is in a higher tier or fills its own
further. So a table has fewer than `MERGE_AT` files in each tier, and each row is rewritten a few times at
most, however many commits follow.

The lowest tier is wide, because up to its limit to open a file takes longer than to write its rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from deltalake import DeltaTable

#: A smaller file is merged with others. Half the size that merged files have.
SMALL_BYTES = 2 << 20
#: The number of files of a tier that are merged. With fewer, runs commit merges more often; with more, every
#: reader opens more files. One file in each of the four tables of a backup costs a run 20 ms of CPU; to merge
#: eight in one table costs 40 to 50 ms (docs/adr/0017).
MERGE_AT = 8
#: The most rows of a group of files that are merged: these are in memory twice while they are sorted.
GROUP_ROWS = 400_000
# The limits of the tiers, in bytes.
_TIERS = (0, 128 << 10, SMALL_BYTES)
# The most files of a merge. A catalog with more, from an earlier version, is merged by several runs, so that
# none takes long.
_MOST_FILES = 64


class TableFile(NamedTuple):
    """A file of a table, as the log describes it. Files are ordered by the least time of their rows."""

    order: int
    path: str
    bytes: int
    rows: int

    @property
    def is_small(self) -> bool:
        """Whether the file can be merged with others: rows may be many although the bytes are few."""
        return self.bytes < SMALL_BYTES and self.rows <= GROUP_ROWS // 2


def table_files(delta_table: DeltaTable) -> list[TableFile]:
    """Return the files of a table, ordered by the least time of their rows, or else by their commits."""
    actions = delta_table.get_add_actions(flatten=True)
    times = actions.column("min.min_ts" if "min.min_ts" in actions.schema.names else "modification_time")
    files = zip(
        (value or 0 for value in times.to_pylist()),
        actions.column("path").to_pylist(),
        actions.column("size_bytes").to_pylist(),
        (count or 0 for count in actions.column("num_records").to_pylist()),
        strict=True,
    )
    return sorted(TableFile(*file) for file in files)


def due_files(files: Iterable[TableFile]) -> Sequence[TableFile]:
    """Return the files of a table to merge next, in their order; empty when no merge is due."""
    small = sorted(file for file in files if file.is_small)
    for least, limit in pairwise(_TIERS):
        tier = [file for file in small if least <= file.bytes < limit][:_MOST_FILES]
        if len(tier) >= MERGE_AT:
            return _within_rows(tier)
    return ()


def _within_rows(files: Sequence[TableFile]) -> Sequence[TableFile]:
    """Return the first files, as many as have at most `GROUP_ROWS` rows together."""
    row_count = 0
    for number, file in enumerate(files):
        row_count += file.rows
        if row_count > GROUP_ROWS:
            return files[:number]
    return files
