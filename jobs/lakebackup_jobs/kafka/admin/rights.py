"""The rights that a restore into topics needs, asked before anything is written.

Brokers report what a user may do with topics and groups that they describe. Of a topic that is not there yet,
they are asked to create and to change it without doing so. Of a transactional id only its first use tells.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer, TopicCollection
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
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

#: What a restore does with a topic.
_OF_TOPICS = {
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "Write": AclOperation.WRITE,
    "Read": AclOperation.READ,
}
# A group and a transactional id under the prefix of those of restores, which no restore uses.
_PROBE = f"{OWN_GROUPS}rights"
_PROBE_S = 30.0
# The client writes a denied transaction to standard error, whatever its level of logging.
_SILENT = logging.Logger("rights")
_SILENT.disabled = True


class RestoreRights(Cluster):
    """What the user of a client may do for a restore."""

    def missing(self, existing: Collection[str], new: Collection[str]) -> list[str]:
        """The rights that a restore into topics lacks, each with its resource: topics that are there and
        those that it creates, its consumer groups and its transactional ids."""
        return [*self.of_topics(existing), *self._of_new_topics(new), *self._of_own_names()]

    def of_topics(self, names: Collection[str]) -> list[str]:
        """The rights that are missing on topics that are there."""
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
                for right, operation in _OF_TOPICS.items()
                if operations and operation not in operations  # old brokers report none
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
            altered = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
            probes: dict[str, Mapping[Any, Future[Any]]] = {
                "AlterConfigs": self._admin.incremental_alter_configs([altered], validate_only=True),
                "DescribeConfigs": self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]),
                "Describe": self._admin.describe_topics(TopicCollection([name])),
            }
            for right, futures in probes.items():
                try:
                    self._all(futures, f"ask for the right {right} on topic {name}")
                except Denied:
                    lacking.append(f"{right} on topic {name}")
                except (NotFound, Refused):  # the answer to a user who has the right
                    continue
        return lacking

    def _of_own_names(self) -> list[str]:
        """What is missing on the groups and transactional ids in which a restore keeps its progress."""
        lacking = [] if self._may_read_group() else [f"Read on groups {OWN_GROUPS}*"]
        if not self._may_begin_transaction():
            lacking.append(f"Write on transactional ids {OWN_GROUPS}*")
        return lacking

    @patiently
    def _may_read_group(self) -> bool:
        answers = self._admin.describe_consumer_groups([_PROBE], include_authorized_operations=True)
        try:
            operations = self._wait(answers[_PROBE], "describe a consumer group").authorized_operations
        except Denied:
            return False
        return not operations or AclOperation.READ in operations

    def _may_begin_transaction(self) -> bool:
        quiet: dict[str, Any] = {**self._config, "transactional.id": _PROBE, "logger": _SILENT}
        try:
            Producer(quiet).init_transactions(_PROBE_S)
        except KafkaException as error:
            if error.args[0].code() in DENIALS:
                return False
            raise self._unreachable("begin a transaction", error) from None
        return True
