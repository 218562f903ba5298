"""A backup dies while it writes down what groups had committed; the next one tells all of it, once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import consumers
from tests.support import kafka_truth as truth
from tests.support.faults import Killed, expire_leases, rows_of, watched
from tests.support.runs import Lab

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def told(lab: Lab, group: str) -> list[tuple[Any, ...]]:
    rows = lab.sql(
        f"SELECT seen, position FROM group_offsets WHERE group_id = '{group}' ORDER BY seen, position"
    )
    return [(row["seen"], row["position"]) for row in rows]


@pytest.mark.long
def test_killed_before_rows_of_groups(
    spark: SparkSession, broker: Broker, empty_catalog: Path, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic("killed-groups")
    truth.produce(broker.bootstrap, name, rows_of(1, 10))
    for position in (3, 5):
        consumers.commit(broker.bootstrap, name, {(name, 0): position})

    def lab_of(folder: str) -> Lab:
        return Lab(spark, broker.bootstrap, tmp_path / folder, empty_catalog)

    whole = lab_of("whole")
    whole.backup(name, groups="all", parallelism=1)
    everything = [("backup", 5), ("log", 3), ("log", 5)]
    assert told(whole, name) == everything
    for step in ("commit group_commits", "commit backups"):
        lab = lab_of(step)
        with (
            watched(tmp_path / f"steps of {step}", kill_at=step) as steps,
            suppress(Killed),
        ):
            lab.backup(name, groups="all", parallelism=1)
        assert steps.dead
        assert steps.taken()[-1] == step
        assert told(lab, name) == []
        expire_leases(lab.folder)
        lab.backup(name, groups="all", parallelism=1)
        assert told(lab, name) == everything
