"""Histories that were cut back, found by what a log says of its epochs: compared with the logs themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from lakebackup.plan.backup_topics import BackupPlan, Prepared, RegionState
from lakebackup.plan.forks import EpochEnd, Fork, Stood, cut_back, first_lost, suspects

if TYPE_CHECKING:
    from collections.abc import Collection

WHERE = ("orders", "0" * 32, "0")


def stood(position: int, leader_epoch: int | None = 3, *, place: int = 1, region: str = "0") -> Stood:
    return Stood(place, "orders", "0" * 32, region, position, leader_epoch)


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

    # What a cluster answers.

    def ends(self, asked: Collection[Stood]) -> dict[Stood, EpochEnd]:
        self.rounds += 1
        found = {s: self.log.ends(s.leader_epoch or 0) for s in asked}
        return {s: end for s, end in found.items() if end}

    def differing(self, asked: Collection[Stood]) -> list[Stood]:
        return [s for s in asked if self.log.records[s.position - 1] != self.backed_up[s][-1]]

    backed_up: dict[Stood, list[int]] = field(default_factory=dict)

    def back_up(self) -> Stood:
        place = len(self.backed_up) + 1
        made = stood(len(self.log.records), self.epoch, place=place)
        self.backed_up[made] = list(self.log.records)
        return made

    def stands(self, one: Stood) -> bool:
        return self.log.records[: one.position] == self.backed_up[one]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("follow"), st.integers(0, 8)),
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
    high = len(partition.log.records)
    made = [one for one in partition.backed_up if one.position]
    gone = {one for one in made if not partition.stands(one)}
    assert cut_back(made, {WHERE: high}, partition) == gone
    # Nothing that is lost goes unasked.
    assert gone <= set(suspects([region(0, high, partition.epoch)], made))
    # Without epochs, the records alone tell.
    blind = {replace(one, leader_epoch=None): one for one in made}
    partition.backed_up |= {one: partition.backed_up[known] for one, known in blind.items()}
    assert {blind[one] for one in cut_back(list(blind), {WHERE: high}, partition)} == gone


@settings(max_examples=2 * settings.default.max_examples)
@given(STEPS)
def test_the_first_backup_that_is_lost_is_found_by_halving(steps: list[tuple[str, int | None]]) -> None:
    partition = played(steps)
    high = len(partition.log.records)
    history = [one for one in partition.backed_up if one.position]
    # After each fork the backups behind it are out of sync; what is left stands up to some place.
    history = [one for n, one in enumerate(history) if all(a.position <= one.position for a in history[:n])]
    lost = [one for one in history if not partition.stands(one)]
    if not lost or partition.stands(history[-1]):
        return
    first = history.index(lost[0])
    if any(partition.stands(one) for one in history[first:]):
        return  # two forks in one: not a history of a run that looks each time
    partition.rounds = 0
    assert first_lost({WHERE: history}, {WHERE: high}, partition) == {WHERE: lost[0]}
    assert partition.rounds <= len(history).bit_length()


def test_of_an_older_epoch_that_ends_there_too_the_records_are_compared() -> None:
    class Older:
        def ends(self, asked: Collection[Stood]) -> dict[Stood, EpochEnd]:
            return {s: EpochEnd((s.leader_epoch or 0) - 1, s.position) for s in asked}

        def differing(self, asked: Collection[Stood]) -> Collection[Stood]:
            return asked

    one = stood(20)
    assert cut_back([one], {WHERE: 50}, Older()) == {one}


def test_nothing_is_asked_where_the_leader_is_the_same() -> None:
    assert suspects([region(0, 50)], [stood(20), stood(50)]) == []


def test_what_is_looked_at() -> None:
    one = stood(20)
    assert suspects([region(0, 50, 4)], [one]) == [one]  # another leader
    assert suspects([region(0, 19)], [one]) == [one]  # ends before
    assert suspects([region(0, 50, None)], [one]) == [one]  # no epoch now
    blind = stood(20, None)
    assert suspects([region(0, 50)], [blind]) == [blind]  # none then
    assert suspects([region(20, 50, 4)], [one]) == []  # nothing of it is left to compare: a gap, if at all
    assert suspects([region(0, 50, 4, "1")], [one]) == []  # not asked for now
    assert suspects([replace(region(0, 9, 4), epoch="1" * 32)], [one]) == []  # made again


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
