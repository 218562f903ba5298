"""Runs of offsets, the rows they become, and ledgers after crashes and beside other producers."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.rows import filled

from lakebackup.rows.base import UNKNOWN
from lakebackup.rows.topics import Translation
from lakebackup.storage import Storage
from lakebackup.store.staged_translations import StagedRows
from lakebackup.store.translations import folder, put_rows
from lakebackup_jobs.kafka.admin.committed import Ends
from lakebackup_jobs.kafka.memory import Longs
from lakebackup_jobs.targets.translation import Ledger, Reached, find_runs, join_runs, rows_of

IDENTITY = filled(
    Translation, restore_id="r", at=1, epoch="e", region="3", cluster="c", target_scope="copy",
    target_epoch="t", target_region="3",
)  # fmt: skip


def offsets(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@given(st.sets(st.integers(0, 60)), st.lists(st.integers(0, 60)), st.integers(0, 5), st.integers(0, 1000))
def test_every_position_is_translated_to_what_a_reader_would_get_next(
    record_offsets: set[int], cuts: list[int], lead: int, start: int
) -> None:
    """This holds for any holes, and for any blocks that the records are in."""
    ordered = sorted(record_offsets)
    edges = sorted({*cuts, 0, 61})
    parts = [find_runs(offsets(*[o for o in ordered if a <= o < b])) for a, b in pairwise(edges)]
    begin = max(0, ordered[0] - lead) if ordered else 7
    rows = rows_of(join_runs(parts), begin, start, start + len(record_offsets) + 1).tolist()
    assert rows[0][0] == begin
    for earlier, later in pairwise(rows):
        assert earlier[2] == later[0]
    for position in range(begin, ordered[-1] + 1 if ordered else begin):
        (row,) = [r for r in rows if r[0] <= position < r[2]]
        following = next(i for i, o in enumerate(ordered) if o >= position)
        assert row[3] + max(0, position - row[1]) == start + following
    end = ordered[-1] + 1 if ordered else begin
    assert rows[-1] == [end, end, end, start + len(record_offsets) + 1]


def test_runs_of_neighbouring_blocks_and_without_a_known_beginning() -> None:
    runs = join_runs([find_runs(offsets(3, 4)), find_runs(offsets()), find_runs(offsets(5, 8))])
    assert runs.tolist() == [[3, 6, 0], [8, 9, 3]]
    assert rows_of(find_runs(offsets(9)), -1, 0, 2).tolist() == [[9, 9, 10, 0], [10, 10, 10, 2]]
    assert rows_of(find_runs(offsets()), -1, 0, 0).tolist() == []


class Partition:
    """The end of a target partition, as its transactions leave it."""

    def __init__(self) -> None:
        self.high = 50

    def ends(self) -> Ends:
        return Ends(self.high, self.high)

    def commit(self, count: int) -> None:
        self.high += count + 1


COLUMNS = ("from_position", "first_position", "to_position", "target_position")


def stored_rows(storage: Storage) -> list[list[int]]:
    tables = [pq.read_table(io.BytesIO(storage.get(o.path))) for o in storage.list(folder("r"))]
    assert {region for table in tables for region in table["region"].to_pylist()} <= {"3"}
    return [list(row.values()) for table in tables for row in table.select(COLUMNS).to_pylist()]


class Restore:
    """The restore of a partition: a ledger, and what its runs have staged."""

    def __init__(self, storage: Storage, partition: Partition | None) -> None:
        self.storage, self.partition = storage, partition
        self.staged: list[StagedRows] = []
        self.ledger = Ledger(storage, IDENTITY)

    def open(self, reached: Reached) -> None:
        """Begin a run."""
        self.ledger = Ledger(self.storage, IDENTITY)
        self.record(self.ledger.open(reached, self.ends(), self.staged))

    def ends(self) -> Ends | None:
        return self.partition and self.partition.ends()

    def close(self, reached: Reached, position: int, *records: int) -> Reached:
        """Send records and stage their translation."""
        self.ledger.add(offsets(*records))
        reached, rows = self.ledger.close(reached, position, 100)
        self.staged = [StagedRows(rows, position)] if len(rows) else []
        return reached

    def confirm(self, reached: Reached) -> None:
        self.record(self.ledger.confirm(reached, self.ends()))

    def end(self, reached: Reached, position: int) -> None:
        self.record(self.ledger.end(reached, position, self.ends()))

    def record(self, rows: Longs) -> None:
        if len(rows):
            put_rows(self.storage, [(IDENTITY, rows)])


def open_restore(storage: Storage, partition: Partition | None, reached: Reached) -> Restore:
    restore = Restore(storage, partition)
    restore.open(reached)
    return restore


def test_transactions_follow_each_other_and_the_end_covers_what_holds_no_record(storage: Storage) -> None:
    partition = Partition()
    reached = Reached(covered=2)
    restore = open_restore(storage, partition, reached)
    for records, position in (((4, 5), 6), ((), 7), ((9, 11), 12)):
        reached = restore.close(reached, position, *records)
        partition.commit(len(records)) if len(records) else None
        restore.confirm(reached)
    restore.end(reached, 15)
    assert (reached.entries, reached.bytes, reached.position) == (4, 300, 12)
    assert stored_rows(storage) == [
        [2, 4, 6, 50], [6, 6, 6, 53],
        [6, 9, 10, 53], [10, 11, 12, 54], [12, 12, 12, 56],
        [12, 15, 15, 56],
    ]  # fmt: skip
    assert Reached.parse(reached.position, reached.note) == reached


def test_a_crash_before_the_commit_leaves_nothing_and_the_redo_counts(storage: Storage) -> None:
    partition = Partition()
    restore = open_restore(storage, partition, Reached(covered=0))
    restore.close(Reached(covered=0), 3, 0, 1, 2)
    assert stored_rows(storage) == []
    partition.commit(2)  # two of them, and the marker that aborted them
    restore.open(Reached(covered=0))
    assert stored_rows(storage) == []
    reached = restore.close(Reached(covered=0), 3, 0, 1, 2)
    partition.commit(3)
    restore.confirm(reached)
    assert stored_rows(storage) == [[0, 0, 3, 53], [3, 3, 3, 57]]


@pytest.mark.parametrize("foreign_records", [0, 1])
def test_a_crash_after_the_commit_is_decided_by_the_next_run(storage: Storage, foreign_records: int) -> None:
    partition = Partition()
    restore = open_restore(storage, partition, Reached(covered=0))
    reached = restore.close(Reached(covered=0), 3, 0, 1, 2)
    partition.commit(3)
    partition.high += foreign_records
    restore.open(Reached.parse(3, reached.note))
    expected = [[0, 0, 3, UNKNOWN], [3, 3, 3, UNKNOWN]] if foreign_records else [[0, 0, 3, 50], [3, 3, 3, 54]]
    assert stored_rows(storage) == expected


def test_rows_that_a_replaced_task_put_aside_late_are_not_trusted(storage: Storage) -> None:
    partition = Partition()
    stale = open_restore(storage, partition, Reached(covered=0))
    partition.high += 5
    restore = open_restore(storage, partition, Reached(covered=0))
    reached = restore.close(Reached(covered=0), 2, 0, 1)
    stale.close(Reached(covered=0), 2, 0, 1)
    partition.commit(2)
    own_rows, restore.staged = restore.staged, stale.staged
    restore.open(Reached.parse(2, reached.note))
    assert [row[3] for row in stored_rows(storage)] == [UNKNOWN, UNKNOWN]
    # Where the rows of both tasks are there, the right ones count.
    restore.staged = [*stale.staged, *own_rows]
    restore.open(Reached.parse(2, reached.note))
    assert [row[3] for row in stored_rows(storage)] == [55, 58]


def test_foreign_records_make_only_their_transaction_unknown(storage: Storage) -> None:
    partition = Partition()
    reached = Reached(covered=0)
    restore = open_restore(storage, partition, reached)
    for disturbed in (False, True, False):
        first = reached.covered
        reached = restore.close(reached, first + 2, first, first + 1)
        partition.commit(2)
        partition.high += disturbed
        restore.confirm(reached)
    assert [row[3] for row in stored_rows(storage)] == [50, 53, UNKNOWN, UNKNOWN, 57, 60]


def test_a_transaction_recreated_after_it_was_seen_stays_known(storage: Storage) -> None:
    """Brokers lost the end of the next one. The restore goes back, finds the records and sends none."""
    partition = Partition()
    restore = open_restore(storage, partition, Reached(covered=0))
    reached = restore.close(Reached(covered=0), 2, 0, 1)
    partition.commit(2)
    restore.confirm(reached)
    rows = stored_rows(storage)
    restore.close(reached, 4, 2, 3)
    partition.high += 1 + 2  # one of them, then what ended it
    restore.open(Reached(covered=0))
    reached = restore.close(Reached(covered=0), 2, 0, 1)
    partition.high += 1
    restore.confirm(reached)
    assert stored_rows(storage) == rows
    restore.end(reached, 3)
    assert stored_rows(storage) == [*rows, [2, 3, 3, 53]]
    restore.staged = []
    restore.open(reached)
    restore.end(reached, 3)
    assert stored_rows(storage) == [*rows, [2, 3, 3, UNKNOWN]]


def test_of_spread_records_only_the_source_positions_are_known(storage: Storage) -> None:
    restore = open_restore(storage, None, Reached(covered=0))
    reached = restore.close(Reached(covered=0), 6, 0, 1, 5)
    restore.confirm(reached)
    restore.end(reached, 8)
    assert stored_rows(storage) == [[0, 0, 6, UNKNOWN], [6, 6, 6, UNKNOWN], [6, 8, 8, UNKNOWN]]
