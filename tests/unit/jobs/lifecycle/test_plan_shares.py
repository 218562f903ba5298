"""The recorded plan of a run: its shares, and what a concurrent prune reads of it."""

from __future__ import annotations

from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import Damaged
from lakebackup.storage import open_storage
from lakebackup.store.plan_file import write_plan_file
from lakebackup_jobs.lifecycle.tasks.plan_shares import (
    Share,
    clear,
    divided,
    regions_of,
    require_plan,
    runs_of,
    store_plan,
    stored_plan,
    weighed,
)

FILES = pa.table({"scope": ["t", "t", "t"], "region": ["0", "1", "1"], "path": ["a", "b", "c"]})
SHARES = [Share(1, 3, ("t", "e", "1")), Share(0, 1, ("t", "e", "0"))]


def test_a_recorded_plan_is_read_as_it_was_stored(tmp_path: Path) -> None:
    storage, folder = open_storage(str(tmp_path)), "restores/r/"
    assert stored_plan(storage, folder) is None
    shares = store_plan(storage, folder, write_plan_file([FILES.to_reader()]), SHARES, {"at": 5})
    assert stored_plan(storage, folder) == (shares, {"at": 5})
    paths = [[b["path"].to_pylist() for b in shares.batches(number, ["path"])] for number in shares.numbers]
    assert paths == [[["b", "c"]], [["a"]]]
    assert regions_of(storage, folder) == [("t", "e", "1"), ("t", "e", "0")]
    clear(storage, folder)
    assert list(storage.list()) == []


def test_a_recorded_plan_keeps_the_number_of_tasks(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    shares = store_plan(storage, "m/", write_plan_file([FILES.to_reader()]), SHARES, most_tasks=1)
    assert shares.tasks == (tuple(SHARES),)
    assert stored_plan(storage, "m/") == (shares, {})


def test_a_partition_is_divided_when_a_share_is_full() -> None:
    rows = [("a", 1), ("a", 5), ("a", 1), ("b", 9), ("b", 1)]
    shares = divided(rows, lambda row: (row[0],), (itemgetter(1), 6))
    assert shares == [Share(0, 2, ("a",)), Share(2, 3, ("a",)), Share(3, 4, ("b",)), Share(4, 5, ("b",))]


def test_a_plan_that_is_being_deleted_is_none(tmp_path: Path) -> None:
    storage, folder = open_storage(str(tmp_path)), "restores/r/"
    store_plan(storage, folder, write_plan_file([FILES.to_reader()]), SHARES, {})
    storage.delete(f"{folder}plan/plan.json")
    assert regions_of(storage, folder) is None
    assert stored_plan(storage, folder) is None
    with pytest.raises(Damaged, match=r"restores/r/plan/plan\.json"):
        require_plan(storage, folder)


def test_a_share_is_the_rows_of_a_partition() -> None:
    assert runs_of(FILES.to_batches(max_chunksize=2), ["scope", "region"]) == [
        Share(0, 1, ("t", "0")),
        Share(1, 3, ("t", "1")),
    ]


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=30),
    size=st.integers(1, 20),
    chunk=st.integers(1, 7),
)
def test_shares_have_about_the_same_weight_and_whole_objects(
    rows: list[tuple[int, int]], size: int, chunk: int
) -> None:
    rows = sorted(rows)
    table = pa.table(
        {
            "destination": pa.array(["d"] * len(rows)),
            "path": pa.array([str(number) for number, _ in rows], pa.string()),
            "bytes": pa.array([weight for _, weight in rows], pa.int64()),
        }
    )
    shares = weighed(table.to_batches(max_chunksize=chunk), size, weight="bytes")
    assert [number for share in shares for number in range(share.first, share.end)] == [*range(len(rows))]
    assert all(share.end > share.first for share in shares)
    for remaining, right in pairwise(shares):
        assert rows[remaining.end - 1][0] != rows[right.first][0]
    heaviest = max((sum(w for n, w in rows if n == number) for number in range(4)), default=0)
    for share in shares:
        assert sum(weight for _, weight in rows[share.first : share.end]) < size + heaviest
