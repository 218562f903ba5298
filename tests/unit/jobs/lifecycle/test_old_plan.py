"""A restore that an older version began is resumed with the plan that it recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakebackup.storage import Storage, open_storage
from lakebackup_jobs.lifecycle.tasks.plan_shares import clear, regions_of, stored_plan
from lakebackup_jobs.queues.restore.shares import Partition, QueueFile, partitions

FOLDER = "restores/r/"


def file(region: str, position: int, **fields: Any) -> dict[str, Any]:
    return {
        "scope": "orders", "epoch": "e", "region": region, "destination": "d",
        "path": f"{region}-{position}.data",
        "start_position": position, "end_position": position + 5,
        "format": "kafka-avro-1", "codec": "zstandard", "bytes": 10, "sha256": "00", "entries": 5, **fields,
    }  # fmt: skip


def put_lines(storage: Storage, number: int, rows: list[dict[str, Any]]) -> None:
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    storage.put(f"{FOLDER}plan/{number:06d}.jsonl", lines.encode())


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path))


def put_index(storage: Storage, *tasks: list[int]) -> None:
    paths = [[f"{FOLDER}plan/{number:06d}.jsonl" for number in task] for task in tasks]
    storage.put(f"{FOLDER}plan/tasks.json", json.dumps(paths).encode())


def test_the_plan_of_topics_becomes_a_plan_file(storage: Storage) -> None:
    put_lines(storage, 0, [file("1", 0), file("1", 5)])
    put_lines(storage, 1, [file("0", 0)])
    put_lines(storage, 2, [file("2", 7)])
    assert stored_plan(storage, FOLDER) is None
    assert regions_of(storage, FOLDER) is None
    put_index(storage, [0, 2], [1])
    storage.put(f"{FOLDER}plan/resume.json", json.dumps({"at": 3, "until": None}).encode())
    regions = [("orders", "e", "1"), ("orders", "e", "0"), ("orders", "e", "2")]
    assert regions_of(storage, FOLDER) == regions
    assert not storage.exists(f"{FOLDER}plan/plan.json")  # a prune records nothing
    stored_shares = stored_plan(storage, FOLDER)
    assert stored_shares is not None
    shares, state = stored_shares
    assert state == {"at": 3, "until": None}
    files = [
        (region, [row.start_position for row in files])
        for number in shares.numbers
        for (_, region), files in shares.partition_files(number)
    ]
    assert files == [("1", [0, 5]), ("0", [0]), ("2", [7])]
    assert shares.file.uri == storage.uri
    assert stored_plan(storage, FOLDER) == stored_shares
    assert regions_of(storage, FOLDER) == regions
    clear(storage, FOLDER)
    assert list(storage.list()) == []


def test_what_was_recorded_of_a_select_of_records(storage: Storage) -> None:
    put_lines(storage, 0, [file("0", 0)])
    put_index(storage, [0])
    storage.put(f"{FOLDER}plan/parts.json", json.dumps([{"scope": "orders"}]).encode())
    stored_shares = stored_plan(storage, FOLDER)
    assert stored_shares is not None
    assert stored_shares[1] == {"parts": [{"scope": "orders"}]}


def test_the_plan_of_queues_has_partitions_without_files(storage: Storage) -> None:
    names = {"scope": "orders", "epoch": "e", "region": "0", "target": "copy"}
    put_lines(storage, 0, [names, file("0", 0, link=1), file("0", 5, link=2)])
    put_lines(storage, 1, [{**names, "region": "1"}])
    put_index(storage, [0], [1])
    assert regions_of(storage, FOLDER) == [("orders", "e", "0"), ("orders", "e", "1")]
    stored_shares = stored_plan(storage, FOLDER)
    assert stored_shares is not None
    shares, _ = stored_shares
    rows = [
        (partition, [*files]) for number in shares.numbers for partition, files in partitions(shares, number)
    ]
    assert [partition for partition, _ in rows] == [
        Partition("orders", "e", region, "copy") for region in ("0", "1")
    ]
    assert [files for _, files in rows] == [
        [QueueFile(**file("0", 0, link=1)), QueueFile(**file("0", 5, link=2))],
        [],
    ]
