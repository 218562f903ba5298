"""A broker restarts in the middle, or throttles its clients: what reads and what writes goes on."""

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

# More than a client reads ahead.
RECORDS = 1_000
BYTES = 50_000
#: So many bytes a second a throttled client may read or write: the records take longer than its patience.
RATE = 100_000
PATIENCE_S = 15.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def topic_with(broker: Broker, name: str, count: int, size: int, **config: str) -> str:
    truth.create_topic(broker.bootstrap, name, 1, retention_ms="-1")
    rows = [Record(0, b"%d" % i, os.urandom(size), (), 1_600_000_000_000 + i) for i in range(count)]
    truth.produce(broker.bootstrap, name, rows, **config)
    return name


@pytest.fixture
def records(broker: Broker, request: pytest.FixtureRequest) -> str:
    return topic_with(broker, request.node.name.replace("[", "-").rstrip("]"), RECORDS, BYTES)


@pytest.fixture
def throttled(broker: Broker) -> dict[str, str]:
    """The properties of a client that has a quota."""
    rates = f"producer_byte_rate={RATE},consumer_byte_rate={RATE}"
    command = [
        *broker._java(), "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, "--alter",
        "--add-config", rates, "--entity-type", "clients", "--entity-name", "slow",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return {"bootstrap.servers": broker.bootstrap, "client.id": "slow"}


@contextmanager
def restarted(broker: Broker, ending: str) -> Iterator[None]:
    """Stop or kill the broker; it starts again while the block runs."""
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
    patience: float,
    committed: Callable[[int], None] = lambda _: None,
) -> None:
    """Write each block in a transaction of its own, from where the topic is."""

    def resume(commits: Callable[[], None]) -> None:
        with RestoreProducer(config, f"{topic}-writer", f"{topic}-group", patience=patience) as producer:
            progress = producer.resume(topic, 0)
            for number in range(progress.position if progress else 0, len(blocks)):
                producer.begin()
                producer.produce_block(topic, 0, blocks[number])
                committed(number)
                producer.commit({(topic, 0): Progress(number + 1, "")})
                commits()

    outlasting(resume)


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_reading_goes_on_after_a_restart(broker: Broker, records: str, ending: str) -> None:
    config = {"bootstrap.servers": broker.bootstrap}
    with closing(Reader(config, "read_committed")) as reader:
        blocks = reader.blocks(records, 0, 0, RECORDS)
        entries = next(blocks).stats.entries
        with restarted(broker, ending):
            entries += sum(block.stats.entries for block in blocks)
    assert entries == RECORDS


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_writing_goes_on_after_a_restart(broker: Broker, records: str, ending: str) -> None:
    """Once at a commit, which a client may then wait for without end."""
    config, copy = {"bootstrap.servers": broker.bootstrap}, f"{records}-copy"
    truth.create_topic(broker.bootstrap, copy, 1, retention_ms="-1")
    blocks = read(config, records, RECORDS)
    restarts: list[int] = []

    def restart(number: int) -> None:
        if number == 2 and not restarts:
            restarts.append(number)
            with restarted(broker, ending):
                pass

    write(config, copy, blocks, 15.0, restart)
    assert restarts
    assert truth.contents(broker.bootstrap, copy) == truth.contents(broker.bootstrap, records)


def test_a_throttled_client_is_slow_and_fails_not(broker: Broker, throttled: dict[str, str]) -> None:
    count, size = 75, 20_000
    # A broker never sends a batch that is larger than what its quota allows in 10 seconds.
    topic = topic_with(broker, "throttled", count, size, **{"batch.size": "100000"})
    copy = "throttled-copy"
    truth.create_topic(broker.bootstrap, copy, 1, retention_ms="-1")
    blocks = read(throttled, topic, count, patience=PATIENCE_S)
    assert any("throttle" in text for text in librdkafka.delays())
    librdkafka._delays.clear()
    write(throttled, copy, blocks, PATIENCE_S)
    assert any("throttle" in text for text in librdkafka.delays())
    assert truth.contents(broker.bootstrap, copy) == truth.contents(broker.bootstrap, topic)
