"""Checks backups and restores of topics against a model in plain Python, after random operations.

In the model a topic is a list of offsets for each partition. A backup keeps the records that it could read. A
restore to a time T uses the first backup at or after T that holds the topic, with its chain, and gives the
records with a timestamp of at most T. Without a time it uses the newest backup and gives all records. It is
refused when the chain continues over a gap, or when T lies between the last backup before a gap and the first
one after it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.lives import live, planned
from tests.support.runs import Lab, now_ms

from lakebackup.errors import LakebackupError, NotFound, Refused

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 2
NAMES = ("a", "b")
OLD_MS = 1_600_000_000_000


@dataclass
class Log:
    """One partition: the record at each offset, None where a reader of committed records sees nothing."""

    entries: list[Record | None] = field(default_factory=list)
    low: int = 0

    @property
    def end(self) -> int:
        return len(self.entries)


@dataclass
class Topic:
    """A topic of the model. `life` is a new number each time the topic is created."""

    name: str
    life: int
    logs: list[Log] = field(default_factory=lambda: [Log() for _ in range(PARTITIONS)])


@dataclass
class TopicBackup:
    """The records of a topic that a backup holds, with the start and end offset of each partition."""

    life: int
    ends: list[int]
    records: list[list[tuple[int, Record]]]
    starts: list[int]

    def silent(self, to_ts: int) -> bool:
        """Whether it holds no record that old and cannot know whether one existed."""
        timestamps = [record.timestamp for rows in self.records for _, record in rows]
        return any(self.starts) and min(timestamps, default=to_ts + 1) > to_ts


@dataclass
class ModelBackup:
    """One backup."""

    number: int
    base: int
    end_ts: int
    topics: dict[str, TopicBackup]


@dataclass
class Gap:
    """A gap: the last backup before it was taken at `after_ts`, the one that noticed it at `before_ts`."""

    topic: str
    life: int
    after_ts: int
    before_ts: int
    noticed_by: int
    bridged: bool


class Model:
    """The expected topics, backups and gaps."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.backups: list[ModelBackup] = []
        self.gaps: list[Gap] = []

    def take_backup(self, names: list[str], end_ts: int, on_gap: str, mode: str) -> ModelBackup:
        """Take a backup of the topics as they are now."""
        number = len(self.backups) + 1
        purged: list[Gap] = []
        recreated: list[Gap] = []
        for name in names:
            last_entry = self.last_backup(name)
            if last_entry is None:
                continue
            backup, topic_backup = last_entry
            topic = self.topics[name]
            if topic_backup.life != topic.life:
                recreated.append(Gap(name, topic_backup.life, backup.end_ts, end_ts, number, bridged=False))
            elif any(end < log.low for end, log in zip(topic_backup.ends, topic.logs, strict=True)):
                purged.append(Gap(name, topic_backup.life, backup.end_ts, end_ts, number, bridged=False))
        is_full = mode == "full" or not self.backups or (bool(purged) and on_gap == "full")
        base = number if is_full else self.backups[-1].base
        backup = ModelBackup(number, base, end_ts, {})
        for name in names:
            topic = self.topics[name]
            previous_entry = None if is_full else self.last_backup(name, base)
            previous = previous_entry[1] if previous_entry and previous_entry[1].life == topic.life else None
            starts = [
                log.low if previous is None else max(log.low, previous.ends[partition])
                for partition, log in enumerate(topic.logs)
            ]
            records = [
                [(i, r) for i, r in enumerate(log.entries) if i >= starts[partition] and r is not None]
                for partition, log in enumerate(topic.logs)
            ]
            backup.topics[name] = TopicBackup(topic.life, [log.end for log in topic.logs], records, starts)
        self.gaps += recreated + [
            replace(gap, bridged=self.chain_includes(gap, None if is_full else base)) for gap in purged
        ]
        self.backups.append(backup)
        return backup

    def chain_includes(self, gap: Gap, base: int | None) -> bool:
        """Whether the chain of `base` has a backup of the topic from before the gap."""
        entry = base and self.last_backup(gap.topic, base)
        return bool(entry) and entry[1].life == gap.life

    def last_backup(self, name: str, base: int | None = None) -> tuple[ModelBackup, TopicBackup] | None:
        """The newest backup that holds a topic, of one chain when `base` is given."""
        for backup in reversed(self.backups):
            if name in backup.topics and base in (None, backup.base):
                return backup, backup.topics[name]
        return None

    def expected_restore(
        self, name: str, to_ts: int | None
    ) -> list[list[tuple[int, Record]]] | type[LakebackupError]:
        """The records of each partition that a restore must give, or the error that refuses it."""
        backups = [backup for backup in self.backups if name in backup.topics]
        if not backups:
            return NotFound
        if to_ts is not None and to_ts > backups[-1].end_ts:
            return Refused
        point = next(
            (candidate for candidate in backups if to_ts is not None and candidate.end_ts >= to_ts),
            backups[-1],
        )
        life = point.topics[name].life
        chain = [
            candidate.topics[name]
            for candidate in backups
            if candidate.base == point.base
            and candidate.number <= point.number
            and candidate.topics[name].life == life
        ]
        numbers = {
            candidate.number
            for candidate in backups
            if candidate.base == point.base and candidate.number <= point.number
        }
        for gap in self.gaps:
            if gap.topic != name:
                continue
            if gap.bridged and gap.life == life and gap.noticed_by in numbers:
                return Refused
            if to_ts is not None and gap.after_ts < to_ts < gap.before_ts:
                return Refused
        is_before_first = point is backups[0] and to_ts is not None and to_ts < point.end_ts
        if to_ts is not None and is_before_first and point.topics[name].silent(to_ts):
            return Refused
        return [
            [
                (offset, record)
                for topic_backup in chain
                for offset, record in topic_backup.records[partition]
                if to_ts is None or record.timestamp <= to_ts
            ]
            for partition in range(PARTITIONS)
        ]


