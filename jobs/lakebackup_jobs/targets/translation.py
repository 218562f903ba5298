"""Translations: where the records of a restore land, as runs of source offsets with their target offsets.

A producer does not learn the offsets of its records. In a partition that nobody else writes to, they can be
computed: a transaction's records begin at the partition's end, and after the commit the partition has grown
by the records and one marker. If it has grown otherwise, others wrote to it too, and the offsets of the
records are not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from lakebackup.rows.base import UNKNOWN
from lakebackup.rows.topics import Translation
from lakebackup.storage import Storage
from lakebackup.store.staged_translations import StagedRows
from lakebackup.store.translations import object_path, read_rows
from lakebackup_jobs.kafka.admin.committed import Ends
from lakebackup_jobs.kafka.memory import Longs

_NO_ROWS: Longs = np.empty((0, 4), np.int64)


def find_runs(offsets: Longs) -> Longs:
    """Runs of consecutive offsets: int64[runs, 3] of first offset, end offset, number of records before it.

    `offsets` ascend.
    """
    if not len(offsets):
        return np.empty((0, 3), np.int64)
    breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
    starts = np.concatenate(([0], breaks))
    lasts = np.concatenate((breaks, [len(offsets)])) - 1
    return np.column_stack((offsets[starts], offsets[lasts] + 1, starts)).astype(np.int64)


def join_runs(parts: list[Longs]) -> Longs:
    """Join the runs of consecutive parts, which `find_runs` returned, into runs of all their offsets."""
    count, shifted_parts = 0, []
    for part in parts:
        if len(part):
            shifted_parts.append(part + np.array([0, 0, count]))
            count = int(shifted_parts[-1][-1, 2] + part[-1, 1] - part[-1, 0])
    if not shifted_parts:
        return np.empty((0, 3), np.int64)
    runs = np.concatenate(shifted_parts)
    begins = np.concatenate(([True], runs[1:, 0] != runs[:-1, 1]))
    ends = np.concatenate((begins[1:], [True]))
    return np.column_stack((runs[begins, 0], runs[ends, 1], runs[begins, 2]))


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the restore of a partition is, as its last transaction recorded it; a resumed run starts there.

    `position`: the next source position to read. `covered`: the end of the source positions with a
    translation; -1 before the first record if it is not known where the source's partition begins. `end`: the
    end of the target partition, provided that nobody else wrote to it.
    """

    position: int = 0
    entries: int = 0
    bytes: int = 0
    covered: int = -1
    end: int = UNKNOWN

    @property
    def note(self) -> str:
        return f"{self.entries},{self.bytes},{self.covered},{self.end}"

    @classmethod
    def parse(cls, position: int, note: str) -> Self:
        return cls(position, *(int(part) for part in note.split(",")))


def rows_of(runs: Longs, covered: int, start: int, end: int) -> Longs:
    """The translation of one transaction: int64[rows, 4] of from, first, to and target position.

    The rows begin at `covered` (-1: at the first offset of `runs`). The records land at `start`, and `end` is
    the target's end after them. The last row covers no offset: it is the position of a reader who has read
    everything. If `start` is UNKNOWN, so are the target positions.
    """
    if not len(runs):
        return np.array([[covered, covered, covered, end]] if covered >= 0 else [], np.int64).reshape(-1, 4)
    last = int(runs[-1, 1])
    begin = covered if covered >= 0 else int(runs[0, 0])
    closing = [last, last, last, end]
    if start == UNKNOWN:
        return np.array([[begin, begin, last, UNKNOWN], closing], np.int64)
    since = np.concatenate(([begin], runs[:-1, 1]))
    rows = np.column_stack((since, runs[:, 0], runs[:, 1], start + runs[:, 2]))
    return np.concatenate((rows, [closing])).astype(np.int64)


def doubtful(rows: Longs) -> Longs:
    """Rows for the same range of source positions, with unknown target positions."""
    begin, last = int(rows[0, 0]), int(rows[-1, 2])
    return np.array([[begin, begin, last, UNKNOWN], [last, last, last, UNKNOWN]], np.int64)


