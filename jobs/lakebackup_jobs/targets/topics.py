"""Topics that a restore writes into: retention is suspended while old records come back, and settled then."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from lakebackup.rules.retention import limits_passed
from lakebackup_jobs.kafka.admin.cluster import Cluster, Denied

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakebackup.rules.topic_settings import TopicSettings

LONGEST = str(2**63 - 1)

# While records come back: old timestamps are taken and kept, nothing is deleted or compacted, and a record
# that the source took is not too large.
SUSPENDED = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": LONGEST,
    "message.timestamp.after.max.ms": LONGEST,
    "max.message.bytes": str(2**30),
}

# Clients may not write into these, and settings of theirs are not a restore's to change.
BROKERS_OWN = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

RETENTION = ("retention.ms", "retention.bytes", "cleanup.policy")


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

    def make_ready(
        self, topic: str, *, regions: int, replication: int, settings: Mapping[str, str], there: bool
    ) -> None:
        """Make a topic that is not `there`, with its saved settings; suspend what would eat old records."""
        if there:
            self.alter_settings(topic, put=SUSPENDED)
        else:
            self.create_topic(topic, regions, min(replication, self.brokers()), {**settings, **SUSPENDED})

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
        self._put_back(topic, saved.own, [k for k in SUSPENDED if k not in RETENTION])
        brokers = self._brokers
        notes, retention = [], list(RETENTION)
        if mode == "auto" and oldest is not None:
            for name, why in _protected(saved.own, brokers, oldest, largest).items():
                retention.remove(name)
                notes.append(
                    f"topic {topic} keeps {name}=-1: {why}; set it when you no longer need "
                    "them, or restore with --topic-settings saved"
                )
        self._put_back(topic, saved.own, retention)
        return [*notes, *_other_than_at_the_source(topic, saved, brokers or {}, retention)]

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
