from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.support.chosen import chosen

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.runtime.child import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.kafka


def send(bootstrap: str, topic: str, *values: bytes, **settings: object) -> None:
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 20_000_000, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert failed == []


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(count, 60) if not message.error()]
    consumer.close()
    return found


def test_messages_go_in_and_out(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic()
    send(broker.bootstrap, name, b"a", b"b")
    assert read(broker.bootstrap, name, 2) == [b"a", b"b"]


def test_a_topic_may_take_larger_messages_than_the_broker(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(**{"max.message.bytes": "12000000"})
    big = bytes(10_000_000)
    send(broker.bootstrap, name, big)
    assert read(broker.bootstrap, name, 1) == [big]


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
        assert read(address, "t", 2) == [b"before", b"between"]
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
