"""Reads and writes that continue after the broker restarts, or while it throttles its client."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record

from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.committed import Progress
from lakebackup_jobs.kafka.client import librdkafka
from lakebackup_jobs.kafka.client.consume import Reader
from lakebackup_jobs.kafka.client.produce import RestoreProducer, outlasting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebackup_jobs.kafka.format.records import Columns

pytestmark = [pytest.mark.kafka, pytest.mark.long]

# The topic holds more than a client reads ahead.
RECORDS = 1_000
BYTES = 50_000
#: Bytes per second that a throttled client may read or write. At this rate the records take longer than the
#: client's patience.
RATE = 100_000
PATIENCE_S = 15.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def topic_with(broker: Broker, name: str, count: int, size: int, **config: str) -> str:
    truth.create_topic(broker.bootstrap, name, 1, retention_ms="-1")
    records = [Record(0, b"%d" % i, os.urandom(size), (), 1_600_000_000_000 + i) for i in range(count)]
    truth.produce(broker.bootstrap, name, records, **config)
    return name


@pytest.fixture
def records(broker: Broker, request: pytest.FixtureRequest) -> str:
    return topic_with(broker, request.node.name.replace("[", "-").rstrip("]"), RECORDS, BYTES)


@pytest.fixture
def throttled(broker: Broker) -> dict[str, str]:
    """The librdkafka properties of a client with a quota."""
    rates = f"producer_byte_rate={RATE},consumer_byte_rate={RATE}"
    command = [
        *broker._java(), "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, "--alter",
        "--add-config", rates, "--entity-type", "clients", "--entity-name", "slow",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return {"bootstrap.servers": broker.bootstrap, "client.id": "slow"}


@contextmanager
def restarted(broker: Broker, ending: str) -> Iterator[None]:
    """Stop or kill the broker, and start it again while the block runs."""
    getattr(broker, ending)()
    with ThreadPoolExecutor(1) as starter:
        start = starter.submit(broker.start)
        yield
        start.result()


def read(config: dict[str, str], topic: str, count: int, **options: float) -> list[Columns]:
    with closing(Reader(config, "read_committed")) as reader:
        return [block.columns() for block in reader.blocks(topic, 0, 0, count, **options)]


def write(
    config: dict[str, str],
    topic: str,
    blocks: list[Columns],
    patience_s: float,
    before_commit: Callable[[int], None] = lambda _: None,
) -> None:
    """Write each block in a transaction of its own, from the topic's committed progress on.

    `before_commit`: called with the number of each block before its transaction commits.
    """

    def resume(reset_failures: Callable[[], None]) -> None:
        with RestoreProducer(config, f"{topic}-writer", f"{topic}-group", patience=patience_s) as producer:
            progress = producer.resume([(topic, 0)])[topic, 0]
            for number in range(progress.position if progress else 0, len(blocks)):
                producer.begin()
                producer.produce_block(topic, 0, blocks[number])
                before_commit(number)
                producer.commit({(topic, 0): Progress(number + 1, "")})
                reset_failures()

    outlasting(resume)


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_reading_continues_after_a_restart(broker: Broker, records: str, ending: str) -> None:
    config = {"bootstrap.servers": broker.bootstrap}
    with closing(Reader(config, "read_committed")) as reader:
        blocks = reader.blocks(records, 0, 0, RECORDS)
        entries = next(blocks).stats.entries
        with restarted(broker, ending):
            entries += sum(block.stats.entries for block in blocks)
    assert entries == RECORDS


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_writing_continues_after_a_restart(broker: Broker, records: str, ending: str) -> None:
    """The broker restarts once during a transaction. Its commit may then never return to the client."""
    config, copy_topic = {"bootstrap.servers": broker.bootstrap}, f"{records}-copy"
    truth.create_topic(broker.bootstrap, copy_topic, 1, retention_ms="-1")
    blocks = read(config, records, RECORDS)
    restarts: list[int] = []

    def restart(number: int) -> None:
        if number == 2 and not restarts:
            restarts.append(number)
            with restarted(broker, ending):
                pass

    write(config, copy_topic, blocks, 15.0, restart)
    assert restarts
    assert truth.contents(broker.bootstrap, copy_topic) == truth.contents(broker.bootstrap, records)


def test_a_throttled_client_is_slow_but_does_not_fail(broker: Broker, throttled: dict[str, str]) -> None:
    count, size = 75, 20_000
    # A broker never sends a batch that is larger than what its quota allows in 10 seconds.
    topic = topic_with(broker, "throttled", count, size, **{"batch.size": "100000"})
    copy_topic = "throttled-copy"
    truth.create_topic(broker.bootstrap, copy_topic, 1, retention_ms="-1")
    blocks = read(throttled, topic, count, patience=PATIENCE_S)
    assert any("throttle" in text for text in librdkafka.delays())
    librdkafka._delays.clear()
    write(throttled, copy_topic, blocks, PATIENCE_S)
    assert any("throttle" in text for text in librdkafka.delays())
    assert truth.contents(broker.bootstrap, copy_topic) == truth.contents(broker.bootstrap, topic)
