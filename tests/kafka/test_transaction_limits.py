"""Restores into a cluster whose limits for transactions are tight.

Layer: make test, with a broker of its own, since the limits are its settings. Nothing else runs a transaction
into its timeout.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.kafka_truth import Record

from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client import engine, produce

pytestmark = pytest.mark.kafka

LIMITS = {
    "transaction.max.timeout.ms": "12000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
RATE = 400_000


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that allows transactions of 12 seconds, and throttles the client `slow`."""
    with Broker(tmp_path_factory.mktemp("broker"), properties=LIMITS) as broker:
        command = [
            *broker._java(), "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, "--alter",
            "--add-config", f"producer_byte_rate={RATE}", "--entity-type", "clients", "--entity-name", "slow",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        yield broker


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Commands:
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    monkeypatch.setenv("LAKEBACKUP_RUNNER", "local")
    return Commands(capsys)


@pytest.fixture
def orders(limited: Broker, commands: Commands) -> str:
    """A topic whose records take longer than a transaction may, at the rate of the client `slow`."""
    truth.create_topic(limited.bootstrap, "orders", 1, retention_ms="-1")
    records = [Record(0, b"%d" % i, os.urandom(50_000), (), 1_600_000_000_000 + i) for i in range(120)]
    truth.produce(limited.bootstrap, "orders", records)
    commands.result("backup", "topics", "orders", "--bootstrap-server", limited.bootstrap, "--groups", "none")
    return "orders"


def restore(broker: Broker, copy: str, *flags: str) -> tuple[str, ...]:
    target = f"kafka://{broker.bootstrap}"
    return ("restore", "topics", "orders", "--to", target, "--map", f"orders={copy}", *flags)


def test_a_file_that_takes_longer_than_a_transaction_is_restored(
    commands: Commands,
    limited: Broker,
    orders: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    too_long = tmp_path / "long.properties"
    too_long.write_text("transaction.timeout.ms=60000\n", "utf-8")
    message = commands.fails(2, *restore(limited, "refused", "--kafka-config", str(too_long)))
    assert "transaction.timeout.ms is 60000, and this cluster allows 12000" in message
    assert "refused" not in Cluster({"bootstrap.servers": limited.bootstrap}).topic_names()

    slow = tmp_path / "slow.properties"
    slow.write_text("client.id=slow\n", "utf-8")
    command = restore(limited, "copy", "--kafka-config", str(slow))
    with monkeypatch.context() as patch:  # every transaction runs into its timeout
        patch.setattr(engine, "_DUE_PART", 100.0)
        patch.setattr(produce, "ATTEMPTS", 1)
        assert "longer than 10 s (transaction.timeout.ms)" in commands.fails(6, *command)
    commands.result(*command)
    assert truth.contents(limited.bootstrap, "copy") == truth.contents(limited.bootstrap, orders)
