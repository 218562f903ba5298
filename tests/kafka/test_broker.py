"""The broker of tests and demos, and facts that only a real broker reports: settings in force and the leader
epochs of logs."""

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
from tests.support.chosen import mark_long
from tests.support.kafka_truth import Record, contents, produce
from tests.support.servers import RETENTION_HOURS

from lakebackup.errors import EnvironmentProblem
from lakebackup.plan.topics.forks import BackupEnd, EpochEnd
from lakebackup.storage import ObjectWriter, open_storage
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.client import epochs
from lakebackup_jobs.kafka.client.consume import copy_range
from lakebackup_jobs.kafka.client.epochs import LogEnd, Logs
from lakebackup_jobs.runtime.child import free_port
from lakebackup_jobs.targets.topics import Topics

pytestmark = pytest.mark.kafka


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    records = [Record(0, None, value, (), -1) for value in values]
    produce(bootstrap, topic, records, **{"message.max.bytes": 20_000_000})


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in contents(bootstrap, topic)[0]]


def test_a_topic_may_allow_larger_messages_than_the_broker(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(**{"max.message.bytes": "12000000"})
    large_value = bytes(10_000_000)
    send(broker.bootstrap, name, large_value)
    assert values_of(broker.bootstrap, name) == [large_value]


def test_the_broker_does_not_create_missing_topics(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert "misspelt" not in admin.list_topics("misspelt", timeout=10).topics or (
        admin.list_topics("misspelt", timeout=10).topics["misspelt"].error is not None
    )


@pytest.mark.long
def test_messages_survive_kill_and_restart_on_the_same_port(tmp_path: Path) -> None:
    with Broker(
        tmp_path / "broker", properties={"num.partitions": "3", "auto.create.topics.enable": "true"}
    ) as own_broker:
        address = own_broker.bootstrap
        send(address, "t", b"before")
        own_broker.kill()
        assert not own_broker.running
        own_broker.start()
        send(address, "t", b"between")
        own_broker.restart()
        assert own_broker.bootstrap == address
        assert values_of(address, "t") == [b"before", b"between"]
        admin = AdminClient({"bootstrap.servers": address})
        resource = ConfigResource("broker", "1")
        assert admin.describe_configs([resource])[resource].result(10)["num.partitions"].value == "3"
    assert not own_broker.running


@pytest.mark.long
def test_a_port_in_use_is_a_clear_error(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentProblem, match=r"ended while starting[\s\S]*Address already in use"
    ) as error:
        Broker(tmp_path / "second", port=broker.port).start()
    assert "in use by another broker" in str(error.value)


def test_a_setting_that_kafka_refuses_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"log\.segment\.bytes"):
        Broker(tmp_path / "broker", properties={"log.segment.bytes": "many"}).start()


@pytest.mark.long
@pytest.mark.parametrize("ending", mark_long([signal.SIGINT, signal.SIGTERM], [signal.SIGTERM]))
def test_the_command_runs_until_it_receives_a_signal(tmp_path: Path, ending: signal.Signals) -> None:
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


def test_settings_in_force_are_reported_with_their_origin(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(**{"segment.ms": "777777"})
    topics = Topics({"bootstrap.servers": broker.bootstrap})
    assert topics.alter_settings({name: {"retention.ms": None}}) == {}
    retention_ms = str(RETENTION_HOURS * 3_600_000)

    (topic_state,) = topics.describe([name])
    assert topic_state.settings == {"segment.ms": "777777"}
    assert topic_state.inherited["default"]["cleanup.policy"] == "delete"
    assert topic_state.effective["retention.ms"] == retention_ms
    assert topic_state.effective == truth.settings(broker.bootstrap, name)

    # The brokers' settings are also reported while the topic overrides them.
    topics.suspend([name])
    broker_settings = {"retention.ms": retention_ms, "retention.bytes": "-1", "cleanup.policy": "delete"}
    assert topics.retention_of_brokers() == broker_settings


LastFiles = dict[BackupEnd, LogEnd]


def logs(broker: Broker, last_files: LastFiles | None = None, **config: str) -> Logs:
    def find_files(backup_ends: Collection[BackupEnd]) -> Mapping[BackupEnd, LogEnd]:
        return {end: file for end, file in (last_files or {}).items() if end in backup_ends}

    return Logs({"bootstrap.servers": broker.bootstrap, **config}, find_files)


def backup_end(
    topic: str, position: int, *, partition: int = 0, leader_epoch: int | None = None
) -> BackupEnd:
    return BackupEnd(1, topic, "0" * 32, str(partition), position, leader_epoch)


def write(broker: Broker, topic: str, *values: bytes | None) -> None:
    records = [Record(0, b"k%d" % i, value, (), 1_700_000_000_000 + i) for i, value in enumerate(values)]
    truth.produce(broker.bootstrap, topic, records)


def copy_records(broker: Broker, topic: str, folder: Path, end: int, codec: str) -> LogEnd:
    """Copy partition 0 of a topic, from offset 0 to `end`, into a data file."""
    storage = open_storage(str(folder))
    writers: list[ObjectWriter] = []

    def new_file() -> ObjectWriter:
        writers.append(storage.writer())
        return writers[-1]

    config = {"bootstrap.servers": broker.bootstrap}
    (stats,) = copy_range(config, topic, 0, 0, end, new_file, codec=codec)
    writers[0].commit("file.avro")
    return LogEnd(storage, "file.avro", stats.bytes, stats.end_position)


def test_the_log_reports_where_an_epoch_ends(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(partitions=3)
    write(broker, name, b"a", b"b")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    latest = admin.list_offsets({TopicPartition(name, 0): OffsetSpec.latest()})  # type: ignore[no-untyped-call]
    leader_epoch = next(iter(latest.values())).result().leader_epoch
    backup_ends = [
        backup_end(name, 2, partition=partition, leader_epoch=leader_epoch) for partition in range(3)
    ]
    future_end = replace(backup_ends[2], leader_epoch=leader_epoch + 7)
    epoch_ends = logs(broker).ends([*backup_ends[:2], future_end])
    # The log has no end for an epoch that does not exist yet.
    assert epoch_ends == {
        backup_ends[0]: EpochEnd(leader_epoch, 2),
        backup_ends[1]: EpochEnd(leader_epoch, 0),
    }


@pytest.mark.parametrize("codec", mark_long(["null", "zstandard"], ["null"]))
def test_the_last_record_of_a_backup_is_compared_with_the_log(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, codec: str
) -> None:
    original_topic, changed_topic, short_topic = topic("one"), topic("other"), topic("shorter")
    large_values = [b"%d " % i * 100_000 for i in range(30)]  # several blocks: the file is not read whole
    write(broker, original_topic, *large_values, None)
    write(broker, changed_topic, *large_values, b"another")
    write(broker, short_topic, *large_values)
    file = copy_records(broker, original_topic, tmp_path, 31, codec)
    equal_end, changed_end, short_end = (
        backup_end(name, 31) for name in (original_topic, changed_topic, short_topic)
    )
    last_files = {equal_end: file, changed_end: file, short_end: file}
    assert logs(broker, last_files).compared([equal_end, changed_end, short_end]) == {
        equal_end: True,
        changed_end: False,
        short_end: None,
    }
    assert logs(broker).compared([equal_end]) == {}  # without a data file there is no comparison

    truth.delete_records(broker.bootstrap, changed_topic, {0: 31})
    assert logs(broker, last_files).compared([changed_end]) == {changed_end: None}


def test_an_unreadable_file_gives_no_comparison(
    broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, other_topic = topic(), topic()
    write(broker, name, b"a")
    write(broker, other_topic, b"b")
    file = copy_records(broker, name, tmp_path, 1, "deflate")
    path, end = file.path, backup_end(other_topic, 1)
    assert logs(broker, {end: file}).compared([end]) == {end: False}
    content = (tmp_path / path).read_bytes()
    for broken_content in (content[:-3], content[:40], b"", content[:-1] + bytes([content[-1] ^ 1])):
        (tmp_path / path).write_bytes(broken_content)
        assert logs(broker, {end: file}).compared([end]) == {}
    (tmp_path / path).unlink()
    assert logs(broker, {end: file}).compared([end]) == {}


def test_a_leader_that_does_not_answer_is_an_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "PATIENCE_S", 0.5)
    with pytest.raises(EnvironmentProblem, match=r"nowhere\[0\]: its leader did not report"):
        logs(broker).ends([backup_end("nowhere", 1, leader_epoch=1)])
