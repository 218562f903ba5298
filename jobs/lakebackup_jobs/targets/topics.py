"""Topics that a restore writes into: their retention is suspended during the restore, and put back at its
end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.rules.retention import limits_passed
from lakebackup.rules.topic_settings import TopicSettings
from lakebackup_jobs.kafka.admin.cluster import MIN_IN_SYNC, Denied
from lakebackup_jobs.kafka.admin.groups import OWN_GROUPS
from lakebackup_jobs.kafka.admin.topic_changes import TopicChanges

LONGEST = str(2**63 - 1)
LARGEST = "max.message.bytes"

# The settings during a restore: old timestamps are accepted and kept, nothing is deleted or compacted, and no
# record that the source accepted is too large.
SUSPENDED = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": LONGEST,
    "message.timestamp.after.max.ms": LONGEST,
    LARGEST: str(2**30),
}

# Clients may not write into these topics, and a restore must not change their settings.
BROKERS_OWN = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

RETENTION = ("retention.ms", "retention.bytes", "cleanup.policy")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create, with its partitions, replication and settings as they were backed up."""

    name: str
    regions: int
    replication: int
    settings: Mapping[str, str]


class Topics(TopicChanges):
    """The topics of one cluster that restores write into. Raises what `Cluster` raises."""

    def misfit(self, topic: str) -> str | None:
        """Why nothing may be written into a topic; None: writing is allowed."""
        if topic in BROKERS_OWN:
            return f"topic {topic} is the brokers' own; `lakebackup restore groups` brings groups back"
        return None

    def offset_count(self, topic: str) -> int:
        """The number of offsets between the topic's watermarks, over all partitions."""
        _, regions = self.positions(self.describe([topic]), "read_uncommitted")
        return sum(r.high - r.low for r in regions)

    def refusal(self, topic: str | NewTopic) -> str | None:
        """Why the cluster rejects a new topic, or a change of an existing topic's retention, in its own
        words; None: it accepts it. Changes nothing."""
        try:
            if isinstance(topic, NewTopic):
                self._create_or_check(topic, self.check_topic)
            else:
                self._with_suspended(
                    lambda changes: self.alter_settings(topic, overrides=changes, validate_only=True)
                )
        except Refused as error:
            return error.message.rstrip(".")
        return None

    def notes(self, new: NewTopic) -> Sequence[str]:
        """Notes for the user on a topic that would be created."""
        return self._fit_to_cluster(new)[2]

    def make(self, new: NewTopic) -> Sequence[str]:
        """Create a topic with its saved settings, and suspend the settings that would delete old records.

        Returns notes for the user. Brokers serve the topic only after `wait_until_served`. Raises Refused
        when the cluster does not accept the topic.
        """
        return [*self._create_or_check(new, self.create_topic), *self._fit_to_cluster(new)[2]]

    def _create_or_check(self, new: NewTopic, create: Callable[..., None]) -> Sequence[str]:
        """Call `create`, which creates a topic or only checks whether it could be created. When the cluster
        rejects the topic's `max.message.bytes`, its default is used, which may be enough; returns a note on
        that."""
        replication, settings, _ = self._fit_to_cluster(new)

        def attempt(own: Mapping[str, str]) -> None:
            self._with_suspended(
                lambda changes: create(new.name, new.regions, replication, {**own, **changes})
            )

        try:
            attempt(settings)
        except Refused:
            if LARGEST not in settings:
                raise
            attempt(_without_size(settings))
            return [_capped(new.name, settings[LARGEST])]
        return []

    def suspend(self, topic: str) -> None:
        """Suspend the settings of an existing topic that would delete old records."""
        self._with_suspended(lambda changes: self.alter_settings(topic, overrides=changes))

    def _fit_to_cluster(self, new: NewTopic) -> tuple[int, Mapping[str, str], Sequence[str]]:
        """The replication and settings with which this cluster can write a new topic, and notes on them."""
        replication = min(new.replication, self._broker_count)
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
    def _broker_count(self) -> int:
        return self.brokers()

    @cached_property
    def _least_in_sync(self) -> int:
        try:
            return self.least_in_sync()
        except Denied:
            return 1

    def _with_suspended(self, attempt: Callable[[Mapping[str, str]], None]) -> None:
        """Call `attempt` with SUSPENDED. If it is refused, call it again without the size of records, which a
        cluster may limit."""
        try:
            attempt(SUSPENDED)
        except Refused:
            attempt(_without_size(SUSPENDED))

    def finish_settings(
        self, topic: str, saved: TopicSettings, oldest: int | None, mode: str, *, largest: int = 0
    ) -> Sequence[str]:
        """Put a topic's own saved settings back, in one change. In mode auto, a `retention.ms` or
        `retention.bytes` that would delete restored records stays suspended, whether it is the topic's own or
        this cluster's.

        `oldest`: the least time (ms) of a restored record; None: there is none. `largest`: uncompressed bytes
        of the largest partition. Returns notes for the user, also where this cluster keeps records for
        another time than the source did.
        """
        if mode == "suspended":
            return [f"topic {topic} keeps its retention suspended, as asked"]
        broker_retention, names, notes = self._broker_retention, list(SUSPENDED), []
        if mode == "auto" and oldest is not None:
            for name, why in _unsafe_limits(saved.own, broker_retention, oldest, largest).items():
                names.remove(name)
                notes.append(
                    f"topic {topic} keeps {name}=-1: {why}; set it when you no longer need "
                    "them, or restore with --topic-settings saved"
                )
        try:
            self._restore_settings(topic, saved.own, names)
        except Refused:
            if LARGEST not in saved.own:
                raise
            self._restore_settings(topic, _without_size(saved.own), names)
            notes.insert(0, _capped(topic, saved.own[LARGEST]))
        retention = [name for name in RETENTION if name in names]
        return [*notes, *_retention_changes(topic, saved, broker_retention or {}, retention)]

    def restore_own_settings(self, topic: str, own: Mapping[str, str]) -> None:
        """Give a topic back its own values of the settings that a restore suspended."""
        self._restore_settings(topic, own, list(SUSPENDED))

    def changed(self, topic: str, own: Mapping[str, str], notes: Sequence[str]) -> list[str]:
        """Notes on settings that a restore changed for good in a topic, whose settings were `own` before it.
        Settings that other `notes` name are left out."""
        (state,) = self.describe([topic])
        return [
            f"topic {topic}: {name} is now {state.settings.get(name, 'not set')}, and was "
            f"{own.get(name, 'not set')} before the restore"
            for name in SUSPENDED
            if state.settings.get(name) != own.get(name) and not any(f"{name}=-1" in note for note in notes)
        ]

    def _restore_settings(self, topic: str, own: Mapping[str, str], names: Collection[str]) -> None:
        self.alter_settings(
            topic,
            overrides={k: own[k] for k in names if k in own},
            drop=[k for k in names if k not in own],
        )

    @cached_property
    def _broker_retention(self) -> Mapping[str, str] | None:
        """The brokers' retention, for topics without settings of their own; None: this user may not read
        it."""
        try:
            return self.retention_of_brokers()
        except Denied:
            return None

    def forget_groups(self, names: Sequence[str], prefix: str = OWN_GROUPS) -> list[str]:
        """Delete the consumer groups of a complete restore, whose names begin with `prefix`. Returns a note
        if that fails."""
        for name in names:
            try:
                self.delete_group(name)
            except EnvironmentProblem as error:  # the other groups would fail in the same way
                note = (
                    f"the restore is complete, but its consumer group {name} stays: {error.message} It has "
                    "no members, and brokers drop it after offsets.retention.minutes. To delete it takes "
                    f"the right Delete on groups {prefix}*"
                )
                return [note]
        return []

    def hidden(self, topics: Collection[str]) -> Sequence[str]:
        """Wait until readers of committed records see all records. Returns notes on partitions where an open
        transaction of another producer hides some."""
        states = self.describe(set(topics))
        high = {
            topic_partition: partition_ends.high
            for topic_partition, partition_ends in self.ends(
                [(state.scope, partition) for state in states for partition in range(state.regions)]
            ).items()
        }
        ends = self.read_end_offsets(high)
        return [
            f"topic {topic}, partition {partition}: an open transaction of another producer hides records "
            f"from offset {ends[topic, partition].stable} on from readers of committed records until it ends"
            for (topic, partition), end in high.items()
            if ends[topic, partition].stable < end
        ]


