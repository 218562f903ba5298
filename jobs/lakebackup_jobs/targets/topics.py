"""Topics that a restore writes into: retention is suspended while old records come back, and settled then."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.rules.retention import limits_passed
from lakebackup_jobs.kafka.admin.cluster import MIN_IN_SYNC, Cluster, Denied
from lakebackup_jobs.kafka.admin.groups import OWN_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lakebackup.rules.topic_settings import TopicSettings

LONGEST = str(2**63 - 1)
LARGEST = "max.message.bytes"

# While records come back: old timestamps are taken and kept, nothing is deleted or compacted, and a record
# that the source took is not too large.
SUSPENDED = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": LONGEST,
    "message.timestamp.after.max.ms": LONGEST,
    LARGEST: str(2**30),
}

# Clients may not write into these, and settings of theirs are not a restore's to change.
BROKERS_OWN = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

RETENTION = ("retention.ms", "retention.bytes", "cleanup.policy")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that a restore makes: its partitions, replication and settings as they were backed up."""

    name: str
    regions: int
    replication: int
    settings: Mapping[str, str]


class Topics(Cluster):
    """Topics of one cluster as a restore makes and leaves them. Raises as `Cluster` does."""

    def misfit(self, topic: str) -> str | None:
        """Why nothing may be written into a topic; None: it may."""
        if topic in BROKERS_OWN:
            return f"topic {topic} is the brokers' own; `lakebackup restore groups` brings groups back"
        return None

    def held(self, topic: str) -> int:
        """How many offsets a topic holds."""
        _, regions = self.positions(self.describe([topic]), "read_uncommitted")
        return sum(r.high - r.low for r in regions)

    def refusal(self, topic: str | NewTopic) -> str | None:
        """Why the cluster does not accept a new topic, or does not let a restore suspend the retention of one
        that is there, in its own words; None: it does. Nothing is changed."""
        try:
            if isinstance(topic, NewTopic):
                self._created(topic, self.check_topic)
            else:
                self._accepted(lambda changes: self.alter_settings(topic, put=changes, validate_only=True))
        except Refused as error:
            return error.message.rstrip(".")
        return None

    def notes(self, new: NewTopic) -> Sequence[str]:
        """What a person must know of a topic that would be made."""
        return self._fitted(new)[2]

    def make(self, new: NewTopic) -> Sequence[str]:
        """Make a topic with its saved settings, and suspend what would eat old records; returns `notes`.
        Raises Refused when the cluster does not accept it."""
        return [*self._created(new, self.create_topic), *self._fitted(new)[2]]

    def _created(self, new: NewTopic, create: Callable[..., None]) -> Sequence[str]:
        """Create a topic, or ask whether it could be. A cluster that accepts no `max.message.bytes` of the
        topic's own gives its default, which the records may fit in; returns a note of that."""
        replication, settings, _ = self._fitted(new)

        def attempt(own: Mapping[str, str]) -> None:
            self._accepted(lambda changes: create(new.name, new.regions, replication, {**own, **changes}))

        try:
            attempt(settings)
        except Refused:
            if LARGEST not in settings:
                raise
            attempt({name: value for name, value in settings.items() if name != LARGEST})
            return [_capped(new.name, settings[LARGEST])]
        return []

    def suspend(self, topic: str) -> None:
        """Suspend what would eat old records of a topic that is there."""
        self._accepted(lambda changes: self.alter_settings(topic, put=changes))

    def _fitted(self, new: NewTopic) -> tuple[int, Mapping[str, str], Sequence[str]]:
        """Replication and settings of a topic to be made, such that this cluster can write it, and what a
        person must know of them."""
        replication = min(new.replication, self.brokers())
        own = new.settings.get(MIN_IN_SYNC)
        needed = int(own) if own else self._least_in_sync
        if needed <= replication:
            return replication, new.settings, ()
        origin = "at the source" if own else "by this cluster's brokers"
        note = (
            f"topic {new.name} gets {MIN_IN_SYNC}={replication}, which is {needed} {origin}: it has "
            f"{replication} replicas here, and with more nobody could write it"
        )
        return replication, {**new.settings, MIN_IN_SYNC: str(replication)}, [note]

    @cached_property
    def _least_in_sync(self) -> int:
        try:
            return self.least_in_sync()
        except Denied:
            return 1

    def _accepted(self, attempt: Callable[[Mapping[str, str]], None]) -> None:
        """Try something with SUSPENDED, and where that is refused without the size of records, which
        a cluster may limit."""
        try:
            attempt(SUSPENDED)
        except Refused:
            attempt({name: value for name, value in SUSPENDED.items() if name != LARGEST})

    def settle(
        self, topic: str, saved: TopicSettings, oldest: int | None, mode: str, *, largest: int = 0
    ) -> Sequence[str]:
        """Put a topic's own saved settings back; retention last, and in mode auto no `retention.ms` or
        `retention.bytes` that deletes what was restored, whether the topic's own or this cluster's.

        `oldest`: the least time (ms) of a restored record, None: there is none. `largest`: bytes of the
        largest partition before compression. Returns what a person must know: also where this cluster keeps
        the records for another time than the source did.
        """
        if mode == "suspended":
            return [f"topic {topic} keeps its retention suspended, as asked"]
        notes = self._put_back_size(topic, saved.own)
        self._put_back(topic, saved.own, [k for k in SUSPENDED if k not in (*RETENTION, LARGEST)])
        brokers, retention = self._brokers, list(RETENTION)
        if mode == "auto" and oldest is not None:
            for name, why in _protected(saved.own, brokers, oldest, largest).items():
                retention.remove(name)
                notes.append(
                    f"topic {topic} keeps {name}=-1: {why}; set it when you no longer need "
                    "them, or restore with --topic-settings saved"
                )
        self._put_back(topic, saved.own, retention)
        return [*notes, *_other_than_at_the_source(topic, saved, brokers or {}, retention)]

    def put_back(self, topic: str, own: Mapping[str, str]) -> None:
        """Give a topic its own settings back that a restore suspended."""
        self._put_back(topic, own, list(SUSPENDED))

    def changed(self, topic: str, own: Mapping[str, str], notes: Sequence[str]) -> list[str]:
        """Notes on settings that a restore changes for good in a topic that had its `own` before, unless
        other `notes` name them."""
        (state,) = self.describe([topic])
        return [
            f"topic {topic}: {name} is now {state.settings.get(name, 'not set')}, and was "
            f"{own.get(name, 'not set')} before the restore"
            for name in SUSPENDED
            if state.settings.get(name) != own.get(name) and not any(f"{name}=-1" in note for note in notes)
        ]

    def _put_back_size(self, topic: str, own: Mapping[str, str]) -> list[str]:
        """Give a topic the size of records back that was saved, where this cluster accepts it."""
        try:
            self._put_back(topic, own, [LARGEST])
        except Refused:
            self._put_back(topic, {}, [LARGEST])
            return [_capped(topic, own[LARGEST])]
        return []

    def _put_back(self, topic: str, own: Mapping[str, str], names: Collection[str]) -> None:
        self.alter_settings(
            topic,
            put={k: own[k] for k in names if k in own},
            drop=[k for k in names if k not in own],
        )

    @cached_property
    def _brokers(self) -> Mapping[str, str] | None:
        """How topics without settings of their own keep records; None: this user may not read it."""
        try:
            return self.retention_of_brokers()
        except Denied:
            return None

    def forget_groups(self, names: Sequence[str], prefix: str = OWN_GROUPS) -> list[str]:
        """Delete the consumer groups of a restore that is complete, whose names begin with `prefix`; returns
        what a person must know where that fails."""
        for name in names:
            try:
                self.delete_group(name)
            except EnvironmentProblem as error:  # as of the others
                note = (
                    f"the restore is complete, but its consumer group {name} stays: {error.message} It has "
                    "no members, and brokers drop it after offsets.retention.minutes. To delete it takes "
                    f"the right Delete on groups {prefix}*"
                )
                return [note]
        return []

    def hidden(self, topics: Collection[str]) -> Sequence[str]:
        """Wait until readers of committed records see all; notes on where somebody's transaction hides it."""
        states = self.describe(set(topics))
        high = {
            place: ends.high
            for place, ends in self.ends(
                [(state.scope, partition) for state in states for partition in range(state.regions)]
            ).items()
        }
        seen = self.seen(high)
        return [
            f"topic {topic}, partition {partition}: an open transaction of another producer hides records "
            f"from offset {seen[topic, partition].stable} on from readers of committed records until it ends"
            for (topic, partition), end in high.items()
            if seen[topic, partition].stable < end
        ]


