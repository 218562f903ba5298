from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.support import kafka_truth as truth
from tests.support.chosen import chosen
from tests.support.kafka_truth import Record

from lakebackup.errors import EnvironmentProblem
from lakebackup.plan.topics.forks import BackupEnd, EpochEnd
from lakebackup.storage import Storage, open_storage
from lakebackup_jobs.kafka.client import epochs
from lakebackup_jobs.kafka.client.consume import copy_range
from lakebackup_jobs.kafka.client.epochs import Logs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from lakebackup.storage import ObjectWriter
    from lakebackup_jobs.demo.broker import Broker

pytestmark = pytest.mark.kafka

Kept = dict[BackupEnd, tuple[Storage, str, int]]


def logs(broker: Broker, kept: Kept | None = None, **config: str) -> Logs:
    def files(asked: Collection[BackupEnd]) -> Mapping[BackupEnd, tuple[Storage, str, int]]:
        return {one: place for one, place in (kept or {}).items() if one in asked}

    return Logs({"bootstrap.servers": broker.bootstrap, **config}, files)


def backup_end(
    topic: str, position: int, *, partition: int = 0, leader_epoch: int | None = None
) -> BackupEnd:
    return BackupEnd(1, topic, "0" * 32, str(partition), position, leader_epoch)


def write(broker: Broker, topic: str, *values: bytes | None) -> None:
    rows = [Record(0, b"k%d" % i, value, (), 1_700_000_000_000 + i) for i, value in enumerate(values)]
    truth.produce(broker.bootstrap, topic, rows)


def copied(broker: Broker, topic: str, folder: Path, end: int, codec: str) -> tuple[Storage, str, int]:
    """A data file of the records of a topic, as (storage, path, bytes)."""
    storage = open_storage(str(folder))
    writers: list[ObjectWriter] = []

    def new_file() -> ObjectWriter:
        writers.append(storage.writer())
        return writers[-1]

    config = {"bootstrap.servers": broker.bootstrap}
    (stats,) = copy_range(config, topic, 0, 0, end, new_file, codec=codec)
    writers[0].commit("file.avro")
    return storage, "file.avro", stats.bytes


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
    root, path, size = copied(broker, name, tmp_path, 1, "deflate")
    one = backup_end(other, 1)
    assert logs(broker, {one: (root, path, size)}).compared([one]) == {one: False}
    whole = (tmp_path / path).read_bytes()
    for broken in (whole[:-3], whole[:40], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        (tmp_path / path).write_bytes(broken)
        assert logs(broker, {one: (root, path, size)}).compared([one]) == {}
    (tmp_path / path).unlink()
    assert logs(broker, {one: (root, path, size)}).compared([one]) == {}


def test_no_answer_is_an_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "PATIENCE_S", 0.5)
    with pytest.raises(EnvironmentProblem, match=r"nowhere\[0\]: its leader did not report"):
        logs(broker).ends([backup_end("nowhere", 1, leader_epoch=1)])
