"""One topic as a shape: its backup, and restores of it into a folder and into a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from tests.benchmarks.measure import Job, MeasuringError, Sample
from tests.benchmarks.ours import backup_topics, restore_topics
from tests.benchmarks.shapes.growing import MakeShape, Setting, Shape
from tests.support.kafka_truth import (
    Record,
    create_topic,
    delete_topic,
    digests,
    produce,
    read,
    records_below,
)

BACKUP, NOTHING_NEW, VERIFY = "first backup", "backup with nothing new", "`verify`"
TO_FOLDER, TO_TOPIC = "restore into a folder", "restore into a topic"
TOPIC = "shape"
Digests = dict[int, tuple[int, str]]
OffsetRecords = Iterable[tuple[int, Record]]


@dataclass(frozen=True)
class TopicOf:
    """What a topic has: a function of the size that returns its records, and its partitions and settings.

    `settle`: waits until the topic is as it shall be backed up. `digests`: what its records have in
    common with restored ones.
    """

    records: Callable[[int], Iterable[Record]]
    partitions: Callable[[int], int] = lambda _: 1
    settings: Mapping[str, str] = field(default_factory=dict)
    works: tuple[str, ...] = (BACKUP, TO_FOLDER, TO_TOPIC)
    settle: Callable[[Setting], None] = lambda _: None
    digests: Callable[[OffsetRecords], Digests] = digests

    def make(self) -> MakeShape:
        """Return what makes the topic of a size, and deletes it at the end."""

        def of_size(setting: Setting, size: int) -> AbstractContextManager[Shape]:
            return self._existing(setting, size)

        return of_size

    @contextmanager
    def _existing(self, setting: Setting, size: int) -> Iterator[Shape]:
        settings = {"retention.ms": "-1", "file.delete.delay.ms": "1000", **self.settings}
        create_topic(setting.bootstrap, TOPIC, self.partitions(size), **settings)
        try:
            produce(setting.bootstrap, TOPIC, self.records(size), **{"compression.type": "lz4"})
            self.settle(setting)
            yield _Topic(setting, self)
        finally:
            delete_topic(setting.bootstrap, TOPIC)


class _Topic:
    def __init__(self, setting: Setting, topic: TopicOf) -> None:
        self._setting, self._topic = setting, topic
        self._unchecked = {TO_FOLDER, TO_TOPIC}
        self._backup_words = backup_topics(setting.bootstrap, TOPIC, setting.repo, "--groups", "none")

    def works(self) -> dict[str, Job]:
        jobs: dict[str, Job] = {
            BACKUP: lambda: self._setting.fresh(self._setting.repo, self._backup_words),
            NOTHING_NEW: lambda: self._setting.run(self._backup_words),
            VERIFY: lambda: self._setting.run(["verify", "--repo", self._setting.repo]),
            TO_FOLDER: self._to_folder,
            TO_TOPIC: self._to_topic,
        }
        return {name: jobs[name] for name in self._topic.works}

    def _to_folder(self) -> Sample | str:
        setting = self._setting
        words = ["restore", "topics", TOPIC, "--repo", setting.repo, "--to", f"dir:{setting.restored}"]
        sample = setting.fresh(setting.restored, words)
        self._check(TO_FOLDER, lambda: records_below(setting.restored))
        return sample

    def _to_topic(self) -> Sample | str:
        setting = self._setting
        with setting.new_topic() as target:
            sample = setting.run(restore_topics(setting.bootstrap, TOPIC, setting.repo, target))
            self._check(TO_TOPIC, lambda: read(setting.bootstrap, target))
            return sample

    @cached_property
    def _original(self) -> Digests:
        return self._topic.digests(read(self._setting.bootstrap, TOPIC))

    def _check(self, work: str, restored: Callable[[], OffsetRecords]) -> None:
        """Compare the first restore of each kind with the topic, record by record."""
        if work in self._unchecked and self._topic.digests(restored()) != self._original:
            raise MeasuringError(f"{work}: the records differ from those of the topic")
        self._unchecked.discard(work)