record_lists = st.lists(
    st.builds(
        Record,
        partition=st.integers(0, PARTITIONS - 1),
        key=st.sampled_from([None, b"", b"k", b"another"]),
        value=st.sampled_from([None, b"", b"v", b"x" * 2_000]),
        headers=st.sampled_from([(), (("h", b"1"), ("h", None)), (("", b""),)]),
        # The timestamps are around now, where the times of backups are, or long ago, and unordered.
        timestamp=st.integers(-2_000, 2_000) | st.just(-10_000_000),
    ),
    min_size=1,
    max_size=12,
)
names = st.sampled_from(NAMES)
topic_lists = st.lists(names, min_size=1, max_size=2, unique=True)


class Topics(RuleBasedStateMachine):
    """One repository and two topics. Hypothesis calls the rules in any order."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__()
        self.suffix = uuid4().hex[:8]
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.lab = Lab(lab.spark, lab.bootstrap, self.folder / "backups", lab._empty_catalog)
        self.admin = AdminClient({"bootstrap.servers": lab.bootstrap})
        self.model = Model()
        self.copies: list[str] = []
        self.lives = 0

    def kafka_name(self, name: str) -> str:
        return f"model-{name}-{self.suffix}"

    @initialize()
    def begin(self) -> None:
        for name in NAMES:
            self.add_topic(name)

    def add_topic(self, name: str) -> None:
        self.lives += 1
        truth.create_topic(self.lab.bootstrap, self.kafka_name(name), PARTITIONS, retention_ms="-1")
        self.model.topics[name] = Topic(self.kafka_name(name), self.lives)

    @rule(name=names, records=record_lists)
    def produce(self, name: str, records: list[Record]) -> None:
        dated_records = self.with_timestamps(records)
        truth.produce(self.lab.bootstrap, self.kafka_name(name), dated_records)
        for record in dated_records:
            self.model.topics[name].logs[record.partition].entries.append(record)

    @rule(name=names, records=record_lists, commit=st.booleans())
    def transact(self, name: str, records: list[Record], commit: bool) -> None:
        dated_records = self.with_timestamps(records)
        config = {"transactional.id": f"{self.suffix}-{name}"}
        truth.produce(self.lab.bootstrap, self.kafka_name(name), dated_records, commit=commit, **config)
        for record in dated_records:
            self.model.topics[name].logs[record.partition].entries.append(record if commit else None)
        # The marker at the end of the transaction has an offset too.
        for partition in {record.partition for record in dated_records}:
            self.model.topics[name].logs[partition].entries.append(None)

    def with_timestamps(self, records: list[Record]) -> list[Record]:
        now_ts = now_ms()
        return [
            replace(r, timestamp=now_ts + r.timestamp if r.timestamp >= -2_000 else OLD_MS) for r in records
        ]

    @rule(name=names, partition=st.integers(0, PARTITIONS - 1), share=st.floats(0, 1))
    def delete_records(self, name: str, partition: int, share: float) -> None:
        log = self.model.topics[name].logs[partition]
        low = log.low + round((log.end - log.low) * share)
        if low == log.low:
            return
        self.wait_until_stable([name])
        truth.delete_records(self.lab.bootstrap, self.kafka_name(name), {partition: low})
        log.low = low

    @rule(name=names)
    def recreate(self, name: str) -> None:
        truth.delete_topic(self.lab.bootstrap, self.kafka_name(name))
        self.add_topic(name)

    @rule(
        chosen_topics=topic_lists,
        on_gap=st.sampled_from(["full", "full", "continue"]),
        full=st.integers(0, 4),
    )
    def backup(self, chosen_topics: list[str], on_gap: str, full: int) -> None:
        self.wait_until_stable(chosen_topics)
        mode = "full" if full == 4 else "auto"
        result = self.lab.backup(*map(self.kafka_name, chosen_topics), on_gap=on_gap, mode=mode)
        model_backup = self.model.take_backup(chosen_topics, result["end_ts"], on_gap, mode)
        entry_count = sum(len(rows) for topic in model_backup.topics.values() for rows in topic.records)
        expected_kind = "full" if model_backup.base == model_backup.number else "differential"
        assert (result["kind"], result["entries"]) == (expected_kind, entry_count)

    def wait_until_stable(self, names: list[str]) -> None:
        """Wait until the partitions end where the model expects it.

        A commit returns before its markers are in the log, and a backup ends before missing markers.
        """
        ends = {
            TopicPartition(self.kafka_name(name), p): log.end
            for name in names
            for p, log in enumerate(self.model.topics[name].logs)
        }

        def reached() -> bool:
            latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            answers = self.admin.list_offsets(
                dict.fromkeys(ends, latest), isolation_level=IsolationLevel.READ_COMMITTED
            )
            try:
                return all(answers[tp].result(30).offset == end for tp, end in ends.items())
            except KafkaException:  # a new topic may have no leader yet
                return False

        truth.until(reached, f"{ends} is stable")

    @precondition(lambda self: self.model.backups)
    @rule(
        chosen_topics=topic_lists, time_index=st.none() | st.integers(0, 1000), into_kafka=st.integers(0, 4)
    )
    def restore(self, chosen_topics: list[str], time_index: int | None, into_kafka: int) -> None:
        times = self.times()  # their number depends on the clock
        to_ts = None if time_index is None else times[time_index % len(times)]
        expected = {name: self.model.expected_restore(name, to_ts) for name in chosen_topics}
        refused = {outcome for outcome in expected.values() if isinstance(outcome, type)}
        kafka_names = [self.kafka_name(name) for name in chosen_topics]
        if refused:
            with pytest.raises(NotFound if NotFound in refused else Refused):
                self.lab.restore(
                    *kafka_names, to_ts=to_ts, target=f"dir:{self.new_folder()}", allow_empty=True
                )
        elif into_kafka == 4:
            copies = {name: f"{name}-copy{len(self.copies)}" for name in kafka_names}
            self.copies += copies.values()
            self.lab.restore(*kafka_names, to_ts=to_ts, maps=copies, allow_empty=True)
            for name in chosen_topics:
                restored = truth.contents(self.lab.bootstrap, copies[self.kafka_name(name)])
                assert restored == {
                    p: [r for _, r in rows] for p, rows in enumerate(expected[name]) if rows
                }, name
        else:
            target = self.new_folder()
            self.lab.restore(*kafka_names, to_ts=to_ts, target=f"dir:{target}", allow_empty=True)
            for name in chosen_topics:
                restored = [
                    list(read_records(target / "topics" / self.kafka_name(name), p))
                    for p in range(PARTITIONS)
                ]
                assert restored == expected[name], name

    def check_plan(self, name: str, to_ts: int | None) -> bool:
        """Compare the records that a restore would read with the model. Returns whether it is refused."""
        expected, kafka_name = self.model.expected_restore(name, to_ts), self.kafka_name(name)
        if isinstance(expected, type):
            with pytest.raises(expected):
                planned(self.lab, kafka_name, to_ts, PARTITIONS)
            return True
        assert planned(self.lab, kafka_name, to_ts, PARTITIONS) == expected, (name, to_ts)
        return False

    def times(self) -> list[int]:
        """Times around backups, between them and of records, at which the result of a restore may change."""
        ends = [backup.end_ts for backup in self.model.backups]
        near = [end + step for end in ends for step in (-1, 0, 1)]
        middle = [(ts + next_ts) // 2 for ts, next_ts in pairwise(ends)]
        timestamps = sorted(
            {
                record.timestamp
                for backup in self.model.backups
                for topic in backup.topics.values()
                for rows in topic.records
                for _, record in rows
            }
        )
        return [*near, *middle, *timestamps[:: max(1, len(timestamps) // 5)]]

    def new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))

    def teardown(self) -> None:
        existing = self.admin.list_topics(timeout=30).topics
        topic_names = [name for name in (*map(self.kafka_name, NAMES), *self.copies) if name in existing]
        for answer in self.admin.delete_topics(topic_names).values() if topic_names else ():
            answer.result(30)


def read_records(folder: Path, partition: int) -> Iterator[tuple[int, Record]]:
    """The records of a partition's files, decoded by fastavro alone."""
    return truth.records_below(folder / f"partition={partition}")


