"""What a task checks of a data file before and after it uses the file."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fastavro
import pytest
from tests.support.roots import roots_of

from lakebackup.errors import Damaged
from lakebackup_jobs.kafka.format.schemas import FORMAT_V1, SCHEMA_V1
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified

COUNT = 20


def store(root: Path) -> StoredFile:
    """A data file of several blocks, and its row."""
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": i,
            "timestamp": i,
            "key": b"k",
            "value": b"v",
            "headers": None,
        }
        for i in range(COUNT)
    ]
    stream = io.BytesIO()
    fastavro.writer(stream, json.loads(SCHEMA_V1), rows, sync_interval=50)
    data = stream.getvalue()
    (root / "0.data").write_bytes(data)
    return StoredFile(
        scope="t", epoch="0" * 32, region="0", start_position=0, end_position=COUNT, destination="d",
        path="0.data", format=FORMAT_V1, codec="null", bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(), entries=COUNT,
    )  # fmt: skip


def test_an_intact_file_is_read(tmp_path: Path) -> None:
    file = store(tmp_path)
    blocks = list(open_verified(roots_of(d=str(tmp_path)), file))
    assert len(blocks) > 1
    assert sum(len(block.rows) for block in blocks) == COUNT


@pytest.mark.parametrize("entries", [COUNT - 1, COUNT + 1])
def test_a_wrong_number_of_records_is_reported(tmp_path: Path, entries: int) -> None:
    file = replace(store(tmp_path), entries=entries)
    with pytest.raises(Damaged, match=f"0.data holds {COUNT} records, its manifest says {entries}"):
        list(open_verified(roots_of(d=str(tmp_path)), file))


def without_its_last_block(data: bytes) -> bytes:
    *_, last = fastavro.block_reader(io.BytesIO(data))
    truncated: bytes = data[: last.offset]
    assert sum(1 for _ in fastavro.reader(io.BytesIO(truncated))) > 0  # Avro itself finds nothing wrong
    return truncated


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) * 6 // 10],
        lambda data: data[:-1],
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :],
        without_its_last_block,
        lambda _: b"",
        lambda data: data + b"\0",
    ],
    ids=["torn", "a byte less", "header", "a flipped bit", "a block less", "empty", "a byte more"],
)
def test_a_damaged_file_is_not_opened(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file = store(tmp_path)
    path = tmp_path / file.path
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Damaged, match=r"0\.data is not what was written"):
        open_verified(roots_of(d=str(tmp_path)), file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    file = store(tmp_path)
    (tmp_path / file.path).unlink()
    with pytest.raises(Damaged, match=r"0\.data is missing"):
        open_verified(roots_of(d=str(tmp_path)), file)
