"""Backups of several levels on a real broker: what each reads, and what a restore of each point brings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Refused

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]


def some(partition: int, count: int) -> list[Record]:
    return [Record(partition, b"k%d" % i, b"v%d" % i, (), now_ms()) for i in range(count)]


class Week:
    """Backups of one topic, under names, and what the topic held when each was taken."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.name = lab, name
        self.held: dict[str, dict[int, list[Record]]] = {}
        self.made: dict[str, dict[str, Any]] = {}

    def take(self, called: str, produced: int, **how: Any) -> None:
        truth.produce(self.lab.bootstrap, self.name, some(0, produced) + some(1, 1))
        self.made[called] = self.lab.backup(self.name, **how)
        self.held[called] = truth.contents(self.lab.bootstrap, self.name)

    def back(self, called: str, copy: str, *, by_id: bool = False) -> None:
        """Restore one and compare."""
        made = self.made[called]
        point = {"backup": made["backup_id"]} if by_id else {"to_ts": made["end_ts"]}
        self.lab.restore(self.name, maps={self.name: copy}, **point)
        assert truth.contents(self.lab.bootstrap, copy) == self.held[called], called

    def names(self, found: list[dict[str, Any]]) -> list[str]:
        called = {made["backup_id"]: name for name, made in self.made.items()}
        return [called[row["backup_id"]] for row in found]


def test_levels_read_what_is_new_to_them_and_every_point_comes_back(lab: Lab, topic: Make) -> None:
    week = Week(lab, topic("levels", partitions=2))
    week.take("sun", 10, mode="incr-diff")  # no full yet
    week.take("mon", 20, mode="incr-diff")
    week.take("mon 01", 3, mode="incr-diff", level=2)
    week.take("tue", 30, mode="incr-accu")
    week.take("tue 01", 4, mode="incr-accu", level=2)
    # On from a chosen one, named by the beginning of its id: the day's in place of the hour's.
    week.take("wed", 50, parent=week.made["tue"]["backup_id"][:-2])

    assert [(m["kind"], m["level"], m["entries"]) for m in week.made.values()] == [
        ("full", 0, 11),
        ("differential", 1, 21),
        ("differential", 2, 4),
        ("cumulative", 1, 21 + 4 + 31),
        ("cumulative", 2, 5),
        ("differential", 1, 5 + 51),
    ]
    ids = {called: m["backup_id"] for called, m in week.made.items()}
    assert {called: m["parent"] for called, m in week.made.items()} == {
        "sun": None,
        "mon": ids["sun"],
        "mon 01": ids["mon"],
        "tue": ids["sun"],
        "tue 01": ids["tue"],
        "wed": ids["tue"],
    }
    week.back("mon 01", topic("copy", partitions=2), by_id=True)
    week.back("wed", topic("copy", partitions=2))
    planned = lab.restore(week.name, to_ts=week.made["wed"]["end_ts"], dry_run=True)
    assert week.names(planned["backups"]) == ["sun", "tue", "wed"]
    assert [row["entries"] for row in planned["backups"]] == [11, 56, 56]
    assert "alternatives" not in planned
    planned = lab.restore(week.name, to_ts=week.made["tue 01"]["end_ts"], dry_run=True)
    assert week.names(planned["backups"]) == ["sun", "tue", "tue 01"]
    with pytest.raises(Refused, match="in its place"):
        lab.backup(week.name, parent=ids["mon"])
