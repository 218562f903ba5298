"""Checks offset translations: every record of the source must be where they say, in the target."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.runs import Lab

from lakebackup.store.reader import CatalogReader

Spot = tuple[int, int]


def records_by_offset(bootstrap: str, topic: str) -> dict[Spot, Record]:
    """(partition, offset) -> record, for readers of committed records."""
    return {(record.partition, offset): record for offset, record in truth.read(bootstrap, topic)}


def rows(lab: Lab, topic: str, target: str) -> list[dict[str, Any]]:
    """The translations from one topic to another, in the order of their source positions."""
    reader = CatalogReader.require(str(lab.folder))
    translations = reader.select("SELECT * FROM translations").read_all().to_pylist()
    return sorted(
        (row for row in translations if (row["scope"], row["target_scope"]) == (topic, target)),
        key=lambda row: (int(row["region"]), row["from_position"], row["to_position"]),
    )


def target_of(translations: list[dict[str, Any]], partition: int, position: int) -> Spot | None:
    """The target position for a reader of `position`, by the newest row that covers it; None if none does."""
    for row in sorted(translations, key=lambda row: -row["at"]):
        if int(row["region"]) == partition and row["from_position"] <= position < row["to_position"]:
            distance = max(0, position - row["first_position"])
            return int(row["target_region"]), row["target_position"] + distance
    return None


def assert_exact(lab: Lab, topic: str, target: str, bootstrap: str | None = None) -> int:
    """Check that the translations lead to each record of `topic`; returns the number of records."""
    translations = rows(lab, topic, target)
    source, target_records = (
        records_by_offset(lab.bootstrap, topic),
        records_by_offset(bootstrap or lab.bootstrap, target),
    )
    for (partition, offset), record in source.items():
        assert target_records[target_of(translations, partition, offset) or (-1, -1)] == record, (
            partition,
            offset,
        )
    assert len(target_records) == len(source)
    for partition in {partition for partition, _ in source}:
        partition_rows = [row for row in translations if int(row["region"]) == partition]
        for earlier, later in pairwise(partition_rows):
            assert earlier["to_position"] == later["from_position"], "a hole between two rows"
        end = 1 + max(offset for p, offset in target_records if p == partition)
        assert partition_rows[-1]["target_position"] >= end, "a reader at the end would read a record again"
    return len(source)
