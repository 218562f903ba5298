"""The judge of offset translations: every record of the source must stand where they say, in the target."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.runs import Lab

from lakebackup.store.reader import CatalogReader

Spot = tuple[int, int]


def standing(bootstrap: str, topic: str) -> dict[Spot, Record]:
    """(partition, offset) -> record, as readers of committed records see it."""
    return {(record.partition, offset): record for offset, record in truth.read(bootstrap, topic)}


def rows(lab: Lab, topic: str, target: str) -> list[dict[str, Any]]:
    """The translations from one topic to another, in the order of their source positions."""
    opened = CatalogReader.require(str(lab.folder))
    found = opened.select("SELECT * FROM translations").read_all().to_pylist()
    return sorted(
        (row for row in found if (row["scope"], row["target_scope"]) == (topic, target)),
        key=lambda row: (int(row["region"]), row["from_position"], row["to_position"]),
    )


def place(found: list[dict[str, Any]], partition: int, position: int) -> Spot | None:
    """Where a reader of `position` reads on, by the newest row that is for it; None when no row is."""
    for row in sorted(found, key=lambda row: -row["at"]):
        if int(row["region"]) == partition and row["from_position"] <= position < row["to_position"]:
            ahead = max(0, position - row["first_position"])
            return int(row["target_region"]), row["target_position"] + ahead
    return None


def assert_exact(lab: Lab, topic: str, target: str, bootstrap: str | None = None) -> int:
    """Each record of `topic` stands where the translations say; returns how many there are."""
    found = rows(lab, topic, target)
    source, there = standing(lab.bootstrap, topic), standing(bootstrap or lab.bootstrap, target)
    for (partition, offset), record in source.items():
        assert there[place(found, partition, offset) or (-1, -1)] == record, (partition, offset)
    assert len(there) == len(source)
    for partition in {partition for partition, _ in source}:
        mine = [row for row in found if int(row["region"]) == partition]
        for before, after in pairwise(mine):
            assert before["to_position"] == after["from_position"], "a hole between two rows"
        end = 1 + max(offset for p, offset in there if p == partition)
        assert mine[-1]["target_position"] >= end, "a reader at the end would read a record again"
    return len(source)
