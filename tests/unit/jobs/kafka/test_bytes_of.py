"""How a backup estimates the bytes of topics that no earlier backup has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakebackup.plan.partitions import BackupRows, RegionState
from lakebackup.rows.backups import Position
from lakebackup_jobs.kafka.client import consume


def _positions(*counts: int) -> list[Position]:
    rows = BackupRows("b", "lab", 0)
    regions = [
        RegionState("topic", "epoch", str(number), low=0, end=count, high=count, leader_epoch=None)
        for number, count in enumerate(counts)
    ]
    return [rows.position(region, 0, region.end) for region in regions]


def test_few_partitions_are_all_counted() -> None:
    positions = _positions(*[3] * 64)
    assert consume._sample(positions, 3 * 64) == positions


def test_many_partitions_are_sampled_evenly_by_their_offsets() -> None:
    positions = _positions(*[2] * 500, 1000, *[2] * 500)
    sample = consume._sample(positions, 3000)
    assert positions[500] in sample
    assert 40 < len(sample) < 64  # the large partition has a third of the offsets
    assert len({p.region for p in sample}) == len(sample)


def test_the_size_of_partitions_that_are_not_counted_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        def blocks(self, _topic: str, _partition: int, start: int, end: int) -> Iterator[Any]:
            class Block:
                data = b"x" * 50 * (end - start)

            yield Block()

    monkeypatch.setattr(consume, "reader", lambda *_: Reader())
    assert consume.bytes_of({}, "read_committed", _positions(*[2] * 1000), 100_000) == 100_000
    assert consume.bytes_of({}, "read_committed", _positions(*[2] * 1000), 99_999) is None