def _capped(topic: str, saved: str) -> str:
    return f"topic {topic} has this cluster's {LARGEST}: it does not accept the saved {saved}"


def _protected(
    own: Mapping[str, str], brokers: Mapping[str, str] | None, oldest: int, largest: int
) -> dict[str, str]:
    """The limits that would delete restored records (of the time `oldest` (ms) and later, `largest` bytes of
    a partition) or may, with the reason of each."""
    if brokers is None and own.get("cleanup.policy") != "compact":
        why = (
            "this user may not read how long this cluster keeps records (DescribeConfigs on the cluster), "
            "which may be less than the {} of restored ones"
        )
        unknown = {"retention.ms": why.format("age"), "retention.bytes": why.format("size")}
        return {name: text for name, text in unknown.items() if name not in own}
    age_ms = time.time_ns() // 1_000_000 - oldest
    passed = limits_passed({**(brokers or {}), **own}, age_ms=age_ms, size=largest)
    found = {}
    for name, limit in passed.items():
        whose, unit = "its own" if name in own else "this cluster's", name.rpartition(".")[2]
        found[name] = f"{whose} {limit} {unit} would delete restored records at once"
    return found


def _other_than_at_the_source(
    topic: str, saved: TopicSettings, brokers: Mapping[str, str], names: Collection[str]
) -> list[str]:
    """Of the settings `names`, those which the topic had from its brokers, and has otherwise from these."""
    before = saved.in_force
    return [
        f"topic {topic}: {name} is {brokers[name]} here and was {before[name]} at the source, both from "
        "the brokers; set it on the topic to keep records as the source did"
        for name in names
        if name not in saved.own and name in before and name in brokers and before[name] != brokers[name]
    ]


def group_of(restore_id: str) -> str:
    """The consumer group whose offsets carry a restore's progress."""
    return f"lakebackup-restore-{restore_id}"
