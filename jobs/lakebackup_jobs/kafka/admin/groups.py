"""Consumer groups of a cluster and the offsets they committed (Admin API)."""

from __future__ import annotations

import secrets
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from lakebackup.plan.topics.groups import Committed, GroupState
from lakebackup.rows.topics import NO_TOPIC, Group
from lakebackup_jobs.kafka.admin import cluster
from lakebackup_jobs.kafka.admin.cluster import Cluster, patiently

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from concurrent.futures import Future

    from lakebackup.plan.partitions import TopicState

#: Groups in which restores keep how far they are: of no use to anyone else.
OWN_GROUPS = "lakebackup-restore-"
_DENIED = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)
_GONE = (KafkaError.GROUP_ID_NOT_FOUND,)
# What brokers answer for a group that has members: classic ones, and those of the new protocol.
_HAS_MEMBERS = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.REBALANCE_IN_PROGRESS,
)


@dataclass(frozen=True, slots=True)
class GroupsRead:
    """What could be read, sorted by group; `denied` maps a group that could not be to the broker's words.
    `share_groups`: those whose positions no client can read. `hidden`: why there may be others that the
    brokers leave out of their lists; None: there are none.
    """

    groups: tuple[GroupState, ...]
    denied: Mapping[str, str]
    share_groups: tuple[str, ...] = ()
    hidden: str | None = None


class Groups(Cluster):
    """The groups of one cluster. Methods raise EnvironmentProblem as those of `Cluster`."""

    @patiently
    def names(self) -> list[str]:
        """Every group, sorted, of whatever protocol; those of our own restores left out."""
        answer = self._wait(self._admin.list_consumer_groups(), "list the consumer groups")
        for error in answer.errors:  # of one broker; its groups would be missing without a word
            error = error if isinstance(error, KafkaException) else KafkaException(error)
            raise self._unreachable("list the consumer groups", error)
        names = {group.group_id for group in answer.valid} | self._listed()
        return sorted(name for name in names if not name.startswith(OWN_GROUPS))

    def _listed(self) -> set[str]:
        """Groups of every protocol: the newer call lists no share groups and no streams groups."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                groups = self._admin.list_groups(timeout=cluster.ADMIN_TIMEOUT_S)
            return {str(group.id) for group in groups}
        except KafkaException as error:
            raise self._unreachable("list the groups", error) from None

    @patiently
    def read(self, names: Collection[str] | None = None, earlier: Collection[str] = ()) -> GroupsRead:
        """State and committed offsets of `names` (of all: None). A group that is not there is left out.

        `earlier`: groups that there were. Those that lists leave out by now, since this user may not describe
        them, are denied.
        Offsets of open transactions do not show: what was committed before counts.
        """
        ordered = self.names() if names is None else sorted(names)
        hidden = self._hidden() if names is None else None
        denied: dict[str, str] = {}
        if absent := sorted(set(earlier) - set(ordered)):
            self._asked(self._admin.describe_consumer_groups(absent), "describe consumer group", denied)
        if not ordered:
            return GroupsRead((), denied, hidden=hidden)
        described = self._asked(
            self._admin.describe_consumer_groups(ordered), "describe consumer group", denied
        )
        offsets: dict[str, Any] = {}
        for name in described:
            # The broker takes one group a request; the answers come in parallel.
            offsets |= self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
        committed = self._asked(offsets, "read the offsets of consumer group", denied)
        states = [
            GroupState(
                group_id=name,
                protocol=_protocol(about),
                state=about.state.name.lower(),
                members=len(about.members),
                offsets=_committed(committed[name].topic_partitions),
            )
            for name, about in sorted(described.items())
            if name in committed
        ]
        # To the broker, a group that never was is a dead one, and so is one of a protocol that the request
        # does not know; of those only streams groups commit offsets.
        groups = tuple(g for g in states if g.offsets or g.state != "dead")
        strange = {g.group_id for g in states} - {g.group_id for g in groups} if names is None else set()
        unreadable = tuple(sorted(strange & self._listed())) if strange else ()
        return GroupsRead(groups, denied, unreadable, hidden)

    def _hidden(self) -> str | None:
        """The broker's words where this user may not describe any group: lists then leave out those groups,
        and say nothing. A group that nobody has tells."""
        denied: dict[str, str] = {}
        name = f"lakebackup-probe-{secrets.token_hex(8)}"
        self._asked(self._admin.describe_consumer_groups([name]), "describe consumer group", denied)
        return denied.get(name)

    def alter(self, offsets: Mapping[str, Sequence[Committed]]) -> set[str]:
        """Commit offsets for groups, which are created where they are missing; returns those with members.

        A group is altered whole or, when it has members, not at all.
        """
        asked: dict[str, Future[Any]] = {}
        for group, committed in sorted(offsets.items()):
            # The leader epoch is the old cluster's and would mean something else here.
            wanted = [TopicPartition(c.scope, int(c.region), c.position, c.metadata or "") for c in committed]
            asked |= self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])
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

    def _asked(
        self, futures: Mapping[str, Future[Any]], doing: str, denied: dict[str, str]
    ) -> dict[str, Any]:
        found = {}
        for name, future in futures.items():
            try:
                found[name] = future.result(timeout=cluster.ADMIN_TIMEOUT_S * 2)
            except KafkaException as error:
                code = error.args[0].code()
                if code in _DENIED:
                    denied[name] = error.args[0].str()
                elif code not in _GONE:
                    raise self._unreachable(f"{doing} {name}", error) from None
        return found


def _protocol(about: Any) -> str:
    if about.state == ConsumerGroupState.DEAD:
        return "streams"
    return "consumer" if about.type.name == "CONSUMER" else "classic"


def _committed(partitions: Sequence[Any]) -> tuple[Committed, ...]:
    return tuple(
        Committed(
            scope=p.topic,
            region=str(p.partition),
            position=p.offset,
            leader_epoch=None if p.leader_epoch is None or p.leader_epoch < 0 else p.leader_epoch,
            metadata=p.metadata or None,
        )
        for p in sorted(partitions, key=lambda p: (p.topic, p.partition))
        if p.error is None and p.offset >= 0
    )


def group_rows(
    *,
    backup_id: str,
    source: str,
    ts: int,
    read: GroupsRead,
    topics: Sequence[TopicState],
    existing: Collection[str],
) -> tuple[Group, ...]:
    """Rows of `groups`: what was committed for the topics of a backup, and for topics that are gone; and one
    of each share group, without a topic.

    `existing` are all topics of the cluster; `ts` the instant in ms at which the groups were read.
    """
    epochs = {topic.scope: topic.epoch for topic in topics}
    there = set(existing)
    row = partial(Group, backup_id=backup_id, source=source, ts=ts)
    rows = [
        row(
            group_id=group.group_id,
            protocol=group.protocol,
            state=group.state,
            epoch=epochs.get(c.scope),
            **asdict(c),
        )
        for group in read.groups
        for c in group.offsets
        if c.scope in epochs or c.scope not in there
    ]
    nowhere = partial(row, state="unknown", scope=NO_TOPIC, epoch=None, region="", position=0)
    rows += [nowhere(group_id=name, protocol="share") for name in read.share_groups]
    return tuple(rows)
