"""Putting consumer groups somewhere (Admin API)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from lakebackup_jobs.kafka.admin import cluster
from lakebackup_jobs.kafka.admin.groups import Groups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebackup_jobs.kafka.admin.groups import Committed

# What brokers say of a group that has members: classic ones, and those of the new protocol.
_HAS_MEMBERS = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.REBALANCE_IN_PROGRESS,
)


class AlterGroups(Groups):
    """Groups that are put somewhere. Methods raise EnvironmentProblem as those of `Cluster`."""

    def alter(self, offsets: Mapping[str, Sequence[Committed]]) -> set[str]:
        """Commit offsets for groups, which are made where they are not there; returns those with members.

        A group is altered whole or, when it has members, not at all.
        """
        asked = {
            group: self._admin.alter_consumer_group_offsets(
                [
                    ConsumerGroupTopicPartitions(
                        group,
                        [
                            # The leader epoch is the old cluster's and would mean something else here.
                            TopicPartition(c.scope, int(c.region), c.position, c.metadata or "")
                            for c in committed
                        ],
                    )
                ],
                request_timeout=cluster.ADMIN_TIMEOUT_S,
            )[group]
            for group, committed in sorted(offsets.items())
        }
        active = set()
        for group, future in asked.items():
            try:
                answer = future.result(timeout=cluster.ADMIN_TIMEOUT_S * 2)
                errors = [p.error for p in answer.topic_partitions if p.error is not None]
            except KafkaException as error:
                errors = [error.args[0]]
            if any(e.code() in _HAS_MEMBERS for e in errors):
                active.add(group)
            elif errors:
                raise self._unreachable(
                    f"commit offsets for consumer group {group}", KafkaException(errors[0])
                )
        return active
