"""Topics that a restore writes into: retention is suspended while old records come back, and settled then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakebackup_jobs.kafka.visible import Watermarks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

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


class Topics(Watermarks):
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

    def settle(self, topic: str, saved: Mapping[str, str], oldest: int | None, mode: str) -> str | None:
        """Put saved settings back; retention last, and in mode auto only when it does not eat what was
        restored.

        `oldest`: the least time (ms) of a restored record, None: there is none. What a person must know, or
        None.
        """
        if mode == "suspended":
            return f"topic {topic} keeps its retention suspended, as asked"
        saved = {k: v for k, v in saved.items() if k in SUSPENDED}
        drop = [k for k in SUSPENDED if k not in saved]
        self.alter_settings(
            topic,
            put={k: v for k, v in saved.items() if k not in RETENTION},
            drop=[k for k in drop if k not in RETENTION],
        )
        if mode == "auto" and oldest is not None:
            keep = int(saved.get("retention.ms") or self.default_setting(topic, "retention.ms"))
            policy = saved.get("cleanup.policy") or self.default_setting(topic, "cleanup.policy")
            if "delete" in policy and 0 <= keep < time.time_ns() // 1_000_000 - oldest:
                self.alter_settings(
                    topic,
                    put={k: v for k, v in saved.items() if k in RETENTION and k != "retention.ms"},
                    drop=[k for k in drop if k in RETENTION and k != "retention.ms"],
                )
                return (
                    f"topic {topic} keeps retention.ms=-1: its own {keep} ms would delete restored "
                    "records at once; set it when you no longer need them, or restore with --settings saved"
                )
        self.alter_settings(
            topic,
            put={k: v for k, v in saved.items() if k in RETENTION},
            drop=[k for k in drop if k in RETENTION],
        )
        return None

    def hidden(self, topics: Collection[str]) -> Sequence[str]:
        """Wait until readers of committed records see all; what to tell where somebody's transaction hides
        it."""
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


def group_of(restore_id: str) -> str:
    """The consumer group whose offsets carry a restore's progress."""
    return f"lakebackup-restore-{restore_id}"
