"""The latest write of each key, as tasks find it."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebackup_jobs.changelog.apply import pieces
from lakebackup_jobs.changelog.log_shares import Latest, latest_of

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


@settings(deadline=None)
@given(st.lists(st.lists(writes, max_size=8), max_size=5))
def test_the_latest_of_each_key(pieces: list[list[tuple[int, bytes, int, int, int]]]) -> None:
    batches = [
        pa.RecordBatch.from_pylist(
            [
                dict(zip(SCHEMA.names, (table, key, None, 1, ts, "P", seq, sub), strict=True))
                for table, key, ts, seq, sub in rows
            ],
            SCHEMA,
        )
        for rows in pieces
    ]
    wanted: dict[tuple[int, bytes], tuple[int, int, int]] = {}
    for rows in pieces:
        for table, key, *later in rows:
            wanted[table, key] = max(wanted.get((table, key), (-1, -1, -1)), tuple(later))  # type: ignore[type-var]
    for found in (latest_of(batches), list(Latest()(iter(batches)))):
        rows = [row for batch in found for row in batch.to_pylist()]
        assert len(rows) == len(wanted)
        assert {
            (row["table_id"], row["key"]): (row["commit_ts"], row["seq"], row["sub"]) for row in rows
        } == wanted


def test_a_task_holds_little_of_a_huge_log() -> None:
    assert pieces(0) == 1
    for raw_bytes, most in ((1 << 30, 64 << 20), (10 << 40, 64 << 20), (400 * 10**12, 2 << 30)):
        assert raw_bytes / pieces(raw_bytes) <= most
