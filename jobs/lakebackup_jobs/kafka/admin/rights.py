"""The rights that writing into a cluster needs, asked before anything is written; asking leaves nothing.

Brokers report what a user may do with topics and groups that they describe. Of a topic that is not there yet,
they are asked to create and to change it without doing so. Of a transactional id they are asked to use it
with a time limit that they refuse, which they look at after the right.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from lakebackup.errors import NotFound, Refused
from lakebackup_jobs.kafka.admin.cluster import DENIALS, Cluster, Denied, patiently
from lakebackup_jobs.kafka.admin.groups import OWN_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from concurrent.futures import Future

#: What to do about rights that are missing.
GRANT = "Grant these rights (kafka-acls.sh), or name another user."
#: What a restore does with a topic.
_OF_TOPICS = {
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "Write": AclOperation.WRITE,
    "Read": AclOperation.READ,
}
# What a consumer group does with the topics that it reads.
_OF_READ_TOPICS = ("Describe", "Read")
_PROBE_S = 30.0
# Beyond what any cluster accepts (`transaction.max.timeout.ms`, 15 minutes unless configured): its answer is
# INVALID_TRANSACTION_TIMEOUT, and it registers nothing.
_REFUSED_TIMEOUT_MS = 2_000_000_000
# The client writes a denied transaction to standard error, whatever its level of logging.
_SILENT = logging.Logger("rights")
_SILENT.disabled = True


class Rights(Cluster):
    """What the user of a client may do for a restore.

    `prefix` begins the names of its consumer groups and transactional ids. `alters`: whether it changes the
    settings of topics.
    """

    def __init__(self, config: Mapping[str, str], prefix: str = OWN_GROUPS, *, alters: bool = True) -> None:
        super().__init__(config)
        self._prefix = prefix
        # A group and a transactional id which no restore uses.
        self._probe = f"{prefix}rights"
        self._of_topics = [right for right in _OF_TOPICS if alters or right != "AlterConfigs"]

    def missing(self, topics: Collection[str], existing: Collection[str]) -> list[str]:
        """The rights that a restore into topics lacks, each with its resource: on `topics`, on its consumer
        groups and its transactional ids. It creates those topics that are not among the `existing` ones."""
        present = set(topics) & set(existing)
        return [
            *self.of_topics(present),
            *self._of_new_topics(set(topics) - present),
            *self._of_own_names(),
        ]

    def of_topics(self, names: Collection[str]) -> list[str]:
        """The rights that are missing on topics that are there."""
        return self._lacking(names, self._of_topics)

    def of_groups(self, groups: Collection[str], topics: Collection[str]) -> list[str]:
        """The rights that are missing to commit offsets of `topics` for consumer groups."""
        lacking = [f"Read on group {group}" for group in sorted(groups) if not self._may_read_group(group)]
        return [*lacking, *self._lacking(topics, _OF_READ_TOPICS)]

    def _lacking(self, names: Collection[str], rights: Sequence[str]) -> list[str]:
        if not names:
            return []
        answers = self._admin.describe_topics(
            TopicCollection(sorted(names)), include_authorized_operations=True
        )
        lacking = []
        for name, future in answers.items():
            try:
                operations = self._wait(future, f"describe topics ({name})").authorized_operations
            except Denied:
                lacking.append(f"Describe on topic {name}")
                continue
            lacking += [
                f"{right} on topic {name}"
                for right in rights
                if operations and _OF_TOPICS[right] not in operations  # old brokers report none
            ]
        return lacking

    def _of_new_topics(self, names: Collection[str]) -> list[str]:
        """As `of_topics`, of topics that are not there; who may write into them shows when they are."""
        lacking = []
        for name in sorted(names):
            with suppress(Refused):  # what the cluster thinks of its settings is asked elsewhere
                try:
                    self.check_topic(name, 1, -1, {})
                except Denied:
                    lacking.append(f"Create on topic {name}")
            change = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
            described = ConfigResource(ResourceType.TOPIC, name)
            altered = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
            probes: dict[str, Callable[[], Mapping[Any, Future[Any]]]] = {
                "AlterConfigs": partial(self._admin.incremental_alter_configs, [altered], validate_only=True),
                "DescribeConfigs": partial(self._admin.describe_configs, [described]),
                "Describe": partial(self._admin.describe_topics, TopicCollection([name])),
            }
            for right, ask in probes.items():
                if right not in self._of_topics:
                    continue
                try:
                    self._all(ask(), f"ask for the right {right} on topic {name}")
                except Denied:
                    lacking.append(f"{right} on topic {name}")
                except (NotFound, Refused):  # the answer to a user who has the right
                    continue
        return lacking

    def _of_own_names(self) -> list[str]:
        """What is missing on the groups and transactional ids in which a restore keeps its progress."""
        lacking = [] if self._may_read_group(self._probe) else [f"Read on groups {self._prefix}*"]
        if not self._may_begin_transaction():
            lacking.append(f"Write on transactional ids {self._prefix}*")
        return lacking

    @patiently
    def _may_read_group(self, group: str) -> bool:
        answers = self._admin.describe_consumer_groups([group], include_authorized_operations=True)
        try:
            operations = self._wait(answers[group], f"describe consumer group {group}").authorized_operations
        except Denied:
            return False
        return not operations or AclOperation.READ in operations

    def _may_begin_transaction(self) -> bool:
        quiet: dict[str, Any] = {
            **self._config,
            "transactional.id": self._probe,
            "transaction.timeout.ms": _REFUSED_TIMEOUT_MS,
            "socket.timeout.ms": int(_PROBE_S * 1000),
            "logger": _SILENT,
        }
        try:
            Producer(quiet).init_transactions(_PROBE_S)
        except KafkaException as error:
            if error.args[0].code() in DENIALS:
                return False
            if error.args[0].code() != KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise self._unreachable("begin a transaction", error) from None
        return True


def lacks(rights: Sequence[str]) -> str:
    """A sentence, without its end, on rights that are missing."""
    return f"this user lacks the right{'s' if len(rights) > 1 else ''} {', '.join(rights)}"


def require(missing: Sequence[str], *, outcome: str = "Nothing is written") -> None:
    """Raise Denied, which says the `outcome`, where rights are missing."""
    if missing:
        raise Denied(f"{outcome}: {lacks(missing)}.", hint=GRANT)
