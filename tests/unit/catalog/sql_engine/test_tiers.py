"""Which small files are merged: no row is lost or repeated, files stay few, and little is rewritten."""

from __future__ import annotations

import math
import random
from itertools import count

import pytest

from lakebackup.sql_engine.delta.tiers import GROUP_ROWS, MERGE_AT, SMALL_BYTES, TableFile, due_files

TIERS = 2


class Table:
    """A table of files with sizes only, which is merged after each commit as a run does it."""

    def __init__(self, footer_bytes: int, row_bytes: float) -> None:
        self.footer_bytes, self.row_bytes = footer_bytes, row_bytes
        self.rows_by_file: dict[TableFile, frozenset[int]] = {}
        self.rewritten_bytes = 0
        self._numbers = count()

    def commit(self, rows: frozenset[int]) -> None:
        self._add(rows)
        if due := due_files(self.rows_by_file):
            assert len(due) > 1
            merged_rows = [self.rows_by_file.pop(file) for file in due]
            assert sum(map(len, merged_rows)) == len(frozenset().union(*merged_rows))
            self.rewritten_bytes += self._add(frozenset().union(*merged_rows)).bytes

    def _add(self, rows: frozenset[int]) -> TableFile:
        size = round(self.footer_bytes + self.row_bytes * len(rows))
        file = TableFile(min(rows), f"part-{next(self._numbers)}", size, len(rows))
        self.rows_by_file[file] = rows
        return file

    @property
    def small_files(self) -> int:
        return sum(file.is_small for file in self.rows_by_file)


@pytest.mark.parametrize(("footer_bytes", "row_bytes"), [(2_000, 8), (8_000, 130), (8_000, 5_000)])
@pytest.mark.parametrize("most_rows", [1, 60])
def test_files_stay_few_and_rows_stay(footer_bytes: int, row_bytes: float, most_rows: int) -> None:
    rng, table, first = random.Random(7), Table(footer_bytes, row_bytes), 0
    commits = 3_000
    for _ in range(commits):
        beyond = first + rng.randint(1, most_rows)
        table.commit(frozenset(range(first, beyond)))
        first = beyond
        assert table.small_files <= TIERS * MERGE_AT
    rows = [row for rows in table.rows_by_file.values() for row in rows]
    assert sorted(rows) == list(range(first))


def test_what_a_commit_rewrites_does_not_grow_with_the_table() -> None:
    table, figures = Table(8_000, 130), {}
    for number in range(1, 20_001):
        table.commit(frozenset([number]))
        if number in (200, 2_000, 20_000):
            figures[number] = table.rewritten_bytes / number
    lowest_tier = (128 << 10) / MERGE_AT
    assert all(mean < 2 * lowest_tier for mean in figures.values()), figures
    assert figures[20_000] / figures[2_000] < math.log(20_000) / math.log(2_000) * 1.1


def test_fewer_files_than_a_merge_needs_are_left_alone() -> None:
    files = [TableFile(number, f"part-{number}", 100, 1) for number in range(MERGE_AT)]
    assert not due_files(files[1:])
    assert due_files(reversed(files)) == files
    assert not due_files([*files[1:], TableFile(9, "large", SMALL_BYTES, 1)])
    assert not due_files([*files[1:], TableFile(9, "many equal rows", 100, GROUP_ROWS)])


def test_an_old_catalog_is_merged_by_several_runs() -> None:
    files = [TableFile(number, f"part-{number}", 100, 1) for number in range(300)]
    assert [file.order for file in due_files(files)] == list(range(64))


def test_a_merge_has_a_limit_of_rows() -> None:
    files = [TableFile(number, f"part-{number}", 100, GROUP_ROWS // 3) for number in range(MERGE_AT)]
    assert due_files(files) == files[:3]
