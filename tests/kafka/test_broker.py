from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.support.chosen import chosen
from tests.support.kafka_truth import Record, contents, produce

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.runtime.child import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.kafka


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    rows = [Record(0, None, value, (), -1) for value in values]
    produce(bootstrap, topic, rows, **{"message.max.bytes": 20_000_000})


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in contents(bootstrap, topic)[0]]


def test_a_topic_may_take_larger_messages_than_the_broker(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(**{"max.message.bytes": "12000000"})
    big = bytes(10_000_000)
    send(broker.bootstrap, name, big)
    assert values_of(broker.bootstrap, name) == [big]


def test_topics_are_never_made_by_accident(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert "misspelt" not in admin.list_topics("misspelt", timeout=10).topics or (
        admin.list_topics("misspelt", timeout=10).topics["misspelt"].error is not None
    )


@pytest.mark.long
def test_messages_survive_kill_and_restart_on_the_same_port(tmp_path: Path) -> None:
    with Broker(
        tmp_path / "broker", properties={"num.partitions": "3", "auto.create.topics.enable": "true"}
    ) as own:
        address = own.bootstrap
        send(address, "t", b"before")
        own.kill()
        assert not own.running
        own.start()
        send(address, "t", b"between")
        own.restart()
        assert own.bootstrap == address
        assert values_of(address, "t") == [b"before", b"between"]
        admin = AdminClient({"bootstrap.servers": address})
        resource = ConfigResource("broker", "1")
        assert admin.describe_configs([resource])[resource].result(10)["num.partitions"].value == "3"
    assert not own.running


@pytest.mark.long
def test_a_port_in_use_is_a_clear_error(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentProblem, match=r"ended while starting[\s\S]*Address already in use"
    ) as caught:
        Broker(tmp_path / "second", port=broker.port).start()
    assert "in use by another broker" in str(caught.value)


def test_a_setting_that_kafka_refuses_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"log\.segment\.bytes"):
        Broker(tmp_path / "broker", properties={"log.segment.bytes": "many"}).start()


@pytest.mark.parametrize("ending", chosen([signal.SIGINT, signal.SIGTERM], [signal.SIGTERM]))
def test_it_runs_in_the_foreground_until_told_to_end(tmp_path: Path, ending: signal.Signals) -> None:
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "lakebackup_jobs.demo.broker", "--dir", str(tmp_path / "b"),
         "--port", str(port)],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stdout.readline().startswith(f"Kafka runs on 127.0.0.1:{port}, folder ")
        os.kill(process.pid, ending)
        assert process.wait(30) == 0
