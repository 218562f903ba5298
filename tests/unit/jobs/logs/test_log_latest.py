"""The latest write of each key, as tasks compute it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.formats.logs.events import DEFAULT, WRITE
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.roots import Roots
from lakebackup_jobs.logs.restore.content import pieces
from lakebackup_jobs.logs.restore.shares import Latest, LogShares, ReadJob, latest_of

SCHEMA = pa.schema(
    [
        ("table_id", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("start_ts", pa.int64()),
        ("commit_ts", pa.int64()),
        ("type", pa.string()),
        ("seq", pa.int64()),
        ("sub", pa.int32()),
    ]
)
small = st.integers(0, 3)
writes = st.tuples(small, st.sampled_from([b"", b"a", b"\xff", b"ab"]), small, small, small)


@given(st.lists(st.lists(writes, max_size=8), max_size=5))
def test_the_latest_of_each_key(batch_rows: list[list[tuple[int, bytes, int, int, int]]]) -> None:
    batches = [
        pa.RecordBatch.from_pylist(
            [
                dict(zip(SCHEMA.names, (table, key, None, 1, ts, "P", seq, sub), strict=True))
                for table, key, ts, seq, sub in rows
            ],
            SCHEMA,
        )
        for rows in batch_rows
    ]
    expected: dict[tuple[int, bytes], tuple[int, int, int]] = {}
    for rows in batch_rows:
        for table, key, *order in rows:
            expected[table, key] = max(expected.get((table, key), (-1, -1, -1)), tuple(order))  # type: ignore[type-var]
    for latest_batches in (latest_of(batches), list(Latest()(iter(batches)))):
        rows = [row for batch in latest_batches for row in batch.to_pylist()]
        assert len(rows) == len(expected)
        assert {
            (row["table_id"], row["key"]): (row["commit_ts"], row["seq"], row["sub"]) for row in rows
        } == expected


@pytest.mark.parametrize(
    ("kind", "expected"), [(WRITE, [False, True, True, False]), (DEFAULT, [False, True, True, False])]
)
def test_a_span_excludes_its_start_and_includes_its_end(kind: str, expected: list[bool]) -> None:
    shares = LogShares("", "", PlanFile("", ()), {}, Roots({}), 10, 20, 11, None, None, True, None)
    rows = [(None, b"a", None, ts, ts, "P", 0, 0) for ts in (10, 11, 20, 21)]
    batch = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
    assert ReadJob(shares, kind)._mask(batch).to_pylist() == expected


def test_a_range_of_keys_includes_its_start_and_excludes_its_end() -> None:
    shares = LogShares(
        "", "", PlanFile("", ()), {}, Roots({}), 0, 9, None, b"b".hex(), b"d".hex(), True, None
    )
    rows = [(None, key, None, 1, 1, "P", 0, 0) for key in (b"a", b"b", b"c\xff", b"d")]
    batch = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
    assert ReadJob(shares, WRITE)._mask(batch).to_pylist() == [False, True, True, False]


def test_a_task_holds_a_small_part_of_a_huge_log() -> None:
    assert pieces(0) == 1
    for raw_bytes, limit in ((1 << 30, 64 << 20), (10 << 40, 64 << 20), (400 * 10**12, 2 << 30)):
        assert raw_bytes / pieces(raw_bytes) <= limit
