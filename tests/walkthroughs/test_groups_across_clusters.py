"""Repeated restores keep a second topic up to date, and the groups continue at the same messages in both.

100 messages, backup, restore into B; 10 more, group CG1 at 50 and CG2 at 105, backup and restore of the
rest: B has 110 messages, CG1 continues with message 50 and CG2 with message 105.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.support import consumers
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record

from lakebackup.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.runs import Lab

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

Make = Callable[..., str]


def messages(first: int, end: int) -> list[Record]:
    return [Record(0, b"%d" % i, b"message %d" % i, (), 1_600_000_000_000 + i) for i in range(first, end)]


def test_both_groups_continue_at_the_same_messages(
    spark: SparkSession, broker: Broker, lab: Lab, topic: Make, tmp_path: Path
) -> None:
    from lakebackup_jobs.demo.broker import Broker

    name = topic("case")
    groups = (f"{name}-CG1", f"{name}-CG2")
    truth.produce(lab.bootstrap, name, messages(0, 100))
    lab.backup(name)
    with Broker(tmp_path / "second") as second:
        target = {"target": f"kafka://{second.bootstrap}"}
        assert lab.restore(name, **target)["entries"] == 100

        truth.produce(lab.bootstrap, name, messages(100, 110))
        for group, offset in zip(groups, (50, 105), strict=True):
            consumers.commit(lab.bootstrap, group, {(name, 0): offset})
        lab.backup(name, groups="all")
        with pytest.raises(Refused, match="holds records already"):
            lab.restore(name, **target)
        result = lab.restore(name, continued=True, groups=(f"{name}-.*",), **target)

        assert (result["entries"], result["outcomes"]) == (10, {"moved": 2})
        assert truth.contents(second.bootstrap, name) == truth.contents(lab.bootstrap, name)
        for group, offset in zip(groups, (50, 105), strict=True):
            records = consumers.read_on(second.bootstrap, group, name, 110 - offset)
            assert records == [(0, b"message %d" % i) for i in range(offset, 110)]
