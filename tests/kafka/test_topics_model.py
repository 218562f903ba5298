"""Any sequence of writing, losing, backing up and restoring equals a model in plain Python.

The model: a topic is a list of offsets for each partition. A backup keeps what it could read then. A restore
to a time T takes the first backup at or after T that holds the topic, and the chain it stands on, and gives
the records with a timestamp of at most T; without a time, the newest backup and all records. It is refused
when the chain goes on over a gap, or when T lies between the last backup before a gap and the one after it.
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
    """One partition: its offsets in order, None where a reader of committed records sees nothing."""

    entries: list[Record | None] = field(default_factory=list)
    low: int = 0

    @property
    def end(self) -> int:
        return len(self.entries)


@dataclass
class Topic:
    """A topic of the model; `life` counts how often it was made."""

    name: str
    life: int
    logs: list[Log] = field(default_factory=lambda: [Log() for _ in range(PARTITIONS)])


@dataclass
class Kept:
    """What a backup kept of a topic, and until which offset it covers each partition."""

    life: int
    ends: list[int]
    records: list[list[tuple[int, Record]]]
    starts: list[int]

    def silent(self, to_ts: int) -> bool:
        """Whether it has nothing as old, and does not know that there was nothing."""
        times = [record.timestamp for rows in self.records for _, record in rows]
        return any(self.starts) and min(times, default=to_ts + 1) > to_ts


@dataclass
class Taken:
    """One backup."""

    number: int
    base: int
    end_ts: int
    topics: dict[str, Kept]


@dataclass
class Hole:
    """A gap: the last backup before it was taken at `after`, the one that noticed it at `before`."""

    topic: str
    life: int
    after: int
    before: int
    noticed_by: int
    bridged: bool


class Model:
    """What should be so."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.backups: list[Taken] = []
        self.holes: list[Hole] = []

    def take(self, names: list[str], end_ts: int, on_gap: str, mode: str) -> Taken:
        """Take a backup of what the topics hold now."""
        number = len(self.backups) + 1
        purged: list[Hole] = []
        recreated: list[Hole] = []
        for name in names:
            last = self.last(name)
            if last is None:
                continue
            taken, kept = last
            topic = self.topics[name]
            if kept.life != topic.life:
                recreated.append(Hole(name, kept.life, taken.end_ts, end_ts, number, bridged=False))
            elif any(end < log.low for end, log in zip(kept.ends, topic.logs, strict=True)):
                purged.append(Hole(name, kept.life, taken.end_ts, end_ts, number, bridged=False))
        full = mode == "full" or not self.backups or (bool(purged) and on_gap == "full")
        base = number if full else self.backups[-1].base
        taken = Taken(number, base, end_ts, {})
        for name in names:
            topic = self.topics[name]
            before = None if full else self.last(name, base)
            kept_before = before[1] if before and before[1].life == topic.life else None
            starts = [
                log.low if kept_before is None else max(log.low, kept_before.ends[p])
                for p, log in enumerate(topic.logs)
            ]
            records = [
                [(i, r) for i, r in enumerate(log.entries) if i >= starts[p] and r is not None]
                for p, log in enumerate(topic.logs)
            ]
            taken.topics[name] = Kept(topic.life, [log.end for log in topic.logs], records, starts)
        self.holes += recreated + [
            replace(h, bridged=self.goes_on(h, None if full else base)) for h in purged
        ]
        self.backups.append(taken)
        return taken

    def goes_on(self, hole: Hole, base: int | None) -> bool:
        """Whether the chain on `base` has read that topic before the hole."""
        before = base and self.last(hole.topic, base)
        return bool(before) and before[1].life == hole.life

    def last(self, name: str, base: int | None = None) -> tuple[Taken, Kept] | None:
        """The newest backup that holds a topic, of one chain when `base` is given."""
        for taken in reversed(self.backups):
            if name in taken.topics and base in (None, taken.base):
                return taken, taken.topics[name]
        return None

    def restored(
        self, name: str, to_ts: int | None
    ) -> list[list[tuple[int, Record]]] | type[LakebackupError]:
        """What a restore gives for each partition, or how it is refused."""
        holding = [taken for taken in self.backups if name in taken.topics]
        if not holding:
            return NotFound
        if to_ts is not None and to_ts > holding[-1].end_ts:
            return Refused
        chosen = next((t for t in holding if to_ts is not None and t.end_ts >= to_ts), holding[-1])
        life = chosen.topics[name].life
        chain = [
            t.topics[name]
            for t in holding
            if t.base == chosen.base and t.number <= chosen.number and t.topics[name].life == life
        ]
        numbers = {t.number for t in holding if t.base == chosen.base and t.number <= chosen.number}
        for hole in self.holes:
            if hole.topic != name:
                continue
            if hole.bridged and hole.life == life and hole.noticed_by in numbers:
                return Refused
            if to_ts is not None and hole.after < to_ts < hole.before:
                return Refused
        first = chosen is holding[0] and to_ts is not None and to_ts < chosen.end_ts
        if to_ts is not None and first and chosen.topics[name].silent(to_ts):
            return Refused
        return [
            [
                (offset, record)
                for kept in chain
                for offset, record in kept.records[p]
                if to_ts is None or record.timestamp <= to_ts
            ]
            for p in range(PARTITIONS)
        ]


