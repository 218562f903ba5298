"""A backup dies while it records the commits of groups; the next one records all of them, once."""

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


def recorded_positions(lab: Lab, group: str) -> list[tuple[Any, ...]]:
    rows = lab.sql(
        f"SELECT seen, position FROM group_offsets WHERE group_id = '{group}' ORDER BY seen, position"
    )
    return [(row["seen"], row["position"]) for row in rows]


@pytest.mark.long
def test_a_killed_backup_records_no_group_twice(
    spark: SparkSession, broker: Broker, empty_catalog: Path, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic("killed-groups")
    truth.produce(broker.bootstrap, name, rows_of(1, 10))
    for position in (3, 5):
        consumers.commit(broker.bootstrap, name, {(name, 0): position})

    def lab_of(folder: str) -> Lab:
        return Lab(spark, broker.bootstrap, tmp_path / folder, empty_catalog)

    complete_lab = lab_of("whole")
    complete_lab.backup(name, groups="all", parallelism=1)
    expected = [("backup", 5), ("log", 3), ("log", 5)]
    assert recorded_positions(complete_lab, name) == expected
    for step in ("commit group_commits", "commit backups"):
        lab = lab_of(step)
        with (
            watched(tmp_path / f"steps of {step}", kill_at=step) as steps,
            suppress(Killed),
        ):
            lab.backup(name, groups="all", parallelism=1)
        assert steps.dead
        assert steps.names()[-1] == step
        assert recorded_positions(lab, name) == []
        expire_leases(lab.folder)
        lab.backup(name, groups="all", parallelism=1)
        assert recorded_positions(lab, name) == expected
