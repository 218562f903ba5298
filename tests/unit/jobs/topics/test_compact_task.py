"""The records that a compaction keeps, compared with a dict. fastavro writes and reads the files."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.disks import flip
from tests.support.roots import roots_of

from lakebackup.errors import Damaged
from lakebackup.rows.backups import DataFile
from lakebackup.rows.tables import as_row
from lakebackup.storage import Storage, open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.plan_file import write_plan_file
from lakebackup_jobs.kafka.format.key_filter import may_hold
from lakebackup_jobs.kafka.format.schemas import FORMAT_V1, FORMAT_V2, SCHEMA_V1, SCHEMA_V2
from lakebackup_jobs.kafka.format.stored import StoredFile
from lakebackup_jobs.lifecycle.tasks import errors as outcome
from lakebackup_jobs.lifecycle.tasks.plan_shares import store_plan
from lakebackup_jobs.topics.tasks import compact as compact_task
from lakebackup_jobs.topics.tasks.compact import FindNewest, KeepNewest, divide
from lakebackup_jobs.upkeep.verify_task import CheckKeys

Row = dict[str, Any]
EPOCH, BACKUP = "0" * 32, "20260101T000000Z-00000001"
FOLDER = f"s/backups/{BACKUP}/"
DROP_BEFORE = 1_000


def record(offset: int, key: bytes | None, value: bytes | None, ts: int = 5_000, partition: int = 0) -> Row:
    return {
        "topic": "t", "partition": partition, "offset": offset,
        "timestamp": ts, "timestamp_type": "CREATE_TIME",
        "key": key, "value": value, "headers": [{"key": "h", "value": None}],
    }  # fmt: skip


def store(root: Path, number: int, rows: Sequence[Row], fmt: str = FORMAT_V2) -> StoredFile:
    """Write a file that the catalog could describe."""
    data = io.BytesIO()
    is_v1 = fmt == FORMAT_V1
    schema = fastavro.parse_schema(json.loads(SCHEMA_V1 if is_v1 else SCHEMA_V2))
    avro_rows = [{**row, "headers": {"h": b"1"}} for row in rows] if is_v1 else rows
    fastavro.writer(data, schema, avro_rows, codec="deflate", sync_interval=60)
    path = f"in/{number}.data"
    (root / "in").mkdir(exist_ok=True)
    (root / path).write_bytes(data.getvalue())
    return StoredFile(
        scope="t", epoch=EPOCH, region=str(rows[0]["partition"]), start_position=rows[0]["offset"],
        end_position=rows[-1]["offset"] + 1, destination="d", path=path, format=fmt, codec="deflate",
        bytes=len(data.getvalue()), sha256=hashlib.sha256(data.getvalue()).hexdigest(), entries=len(rows),
    )  # fmt: skip


def compacted(
    root: Path, files: Sequence[StoredFile], *, piece_entries: int, target: int, held_bytes: int
) -> list[Row]:
    """The records that the tasks keep, by partition and offset. This function does the part of Spark."""
    storage = open_storage(str(root))
    with (
        mock.patch.object(compact_task, "PIECE_ENTRIES", piece_entries),
        mock.patch.object(compact_task, "HELD_BYTES", held_bytes),
    ):
        shares = divide(files)
        file = write_plan_file([pa.Table.from_pylist([asdict(file) for file in files]).to_reader()])
        plan = store_plan(storage, FOLDER, file, shares, most_tasks=len(shares))
        count = len(shares)
        find = FindNewest(plan, roots_of(d=str(root)))
        newest: dict[tuple[int, bytes], tuple[int, int]] = defaultdict(lambda: (-1, -1))
        for batch in find([pa.record_batch({"id": list(range(count))})]):
            for row in batch.to_pylist():
                key = row["part"], row["key"]
                newest[key] = max(newest[key], (row["piece"], row["position"]))
    survivors = sorted([*newest.values(), *((number, -1) for number in range(count))])
    keep = KeepNewest(
        plan=plan, uri=str(root), roots=roots_of(d=str(root)), destination="d", source="s",
        backup_id=BACKUP, number=9, level=1, parent="p", codec="zstandard", compression_level=None,
        target_bytes=target,
        sequences={("t", "0"): 7}, generations={"t": 3}, drop_before={"t": DROP_BEFORE},
    )  # fmt: skip
    results: list[Row] = []
    for _ in range(2):  # a task that runs twice counts once
        cut = len(survivors) // 2
        batches = [
            pa.record_batch(
                {
                    "piece": pa.array([piece for piece, _ in half], pa.int32()),
                    "position": pa.array([position for _, position in half], pa.int64()),
                }
            )
            for half in (survivors[:cut], survivors[cut:])
        ]
        results = [row for batch in keep(batches) for row in batch.to_pylist()]
        outcome.raise_first(row["error"] for row in results)
    assert [row["task"] for row in results] == list(range(count))
    records: list[Row] = []
    for number in range(count):
        rows = sidecar.read_part(storage, f"{FOLDER}parts/{number:06d}.jsonl")
        assert sum(row.entries for row in rows) == results[number]["entries"]
        for row in rows:
            data = (root / row.path).read_bytes()
            assert (row.sha256, row.bytes) == (hashlib.sha256(data).hexdigest(), len(data))
            assert (row.generation, row.parent, row.level) == (3, "p", 1)
            of_file: list[Row] = list(fastavro.reader(io.BytesIO(data)))  # type: ignore[arg-type]
            assert (row.start_position, row.end_position) == (of_file[0]["offset"], of_file[-1]["offset"] + 1)
            assert (row.entries, row.min_ts) == (len(of_file), min(r["timestamp"] for r in of_file))
            assert row.keys_path
            assert all(may_hold(storage, row, [r["key"]], pytest.fail) for r in of_file)
            assert check_keys(storage, row) == ("ok", None)
            records += of_file
    assert len(list(root.glob(f"s/{EPOCH}/topics/t/**/*.data"))) == sum(row["files"] for row in results)
    return records


def check_keys(storage: Storage, row: DataFile) -> tuple[str, str | None]:
    """The outcome and the detail of a check of the key filters of one file."""
    roots = roots_of(d=storage.uri)
    (batch,) = CheckKeys("c", 0, roots, True)([pa.RecordBatch.from_pylist([as_row(row)])])
    (finding,) = batch.to_pylist()
    assert (finding["path"], finding["mode"], finding["backup_id"]) == (row.keys_path, "keys", BACKUP)
    return finding["outcome"], finding["detail"]


def by_dict(rows: Sequence[Row]) -> list[Row]:
    """The records that a compaction should keep, by a plain dict."""
    newest = {(row["partition"], row["key"]): row for row in rows}
    survivors = [
        row for row in newest.values() if not (row["value"] is None and 0 <= row["timestamp"] < DROP_BEFORE)
    ]
    return sorted(survivors, key=lambda row: (row["partition"], row["offset"]))


keys = st.sampled_from([b"", b"a", b"b", b"aa"]) | st.binary(max_size=3)
drawn_records = st.lists(
    st.tuples(
        st.integers(0, 2),  # partition
        st.integers(1, 3),  # step of the offset
        keys,
        st.none() | st.binary(max_size=20),
        st.sampled_from([-1, 0, DROP_BEFORE - 1, DROP_BEFORE, 9_000]),
        st.booleans(),  # the file ends here
    ),
    min_size=1,
    max_size=60,
)


@given(
    drawn_records=drawn_records,
    piece_entries=st.sampled_from([1, 5, 1_000]),
    target=st.sampled_from([1, 10**9]),
    held_bytes=st.sampled_from([1, 10**9]),
)
def test_a_compaction_keeps_what_a_dict_would(
    drawn_records: list[tuple[int, int, bytes, bytes | None, int, bool]],
    piece_entries: int,
    target: int,
    held_bytes: int,
) -> None:
    rows: dict[int, list[list[Row]]] = defaultdict(lambda: [[]])
    offsets: dict[int, int] = defaultdict(int)
    for partition, step, key, value, ts, ends in drawn_records:
        offsets[partition] += step
        rows[partition][-1].append(record(offsets[partition], key, value, ts, partition))
        if ends:
            rows[partition].append([])
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        files = [
            store(root, 100 * partition + i, file_rows)
            for partition in sorted(rows)
            for i, file_rows in enumerate(rows[partition])
            if file_rows
        ]
        kept_rows = compacted(root, files, piece_entries=piece_entries, target=target, held_bytes=held_bytes)
        all_rows = [row for partition in rows.values() for file_rows in partition for row in file_rows]
        assert kept_rows == by_dict(all_rows)


def test_files_of_the_first_format_keep_it(tmp_path: Path) -> None:
    old = [record(i, b"k%d" % (i % 3), b"old%d" % i) for i in range(6)]
    new = [record(6, b"k0", b"new"), record(7, b"x", None)]
    files = [store(tmp_path, 0, old, FORMAT_V1), store(tmp_path, 1, new)]
    kept_rows = compacted(tmp_path, files, piece_entries=100, target=10**9, held_bytes=10**9)
    assert [(r["offset"], r["key"], r["value"]) for r in kept_rows] == [
        (4, b"k1", b"old4"), (5, b"k2", b"old5"), (6, b"k0", b"new"), (7, b"x", None),
    ]  # fmt: skip
    assert [r["headers"] for r in kept_rows][1:3] == [{"h": b"1"}, [{"key": "h", "value": None}]]


def test_long_keys_that_differ_at_their_ends_are_distinct(tmp_path: Path) -> None:
    rows = [record(i, b"x" * 100_000 + bytes([i % 2]), b"%d" % i) for i in range(6)]
    kept_rows = compacted(tmp_path, [store(tmp_path, 0, rows)], piece_entries=2, target=1, held_bytes=1)
    assert [r["offset"] for r in kept_rows] == [4, 5]


@pytest.mark.parametrize("fault", ["no key", "a flipped bit", "another count"])
def test_files_that_differ_from_the_catalog_are_refused(fault: str, tmp_path: Path) -> None:
    file = store(tmp_path, 0, [record(0, b"k", b"v"), record(1, None if fault == "no key" else b"k", b"v")])
    if fault == "a flipped bit":
        flip(tmp_path / file.path, -20)
    elif fault == "another count":
        file = replace(file, entries=3)
    with pytest.raises(Damaged, match=file.path):
        compacted(tmp_path, [file], piece_entries=10, target=1, held_bytes=1)
