"""Histories that were cut back are found by the epochs of a log. The logs themselves are the reference."""

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

REGION = ("orders", "0" * 32, "0")


def backup_end(
    position: int, leader_epoch: int | None = 3, *, chain_place: int = 1, region: str = "0"
) -> BackupEnd:
    return BackupEnd(chain_place, "orders", "0" * 32, region, position, leader_epoch)


def region(low: int, high: int, leader_epoch: int | None = 3, number: str = "0") -> RegionState:
    return RegionState("orders", "0" * 32, number, low, high, high, leader_epoch)


@dataclass
class Replica:
    """A log of distinct records, and the offset at which each epoch begins, as Kafka stores them."""

    records: list[int] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, epoch: int, offset: int) -> None:
        self.epochs = [(e, start) for e, start in self.epochs if start < offset] + [(epoch, offset)]

    def cut(self, offset: int) -> None:
        self.records = self.records[:offset]
        self.epochs = [(e, start) for e, start in self.epochs if start < offset]

    def ends(self, epoch: int) -> EpochEnd | None:
        if not self.epochs or epoch > self.epochs[-1][0]:
            return None
        later_starts = [start for e, start in self.epochs if e > epoch]
        end = later_starts[0] if later_starts else len(self.records)
        known_epochs = [e for e, _ in self.epochs if e <= epoch]
        return EpochEnd(known_epochs[-1] if known_epochs else epoch, end)


@dataclass
class Partition:
    """Two replicas, one of which leads. The other copies records in `follow`, and leads after `elect`."""

    replicas: tuple[Replica, Replica] = field(default_factory=lambda: (Replica(), Replica()))
    leader: int = 0
    epoch: int = 0
    next_record: int = 0
    rounds: int = 0

    def __post_init__(self) -> None:
        self.log.begin(0, 0)

    @property
    def log(self) -> Replica:
        return self.replicas[self.leader]

    def append(self, count: int) -> None:
        self.log.records += range(self.next_record, self.next_record + count)
        self.next_record += count

    def follow(self, count: int) -> None:
        """The follower discards records that the leader lacks, and copies up to `count` records."""
        leader_log, follower = self.log, self.replicas[1 - self.leader]
        common = 0
        while (
            common < min(len(leader_log.records), len(follower.records))
            and leader_log.records[common] == follower.records[common]
        ):
            common += 1
        follower.cut(common)
        until = min(len(leader_log.records), common + count)
        follower.records += leader_log.records[common:until]
        for epoch, start in leader_log.epochs:
            if common <= start < until:
                follower.begin(epoch, start)

    def elect(self) -> None:
        self.leader, self.epoch = 1 - self.leader, self.epoch + 1
        self.log.begin(self.epoch, len(self.log.records))

    def reset_cluster(self, count: int) -> None:
        """Resets both replicas to their state `count` records ago. The next epochs reuse numbers."""
        for replica in self.replicas:
            replica.cut(max(0, len(self.log.records) - count))
        self.epoch = max((epoch for epoch, _ in self.log.epochs), default=0)
        if not self.log.epochs:
            self.log.begin(0, 0)

    # The answers of a cluster.

    def ends(self, backup_ends: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
        self.rounds += 1
        epoch_ends = {s: self.log.ends(s.leader_epoch or 0) for s in backup_ends}
        return {s: end for s, end in epoch_ends.items() if end}

    compacted: set[int] = field(default_factory=set)

    def compared(self, backup_ends: Collection[BackupEnd]) -> dict[BackupEnd, bool | None]:
        current = {s: self.log.records[s.position - 1] for s in backup_ends}
        return {
            s: None if current[s] in self.compacted else current[s] == self.backed_up[s][-1]
            for s in backup_ends
        }

    @property
    def states(self) -> dict[Region, RegionState]:
        return {REGION: region(0, len(self.log.records), self.epoch)}

    backed_up: dict[BackupEnd, list[int]] = field(default_factory=dict)

    def back_up(self) -> BackupEnd:
        chain_place = len(self.backed_up) + 1
        backup = backup_end(len(self.log.records), self.epoch, chain_place=chain_place)
        self.backed_up[backup] = list(self.log.records)
        return backup

    def still_holds(self, backup: BackupEnd) -> bool:
        return self.log.records[: backup.position] == self.backed_up[backup]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("follow"), st.integers(0, 8)),
        st.tuples(st.just("reset_cluster"), st.integers(1, 6)),
        st.tuples(st.sampled_from(["elect", "back_up"]), st.none()),
    ),
    max_size=40,
)


