"""Where the records of a restore land: runs of source offsets, each with the target offset of its first.

A producer does not learn where its records landed. But a partition that nobody else writes to shows it: the
records of a transaction follow its end, and after the commit it has grown by them and one marker. A
partition that grew otherwise was written to by others: where the records are is then not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from lakebackup.rows.base import UNKNOWN
from lakebackup.storage import working
from lakebackup.store.translations import aside_path, object_path, put_rows, read_rows, take_aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebackup.rows.topics import Translation
    from lakebackup.storage import Storage
    from lakebackup_jobs.kafka.admin.committed import Ends
    from lakebackup_jobs.kafka.memory import Longs


def find_runs(offsets: Longs) -> Longs:
    """Runs of consecutive offsets: int64[runs, 3] of first offset, end offset, number of records before.

    `offsets` go up.
    """
    if not len(offsets):
        return np.empty((0, 3), np.int64)
    breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
    starts = np.concatenate(([0], breaks))
    lasts = np.concatenate((breaks, [len(offsets)])) - 1
    return np.column_stack((offsets[starts], offsets[lasts] + 1, starts)).astype(np.int64)


def join_runs(parts: list[Longs]) -> Longs:
    """Runs of parts that follow each other as runs of all; a part is what `find_runs` gives."""
    count, moved = 0, []
    for part in parts:
        if len(part):
            moved.append(part + np.array([0, 0, count]))
            count = int(moved[-1][-1, 2] + part[-1, 1] - part[-1, 0])
    if not moved:
        return np.empty((0, 3), np.int64)
    runs = np.concatenate(moved)
    begins = np.concatenate(([True], runs[1:, 0] != runs[:-1, 1]))
    ends = np.concatenate((begins[1:], [True]))
    return np.column_stack((runs[begins, 0], runs[ends, 1], runs[begins, 2]))


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a partition of a restore is, as its last transaction records: what a resumed run needs.

    `position`: next source position to read. `covered`: end of the source positions that translations
    are for, -1 before the first record when nobody knows where the region begins. `end`: where the target
    partition ends when nobody else wrote to it.
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
    """The rows of one transaction: int64[rows, 4] of from, first, to and target position.

    `runs` begin at `covered` (or at their own first offset when that is -1) and land at `start`; `end` is
    the target's end behind them. The last row covers nothing: it is the position of a reader who has read
    all. UNKNOWN as `start` gives rows of unknown positions.
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
    """The same stretch of source positions, without a place in the target."""
    begin, last = int(rows[0, 0]), int(rows[-1, 2])
    return np.array([[begin, begin, last, UNKNOWN], [last, last, last, UNKNOWN]], np.int64)


class Ledger:
    """The translation of one partition, recorded one transaction after another.

    Before a transaction's commit its rows are staged; when it is seen to be where it was expected, they
    become an object that counts. A run that is resumed after a crash decides about what was staged: only one
    transaction can be in doubt, since the next begins when that is decided. `ends` asks the broker for the
    partition's; without it (records are spread over partitions) every stretch is doubtful. Without an
    identity (records that no source offset has) nothing is recorded.
    """

    def __init__(
        self, storage: Storage, identity: Translation | None, ends: Callable[[], Ends] | None
    ) -> None:
        self._storage, self._identity, self._ends = storage, identity, ends
        self._aside = aside_path(identity) if identity else ""
        self._start = UNKNOWN
        self._runs: list[Longs] = []
        self._rows: Longs = np.empty((0, 4), np.int64)
        self._last: int | None = None

    def open(self, reached: Reached) -> None:
        """Before the first transaction of a run: decide what the one before left in doubt, find the end."""
        aside = take_aside(self._storage, self._aside) if self._identity else None
        if aside is not None and aside[0] == reached.position:
            # What a task that was replaced staged later than the one that committed has another end.
            same = int(aside[1][-1, 3]) == reached.end
            self._rows = aside[1] if same else doubtful(aside[1])
            self.settle(reached)
        if self._ends:
            self._start = self._ends().high

    def add(self, offsets: Longs) -> None:
        """Source offsets of records that were sent, in order."""
        self._runs.append(find_runs(offsets))

    def close(self, reached: Reached, position: int, size: int) -> Reached:
        """Before the commit of a transaction that began at `reached` and brings the restore to `position`."""
        runs = join_runs(self._runs)
        self._runs = []
        count = int(runs[-1, 2] + runs[-1, 1] - runs[-1, 0]) if len(runs) else 0
        end = UNKNOWN if self._start == UNKNOWN else self._start + count + (count > 0)  # and the marker
        self._rows = rows_of(runs, reached.covered, self._start, end)
        if len(self._rows) and self._identity:
            put_rows(self._storage, self._aside, self._identity, self._rows, position)
        covered = int(runs[-1, 1]) if len(runs) else reached.covered
        return Reached(position, reached.entries + count, reached.bytes + size, covered, end)

    def settle(self, reached: Reached) -> None:
        """After the commit that brought the restore to `reached` and is seen: its rows count from now on."""
        sure = True
        if self._ends and reached.end != UNKNOWN:
            found = self._ends()
            sure = found == (reached.end, reached.end)
            self._start = found.high
        if len(self._rows) and self._identity:
            path = object_path(self._identity, self._rows)
            if not sure:
                self._rows = self._known_before(path)
            put_rows(self._storage, path, self._identity, self._rows)
            working.retire(self._storage, self._aside)
            self._last = int(self._rows[-1, 3])

    def _known_before(self, path: str) -> Longs:
        """What is known of a transaction that did not land where it was expected: nothing, or all.

        All when it was seen there once: it is made again because brokers lost the end of the next one, and
        its records stay where they are.
        """
        before = read_rows(self._storage, path)
        if before is not None and before[-1, 2] == self._rows[-1, 2]:
            return before
        return doubtful(self._rows)

    def end(self, reached: Reached, end: int) -> None:
        """When all is restored: readers at the source's end, behind its last record, are at the target's."""
        if self._identity and 0 <= reached.covered < end:
            last = self._last
            if last is None:  # all was there already
                whole = self._ends is not None and self._ends() == (reached.end, reached.end)
                last = reached.end if whole else UNKNOWN
            rows = np.array([[reached.covered, end, end, last]], np.int64)
            put_rows(self._storage, object_path(self._identity, rows), self._identity, rows)
