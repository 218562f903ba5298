"""The only broker dies when transactions are decided but not marked everywhere, and loses those markers.

Which of a transaction's markers are lost differs from run to run; the result of the restore must not.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import rows_of

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.client import consume
from lakebackup_jobs.kafka.client.produce import Progress, RestoreProducer
from lakebackup_jobs.kafka.format.records import Columns

pytestmark = [pytest.mark.kafka, pytest.mark.long]

PARTITIONS, TOTAL, STEP = 8, 150, 50


def columns_of(broker: Broker, partition: int) -> Columns:
    (block,) = consume.reader({"bootstrap.servers": broker.bootstrap}).blocks("gone", partition, 0, TOTAL)
    return block.columns()


def write(restore: RestoreProducer, partition: int, columns: Columns, position: int) -> None:
    """Write one transaction of STEP records."""
    restore.begin()
    restore.produce_block("copy", partition, replace(columns, rows=columns.rows[position : position + STEP]))
    restore.commit({("copy", partition): Progress(position + STEP, f"{position + STEP} records")})


@pytest.mark.parametrize("later_ms", range(4, 24, 2))
def test_a_restore_is_exact_after_lost_markers(tmp_path: Path, later_ms: int) -> None:
    with Broker(tmp_path / "broker") as broker:
        for name in ("gone", "copy"):
            truth.create_topic(broker.bootstrap, name, PARTITIONS, retention_ms="-1")
        truth.produce(broker.bootstrap, "gone", rows_of(PARTITIONS, TOTAL))
        expected = truth.contents(broker.bootstrap, "gone")
        columns = [columns_of(broker, partition) for partition in range(PARTITIONS)]
        config, barrier = {"bootstrap.servers": broker.bootstrap}, Barrier(PARTITIONS + 1, timeout=30)

        def restore(partition: int, patience: float) -> RestoreProducer:
            return RestoreProducer(config, f"restore-{partition}", "restore", patience=patience)

        def write_first(partition: int) -> None:
            with restore(partition, 10) as producer:
                assert producer.resume("copy", partition) is None
                write(producer, partition, columns[partition], 0)

        def write_second(partition: int) -> None:
            with restore(partition, 3) as producer:
                assert producer.resume("copy", partition) == Progress(STEP, f"{STEP} records")
                barrier.wait()
                write(producer, partition, columns[partition], STEP)

        def finish(partition: int) -> None:
            with restore(partition, 60) as producer:
                progress = producer.resume("copy", partition)
                assert progress
                assert progress.note == (f"{progress.position} records" if progress.position else "")
                for position in range(progress.position, TOTAL, STEP):
                    write(producer, partition, columns[partition], position)

        with ThreadPoolExecutor(PARTITIONS) as threads:
            list(threads.map(write_first, range(PARTITIONS)))
            futures = [threads.submit(write_second, partition) for partition in range(PARTITIONS)]
            barrier.wait()
            time.sleep(later_ms / 1000)  # chooses the instant of the kill; waits for nothing
            broker.kill()
            assert all(isinstance(future.exception(), EnvironmentProblem | None) for future in futures)
            broker.start()
            list(threads.map(finish, range(PARTITIONS)))
        assert truth.contents(broker.bootstrap, "copy") == expected