def play(steps: list[tuple[str, int | None]]) -> Partition:
    partition = Partition()
    for name, count in steps:
        step = getattr(partition, name)
        step() if count is None else step(count)
    return partition


@settings(max_examples=3 * settings.default.max_examples)
@given(STEPS)
def test_a_backup_is_lost_exactly_when_the_log_differs_from_it(
    steps: list[tuple[str, int | None]],
) -> None:
    partition = play(steps)
    backups = [backup for backup in partition.backed_up if backup.position]
    lost_backups = {backup for backup in backups if not partition.still_holds(backup)}
    assert lost(judge(backups, partition.states, partition)) == lost_backups
    # Every lost backup is compared.
    assert lost_backups <= set(comparable(partition.states.values(), backups))
    # Without epochs, only the records decide.
    blind = {replace(backup, leader_epoch=None): backup for backup in backups}
    partition.backed_up |= {backup: partition.backed_up[original] for backup, original in blind.items()}
    assert {blind[backup] for backup in lost(judge(list(blind), partition.states, partition))} == lost_backups


@settings(max_examples=2 * settings.default.max_examples)
@given(STEPS)
def test_the_first_lost_backup_is_found_by_bisection(steps: list[tuple[str, int | None]]) -> None:
    partition = play(steps)
    history = [backup for backup in partition.backed_up if backup.position]
    # After each fork the later backups are out of sync. The others hold up to some place in the chain.
    history = [
        backup for n, backup in enumerate(history) if all(a.position <= backup.position for a in history[:n])
    ]
    lost_backups = [backup for backup in history if not partition.still_holds(backup)]
    if not lost_backups or partition.still_holds(history[-1]):
        return
    first = history.index(lost_backups[0])
    if any(partition.still_holds(backup) for backup in history[first:]):
        return  # two forks at once, which runs that each look for a fork never meet
    partition.rounds = 0
    assert first_lost({REGION: history}, partition.states, partition) == {REGION: lost_backups[0]}
    assert partition.rounds <= len(history).bit_length()


def reset_partition(*, compacted: set[int] = frozenset()) -> tuple[Partition, list[BackupEnd]]:  # type: ignore[assignment]
    """Four backups after 10 records each. The log is then reset to offset 25 and grows in the same epoch."""
    partition = Partition(compacted=set(compacted))
    backups = []
    for _ in range(4):
        partition.append(10)
        backups.append(partition.back_up())
    partition.reset_cluster(15)
    partition.append(40)
    assert {backup.leader_epoch for backup in backups} == {partition.epoch}
    return partition, backups


def test_a_reset_cluster_is_found_by_its_records() -> None:
    partition, backups = reset_partition()
    assert judge(backups, partition.states, partition) == dict(
        zip(backups, ["holds", "holds", "differs", "differs"], strict=True)
    )
    assert first_lost({REGION: backups}, partition.states, partition) == {REGION: backups[2]}


def test_an_earlier_backup_decides_when_a_record_was_compacted_away() -> None:
    # Record 54 is now at offset 39, and record 19 at offset 19.
    partition, backups = reset_partition(compacted={54})
    assert judge(backups, partition.states, partition)[backups[3]] == "gone"
    earlier = {REGION: backups[2::-1]}
    assert earlier_lost(earlier, partition.states, partition) == {backups[2]}
    assert first_lost({REGION: backups}, partition.states, partition) == {REGION: backups[2]}
    partition, backups = reset_partition(compacted={54, 44})
    # The next older backup holds.
    assert earlier_lost({REGION: backups[2::-1]}, partition.states, partition) == set()

    # If a backup's record cannot be compared, only epochs prove that it holds.
    partition, backups = reset_partition(compacted={19})
    assert first_lost({REGION: backups}, partition.states, partition) == {REGION: backups[1]}
    assert first_lost({REGION: backups}, partition.states, partition, by_epoch=[REGION]) == {
        REGION: backups[2]
    }
    partition, backups = reset_partition(compacted={9, 19})
    assert first_lost({REGION: backups}, partition.states, partition) == {REGION: backups[0]}


