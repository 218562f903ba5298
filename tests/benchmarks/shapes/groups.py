"""Many consumer groups: their offsets in backups, and in the plan of a restore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.benchmarks.data import create_topic
from tests.benchmarks.measure import Job, MeasuringError, Sample
from tests.benchmarks.ours import backup_topics, restore_topics
from tests.benchmarks.shapes.growing import Setting, Shape
from tests.support.kafka_truth import Record, produce, until

from lakebackup import connect
from lakebackup_jobs.demo.broker import Broker

TOPIC, PARTITIONS, RECORDS = "read-by-groups", 10, 1_000
_BATCH = 200  # requests at a time


@contextmanager
def groups(setting: Setting, count: int) -> Iterator[Shape]:
    """Yield a cluster of its own: a backup reads all groups of its cluster."""
    with Broker(setting.folder / "broker") as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        records = (Record(n % PARTITIONS, b"key", b"x" * 50, (), n) for n in range(PARTITIONS * RECORDS))
        produce(broker.bootstrap, TOPIC, records)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        names = [f"group-{number:05d}" for number in range(count)]
        for first in range(0, count, _BATCH):
            batch = names[first : first + _BATCH]
            until(partial(_commit, admin, batch), "the offsets of all groups are committed")
        yield _Groups(Setting(broker.bootstrap, setting.folder, setting.run), count)


def _commit(admin: AdminClient, names: list[str]) -> bool:
    """Commit offsets for groups. Returns whether all are committed: a starting coordinator refuses."""
    futures = [
        future for name in names for future in admin.alter_consumer_group_offsets([_offsets(name)]).values()
    ]
    errors = [p.error for future in futures for p in future.result(60).topic_partitions if p.error]
    return not errors


def _offsets(group: str) -> ConsumerGroupTopicPartitions:
    offsets = [TopicPartition(TOPIC, partition, RECORDS // 2) for partition in range(PARTITIONS)]
    return ConsumerGroupTopicPartitions(group, offsets)


class _Groups:
    def __init__(self, setting: Setting, count: int) -> None:
        self._setting, self._count = setting, count
        self._backup_words = backup_topics(setting.bootstrap, TOPIC, setting.repo)

    def works(self) -> dict[str, Job]:
        return {
            "first backup": self._first,
            "backup with nothing new": lambda: self._setting.run(self._backup_words),
            "dry run of a restore with groups": lambda: self._restore("--dry-run"),
            "restore with groups": lambda: self._restore(),
        }

    def _first(self) -> Sample | str:
        sample = self._setting.fresh(self._setting.repo, self._backup_words)
        self._check_count()
        return sample

    def _check_count(self) -> None:
        select = "SELECT count(*) AS offsets FROM groups"
        [row] = connect(str(self._setting.repo)).sql(select).rows()
        if row["offsets"] != self._count * PARTITIONS:
            raise MeasuringError(f"{row['offsets']} offsets of groups were backed up")

    def _restore(self, *options: str) -> Sample | str:
        setting = self._setting
        with setting.new_topic() as target:
            words = restore_topics(setting.bootstrap, TOPIC, setting.repo, target)
            return setting.run([*words, "--group-pattern", "group-.*", *options])
