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


def test_levels_read_what_is_new_to_them_and_every_point_comes_back(lab: Lab, topic: Make) -> None:
    name = topic("levels", partitions=2)
    standing: dict[str, tuple[int, dict[int, list[Record]]]] = {}
    made: dict[str, dict[str, Any]] = {}

    def take(called: str, produced: int, **how: Any) -> None:
        truth.produce(lab.bootstrap, name, some(0, produced) + some(1, 1))
        made[called] = lab.backup(name, **how)
        standing[called] = made[called]["end_ts"], truth.contents(lab.bootstrap, name)

    take("sun", 10, mode="incr-diff")  # no full yet
    take("mon", 20, mode="incr-diff")
    take("mon 01", 3, mode="incr-diff", level=2)
    take("tue", 30, mode="incr-accu")
    take("tue 01", 4, mode="incr-accu", level=2)
    take("wed", 50, mode="incr-diff")

    assert [(m["kind"], m["level"], m["entries"]) for m in made.values()] == [
        ("full", 0, 11),
        ("differential", 1, 21),
        ("differential", 2, 4),
        ("cumulative", 1, 21 + 4 + 31),
        ("cumulative", 2, 5),
        ("differential", 1, 5 + 51),
    ]
    parents = {called: m["parent"] for called, m in made.items()}
    ids = {called: m["backup_id"] for called, m in made.items()}
    assert parents == {
        "sun": None,
        "mon": ids["sun"],
        "mon 01": ids["mon"],
        "tue": ids["sun"],
        "tue 01": ids["tue"],
        "wed": ids["tue"],
    }
    for called in ("mon 01", "tue 01", "wed"):
        at, before = standing[called]
        copy = topic("copy", partitions=2)
        by_id = called == "mon 01"
        lab.restore(name, maps={name: copy}, **({"backup": ids[called]} if by_id else {"to_ts": at}))
        assert truth.contents(lab.bootstrap, copy) == before, called

    planned = lab.restore(name, to_ts=standing["wed"][0], dry_run=True)
    read = [(row["backup_id"], row["kind"], row["level"], row["entries"]) for row in planned["backups"]]
    assert read == [
        (ids["sun"], "full", 0, 11),
        (ids["tue"], "cumulative", 1, 56),
        (ids["wed"], "differential", 1, 56),
    ]
    assert "alternatives" not in planned

    # On from a chosen one: the day's own backup in place of the hour's that came after it.
    with pytest.raises(Refused, match="in its place"):
        lab.backup(name, parent=ids["mon"])
    side = lab.backup(name, parent=ids["tue"])
    assert (side["parent"], side["entries"]) == (ids["tue"], 5 + 51)
    assert lab.backup(name, level=2)["parent"] == side["backup_id"]

    # The source lets go of what only the newest have: one since Sunday would have a hole.
    truth.delete_records(lab.bootstrap, name, {0: 40})
    truth.produce(lab.bootstrap, name, some(0, 5))
    instead = lab.backup(name, mode="incr-accu")
    assert (instead["kind"], instead["level"], instead["entries"]) == ("differential", 2, 5)
    assert instead["gaps"] == 0
    with pytest.raises(Refused, match="would have a hole"):
        lab.backup(name, parent=ids["sun"])
    copy = topic("copy", partitions=2)
    lab.restore(name, maps={name: copy})
    assert (
        truth.contents(lab.bootstrap, copy)[0]
        == standing["wed"][1][0] + (truth.contents(lab.bootstrap, name)[0][-5:])
    )


def test_restored_from_an_older_full_the_next_backup_stands_on_it(lab: Lab, topic: Make) -> None:
    name = topic("again")
    truth.produce(lab.bootstrap, name, some(0, 10))
    first = lab.backup(name)
    truth.produce(lab.bootstrap, name, some(0, 7))
    second = lab.backup(name, mode="full")
    on = lab.backup(name, mode="incr-diff", parent=first["backup_id"][:-2])
    assert (on["parent"], on["entries"]) == (first["backup_id"], 7)
    assert second["parent"] is None
    copy = topic("copy")
    lab.restore(name, maps={name: copy})
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)