@pytest.mark.long
def test_a_sequence_with_gaps_and_a_recreated_topic(lab: Lab, tmp_path: Path) -> None:
    machine = Topics(lab, tmp_path)
    records = [
        Record(0, b"k", b"v", (("h", b"1"), ("h", None)), 0),
        Record(1, None, b"", (), -1_500),
        Record(0, b"", None, (), 1_500),
        Record(1, b"k", b"x" * 2_000, (), -10_000_000),
    ]
    try:
        machine.begin()
        machine.produce("a", records)
        machine.produce("b", records)
        machine.transact("a", records, commit=True)
        machine.transact("b", records, commit=False)
        machine.backup(["a", "b"], "full", 0)
        machine.backup(["a"], "full", 4)
        machine.produce("b", records)
        machine.delete_records("b", 0, 0.8)
        machine.backup(["b"], "full", 0)
        for _ in range(2):  # the chain holds topic a only from the first of these backups on
            machine.produce("a", records)
            machine.delete_records("a", 1, 1.0)
            machine.backup(["a"], "continue", 0)
        assert [gap.bridged for gap in machine.model.gaps] == [False, False, True]
        machine.recreate("b")
        machine.produce("b", records)
        machine.backup(["a", "b"], "full", 0)
        machine.backup(["b", "a"], "full", 4)
        for name in NAMES:
            ends = [backup.end_ts for backup in machine.model.backups if name in backup.topics]
            near = [end + step for end in ends for step in (-1, 0, 1)]
            assert {machine.check_plan(name, to_ts) for to_ts in (None, *near)} == {True, False}
    finally:
        machine.teardown()


@pytest.mark.long
def test_random_lives_of_topics(lab: Lab, tmp_path: Path) -> None:
    live(lambda: Topics(lab, tmp_path), 20, 30)