records = st.lists(
    st.builds(
        Record,
        partition=st.integers(0, PARTITIONS - 1),
        key=st.sampled_from([None, b"", b"k", b"another"]),
        value=st.sampled_from([None, b"", b"v", b"x" * 2_000]),
        headers=st.sampled_from([(), (("h", b"1"), ("h", None)), (("", b""),)]),
        # Around now, where the times of backups are, and long ago; in no order.
        timestamp=st.integers(-2_000, 2_000) | st.just(-10_000_000),
    ),
    min_size=1,
    max_size=12,
)
names = st.sampled_from(NAMES)
some = st.lists(names, min_size=1, max_size=2, unique=True)


class Topics(RuleBasedStateMachine):
    """One destination and two topics, done to in any order."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__()
        self.suffix = uuid4().hex[:8]
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.lab = Lab(lab.spark, lab.bootstrap, self.folder / "backups", lab._empty_catalog)
        self.admin = AdminClient({"bootstrap.servers": lab.bootstrap})
        self.model = Model()
        self.copies: list[str] = []
        self.lives = 0

    def real(self, name: str) -> str:
        return f"model-{name}-{self.suffix}"

    @initialize()
    def both_topics(self) -> None:
        for name in NAMES:
            self.make(name)

    def make(self, name: str) -> None:
        self.lives += 1
        truth.create_topic(self.lab.bootstrap, self.real(name), PARTITIONS, retention_ms="-1")
        self.model.topics[name] = Topic(self.real(name), self.lives)

    @rule(name=names, wanted=records)
    def produce(self, name: str, wanted: list[Record]) -> None:
        rows = self.dated(wanted)
        truth.produce(self.lab.bootstrap, self.real(name), rows)
        for row in rows:
            self.model.topics[name].logs[row.partition].entries.append(row)

    @rule(name=names, wanted=records, commit=st.booleans())
    def transact(self, name: str, wanted: list[Record], commit: bool) -> None:
        rows = self.dated(wanted)
        own = {"transactional.id": f"{self.suffix}-{name}"}
        truth.produce(self.lab.bootstrap, self.real(name), rows, commit=commit, **own)
        for row in rows:
            self.model.topics[name].logs[row.partition].entries.append(row if commit else None)
        for partition in {row.partition for row in rows}:  # the mark at the end has an offset too
            self.model.topics[name].logs[partition].entries.append(None)

    def dated(self, wanted: list[Record]) -> list[Record]:
        now = now_ms()
        return [replace(r, timestamp=now + r.timestamp if r.timestamp >= -2_000 else OLD_MS) for r in wanted]

    @rule(name=names, partition=st.integers(0, PARTITIONS - 1), share=st.floats(0, 1))
    def delete_records(self, name: str, partition: int, share: float) -> None:
        log = self.model.topics[name].logs[partition]
        before = log.low + round((log.end - log.low) * share)
        if before == log.low:
            return
        self.settled([name])
        truth.delete_records(self.lab.bootstrap, self.real(name), {partition: before})
        log.low = before

    @rule(name=names)
    def make_again(self, name: str) -> None:
        truth.delete_topic(self.lab.bootstrap, self.real(name))
        self.make(name)

    @rule(chosen=some, on_gap=st.sampled_from(["full", "full", "continue"]), full=st.integers(0, 4))
    def backup(self, chosen: list[str], on_gap: str, full: int) -> None:
        self.settled(chosen)
        mode = "full" if full == 4 else "auto"
        done = self.lab.backup(*map(self.real, chosen), on_gap=on_gap, mode=mode)
        taken = self.model.take(chosen, done["end_ts"], on_gap, mode)
        kept = sum(len(rows) for topic in taken.topics.values() for rows in topic.records)
        expected = "full" if taken.base == taken.number else "differential"
        assert (done["kind"], done["entries"]) == (expected, kept)

    def settled(self, chosen: list[str]) -> None:
        """A commit returns before its marks are in the log; a backup rightly ends before them."""
        wanted = {
            TopicPartition(self.real(name), p): log.end
            for name in chosen
            for p, log in enumerate(self.model.topics[name].logs)
        }

        def reached() -> bool:
            latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            answers = self.admin.list_offsets(
                dict.fromkeys(wanted, latest), isolation_level=IsolationLevel.READ_COMMITTED
            )
            try:
                return all(answers[tp].result(30).offset == end for tp, end in wanted.items())
            except KafkaException:  # a topic that was made just now has no leader yet
                return False

        truth.until(reached, f"{wanted} is stable")

    @precondition(lambda self: self.model.backups)
    @rule(chosen=some, when=st.none() | st.integers(0, 1000), into_kafka=st.integers(0, 4))
    def restore(self, chosen: list[str], when: int | None, into_kafka: int) -> None:
        times = self.times()  # how many there are depends on the clock
        to_ts = None if when is None else times[when % len(times)]
        expected = {name: self.model.restored(name, to_ts) for name in chosen}
        refused = {outcome for outcome in expected.values() if isinstance(outcome, type)}
        real = [self.real(name) for name in chosen]
        if refused:
            with pytest.raises(NotFound if NotFound in refused else Refused):
                self.lab.restore(*real, to_ts=to_ts, target=f"dir:{self.new_folder()}", allow_empty=True)
        elif into_kafka == 4:
            copies = {name: f"{name}-copy{len(self.copies)}" for name in real}
            self.copies += copies.values()
            self.lab.restore(*real, to_ts=to_ts, maps=copies, allow_empty=True)
            for name in chosen:
                found = truth.contents(self.lab.bootstrap, copies[self.real(name)])
                assert found == {p: [r for _, r in rows] for p, rows in enumerate(expected[name]) if rows}, (
                    name
                )
        else:
            out = self.new_folder()
            self.lab.restore(*real, to_ts=to_ts, target=f"dir:{out}", allow_empty=True)
            for name in chosen:
                found = [list(stored(out / "topics" / self.real(name), p)) for p in range(PARTITIONS)]
                assert found == expected[name], name

    def check_plan(self, name: str, to_ts: int | None) -> bool:
        """Compare what a restore would read with the model; returns whether it is refused."""
        expected, real = self.model.restored(name, to_ts), self.real(name)
        if isinstance(expected, type):
            with pytest.raises(expected):
                planned(self.lab, real, to_ts, PARTITIONS)
            return True
        assert planned(self.lab, real, to_ts, PARTITIONS) == expected, (name, to_ts)
        return False

    def times(self) -> list[int]:
        """Times at which something changes, and their neighbours."""
        ends = [taken.end_ts for taken in self.model.backups]
        near = [end + step for end in ends for step in (-1, 0, 1)]
        middle = [(a + b) // 2 for a, b in pairwise(ends)]
        kept = sorted(
            {
                record.timestamp
                for taken in self.model.backups
                for topic in taken.topics.values()
                for rows in topic.records
                for _, record in rows
            }
        )
        return [*near, *middle, *kept[:: max(1, len(kept) // 5)]]

    def new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))

    def teardown(self) -> None:
        there = self.admin.list_topics(timeout=30).topics
        gone = [name for name in (*map(self.real, NAMES), *self.copies) if name in there]
        for answer in self.admin.delete_topics(gone).values() if gone else ():
            answer.result(30)


def stored(folder: Path, partition: int) -> Iterator[tuple[int, Record]]:
    """What a partition's files hold, by fastavro alone."""
    return truth.records_below(folder / f"partition={partition}")