def test_records_are_compared_when_an_older_epoch_ends_at_the_same_offset() -> None:
    class Older:
        def ends(self, backup_ends: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
            return {s: EpochEnd((s.leader_epoch or 0) - 1, s.position) for s in backup_ends}

        def compared(self, backup_ends: Collection[BackupEnd]) -> dict[BackupEnd, bool | None]:
            return dict.fromkeys(backup_ends, False)

    backup = backup_end(20)
    assert judge([backup], {REGION: region(0, 50, 4)}, Older()) == {backup: "differs"}


@pytest.mark.parametrize(
    ("backup", "state", "is_suspect"),
    [
        pytest.param(backup_end(20), region(0, 50), False, id="the same leader"),
        pytest.param(backup_end(20), region(0, 50, 4), True, id="another leader"),
        pytest.param(backup_end(20), region(0, 19), True, id="ends before"),
        pytest.param(backup_end(20), region(0, 50, None), True, id="no epoch now"),
        pytest.param(backup_end(20, None), region(0, 50), True, id="none then"),
    ],
)
def test_only_backups_of_other_epochs_are_suspects(
    backup: BackupEnd, state: RegionState, is_suspect: bool
) -> None:
    assert suspects([backup], {REGION: state}) == ([backup] if is_suspect else [])


@pytest.mark.parametrize(
    ("state", "is_comparable"),
    [
        pytest.param(region(0, 50), True, id="it is there"),
        pytest.param(region(20, 50, 4), False, id="nothing of it is left: a gap, if at all"),
        pytest.param(region(0, 50, 4, "1"), False, id="not asked for now"),
        pytest.param(replace(region(0, 9, 4), epoch="1" * 32), False, id="made again"),
    ],
)
def test_only_backups_whose_records_exist_are_comparable(state: RegionState, is_comparable: bool) -> None:
    assert comparable([state], [backup_end(20)]) == ([backup_end(20)] if is_comparable else [])


@pytest.mark.parametrize(
    ("backup", "state", "epoch_ends", "cut"),
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
def test_the_offset_at_which_a_partition_was_cut_back(
    backup: BackupEnd, state: RegionState, epoch_ends: int | None, cut: int | None
) -> None:
    """`epoch_ends`: the offset at which the log ends the records of the backup's leader."""

    class Log(Partition):
        def ends(self, backup_ends: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
            return {} if epoch_ends is None else {s: EpochEnd(3, epoch_ends) for s in backup_ends}

    assert cut_back([backup], {REGION: state}, Log()) == ({} if cut is None else {REGION: cut})


def test_an_empty_backup_always_holds() -> None:
    assert [*judge([backup_end(0)], {REGION: region(0, 50)}, Partition()).values()] == ["holds"]


def test_a_prepared_backup_stores_its_fork() -> None:
    fork = Fork("b1", ("b3", "b2"), (("orders", "0", 10),))
    plan = BackupPlan("differential", None, 1_000, (), (), (), fork=fork)
    assert not plan.idle
    adapter = TypeAdapter(Prepared)
    prepared = Prepared("b4", 4, 1, plan)
    assert adapter.validate_json(adapter.dump_json(prepared)) == prepared


def test_a_fork_in_words() -> None:
    regions = tuple(("orders", str(n), 10) for n in range(7))
    text = str(Fork("b1", ("b3", "b2"), regions))
    assert "topic orders, partition 4 and 2 partitions more" in text
    assert "partition 5" not in text
