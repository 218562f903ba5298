"""The broker of tests and demos, and what only a real one reports: settings in force, and epochs of logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec
from tests.support import kafka_truth as truth
from tests.support.chosen import chosen
from tests.support.kafka_truth import Record, contents, produce
from tests.support.servers import RETENTION_HOURS

from lakebackup.errors import EnvironmentProblem
from lakebackup.plan.topics.forks import BackupEnd, EpochEnd
from lakebackup.storage import ObjectWriter, open_storage
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.client import epochs
from lakebackup_jobs.kafka.client.consume import copy_range
from lakebackup_jobs.kafka.client.epochs import Logs, Place
from lakebackup_jobs.runtime.child import free_port
from lakebackup_jobs.targets.topics import SUSPENDED, Topics

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


@pytest.mark.long
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


def test_settings_in_force_are_known_with_their_origin(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(**{"segment.ms": "777777"})
    cluster = Topics({"bootstrap.servers": broker.bootstrap})
    cluster.alter_settings(name, put={}, drop=["retention.ms"])
    hours = str(RETENTION_HOURS * 3_600_000)

    (state,) = cluster.describe([name])
    assert state.settings == {"segment.ms": "777777"}
    assert state.inherited["default"]["cleanup.policy"] == "delete"
    assert state.effective["retention.ms"] == hours
    assert state.effective == truth.settings(broker.bootstrap, name)

    # Also while the topic overrides them.
    cluster.alter_settings(name, put=SUSPENDED)
    of_brokers = {"retention.ms": hours, "retention.bytes": "-1", "cleanup.policy": "delete"}
    assert cluster.retention_of_brokers() == of_brokers


Kept = dict[BackupEnd, Place]


def logs(broker: Broker, kept: Kept | None = None, **config: str) -> Logs:
    def files(asked: Collection[BackupEnd]) -> Mapping[BackupEnd, Place]:
        return {one: place for one, place in (kept or {}).items() if one in asked}

    return Logs({"bootstrap.servers": broker.bootstrap, **config}, files)


def backup_end(
    topic: str, position: int, *, partition: int = 0, leader_epoch: int | None = None
) -> BackupEnd:
    return BackupEnd(1, topic, "0" * 32, str(partition), position, leader_epoch)


def write(broker: Broker, topic: str, *values: bytes | None) -> None:
    rows = [Record(0, b"k%d" % i, value, (), 1_700_000_000_000 + i) for i, value in enumerate(values)]
    truth.produce(broker.bootstrap, topic, rows)


def copied(broker: Broker, topic: str, folder: Path, end: int, codec: str) -> Place:
    """A data file of the records of a topic."""
    storage = open_storage(str(folder))
    writers: list[ObjectWriter] = []

    def new_file() -> ObjectWriter:
        writers.append(storage.writer())
        return writers[-1]

    config = {"bootstrap.servers": broker.bootstrap}
    (stats,) = copy_range(config, topic, 0, 0, end, new_file, codec=codec)
    writers[0].commit("file.avro")
    return Place(storage, "file.avro", stats.bytes, stats.end_position)


def test_where_an_epoch_ends(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(partitions=3)
    write(broker, name, b"a", b"b")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    latest = admin.list_offsets({TopicPartition(name, 0): OffsetSpec.latest()})  # type: ignore[no-untyped-call]
    now = next(iter(latest.values())).result().leader_epoch
    asked = [backup_end(name, 2, partition=p, leader_epoch=now) for p in range(3)]
    later = replace(asked[2], leader_epoch=now + 7)
    found = logs(broker).ends([*asked[:2], later])
    # Of an epoch that has not been, the log knows nothing.
    assert found == {asked[0]: EpochEnd(now, 2), asked[1]: EpochEnd(now, 0)}


@pytest.mark.parametrize("codec", chosen(["null", "zstandard"], ["null"]))
def test_the_last_record_is_read_again_and_compared(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, codec: str
) -> None:
    one, other, shorter = topic("one"), topic("other"), topic("shorter")
    large = [b"%d " % i * 100_000 for i in range(30)]  # blocks, and one that is not read whole
    write(broker, one, *large, None)
    write(broker, other, *large, b"another")
    write(broker, shorter, *large)
    place = copied(broker, one, tmp_path, 31, codec)
    same, differs, gone = (backup_end(name, 31) for name in (one, other, shorter))
    kept = {same: place, differs: place, gone: place}
    assert logs(broker, kept).compared([same, differs, gone]) == {same: True, differs: False, gone: None}
    assert logs(broker).compared([same]) == {}  # no file holds it

    truth.delete_records(broker.bootstrap, other, {0: 31})
    assert logs(broker, kept).compared([differs]) == {differs: None}


def test_a_file_that_cannot_be_read_says_nothing(
    broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, other = topic(), topic()
    write(broker, name, b"a")
    write(broker, other, b"b")
    place = copied(broker, name, tmp_path, 1, "deflate")
    path, one = place.path, backup_end(other, 1)
    assert logs(broker, {one: place}).compared([one]) == {one: False}
    whole = (tmp_path / path).read_bytes()
    for broken in (whole[:-3], whole[:40], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        (tmp_path / path).write_bytes(broken)
        assert logs(broker, {one: place}).compared([one]) == {}
    (tmp_path / path).unlink()
    assert logs(broker, {one: place}).compared([one]) == {}


def test_no_answer_is_an_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "PATIENCE_S", 0.5)
    with pytest.raises(EnvironmentProblem, match=r"nowhere\[0\]: its leader did not report"):
        logs(broker).ends([backup_end("nowhere", 1, leader_epoch=1)])