@pytest.mark.long
def test_a_life_with_gaps_and_a_topic_made_again(lab: Lab, tmp_path: Path) -> None:
    life = Topics(lab, tmp_path)
    rows = [
        Record(0, b"k", b"v", (("h", b"1"), ("h", None)), 0),
        Record(1, None, b"", (), -1_500),
        Record(0, b"", None, (), 1_500),
        Record(1, b"k", b"x" * 2_000, (), -10_000_000),
    ]
    try:
        life.both_topics()
        life.produce("a", rows)
        life.produce("b", rows)
        life.transact("a", rows, commit=True)
        life.transact("b", rows, commit=False)
        life.backup(["a", "b"], "full", 0)
        life.backup(["a"], "full", 4)
        life.produce("b", rows)
        life.delete_records("b", 0, 0.8)
        life.backup(["b"], "full", 0)
        for _ in range(2):  # the chain holds a only from the first of them on
            life.produce("a", rows)
            life.delete_records("a", 1, 1.0)
            life.backup(["a"], "continue", 0)
        assert [hole.bridged for hole in life.model.holes] == [False, False, True]
        life.make_again("b")
        life.produce("b", rows)
        life.backup(["a", "b"], "full", 0)
        life.backup(["b", "a"], "full", 4)
        for name in NAMES:
            ends = [taken.end_ts for taken in life.model.backups if name in taken.topics]
            near = [end + step for end in ends for step in (-1, 0, 1)]
            assert {life.check_plan(name, to_ts) for to_ts in (None, *near)} == {True, False}
    finally:
        life.teardown()


@pytest.mark.long
def test_many_lives(lab: Lab, tmp_path: Path) -> None:
    live(lambda: Topics(lab, tmp_path), 20, 30)
