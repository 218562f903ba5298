"""snapshot.json: the values that are read from it, and the files that are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakebackup.errors import Refused, UsageProblem
from lakebackup.formats.queues.snapshot_json import parse, require_last_tid, require_positions
from lakebackup.plan.partitions import RegionState

SNAPSHOT: dict[str, Any] = {
    "format": 1,
    "graph": "social",
    "last_tid": 1234,
    "queues": [
        {"topic": "delta.0", "partition": 0, "position": 47, "max_no_transaction_pos": 46},
        {"topic": "delta.0", "partition": 1, "position": 0, "max_no_transaction_pos": 0},
    ],
}


def read(**changes: Any) -> Any:
    return parse(json.dumps({**SNAPSHOT, **changes}).encode(), "snapshot.json")


def region(partition: int, end: int, topic: str = "delta.0") -> RegionState:
    return RegionState(topic, "e" * 32, str(partition), 0, end, end, None)


REGIONS = [region(0, 47), region(1, 9)]


def test_a_valid_file_is_read() -> None:
    snapshot = read(open_transactions=["t-17"])
    assert (snapshot.last_tid, snapshot.graph, snapshot.open_transactions) == (1234, "social", ("t-17",))
    assert [(q.topic, q.partition, q.position, q.max_no_transaction_pos) for q in snapshot.queues] == [
        ("delta.0", 0, 47, 46),
        ("delta.0", 1, 0, 0),
    ]
    require_positions(snapshot, "snapshot.json", "social", REGIONS)

    # The graph and open transactions may be left out.
    snapshot = parse(
        json.dumps({k: v for k, v in SNAPSHOT.items() if k != "graph"}).encode(), "snapshot.json"
    )
    assert (snapshot.graph, snapshot.open_transactions) == (None, None)
    require_positions(snapshot, "snapshot.json", "other", REGIONS)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"{", "is not JSON"),
        (b"[]", "snapshot.json is not a valid"),
        (b'{"format": 2}', "format version 2"),
        (json.dumps({**SNAPSHOT, "format": "1"}).encode(), "format"),
        (json.dumps({**SNAPSHOT, "last_tid": -1}).encode(), "last_tid"),
        (json.dumps({**SNAPSHOT, "last_tid": True}).encode(), "last_tid"),
        (json.dumps({**SNAPSHOT, "last_tid": "7"}).encode(), "last_tid"),
        (json.dumps({**SNAPSHOT, "more": 1}).encode(), "more"),
        (json.dumps({**SNAPSHOT, "queues": [{"topic": "t"}]}).encode(), "queues.0.partition"),
    ],
)
def test_an_invalid_file_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(UsageProblem) as error:
        parse(data, "snapshot.json")
    assert complaint in error.value.message


QUEUES = SNAPSHOT["queues"]


@pytest.mark.parametrize(
    ("source", "queues", "regions", "complaint"),
    [
        ("other", QUEUES, REGIONS, "is of social, not of other"),
        ("social", QUEUES, [*REGIONS, region(2, 5)], "does not name topic delta.0, partition 2"),
        ("social", QUEUES, REGIONS[:1], "names topic delta.0, partition 1, which is not among"),
        ("social", [*QUEUES, QUEUES[0]], REGIONS, "twice"),
    ],
)
def test_a_file_that_does_not_fit_the_queues_is_refused(
    source: str, queues: Any, regions: list[RegionState], complaint: str
) -> None:
    with pytest.raises(UsageProblem, match=complaint):
        require_positions(read(queues=queues), "snapshot.json", source, regions)


@pytest.mark.parametrize(("position", "no_transaction_pos"), [(48, 46), (46, 47)])
def test_impossible_positions_are_refused(position: int, no_transaction_pos: int) -> None:
    queue = {
        "topic": "delta.0",
        "partition": 0,
        "position": position,
        "max_no_transaction_pos": no_transaction_pos,
    }
    with pytest.raises(Refused, match="cannot be right"):
        require_positions(read(queues=[queue, SNAPSHOT["queues"][1]]), "snapshot.json", "social", REGIONS)


def test_a_message_with_a_tid_above_last_tid_is_refused() -> None:
    require_last_tid(1234, "snapshot.json", 1234, "topic delta.0, partition 0", 46)
    require_last_tid(1234, "snapshot.json", None, "topic delta.0, partition 0", None)
    with pytest.raises(Refused, match=r"last_tid 1234.*offset 46, with tid 1235") as error:
        require_last_tid(1234, "snapshot.json", 1235, "topic delta.0, partition 0", 46)
    assert "Messages of open transactions count too" in str(error.value.hint)
