"""Reads and writes the offsets that consumer groups committed (Admin API)."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from lakebackup.plan.partitions import TopicState
from lakebackup.plan.topics.groups import Committed, GroupState
from lakebackup.rows.topics import NO_TOPIC, Group
from lakebackup_jobs.kafka.admin import cluster
from lakebackup_jobs.kafka.admin.cluster import Cluster, Passing, patiently

#: The prefix of groups in which restores store their progress. Nobody else needs these groups.
OWN_GROUPS = "lakebackup-restore-"
_DENIED = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)
_NOT_FOUND = (KafkaError.GROUP_ID_NOT_FOUND,)
# The brokers' errors for a group that has members, of the classic and of the new protocol.
_HAS_MEMBERS = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.REBALANCE_IN_PROGRESS,
)


@dataclass(frozen=True, slots=True)
class GroupsRead:
    """The groups that could be read, sorted.

    `denied`: group that could not be read -> the broker's message. `share_groups`: groups whose positions no
    client can read. `hidden`: why brokers may leave groups out of their lists; None when they do not.
    """

    groups: tuple[GroupState, ...]
    denied: Mapping[str, str]
    share_groups: tuple[str, ...] = ()
    hidden: str | None = None


class Groups(Cluster):
    """The groups of one cluster. Methods raise EnvironmentProblem like those of `Cluster`."""

    @patiently
    def names(self) -> list[str]:
        """The names of all groups of any protocol, sorted, without the groups of lakebackup's restores."""
        answer = self._wait(self._admin.list_consumer_groups(), "list the consumer groups")
        for error in answer.errors:  # one broker failed, so its groups would be missing silently
            error = error if isinstance(error, KafkaException) else KafkaException(error)
            raise self._unreachable("list the consumer groups", error)
        names = {group.group_id for group in answer.valid} | self._listed_groups()
        return sorted(name for name in names if not name.startswith(OWN_GROUPS))

    def _listed_groups(self) -> set[str]:
        """Groups of all protocols. The newer call lists neither share groups nor streams groups."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                groups = self._admin.list_groups(timeout=cluster.ADMIN_TIMEOUT_S)
            return {str(group.id) for group in groups}
        except KafkaException as error:
            raise self._unreachable("list the groups", error) from None

    @patiently
    def read(self, names: Collection[str] | None = None, earlier: Collection[str] = ()) -> GroupsRead:
        """Read the state and the committed offsets of groups; None reads all groups.

        A group that does not exist is left out. `earlier` are groups that existed before. If lists leave them
        out now because this user may not describe them, they are in `denied`. Offsets in open transactions
        are not visible, so the earlier committed offsets are returned.
        """
        ordered = self.names() if names is None else sorted(names)
        hidden = self._hidden() if names is None else None
        denied: dict[str, str] = {}
        if missing_groups := sorted(set(earlier) - set(ordered)):
            self._results(
                self._admin.describe_consumer_groups(missing_groups), "describe consumer group", denied
            )
        if not ordered:
            return GroupsRead((), denied, hidden=hidden)
        described = self._results(
            self._admin.describe_consumer_groups(ordered), "describe consumer group", denied
        )
        offsets: dict[str, Any] = {}
        for name in described:
            # A request can name only one group. The requests run in parallel.
            offsets |= self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
        committed = self._results(offsets, "read the offsets of consumer group", denied)
        states = [
            GroupState(
                group_id=name,
                protocol=_protocol(description),
                state=description.state.name.lower(),
                members=len(description.members),
                offsets=_committed(committed[name].topic_partitions),
            )
            for name, description in sorted(described.items())
            if name in committed
        ]
        # The broker reports a group as dead if it never existed, or if the request does not know its
        # protocol. Among the latter only streams groups commit offsets.
        groups = tuple(g for g in states if g.offsets or g.state != "dead")
        dead_groups = {g.group_id for g in states} - {g.group_id for g in groups} if names is None else set()
        unreadable = tuple(sorted(dead_groups & self._listed_groups())) if dead_groups else ()
        return GroupsRead(groups, denied, unreadable, hidden)

    def _hidden(self) -> str | None:
        """The broker's message if this user may not describe all groups; None otherwise.

        In that case lists silently leave out such groups. Describing a group that does not exist reveals it.
        """
        denied: dict[str, str] = {}
        name = f"lakebackup-probe-{secrets.token_hex(8)}"
        self._results(self._admin.describe_consumer_groups([name]), "describe consumer group", denied)
        return denied.get(name)

    def alter(self, offsets: Mapping[str, Sequence[Committed]]) -> set[str]:
        """Commit offsets for groups, and return the groups that have members.

        A missing group is created. A group with members is not changed at all. While a group's coordinator
        starts, the commit is repeated: in a new cluster the first group makes the brokers start it.
        """
        uncommitted, active = dict(offsets), set()

        @patiently
        def commit() -> None:
            passing: Passing | None = None
            for group, errors in self._commit(uncommitted).items():
                if any(error.code() in _HAS_MEMBERS for error in errors):
                    active.add(group)
                elif errors:
                    doing = f"commit offsets for consumer group {group}"
                    problem = self._unreachable(doing, KafkaException(errors[0]))
                    if not isinstance(problem, Passing):
                        raise problem
                    passing = problem
                    continue
                del uncommitted[group]
            if passing:
                raise passing

        commit()
        return active

    def _commit(self, offsets: Mapping[str, Sequence[Committed]]) -> dict[str, list[KafkaError]]:
        """Commit offsets for groups. Returns the errors of each group."""
        futures: dict[str, Future[Any]] = {}
        for group, committed in sorted(offsets.items()):
            # The leader epoch is omitted: it is the old cluster's, and has another meaning in this one.
            topic_partitions = [
                TopicPartition(c.scope, int(c.region), c.position, c.metadata or "") for c in committed
            ]
            futures |= self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, topic_partitions)]
            )
        errors = {}
        for group, future in futures.items():
            try:
                answer = future.result(timeout=cluster.ADMIN_TIMEOUT_S * 2)
                errors[group] = [p.error for p in answer.topic_partitions if p.error is not None]
            except KafkaException as error:
                errors[group] = [error.args[0]]
        return errors

    def _results(
        self, futures: Mapping[str, Future[Any]], doing: str, denied: dict[str, str]
    ) -> dict[str, Any]:
        results = {}
        for name, future in futures.items():
            try:
                results[name] = future.result(timeout=cluster.ADMIN_TIMEOUT_S * 2)
            except KafkaException as error:
                code = error.args[0].code()
                if code in _DENIED:
                    denied[name] = error.args[0].str()
                elif code not in _NOT_FOUND:
                    raise self._unreachable(f"{doing} {name}", error) from None
        return results


def _protocol(description: Any) -> str:
    if description.state == ConsumerGroupState.DEAD:
        return "streams"
    return "consumer" if description.type.name == "CONSUMER" else "classic"


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
    """The rows of `groups` for a backup.

    There is a row for each offset that was committed for a topic of the backup, or for a deleted topic. Each
    share group has a row without a topic. `existing` are all topics of the cluster. `ts` is the instant, in
    ms since 1970 UTC, at which the groups were read.
    """
    epochs = {topic.scope: topic.epoch for topic in topics}
    existing_topics = set(existing)
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
        if c.scope in epochs or c.scope not in existing_topics
    ]
    share_group_row = partial(row, state="unknown", scope=NO_TOPIC, epoch=None, region="", position=0)
    rows += [share_group_row(group_id=name, protocol="share") for name in read.share_groups]
    return tuple(rows)
