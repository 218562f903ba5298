"""A broker is restarted in the middle: the reading of a backup and the writing of a restore go on."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record

from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.committed import Progress
from lakebackup_jobs.kafka.client.consume import Reader
from lakebackup_jobs.kafka.client.produce import RestoreProducer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.long]

# More than a client reads ahead.
RECORDS = 1_000
BYTES = 50_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def records(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    truth.create_topic(broker.bootstrap, name, 1, retention_ms="-1")
    rows = [Record(0, b"%d" % i, os.urandom(BYTES), (), 1_600_000_000_000 + i) for i in range(RECORDS)]
    truth.produce(broker.bootstrap, name, rows)
    return name


@contextmanager
def restarted(broker: Broker) -> Iterator[None]:
    """Kill the broker; it starts again while the block runs."""
    broker.kill()
    with ThreadPoolExecutor(1) as starter:
        start = starter.submit(broker.start)
        yield
        start.result()


def test_reading_goes_on_after_a_restart(broker: Broker, records: str) -> None:
    config = {"bootstrap.servers": broker.bootstrap}
    with closing(Reader(config, "read_committed")) as reader:
        blocks = reader.blocks(records, 0, 0, RECORDS)
        entries = next(blocks).stats.entries
        with restarted(broker):
            entries += sum(block.stats.entries for block in blocks)
    assert entries == RECORDS


def test_writing_goes_on_after_a_restart(broker: Broker, records: str) -> None:
    config, copy = {"bootstrap.servers": broker.bootstrap}, f"{records}-copy"
    truth.create_topic(broker.bootstrap, copy, 1, retention_ms="-1")
    with closing(Reader(config, "read_committed")) as reader:
        blocks = [block.columns() for block in reader.blocks(records, 0, 0, RECORDS)]
    with RestoreProducer(config, f"{copy}-writer", f"{copy}-group") as producer:
        producer.begin()
        producer.produce_block(copy, 0, blocks[0])
        with restarted(broker):
            for block in blocks[1:]:
                producer.produce_block(copy, 0, block)
            producer.commit({(copy, 0): Progress(RECORDS, "")})
    assert truth.contents(broker.bootstrap, copy) == truth.contents(broker.bootstrap, records)