def _without_size(settings: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in settings.items() if name != LARGEST}


def _capped(topic: str, saved: str) -> str:
    return f"topic {topic} has this cluster's {LARGEST}: it does not accept the saved {saved}"


def _unsafe_limits(
    own: Mapping[str, str], brokers: Mapping[str, str] | None, oldest: int, largest: int
) -> dict[str, str]:
    """The limits that would, or may, delete restored records, with the reason of each. The records are of
    `oldest` (ms) and later, and `largest` is the size of the largest partition in bytes."""
    if brokers is None and own.get("cleanup.policy") != "compact":
        why = (
            "this user may not read how long this cluster keeps records (DescribeConfigs on the cluster), "
            "which may be less than the {} of restored ones"
        )
        unknown = {"retention.ms": why.format("age"), "retention.bytes": why.format("size")}
        return {name: text for name, text in unknown.items() if name not in own}
    age_ms = time.time_ns() // 1_000_000 - oldest
    passed = limits_passed({**(brokers or {}), **own}, age_ms=age_ms, size=largest)
    reasons = {}
    for name, limit in passed.items():
        origin, unit = "its own" if name in own else "this cluster's", name.rpartition(".")[2]
        reasons[name] = f"{origin} {limit} {unit} would delete restored records at once"
    return reasons


def _retention_changes(
    topic: str, saved: TopicSettings, brokers: Mapping[str, str], names: Collection[str]
) -> list[str]:
    """Notes on those of the settings `names` that the topic had from the source's brokers, and whose value at
    this cluster's brokers is another one."""
    source = saved.in_force
    return [
        f"topic {topic}: {name} is {brokers[name]} here and was {source[name]} at the source, both from "
        "the brokers; set it on the topic to keep records as the source did"
        for name in names
        if name not in saved.own and name in source and name in brokers and source[name] != brokers[name]
    ]


def group_of(restore_id: str) -> str:
    """The consumer group whose offsets carry a restore's progress."""
    return f"lakebackup-restore-{restore_id}"