class Ledger:
    """The translation of one partition, transaction by transaction.

    The rows of a transaction are staged before its commit. When the partition's end afterwards is the
    expected one, they are put into an object that counts. After a crash the resumed run decides about the
    staged rows. Only one transaction can be in doubt, because the next one begins only when it is decided.
    The methods take the ends of the target partition, as the broker tells them; None, if the records are
    distributed over partitions, makes the target positions unknown. They return the rows to put, which the
    caller does for all partitions together; no rows, where nothing is to be recorded. Without an `identity`
    (the records have no source offsets) nothing is.
    """

    def __init__(self, storage: Storage, identity: Translation | None) -> None:
        self.identity = identity
        self._storage = storage
        self._start = UNKNOWN
        self._runs: list[Longs] = []
        self._rows: Longs = _NO_ROWS
        self._last: int | None = None

    def open(self, reached: Reached, ends: Ends | None, staged: Iterable[StagedRows]) -> Longs:
        """Decide what earlier runs, which staged these rows, left in doubt. Call it before a run's first
        transaction."""
        in_doubt = [entry.rows for entry in staged if entry.position == reached.position]
        decided = _NO_ROWS
        if in_doubt:
            # A replaced task may have staged its rows after the other task's commit; they have another end.
            expected = [rows for rows in in_doubt if int(rows[-1, 3]) == reached.end]
            self._rows = expected[0] if expected else doubtful(in_doubt[0])
            decided = self.confirm(reached, ends)
        if ends:
            self._start = ends.high
        return decided

    def add(self, offsets: Longs) -> None:
        """Add the source offsets of sent records, in order."""
        self._runs.append(find_runs(offsets))

    def close(self, reached: Reached, position: int, size: int) -> tuple[Reached, Longs]:
        """End the rows of a transaction, which are to be staged before its commit. The transaction began at
        `reached`; it brings the restore to `position`, with `size` more bytes. Returns the new state too."""
        runs = join_runs(self._runs)
        self._runs = []
        count = int(runs[-1, 2] + runs[-1, 1] - runs[-1, 0]) if len(runs) else 0
        end = UNKNOWN if self._start == UNKNOWN else self._start + count + (count > 0)  # and the marker
        self._rows = rows_of(runs, reached.covered, self._start, end) if self.identity else _NO_ROWS
        covered = int(runs[-1, 1]) if len(runs) else reached.covered
        return Reached(position, reached.entries + count, reached.bytes + size, covered, end), self._rows

    def confirm(self, reached: Reached, ends: Ends | None) -> Longs:
        """Return the rows of a transaction that count. Call it when the commit that brought the restore to
        `reached` is visible."""
        is_confirmed = True
        if ends and reached.end != UNKNOWN:
            is_confirmed = ends == (reached.end, reached.end)
            self._start = ends.high
        if self.identity and len(self._rows):
            if not is_confirmed:
                self._rows = self._rows_in_doubt(object_path(self.identity, self._rows))
            self._last = int(self._rows[-1, 3])
        return self._rows

    def _rows_in_doubt(self, path: str) -> Longs:
        """The rows of a transaction whose records are not where they were expected.

        Their positions are unknown, unless the same transaction was recorded before. It is then decided again
        only because brokers lost the end of the next one; its records have not moved.
        """
        recorded_rows = read_rows(self._storage, path)
        if recorded_rows is not None and recorded_rows[-1, 2] == self._rows[-1, 2]:
            return recorded_rows
        return doubtful(self._rows)

    def end(self, reached: Reached, end: int, ends: Ends | None) -> Longs:
        """Return, when all is restored, the row that leads from the source's `end` to the target's."""
        if not self.identity or not 0 <= reached.covered < end:
            return _NO_ROWS
        target_end = self._last
        if target_end is None:  # an earlier run restored everything
            is_untouched = ends == (reached.end, reached.end)
            target_end = reached.end if is_untouched else UNKNOWN
        return np.array([[reached.covered, end, end, target_end]], np.int64)
