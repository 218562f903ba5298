"""The only broker dies while transactions are decided but not marked everywhere, and comes back without them.

Which of a transaction's markers are lost differs from run to run; what a restore makes of it must not.
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
    """One transaction of STEP records."""
    restore.begin()
    restore.produce_block("copy", partition, replace(columns, rows=columns.rows[position : position + STEP]))
    restore.commit({("copy", partition): Progress(position + STEP, f"{position + STEP} records")})


@pytest.mark.parametrize("later_ms", range(4, 24, 2))
def test_markers_lost(tmp_path: Path, later_ms: int) -> None:
    with Broker(tmp_path / "broker") as broker:
        for name in ("gone", "copy"):
            truth.create_topic(broker.bootstrap, name, PARTITIONS, retention_ms="-1")
        truth.produce(broker.bootstrap, "gone", rows_of(PARTITIONS, TOTAL))
        expected = truth.contents(broker.bootstrap, "gone")
        columns = [columns_of(broker, partition) for partition in range(PARTITIONS)]
        config, together = {"bootstrap.servers": broker.bootstrap}, Barrier(PARTITIONS + 1, timeout=30)

        def restore(partition: int, patience: float) -> RestoreProducer:
            return RestoreProducer(config, f"restore-{partition}", "restore", patience=patience)

        def begun(partition: int) -> None:
            with restore(partition, 10) as producer:
                assert producer.resume("copy", partition) is None
                write(producer, partition, columns[partition], 0)

        def cut_off(partition: int) -> None:
            with restore(partition, 3) as producer:
                assert producer.resume("copy", partition) == Progress(STEP, f"{STEP} records")
                together.wait()
                write(producer, partition, columns[partition], STEP)

        def finish(partition: int) -> None:
            with restore(partition, 60) as producer:
                done = producer.resume("copy", partition)
                assert done
                assert done.note == (f"{done.position} records" if done.position else "")
                for position in range(done.position, TOTAL, STEP):
                    write(producer, partition, columns[partition], position)

        with ThreadPoolExecutor(PARTITIONS) as threads:
            list(threads.map(begun, range(PARTITIONS)))
            cut = [threads.submit(cut_off, partition) for partition in range(PARTITIONS)]
            together.wait()
            time.sleep(later_ms / 1000)  # the instant of the kill, not a wait for something
            broker.kill()
            assert all(isinstance(each.exception(), EnvironmentProblem | None) for each in cut)
            broker.start()
            list(threads.map(finish, range(PARTITIONS)))
        assert truth.contents(broker.bootstrap, "copy") == expected
