"""Restore into topics: made with the saved settings, retention suspended while old records come back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused, UsageProblem
from lakebackup.frames import task_errors
from lakebackup_jobs.kafka.cluster import Cluster
from lakebackup_jobs.outcome import RESTORED, raise_first
from lakebackup_jobs.targets import RegionOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.plan.restore_request import RestoreRequest
    from lakebackup.plan.restore_topics import RestorePlan, TopicPart
    from lakebackup_jobs.shares import Shares

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

RETENTION = ("retention.ms", "retention.bytes", "cleanup.policy")


class KafkaTarget:
    """Topics of the cluster at `servers`, written in Kafka transactions that carry the restore's progress."""

    def __init__(self, request: RestoreRequest, servers: str) -> None:
        if request.settings not in ("auto", "saved", "suspended"):
            raise UsageProblem(f"--settings {request.settings!r}: use auto, saved or suspended.")
        self._request = request
        self._client = {**request.kafka, "bootstrap.servers": servers}
        self._cluster = Cluster(self._client)
        self._restore_id = ""

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        there = set(self._cluster.topic_names())
        return {
            "target_topics": [
                {
                    "target": t.target,
                    "action": "write into" if t.target in there else "create",
                    "refused_because": self._misfit(t) if t.target in there else None,
                }
                for t in plan.topics
            ]
        }

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        self._restore_id = restore_id
        there = set(self._cluster.topic_names())
        if not resumed:
            misfits = [why for t in plan.topics if t.target in there and (why := self._misfit(t))]
            if misfits:
                raise Refused(
                    "; ".join(misfits) + ".",
                    hint="Restore into another topic with --map a=b, or use --append.",
                )
        brokers = self._cluster.brokers()
        for t in plan.topics:
            if t.target not in there:
                self._cluster.create_topic(
                    t.target, t.regions, min(t.replication, brokers), {**t.settings, **SUSPENDED}
                )
            else:
                self._cluster.alter_settings(t.target, put=SUSPENDED)

    def _misfit(self, topic: TopicPart) -> str | None:
        (state,) = self._cluster.describe([topic.target])
        if state.regions < topic.regions:
            return f"topic {topic.target} has {state.regions} partitions, the backup {topic.regions}"
        _, regions = self._cluster.positions([state], "read_uncommitted")
        held = sum(r.high - r.low for r in regions)
        if held and not self._request.append:
            return f"topic {topic.target} holds records already ({held} offsets)"
        return None

    def replay(
        self,
        spark: SparkSession,
        shares: Shares,
        plan: RestorePlan,
        restore_id: str,
        roots: Mapping[str, str],
    ) -> Sequence[RegionOutcome]:
        from lakebackup_jobs.kafka.replay_task import ReplayJob

        job = ReplayJob(
            roots=dict(roots),
            shares=shares,
            group=group_of(restore_id),
            client=self._client,
            targets={t.scope: t.target for t in plan.topics},
            from_ts=plan.from_ts,
            to_ts=plan.to_ts,
            zero_as_one=self._request.zero_as_one,
        )
        if not plan.files:
            return []
        with task_errors():
            rows = shares.frame(spark).mapInArrow(job, RESTORED).collect()  # one row a partition
        raise_first(row.error for row in rows)
        return [RegionOutcome(r.scope, r.region, r.entries, r.bytes, r.position) for r in rows]

    def finish(self, plan: RestorePlan) -> Sequence[str]:
        return [note for t in plan.topics if (note := self._settle(t))]

    def forget(self) -> None:
        self._cluster.delete_group(group_of(self._restore_id))

    def _settle(self, topic: TopicPart) -> str | None:
        """Put the saved settings back; retention last, and only when it does not eat what was restored."""
        if self._request.settings == "suspended":
            return f"topic {topic.target} keeps its retention suspended, as asked"
        saved = {k: v for k, v in topic.settings.items() if k in SUSPENDED}
        drop = [k for k in SUSPENDED if k not in saved]
        oldest = min((p.min_ts for p in topic.parts), default=None)
        self._cluster.alter_settings(
            topic.target,
            put={k: v for k, v in saved.items() if k not in RETENTION},
            drop=[k for k in drop if k not in RETENTION],
        )
        if self._request.settings == "auto" and oldest is not None:
            keep = int(
                saved.get("retention.ms") or self._cluster.default_setting(topic.target, "retention.ms")
            )
            policy = saved.get("cleanup.policy") or self._cluster.default_setting(
                topic.target, "cleanup.policy"
            )
            if "delete" in policy and 0 <= keep < time.time_ns() // 1_000_000 - oldest:
                self._cluster.alter_settings(
                    topic.target,
                    put={k: v for k, v in saved.items() if k in RETENTION and k != "retention.ms"},
                    drop=[k for k in drop if k in RETENTION and k != "retention.ms"],
                )
                return (
                    f"topic {topic.target} keeps retention.ms=-1: its own {keep} ms would delete restored "
                    "records at once; set it when you no longer need them, or restore with --settings saved"
                )
        self._cluster.alter_settings(
            topic.target,
            put={k: v for k, v in saved.items() if k in RETENTION},
            drop=[k for k in drop if k in RETENTION],
        )
        return None


def group_of(restore_id: str) -> str:
    """The consumer group whose offsets carry a restore's progress."""
    return f"lakebackup-restore-{restore_id}"
