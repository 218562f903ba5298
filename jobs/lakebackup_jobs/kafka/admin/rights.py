"""Checks the rights for a restore into a cluster, before anything is written. The checks change nothing.

Brokers report the user's rights on topics and groups that they describe. For a topic that does not exist yet,
they are asked to validate its creation and a change, without doing either. For a transactional id, they are
asked for a transaction timeout that they refuse; they check the right before the timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from lakebackup.errors import NotFound, Refused
from lakebackup_jobs.kafka.admin.cluster import DENIALS, Denied, patiently
from lakebackup_jobs.kafka.admin.groups import OWN_GROUPS
from lakebackup_jobs.kafka.admin.transactions import Transactions

#: The hint for missing rights.
GRANT = "Grant these rights (kafka-acls.sh), or name another user."
#: The rights on a topic that a restore needs.
_TOPIC_RIGHTS = {
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "Write": AclOperation.WRITE,
    "Read": AclOperation.READ,
}
# The rights that a consumer group needs on the topics that it reads.
_GROUP_RIGHTS = ("Describe", "Read")
_PROBE_S = 30.0
# Longer than any cluster accepts (`transaction.max.timeout.ms`, by default 15 minutes). The cluster answers
# INVALID_TRANSACTION_TIMEOUT and registers nothing.
_REFUSED_TIMEOUT_MS = 2_000_000_000
# Without a logger, the client reports a denied transaction on standard error, whatever its log level.
_SILENT = logging.Logger("rights")
_SILENT.disabled = True


class Rights(Transactions):
    """The rights of a client's user for a restore.

    The names of the restore's consumer groups and transactional ids start with `prefix`. `alters`: whether
    the restore changes settings of topics.
    """

    def __init__(self, config: Mapping[str, str], prefix: str = OWN_GROUPS, *, alters: bool = True) -> None:
        super().__init__(config)
        self._prefix = prefix
        # The name of a group and of a transactional id that no restore uses.
        self._probe = f"{prefix}rights"
        self._of_topics = [right for right in _TOPIC_RIGHTS if alters or right != "AlterConfigs"]

    def missing(self, topics: Collection[str], existing: Collection[str]) -> list[str]:
        """The missing rights for a restore into topics, each with its resource.

        They are rights on the topics, on the restore's consumer groups, and on its transactional ids. The
        restore creates the topics that are not in `existing`. Raises EnvironmentProblem or UsageProblem when
        the cluster cannot carry out the restore's transactions.
        """
        self.require_transactions()
        present = set(topics) & set(existing)
        return [
            *self.of_topics(present),
            *self._of_new_topics(set(topics) - present),
            *self._of_own_names(),
        ]

    def of_topics(self, names: Collection[str]) -> list[str]:
        """The missing rights on topics that exist."""
        return self._missing_rights(names, self._of_topics)

    def of_groups(self, groups: Collection[str], topics: Collection[str]) -> list[str]:
        """The missing rights to commit offsets of `topics` for consumer groups."""
        missing_rights = [
            f"Read on group {group}" for group in sorted(groups) if not self._may_read_group(group)
        ]
        return [*missing_rights, *self._missing_rights(topics, _GROUP_RIGHTS)]

    def _missing_rights(self, names: Collection[str], rights: Sequence[str]) -> list[str]:
        if not names:
            return []
        answers = self._admin.describe_topics(
            TopicCollection(sorted(names)), include_authorized_operations=True
        )
        missing_rights = []
        for name, future in answers.items():
            try:
                operations = self._wait(future, f"describe topics ({name})").authorized_operations
            except Denied:
                missing_rights.append(f"Describe on topic {name}")
                continue
            missing_rights += [
                f"{right} on topic {name}"
                for right in rights
                if operations and _TOPIC_RIGHTS[right] not in operations  # old brokers report none
            ]
        return missing_rights

    def _of_new_topics(self, names: Collection[str]) -> list[str]:
        """Like `of_topics`, for topics that do not exist. The right Write shows only once they exist."""
        if not names:
            return []
        topics = sorted(names)
        change = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
        described = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        altered = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change]) for name in topics]
        requests: dict[str, Callable[[], Mapping[Any, Future[Any]]]] = {
            "AlterConfigs": partial(self._admin.incremental_alter_configs, altered, validate_only=True),
            "DescribeConfigs": partial(self._admin.describe_configs, described),
            "Describe": partial(self._admin.describe_topics, TopicCollection(topics)),
        }
        answers = {right: send() for right, send in requests.items() if right in self._of_topics}
        new_topics = [NewTopic(name, 1, -1) for name in topics]
        missing_rights = [
            f"Create on topic {name}"
            for name, future in self._admin.create_topics(new_topics, validate_only=True).items()
            if self._is_denied(future, f"create topic {name}")
        ]
        for right, futures in answers.items():
            for topic, future in futures.items():
                name = topic.name if isinstance(topic, ConfigResource) else topic
                if self._is_denied(future, f"ask for the right {right} on topic {name}"):
                    missing_rights.append(f"{right} on topic {name}")
        return missing_rights

    def _is_denied(self, future: Future[Any], doing: str) -> bool:
        try:
            with suppress(NotFound, Refused):  # the answers to a user who has the right
                self._wait(future, doing)
        except Denied:
            return True
        return False

    def _of_own_names(self) -> list[str]:
        """The missing rights on the groups and transactional ids that hold a restore's progress."""
        missing_rights = [] if self._may_read_group(self._probe) else [f"Read on groups {self._prefix}*"]
        if not self._may_begin_transaction():
            missing_rights.append(f"Write on transactional ids {self._prefix}*")
        return missing_rights

    @patiently
    def _may_read_group(self, group: str) -> bool:
        answers = self._admin.describe_consumer_groups([group], include_authorized_operations=True)
        try:
            operations = self._wait(answers[group], f"describe consumer group {group}").authorized_operations
        except Denied:
            return False
        return not operations or AclOperation.READ in operations

    def _may_begin_transaction(self) -> bool:
        properties: dict[str, Any] = {
            **self._config,
            "transactional.id": self._probe,
            "transaction.timeout.ms": _REFUSED_TIMEOUT_MS,
            "socket.timeout.ms": int(_PROBE_S * 1000),
            "logger": _SILENT,
        }
        try:
            Producer(properties).init_transactions(_PROBE_S)
        except KafkaException as error:
            if error.args[0].code() in DENIALS:
                return False
            if error.args[0].code() != KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise self._unreachable("begin a transaction", error) from None
        return True


def lacks(rights: Sequence[str]) -> str:
    """A clause that lists missing rights."""
    return f"this user lacks the right{'s' if len(rights) > 1 else ''} {', '.join(rights)}"


def require(missing: Sequence[str], *, outcome: str = "Nothing is written") -> None:
    """Raise Denied, with the `outcome` in its message, when rights are missing."""
    if missing:
        raise Denied(f"{outcome}: {lacks(missing)}.", hint=GRANT)
