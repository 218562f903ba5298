"""The tasks of a merge copy blocks as they are, and write the rows and key filters of the new files.

A file that held the same records from the start has the same row, except for size and digest.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.disks import flip
from tests.support.roots import roots_of

from lakebackup.errors import Damaged
from lakebackup.plan.topics.merge import group_files
from lakebackup.rows.backups import DataFile
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.plan_file import write_plan_file
from lakebackup_jobs.kafka.format.container import FileReader, FileWriter
from lakebackup_jobs.kafka.format.key_filter import KeyFilters, hashes_of, may_hold
from lakebackup_jobs.kafka.format.records import (
    decode_block,
    encode_record,
)
from lakebackup_jobs.kafka.format.schemas import FORMAT_V1, FORMAT_V2, SCHEMA_V1
from lakebackup_jobs.lifecycle.tasks import errors as outcome
from lakebackup_jobs.lifecycle.tasks.plan_shares import store_plan
from lakebackup_jobs.topics.tasks import merge as merge_task
from lakebackup_jobs.topics.tasks.merge import Merge, MergedFile, divide

EPOCH, BACKUP, OLDER_BACKUP = "0" * 32, "20260101T000000Z-00000001", "20251231T000000Z-00000001"
FOLDER = f"s/backups/{BACKUP}/"
Record = tuple[int, bytes | None, bytes | None, int]  # offset, key, value, timestamp


def store(
    root: Path, number: int, records: Sequence[Record], *, codec: str = "zstandard", region: str = "0",
    keys: bool = True, block: int = 3,
) -> MergedFile:  # fmt: skip
    """A data file as a backup writes it, and its row."""
    storage = open_storage(str(root))
    path = f"in/{number}.data"
    with storage.writer() as sink, KeyFilters(storage, "s", OLDER_BACKUP, number) as filters:
        writer = FileWriter(sink, codec=codec)
        for first in range(0, len(records), block):
            block_records = records[first : first + block]
            data = b"".join(
                encode_record("t", int(region), o, ts, 1, k, v, []) for o, k, v, ts in block_records
            )
            columns = decode_block(data, len(block_records))
            packed = columns.packed()
            assert packed
            writer.write_block(replace(packed, hashes=hashes_of(columns)))
        stats = writer.finish()
        sink.commit(path)
        filters_row = filters.add(stats.keys if keys else None, ("t", EPOCH, region, 0))
        filters.commit()
    return MergedFile(
        scope="t", epoch=EPOCH, region=region, destination="d", path=path, format=FORMAT_V2, codec=codec,
        generation=4, key_id=None,
        **{"keys_path": None, "keys_start": None, "keys_blocks": None} | filters_row,
        **{name: value for name, value in stats.columns().items() if name in MergedFile.__match_args__},
    )  # fmt: skip


def merged(root: Path, files: Sequence[MergedFile], target: int = 1 << 30) -> list[DataFile]:
    """The rows that the tasks write. Each task runs twice, as it may in Spark."""
    storage = open_storage(str(root))
    shares, ranks = divide(group_files(files, target, {}))
    file = write_plan_file([pa.Table.from_pylist([asdict(file) for file in files]).to_reader()])
    plan = store_plan(storage, FOLDER, file, shares, most_tasks=len(shares))
    count = len(shares)
    job = Merge(
        plan=plan, ranks=ranks, target_bytes=target, rolls={},
        uri=str(root), roots=roots_of(d=str(root)), destination="d", source="s",
        backup_id=BACKUP, number=9, level=1, parent="p", sequences={("t", "0"): 7},
    )  # fmt: skip
    for _ in range(2):
        results = [row for b in job([pa.record_batch({"id": list(range(count))})]) for row in b.to_pylist()]
        outcome.raise_first(row["error"] for row in results)
    rows = [
        row for task in range(count) for row in sidecar.read_part(storage, f"{FOLDER}parts/{task:06d}.jsonl")
    ]
    assert sum(row["files"] for row in results) == len(rows)
    assert sum(row["entries"] for row in results) == sum(file.entries for file in files)
    return rows


def records_of(root: Path, row: DataFile) -> list[dict[str, Any]]:
    """The records of a file, read by fastavro alone. The row must agree with the file."""
    data = (root / row.path).read_bytes()
    assert (row.bytes, row.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    records: list[Any] = list(fastavro.reader(io.BytesIO(data)))
    assert len(records) == row.entries
    return records


def blocks(root: Path, path: str) -> list[tuple[int, bytes]]:
    reader = FileReader(io.BytesIO((root / path).read_bytes()), path)
    return [(count, data) for _, count, data in reader.compressed_blocks()]


def test_a_merge_keeps_the_bytes_of_blocks(tmp_path: Path) -> None:
    files = [
        store(tmp_path, n, [(10 * n + i, b"k%d" % i, b"v" * i, 1_000 * n + i) for i in range(8)])
        for n in range(3)
    ]
    with mock.patch.object(FileReader, "decode", side_effect=AssertionError("looked at")):
        (row,) = merged(tmp_path, files)
    assert blocks(tmp_path, row.path) == [b for file in files for b in blocks(tmp_path, file.path)]
    assert row.path == f"s/{EPOCH}/topics/t/partition=0/t+0-0000000007.data"
    assert (row.level, row.parent, row.generation, row.added_in) == (1, "p", 4, 9)
    assert (row.start_position, row.end_position, row.min_ts, row.max_ts) == (0, 28, 0, 2_007)
    assert [r["offset"] for r in records_of(tmp_path, row)] == [
        10 * n + i for n in range(3) for i in range(8)
    ]
    assert all(may_hold(open_storage(str(tmp_path)), row, [b"k%d" % i], pytest.fail) for i in range(8))


drawn = st.lists(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=3) | st.sampled_from([b"x" * 64, b"\xff" * 70, b"y" * 65]),
            st.none() | st.binary(max_size=9),
            st.integers(-1, 99),
        ),
        min_size=1,
        max_size=7,
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=settings.default.max_examples // 2)
@given(drawn=drawn, keys=st.booleans())
def test_the_row_is_that_of_a_single_file_with_all_records(
    drawn: list[list[tuple[bytes | None, bytes | None, int]]],
    keys: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("merged")
    rows, offset = [], 0
    for file_records in drawn:
        rows.append([(offset + i, *record) for i, record in enumerate(file_records)])
        offset += len(file_records) + 1
    files = [store(root, n, file_records, keys=keys) for n, file_records in enumerate(rows)]
    (row,) = merged(root, files)
    single_file = store(root, 99, [record for file_records in rows for record in file_records])
    differing = {
        "bytes",
        "sha256",
        "path",
        "keys_path",
        "keys_start",
        "keys_blocks",
        "generation",
        "destination",
    }
    for name in set(MergedFile.__match_args__) - differing:
        assert getattr(row, name) == getattr(single_file, name), name
    records = records_of(root, row)
    assert [(r["offset"], r["key"], r["value"], r["timestamp"]) for r in records] == [
        record for file_records in rows for record in file_records
    ]
    storage = open_storage(str(root))
    assert all(may_hold(storage, row, [r["key"]], pytest.fail) for r in records if r["key"] is not None)


def test_key_filters_of_different_keys_are_recreated_from_the_records(tmp_path: Path) -> None:
    files = [
        store(tmp_path, n, [(1000 * n + i, b"%d-%d" % (n, i), b"v", 0) for i in range(1000)], block=100)
        for n in range(4)
    ]
    (row,) = merged(tmp_path, files)
    storage = open_storage(str(tmp_path))
    assert all(
        may_hold(storage, row, [b"%d-%d" % (n, i)], pytest.fail) for n in range(4) for i in range(1000)
    )
    assert sum(may_hold(storage, row, [b"other-%d" % i], pytest.fail) for i in range(2000)) < 60
    assert blocks(tmp_path, row.path) == [b for file in files for b in blocks(tmp_path, file.path)]


@pytest.mark.parametrize("fault", ["gone", "damaged"])
def test_a_missing_or_damaged_key_filter_is_recreated(fault: str, tmp_path: Path) -> None:
    files = [store(tmp_path, n, [(10 * n + i, b"k%d" % i, b"v", 0) for i in range(8)]) for n in range(2)]
    filter_path = tmp_path / (files[1].keys_path or "")
    filter_path.unlink() if fault == "gone" else flip(filter_path, 3)
    (row,) = merged(tmp_path, files)
    storage = open_storage(str(tmp_path))
    assert all(may_hold(storage, row, [b"k%d" % i], pytest.fail) for i in range(8))
    assert not all(may_hold(storage, row, [b"other-%d" % i], pytest.fail) for i in range(50))


def test_formats_codecs_and_partitions_are_kept_apart(tmp_path: Path) -> None:
    records: list[Record] = [(i, b"k", b"v", 5) for i in range(4)]
    old = [
        {"topic": "t", "partition": 0, "offset": 8 + i, "timestamp": 5, "key": b"k", "value": b"old",
         "headers": {"h": b"1"}}
        for i in range(3)
    ]  # fmt: skip
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(json.loads(SCHEMA_V1)), old, codec="deflate")
    (tmp_path / "old.data").write_bytes(buffer.getvalue())
    first = store(tmp_path, 0, records, codec="null")
    version_1 = replace(
        first, path="old.data", format=FORMAT_V1, codec="deflate", bytes=len(buffer.getvalue()), entries=3,
        sha256=hashlib.sha256(buffer.getvalue()).hexdigest(), start_position=8, end_position=11,
        keys_path=None, keys_start=None, keys_blocks=None,
    )  # fmt: skip
    files = [
        first, store(tmp_path, 1, [(4, b"k", b"v", 5)], codec="null"), version_1,
        store(tmp_path, 2, records, region="1"),
    ]  # fmt: skip
    with mock.patch.object(merge_task, "TASK_FILES", 2):
        rows = merged(tmp_path, files)
    assert [(r.region, r.codec, r.format, r.entries, r.path[-7:]) for r in rows] == [
        ("0", "null", FORMAT_V2, 5, "07.data"), ("0", "deflate", FORMAT_V1, 3, "08.data"),
        ("1", "zstandard", FORMAT_V2, 4, "00.data"),
    ]  # fmt: skip
    assert [r["value"] for r in records_of(tmp_path, rows[1])] == [b"old"] * 3
    assert records_of(tmp_path, rows[1])[0]["headers"] == {"h": b"1"}


@pytest.mark.parametrize("fault", ["a flipped bit", "another count", "another codec"])
def test_nothing_is_written_of_a_file_that_differs_from_the_catalog(fault: str, tmp_path: Path) -> None:
    files = [store(tmp_path, n, [(10 * n + i, b"k", b"v", 0) for i in range(8)]) for n in range(2)]
    if fault == "a flipped bit":
        flip(tmp_path / files[1].path)
    elif fault == "another count":
        files[1] = replace(files[1], entries=9)
    else:
        files = [replace(file, codec="null") for file in files]
    with pytest.raises(Damaged, match=r"in/\d.data"):
        merged(tmp_path, files)
    assert not list(tmp_path.glob("s/**/*.data"))


def test_files_of_an_interrupted_run_are_checked_before_they_count(tmp_path: Path) -> None:
    (row,) = merged(tmp_path, [store(tmp_path, 0, [(0, b"k", b"v", 0)])])
    (tmp_path / row.path).unlink()
    with pytest.raises(Damaged, match="interrupted") as damaged:
        merged(tmp_path, [store(tmp_path, 1, [(0, b"k", b"v", 0)])])
    assert "starts over" in damaged.value.hint
