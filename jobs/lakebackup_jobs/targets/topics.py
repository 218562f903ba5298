"""Topics that a restore writes into: their retention is suspended during the restore, and put back at its
end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.plan.partitions import TopicState
from lakebackup.rules.retention import limits_passed
from lakebackup.rules.topic_settings import TopicSettings
from lakebackup_jobs.kafka.admin.cluster import MIN_IN_SYNC, Denied
from lakebackup_jobs.kafka.admin.groups import OWN_GROUPS
from lakebackup_jobs.kafka.admin.topic_changes import NewTopic, TopicChanges

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
class RestoredTopic:
    """A topic whose records are restored.

    `saved`: the settings that it gets. `oldest`: the least time (ms) of a restored record; None: there is
    none. `largest`: uncompressed bytes of the largest partition.
    """

    name: str
    saved: TopicSettings
    oldest: int | None
    largest: int = 0


class Topics(TopicChanges):
    """The topics of one cluster that restores write into. Raises what `Cluster` raises."""

    def misfit(self, topic: str) -> str | None:
        """Why nothing may be written into a topic; None: writing is allowed."""
        if topic in BROKERS_OWN:
            return f"topic {topic} is the brokers' own; `lakebackup restore groups` brings groups back"
        return None

    def offset_counts(self, states: Sequence[TopicState]) -> dict[str, int]:
        """Return the number of offsets between each topic's watermarks, over all its partitions."""
        counts = {state.scope: 0 for state in states}
        _, regions = self.positions(states, "read_uncommitted")
        for region in regions:
            counts[region.scope] += region.high - region.low
        return counts

    def refusals(self, topics: Collection[NewTopic], existing: Collection[str] = ()) -> dict[str, str]:
        """Return why the cluster rejects new topics, or changes of existing topics' retention, in its own
        words, by topic. Topics that it accepts are left out. Changes nothing."""
        _, errors = self._create_with_suspended(topics, self.check_topics)
        errors |= self._suspend(existing, validate_only=True)
        return {name: error.message.rstrip(".") for name, error in errors.items()}

    def notes(self, new: NewTopic) -> Sequence[str]:
        """Notes for the user on a topic that would be created."""
        return self._fit_to_cluster(new)[2]

    def make(self, topics: Collection[NewTopic], created: list[str]) -> Sequence[str]:
        """Create topics with their saved settings, suspend those that would delete old records, and append
        the topics' names to `created`.

        Returns notes for the user. Brokers serve the topics only after `wait_until_served`. Raises Refused
        when the cluster does not accept a topic.
        """
        notes, errors = self._create_with_suspended(
            topics, lambda new_topics: self.create_topics(new_topics, created)
        )
        _raise_first(errors)
        return [*notes, *(note for topic in topics for note in self._fit_to_cluster(topic)[2])]

    def _create_with_suspended(
        self,
        topics: Collection[NewTopic],
        create: Callable[[Collection[NewTopic]], dict[str, Refused]],
    ) -> tuple[Sequence[str], dict[str, Refused]]:
        """Call `create`, which creates topics or only checks whether they could be created, with SUSPENDED.

        A topic that is refused is created without the size of records among these, which a cluster may limit.
        If that is refused, it gets the cluster's `max.message.bytes` instead of its own, which may be enough.
        Returns notes on that, and the errors for topics that are refused all the same.
        """
        fitted = {}
        for topic in topics:
            replication, settings, _ = self._fit_to_cluster(topic)
            fitted[topic.name] = replace(topic, replication=replication, settings=settings)
        errors = create([_with_settings(topic, topic.settings, SUSPENDED) for topic in fitted.values()])
        without_size = _without_size(SUSPENDED)
        errors = create([_with_settings(fitted[n], fitted[n].settings, without_size) for n in errors])
        limited = {name: fitted[name] for name in errors if LARGEST in fitted[name].settings}
        refusals = {name: error for name, error in errors.items() if name not in limited} | create(
            [_with_settings(topic, _without_size(topic.settings), without_size) for topic in limited.values()]
        )
        notes = [
            _capped(name, topic.settings[LARGEST]) for name, topic in limited.items() if name not in refusals
        ]
        return notes, refusals

    def suspend(self, topics: Collection[str]) -> None:
        """Suspend the settings of existing topics that would delete old records. Raises Refused."""
        _raise_first(self._suspend(topics))

    def _suspend(self, topics: Collection[str], *, validate_only: bool = False) -> dict[str, Refused]:
        errors = self.alter_settings(dict.fromkeys(topics, SUSPENDED), validate_only=validate_only)
        return self.alter_settings(
            dict.fromkeys(errors, _without_size(SUSPENDED)), validate_only=validate_only
        )

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

    def finish_settings(self, topics: Collection[RestoredTopic], mode: str) -> dict[str, list[str]]:
        """Put the saved settings of topics back, those of a topic in one change. In mode auto, a
        `retention.ms` or `retention.bytes` that would delete restored records stays suspended, whether it is
        the topic's own or this cluster's.

        Returns notes for the user by topic, also where this cluster keeps records for another time than the
        source did. Raises Refused.
        """
        if mode == "suspended":
            return {t.name: [f"topic {t.name} keeps its retention suspended, as asked"] for t in topics}
        broker_retention = self._broker_retention
        names = {topic.name: list(SUSPENDED) for topic in topics}
        notes: dict[str, list[str]] = {topic.name: [] for topic in topics}
        for topic in topics:
            if mode == "auto" and topic.oldest is not None:
                unsafe = _unsafe_limits(topic.saved.own, broker_retention, topic.oldest, topic.largest)
                for name, why in unsafe.items():
                    names[topic.name].remove(name)
                    notes[topic.name].append(
                        f"topic {topic.name} keeps {name}=-1: {why}; set it when you no longer need "
                        "them, or restore with --topic-settings saved"
                    )
        errors = self.alter_settings({t.name: _own_values(t.saved.own, names[t.name]) for t in topics})
        capped = {t.name: t.saved.own for t in topics if t.name in errors and LARGEST in t.saved.own}
        _raise_first({name: error for name, error in errors.items() if name not in capped})
        _raise_first(
            self.alter_settings(
                {name: _own_values(_without_size(own), names[name]) for name, own in capped.items()}
            )
        )
        for name, own in capped.items():
            notes[name].insert(0, _capped(name, own[LARGEST]))
        for topic in topics:
            retention = [name for name in RETENTION if name in names[topic.name]]
            notes[topic.name] += _retention_changes(
                topic.name, topic.saved, broker_retention or {}, retention
            )
        return notes

    def restore_own_settings(self, topic: str, own: Mapping[str, str]) -> None:
        """Give a topic back its own values of the settings that a restore suspended. Raises Refused."""
        _raise_first(self.alter_settings({topic: _own_values(own, SUSPENDED)}))

    def changed(
        self, own_by_topic: Mapping[str, Mapping[str, str]], notes: Mapping[str, Sequence[str]]
    ) -> list[str]:
        """Notes on settings that a restore changed for good in topics, whose settings were `own_by_topic`
        before it. Settings that other `notes` on a topic name are left out."""
        return [
            f"topic {state.scope}: {name} is now {state.settings.get(name, 'not set')}, and was "
            f"{own_by_topic[state.scope].get(name, 'not set')} before the restore"
            for state in self.describe(own_by_topic)
            for name in SUSPENDED
            if state.settings.get(name) != own_by_topic[state.scope].get(name)
            and not any(f"{name}=-1" in note for note in notes[state.scope])
        ]

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

    def hidden(self, states: Collection[TopicState]) -> Sequence[str]:
        """Wait until readers of committed records see all records of topics. Returns notes on partitions
        where an open transaction of another producer hides some."""
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


def _raise_first(errors: Mapping[str, Refused]) -> None:
    for error in errors.values():
        raise error


def _own_values(own: Mapping[str, str], names: Collection[str]) -> Mapping[str, str | None]:
    return {name: own.get(name) for name in names}


def _with_settings(topic: NewTopic, own: Mapping[str, str], suspended: Mapping[str, str]) -> NewTopic:
    return replace(topic, settings={**own, **suspended})


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
