"""The only broker dies when transactions are decided but not marked everywhere, and loses those markers.

Which of a transaction's markers are lost differs from run to run; the result of the restore must not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


def write(restore: RestoreProducer, records: Mapping[int, tuple[Columns, int]]) -> None:
    """Write one transaction with STEP records for each partition: (all records, number of the first)."""
    restore.begin()
    for partition, (columns, first) in records.items():
        restore.produce_block("copy", partition, replace(columns, rows=columns.rows[first : first + STEP]))
    restore.commit(
        {
            ("copy", partition): Progress(first + STEP, f"{first + STEP} records")
            for partition, (_, first) in records.items()
        }
    )


@pytest.mark.parametrize("each", [1, PARTITIONS // 2], ids=["a producer each", "two producers"])
@pytest.mark.parametrize("later_ms", range(4, 24, 2))
def test_a_restore_is_exact_after_lost_markers(tmp_path: Path, later_ms: int, each: int) -> None:
    groups = [range(first, first + each) for first in range(0, PARTITIONS, each)]
    with Broker(tmp_path / "broker") as broker:
        for name in ("gone", "copy"):
            truth.create_topic(broker.bootstrap, name, PARTITIONS, retention_ms="-1")
        truth.produce(broker.bootstrap, "gone", rows_of(PARTITIONS, TOTAL))
        expected = truth.contents(broker.bootstrap, "gone")
        columns = [columns_of(broker, partition) for partition in range(PARTITIONS)]
        config, barrier = {"bootstrap.servers": broker.bootstrap}, Barrier(len(groups) + 1, timeout=30)

        @contextmanager
        def producing(
            group: range, patience: float
        ) -> Iterator[tuple[RestoreProducer, list[Progress | None]]]:
            with RestoreProducer(config, f"restore-{group[0]}", "restore", patience=patience) as producer:
                progress = producer.resume([("copy", partition) for partition in group])
                yield producer, [progress["copy", partition] for partition in group]

        def records(positions: Mapping[int, int]) -> dict[int, tuple[Columns, int]]:
            return {partition: (columns[partition], first) for partition, first in positions.items()}

        def write_first(group: range) -> None:
            with producing(group, 10) as (producer, progress):
                assert progress == [None] * len(group)
                write(producer, records(dict.fromkeys(group, 0)))

        def write_second(group: range) -> None:
            with producing(group, 3) as (producer, progress):
                assert progress == [Progress(STEP, f"{STEP} records")] * len(group)
                barrier.wait()
                write(producer, records(dict.fromkeys(group, STEP)))

        def finish(group: range) -> None:
            with producing(group, 60) as (producer, progress):
                positions = {}
                for partition, last in zip(group, progress, strict=True):
                    assert last
                    assert last.note == (f"{last.position} records" if last.position else "")
                    positions[partition] = last.position
                while positions:
                    write(producer, records(positions))
                    advanced = {partition: position + STEP for partition, position in positions.items()}
                    positions = {p: position for p, position in advanced.items() if position < TOTAL}

        with ThreadPoolExecutor(len(groups)) as threads:
            list(threads.map(write_first, groups))
            futures = [threads.submit(write_second, group) for group in groups]
            barrier.wait()
            time.sleep(later_ms / 1000)  # chooses the instant of the kill; waits for nothing
            broker.kill()
            assert all(isinstance(future.exception(), EnvironmentProblem | None) for future in futures)
            broker.start()
            list(threads.map(finish, groups))
        assert truth.contents(broker.bootstrap, "copy") == expected
