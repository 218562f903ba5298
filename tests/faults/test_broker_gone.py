"""The broker dies during a backup and during a restore, and comes back."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import catalog_rows, rows_of, stored_records, watched
from tests.support.runs import Lab

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.demo.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.faults import Steps

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


@contextmanager
def killed_when_held(broker: Broker, steps: Steps) -> Iterator[None]:
    """Kill the broker while the run waits at its `hold` step, then let the run continue."""

    def kill() -> None:
        truth.until(lambda: steps.is_waiting, "the run comes to the step it waits at")
        broker.kill()
        steps.release()

    thread = threading.Thread(target=kill)
    thread.start()
    yield
    thread.join()


def test_backup_and_restore_survive_a_dead_broker(
    spark: SparkSession, empty_catalog: Path, tmp_path: Path
) -> None:
    with Broker(tmp_path / "broker") as broker:
        lab = Lab(spark, broker.bootstrap, tmp_path / "backups", empty_catalog)
        # More partitions than are restored before the broker is killed.
        truth.create_topic(broker.bootstrap, "gone", 12, retention_ms="-1")
        truth.produce(broker.bootstrap, "gone", rows_of(12, 50))
        expected = truth.contents(broker.bootstrap, "gone")

        # One task reads all partitions; the broker dies when the task has the first one's file.
        with (
            watched(tmp_path / "1", hold="put data", patience=3) as steps,
            killed_when_held(broker, steps),
            pytest.raises(EnvironmentProblem, match="gone"),
        ):
            lab.backup("gone", parallelism=1)
        assert not any(catalog_rows(lab).values())
        with watched(tmp_path / "2", patience=3), pytest.raises(EnvironmentProblem, match=broker.bootstrap):
            lab.backup("gone")
        broker.start()
        assert lab.backup("gone")["entries"] == 600
        assert stored_records(lab) == expected

        with (
            watched(tmp_path / "3", hold="after transaction", patience=3) as steps,
            killed_when_held(broker, steps),
            pytest.raises(EnvironmentProblem, match="copy"),
        ):
            lab.restore("gone", maps={"gone": "copy"})
        broker.start()
        copied = truth.contents(broker.bootstrap, "copy")
        assert 1 <= len(copied) < 12
        assert copied == {partition: expected[partition] for partition in copied}
        assert lab.restore("gone", maps={"gone": "copy"})["resumed"]
        assert truth.contents(broker.bootstrap, "copy") == expected
