"""Histories that were cut back, found by what a log says of its epochs: compared with the logs themselves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from lakebackup.plan.partitions import RegionState
from lakebackup.plan.topics.backup import BackupPlan, Prepared
from lakebackup.plan.topics.forks import (
    BackupEnd,
    EpochEnd,
    Fork,
    Region,
    comparable,
    cut_back,
    earlier_lost,
    first_lost,
    judge,
    lost,
    suspects,
)

WHERE = ("orders", "0" * 32, "0")


def backup_end(
    position: int, leader_epoch: int | None = 3, *, place: int = 1, region: str = "0"
) -> BackupEnd:
    return BackupEnd(place, "orders", "0" * 32, region, position, leader_epoch)


def region(low: int, high: int, leader_epoch: int | None = 3, number: str = "0") -> RegionState:
    return RegionState("orders", "0" * 32, number, low, high, high, leader_epoch)


@dataclass
class Replica:
    """A log of records that are all different, and where each epoch begins in it, as Kafka keeps that."""

    records: list[int] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, epoch: int, at: int) -> None:
        self.epochs = [(e, start) for e, start in self.epochs if start < at] + [(epoch, at)]

    def cut(self, at: int) -> None:
        self.records = self.records[:at]
        self.epochs = [(e, start) for e, start in self.epochs if start < at]

    def ends(self, epoch: int) -> EpochEnd | None:
        if not self.epochs or epoch > self.epochs[-1][0]:
            return None
        above = [start for e, start in self.epochs if e > epoch]
        end = above[0] if above else len(self.records)
        known = [e for e, _ in self.epochs if e <= epoch]
        return EpochEnd(known[-1] if known else epoch, end)


@dataclass
class Partition:
    """Two replicas, one of which leads. The other follows when it is told to, and may be elected any time."""

    replicas: tuple[Replica, Replica] = field(default_factory=lambda: (Replica(), Replica()))
    leader: int = 0
    epoch: int = 0
    written: int = 0
    rounds: int = 0

    def __post_init__(self) -> None:
        self.log.begin(0, 0)

    @property
    def log(self) -> Replica:
        return self.replicas[self.leader]

    def append(self, count: int) -> None:
        self.log.records += range(self.written, self.written + count)
        self.written += count

    def follow(self, count: int) -> None:
        """The other throws away what the leader does not have, and copies some records."""
        ours, other = self.log, self.replicas[1 - self.leader]
        same = 0
        while same < min(len(ours.records), len(other.records)) and ours.records[same] == other.records[same]:
            same += 1
        other.cut(same)
        until = min(len(ours.records), same + count)
        other.records += ours.records[same:until]
        for epoch, start in ours.epochs:
            if same <= start < until:
                other.begin(epoch, start)

    def elect(self) -> None:
        self.leader, self.epoch = 1 - self.leader, self.epoch + 1
        self.log.begin(self.epoch, len(self.log.records))

    def put_back(self, count: int) -> None:
        """The whole cluster is as it was some records ago: its next terms have numbers that were used."""
        for replica in self.replicas:
            replica.cut(max(0, len(self.log.records) - count))
        self.epoch = max((epoch for epoch, _ in self.log.epochs), default=0)
        if not self.log.epochs:
            self.log.begin(0, 0)

    # What a cluster answers.

    def ends(self, asked: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
        self.rounds += 1
        found = {s: self.log.ends(s.leader_epoch or 0) for s in asked}
        return {s: end for s, end in found.items() if end}

    compacted: set[int] = field(default_factory=set)

    def compared(self, asked: Collection[BackupEnd]) -> dict[BackupEnd, bool | None]:
        now = {s: self.log.records[s.position - 1] for s in asked}
        return {s: None if now[s] in self.compacted else now[s] == self.backed_up[s][-1] for s in asked}

    @property
    def now(self) -> dict[Region, RegionState]:
        return {WHERE: region(0, len(self.log.records), self.epoch)}

    backed_up: dict[BackupEnd, list[int]] = field(default_factory=dict)

    def back_up(self) -> BackupEnd:
        place = len(self.backed_up) + 1
        made = backup_end(len(self.log.records), self.epoch, place=place)
        self.backed_up[made] = list(self.log.records)
        return made

    def stands(self, one: BackupEnd) -> bool:
        return self.log.records[: one.position] == self.backed_up[one]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("follow"), st.integers(0, 8)),
        st.tuples(st.just("put_back"), st.integers(1, 6)),
        st.tuples(st.sampled_from(["elect", "back_up"]), st.none()),
    ),
    max_size=40,
)


def played(steps: list[tuple[str, int | None]]) -> Partition:
    found = Partition()
    for name, count in steps:
        step = getattr(found, name)
        step() if count is None else step(count)
    return found


@settings(max_examples=3 * settings.default.max_examples)
@given(STEPS)
def test_a_backup_is_lost_exactly_when_the_log_is_no_more_what_it_holds(
    steps: list[tuple[str, int | None]],
) -> None:
    partition = played(steps)
    made = [one for one in partition.backed_up if one.position]
    gone = {one for one in made if not partition.stands(one)}
    assert lost(judge(made, partition.now, partition)) == gone
    # Nothing that is lost goes unasked.
    assert gone <= set(comparable(partition.now.values(), made))
    # Without epochs, the records alone tell.
    blind = {replace(one, leader_epoch=None): one for one in made}
    partition.backed_up |= {one: partition.backed_up[known] for one, known in blind.items()}
    assert {blind[one] for one in lost(judge(list(blind), partition.now, partition))} == gone


@settings(max_examples=2 * settings.default.max_examples)
@given(STEPS)
def test_the_first_backup_that_is_lost_is_found_by_halving(steps: list[tuple[str, int | None]]) -> None:
    partition = played(steps)
    history = [one for one in partition.backed_up if one.position]
    # After each fork the backups behind it are out of sync; what is left stands up to some place.
    history = [one for n, one in enumerate(history) if all(a.position <= one.position for a in history[:n])]
    gone = [one for one in history if not partition.stands(one)]
    if not gone or partition.stands(history[-1]):
        return
    first = history.index(gone[0])
    if any(partition.stands(one) for one in history[first:]):
        return  # two forks in one: not a history of a run that looks each time
    partition.rounds = 0
    assert first_lost({WHERE: history}, partition.now, partition) == {WHERE: gone[0]}
    assert partition.rounds <= len(history).bit_length()


def put_back(*, compacted: set[int] = frozenset()) -> tuple[Partition, list[BackupEnd]]:  # type: ignore[assignment]
    """Four backups after 10 records each, and a log that was put back to 25 and written on, in one epoch."""
    partition = Partition(compacted=set(compacted))
    made = []
    for _ in range(4):
        partition.append(10)
        made.append(partition.back_up())
    partition.put_back(15)
    partition.append(40)
    assert {one.leader_epoch for one in made} == {partition.epoch}
    return partition, made


def test_a_cluster_that_was_put_back_is_found_by_its_records() -> None:
    partition, made = put_back()
    assert judge(made, partition.now, partition) == dict(
        zip(made, ["holds", "holds", "differs", "differs"], strict=True)
    )
    assert first_lost({WHERE: made}, partition.now, partition) == {WHERE: made[2]}


def test_a_record_that_was_compacted_away_says_nothing_and_the_one_before_it_decides() -> None:
    # What is at offset 39 now was written as number 54, what is at 19 as number 19.
    partition, made = put_back(compacted={54})
    assert judge(made, partition.now, partition)[made[3]] == "gone"
    earlier = {WHERE: made[2::-1]}
    assert earlier_lost(earlier, partition.now, partition) == {made[2]}
    assert first_lost({WHERE: made}, partition.now, partition) == {WHERE: made[2]}
    partition, made = put_back(compacted={54, 44})
    assert earlier_lost({WHERE: made[2::-1]}, partition.now, partition) == set()  # the next one agrees

    # Of what cannot be compared only epochs prove that it stands.
    partition, made = put_back(compacted={19})
    assert first_lost({WHERE: made}, partition.now, partition) == {WHERE: made[1]}
    assert first_lost({WHERE: made}, partition.now, partition, by_epoch=[WHERE]) == {WHERE: made[2]}
    partition, made = put_back(compacted={9, 19})
    assert first_lost({WHERE: made}, partition.now, partition) == {WHERE: made[0]}


def test_of_an_older_epoch_that_ends_there_too_the_records_are_compared() -> None:
    class Older:
        def ends(self, asked: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
            return {s: EpochEnd((s.leader_epoch or 0) - 1, s.position) for s in asked}

        def compared(self, asked: Collection[BackupEnd]) -> dict[BackupEnd, bool | None]:
            return dict.fromkeys(asked, False)

    one = backup_end(20)
    assert judge([one], {WHERE: region(0, 50, 4)}, Older()) == {one: "differs"}


@pytest.mark.parametrize(
    ("one", "now", "asked"),
    [
        pytest.param(backup_end(20), region(0, 50), False, id="the same leader"),
        pytest.param(backup_end(20), region(0, 50, 4), True, id="another leader"),
        pytest.param(backup_end(20), region(0, 19), True, id="ends before"),
        pytest.param(backup_end(20), region(0, 50, None), True, id="no epoch now"),
        pytest.param(backup_end(20, None), region(0, 50), True, id="none then"),
    ],
)
def test_epochs_are_asked_only_where_they_are_others(one: BackupEnd, now: RegionState, asked: bool) -> None:
    assert suspects([one], {WHERE: now}) == ([one] if asked else [])


@pytest.mark.parametrize(
    ("now", "compared"),
    [
        pytest.param(region(0, 50), True, id="it is there"),
        pytest.param(region(20, 50, 4), False, id="nothing of it is left: a gap, if at all"),
        pytest.param(region(0, 50, 4, "1"), False, id="not asked for now"),
        pytest.param(replace(region(0, 9, 4), epoch="1" * 32), False, id="made again"),
    ],
)
def test_what_is_compared(now: RegionState, compared: bool) -> None:
    assert comparable([now], [backup_end(20)]) == ([backup_end(20)] if compared else [])


@pytest.mark.parametrize(
    ("one", "now", "epoch_ends", "cut"),
    [
        pytest.param(backup_end(9), region(0, 9), None, None, id="the same leader"),
        pytest.param(backup_end(9), region(0, 20, 4), 9, None, id="a clean change of leaders"),
        pytest.param(backup_end(9), region(0, 20, 4), 5, 5, id="cut, and grown beyond what was read"),
        pytest.param(backup_end(9), region(0, 7, 4), 5, 5, id="cut, and grown again"),
        pytest.param(backup_end(9), region(0, 7, 4), None, 7, id="shorter, and the log has no history"),
        pytest.param(backup_end(9), region(0, 7), 8, 7, id="shorter, and grown meanwhile"),
        pytest.param(backup_end(9, None), region(0, 20, 4), None, None, id="a leader that nobody knows"),
        pytest.param(backup_end(9, None), region(0, 7), None, 7, id="shorter, by a leader nobody knows"),
    ],
)
def test_where_a_partition_was_cut_back(
    one: BackupEnd, now: RegionState, epoch_ends: int | None, cut: int | None
) -> None:
    """`epoch_ends`: where the log says that the records of the backup's leader end."""

    class Log(Partition):
        def ends(self, asked: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
            return {} if epoch_ends is None else {s: EpochEnd(3, epoch_ends) for s in asked}

    assert cut_back([one], {WHERE: now}, Log()) == ({} if cut is None else {WHERE: cut})


def test_an_empty_backup_stands() -> None:
    assert [*judge([backup_end(0)], {WHERE: region(0, 50)}, Partition()).values()] == ["holds"]


def test_a_prepared_backup_keeps_it() -> None:
    fork = Fork("b1", ("b3", "b2"), (("orders", "0", 10),))
    plan = BackupPlan("differential", None, 1_000, (), (), (), fork=fork)
    assert not plan.idle
    kept = TypeAdapter(Prepared)
    made = Prepared("b4", 4, 1, plan)
    assert kept.validate_json(kept.dump_json(made)) == made


def test_a_fork_in_words() -> None:
    regions = tuple(("orders", str(n), 10) for n in range(7))
    said = str(Fork("b1", ("b3", "b2"), regions))
    assert "topic orders, partition 4 and 2 partitions more" in said
    assert "partition 5" not in said
