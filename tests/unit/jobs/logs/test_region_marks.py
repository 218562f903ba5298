"""The newest mark of each region, as a dict would keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import Damaged
from lakebackup.formats.logs.events import marks_schema
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup_jobs.logs.capture import region_marks
from lakebackup_jobs.logs.capture.region_marks import Marks

BACKUP = "20260131T134511Z-0a1b2c3d"
MARKS = st.lists(
    st.fixed_dictionaries(
        {
            "store": st.sampled_from(["a", "b"]),
            "region": st.integers(0, 5),
            "resolved_ts": st.integers(0, 100),
            "closed": st.booleans(),
            "successors": st.none() | st.lists(st.integers(1, 9), max_size=2),
            "offset": st.just(0),
        }
    ),
    max_size=12,
)


@given(batches=st.lists(MARKS, max_size=5), stores=st.dictionaries(st.integers(1, 9), st.sampled_from("ab")))
def test_the_last_mark_that_closes_a_region_or_else_the_last_counts_with_the_greatest_ts(
    batches: list[list[dict[str, Any]]], stores: dict[int, str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region_marks, "_MANY", 5)
        marks = Marks()
        for batch in batches:
            marks.add(pa.RecordBatch.from_pylist(batch, marks_schema()))
    for region, store in stores.items():
        marks.see(region, store)
    nothing = {"resolved_ts": 0, "closed": False, "successors": None, "marked": False}
    expected = {region: {"region": region, "store": store, **nothing} for region, store in stores.items()}
    for mark in (mark for batch in batches for mark in batch):
        row = {name: value for name, value in mark.items() if name != "offset"}
        previous = expected.get(row["region"], nothing)
        resolved = {"resolved_ts": max(previous["resolved_ts"], row["resolved_ts"]), "marked": True}
        # A mark that is sent again after its region was closed does not reopen it.
        expected[row["region"]] = (previous if previous["closed"] and not row["closed"] else row) | resolved
    table = marks.table()
    assert {row["region"]: row for row in region_marks.mappings(table)} == expected
    assert table["region"].to_pylist() == sorted(expected)
    assert region_marks.resolved(table) == {
        region: row["resolved_ts"] for region, row in expected.items() if row["marked"]
    }


def test_marks_of_a_task_are_kept_until_the_flush_is_committed(tmp_path: Path) -> None:
    storage, marks = open_storage(str(tmp_path)), Marks()
    marks.see(7, "a")
    state = {"ends": [["t", 0, 1, 2]], "finished": [{"é": 1}]}
    region_marks.write_report(storage, "task", BACKUP, 3, marks.table(), state)
    rows, stored_state = region_marks.read_report(storage, "task", BACKUP, 3)
    assert (rows.equals(marks.table()), stored_state) == (True, state)
    path = layout.marks_path("task", BACKUP, 3)
    content = storage.get(path)
    for damaged in (content[:-5], content[: len(content) // 2], b""):
        storage.put(path, damaged)
        with pytest.raises(Damaged, match=r"marks/000003\.parquet"):
            region_marks.read_report(storage, "task", BACKUP, 3)
    region_marks.clear(storage, "task", BACKUP)
    assert list(storage.list("task/")) == []
    with pytest.raises(Damaged, match="is missing or torn"):
        region_marks.read_report(storage, "task", BACKUP, 3)
