"""The changes of topics that a restore needs (Admin API).

Restores change hundreds of topics from as many threads, whose requests go to the brokers together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tenacity import (
    RetryError,
    Retrying,
    retry,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_exponential,
    wait_fixed,
)

from lakebackup.errors import EnvironmentProblem, NotFound
from lakebackup_jobs.kafka.admin.cluster import ADMIN_TIMEOUT_S, Cluster, QuotaExceeded
from lakebackup_jobs.kafka.admin.together import Together

#: How long to retry under a quota on topic changes. It recovers within seconds, or the request is too large.
QUOTA_S = 30.0

within_quota = retry(
    retry=retry_if_exception_type(QuotaExceeded),
    wait=wait_exponential(multiplier=0.2, max=3),
    stop=stop_after_delay(QUOTA_S),
    reraise=True,
)


class TopicChanges(Cluster):
    """A Kafka cluster whose topics are created, changed and deleted. Raises what `Cluster` raises."""

    def create_topic(self, name: str, partitions: int, replication: int, settings: Mapping[str, str]) -> None:
        """Create a topic; see `wait_until_served`. Threads that create topics send them together.

        Raises the same errors as `check_topic`.
        """
        self._create(name, partitions, replication, settings, self._created_topics)

    def check_topic(self, name: str, partitions: int, replication: int, settings: Mapping[str, str]) -> None:
        """Raise Refused, with the broker's message, when the cluster would not accept a new topic.

        The reason may be its name, its settings, a policy or a limit. Nothing is created.
        """
        self._create(name, partitions, replication, settings, self._checked_topics)

    @within_quota
    def _create(
        self,
        name: str,
        partitions: int,
        replication: int,
        settings: Mapping[str, str],
        topics: Together[NewTopic],
    ) -> None:
        new_topic = NewTopic(
            name, num_partitions=partitions, replication_factor=replication, config=dict(settings)
        )
        try:
            topics.request(name, new_topic).result()
        except KafkaException as error:
            raise self._unreachable(f"create topic {name}", error) from None

    @cached_property
    def _created_topics(self) -> Together[NewTopic]:
        return Together(lambda topics: self._admin.create_topics([*topics.values()]))

    @cached_property
    def _checked_topics(self) -> Together[NewTopic]:
        return Together(lambda topics: self._admin.create_topics([*topics.values()], validate_only=True))

    def delete_topic(self, name: str) -> None:
        """Delete a topic. A topic that does not exist is no error."""
        with suppress(NotFound):
            self._wait(self._admin.delete_topics([name])[name], f"delete topic {name}")

    def wait_until_served(self, partitions: Mapping[str, int]) -> None:
        """Wait until brokers serve created topics with their numbers of partitions.

        Raises EnvironmentProblem.
        """
        if not partitions:
            return

        def are_served() -> bool:
            states = self.describe(partitions)
            counts = {state.scope: state.regions for state in states}
            return counts == partitions and bool(self.positions(states, "read_uncommitted"))

        retrying = Retrying(
            retry=retry_if_result(lambda served: not served)
            | retry_if_exception_type((NotFound, EnvironmentProblem)),
            wait=wait_fixed(0.05),
            stop=stop_after_delay(ADMIN_TIMEOUT_S),
        )
        try:
            retrying(are_served)
        except RetryError:
            first, *later = sorted(partitions)
            text = (
                f"Topics {first} and {len(later)} more were created, but the brokers do not serve them yet."
            )
            if not later:
                text = f"Topic {first} was created, but the brokers do not serve it yet."
            raise EnvironmentProblem(text, hint="Run it again.") from None

    def alter_settings(
        self,
        name: str,
        *,
        overrides: Mapping[str, str],
        drop: Collection[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set the overrides in `overrides` and remove those in `drop`. Others stay as they are.

        Threads that change settings send them together. `validate_only` only checks whether the cluster
        accepts them. Raises Refused when it does not.
        """
        changes = [
            ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET)
            for k, v in sorted(overrides.items())
        ]
        changes += [ConfigEntry(k, "", incremental_operation=AlterConfigOpType.DELETE) for k in sorted(drop)]
        if not changes:
            return
        settings = self._checked_settings if validate_only else self._changed_settings
        self._wait(settings.request(name, changes), f"change the settings of topic {name}")

    @cached_property
    def _changed_settings(self) -> Together[list[ConfigEntry]]:
        return Together(partial(self._alter_settings, validate_only=False))

    @cached_property
    def _checked_settings(self) -> Together[list[ConfigEntry]]:
        return Together(partial(self._alter_settings, validate_only=True))

    def _alter_settings(
        self, changes: Mapping[str, list[ConfigEntry]], *, validate_only: bool
    ) -> dict[str, Future[Any]]:
        resources = [
            ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
            for name, entries in changes.items()
        ]
        futures = self._admin.incremental_alter_configs(resources, validate_only=validate_only)
        return {resource.name: future for resource, future in futures.items()}
