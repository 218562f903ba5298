"""The changes of topics that a restore needs (Admin API).

Brokers change one topic after another, and each request waits for the controller's log. So a request that
names many topics takes hardly longer than one that names a single topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import TopicCollection, admin
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tenacity import (
    RetryError,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_exponential,
)

from lakebackup.errors import EnvironmentProblem, NotFound, Refused
from lakebackup_jobs.kafka.admin.cluster import ADMIN_TIMEOUT_S, Cluster, Denied, QuotaExceeded

V = TypeVar("V")

#: How long to retry under a quota on topic changes. It recovers within seconds, or the request is too large.
QUOTA_S = 30.0
# Topics that one request changes.
_REQUEST_TOPICS = 200


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create, with its partitions, replication and settings as they were backed up."""

    name: str
    regions: int
    replication: int
    settings: Mapping[str, str]


class TopicChanges(Cluster):
    """A Kafka cluster whose topics are created, changed and deleted. Raises what `Cluster` raises."""

    def create_topics(self, topics: Collection[NewTopic], created: list[str]) -> dict[str, Refused]:
        """Create topics and append their names to `created`; see `wait_until_served`.

        Returns the errors for the topics that the cluster does not accept, by name.
        """
        return self._create(topics, created, validate_only=False)

    def check_topics(self, topics: Collection[NewTopic]) -> dict[str, Refused]:
        """Return the errors, with the brokers' messages, for new topics that the cluster would not accept.

        The reason may be a name, its settings, a policy or a limit. Nothing is created.
        """
        return self._create(topics, [], validate_only=True)

    def _create(
        self, topics: Collection[NewTopic], created: list[str], *, validate_only: bool
    ) -> dict[str, Refused]:
        new_topics = {
            topic.name: admin.NewTopic(
                topic.name,
                num_partitions=topic.regions,
                replication_factor=topic.replication,
                config=dict(topic.settings),
            )
            for topic in topics
        }

        def send(batch: Mapping[str, admin.NewTopic]) -> Mapping[str, Future[Any]]:
            futures: Mapping[str, Future[Any]] = self._admin.create_topics(
                [*batch.values()], validate_only=validate_only
            )
            return futures

        return self._refusals(new_topics, send, "create topic", created)

    def _refusals(
        self,
        values: Mapping[str, V],
        send: Callable[[Mapping[str, V]], Mapping[str, Future[Any]]],
        doing: str,
        accepted: list[str],
    ) -> dict[str, Refused]:
        """Send values by topic, many in a request, and again those that exceed a quota.

        Appends the topics that the cluster accepts to `accepted`; returns the errors for the others. Raises
        other errors, Denied only when all answers to a request are there.
        """
        refusals: dict[str, Refused] = {}
        names = list(values)

        def exceeds_quota() -> bool:
            nonlocal names
            for first in range(0, len(names), _REQUEST_TOPICS):
                batch = {name: values[name] for name in names[first : first + _REQUEST_TOPICS]}
                denials = []
                for name, future in send(batch).items():
                    try:
                        self._wait(future, f"{doing} {name}")
                    except Refused as error:
                        refusals[name] = error
                    except Denied as error:
                        denials.append(error)
                    else:
                        refusals.pop(name, None)
                        accepted.append(name)
                if denials:
                    raise denials[0]
            names = [name for name, error in refusals.items() if isinstance(error, QuotaExceeded)]
            return bool(names)

        retrying = Retrying(
            retry=retry_if_result(bool),
            wait=wait_exponential(multiplier=0.2, max=3),
            stop=stop_after_delay(QUOTA_S),
            retry_error_callback=lambda _: None,
        )
        retrying(exceeds_quota)
        return refusals

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
            # First the topics: librdkafka waits half a minute for offsets of one that is not known yet.
            topics = self._all(self._admin.describe_topics(TopicCollection(sorted(partitions))), "describe")
            if {name: len(topic.partitions) for name, topic in topics.items()} != partitions:
                return False
            self.ends([(name, number) for name, count in partitions.items() for number in range(count)])
            return True

        retrying = Retrying(
            retry=retry_if_result(lambda served: not served)
            | retry_if_exception_type((NotFound, EnvironmentProblem)),
            wait=wait_exponential(multiplier=0.05, max=1),
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
        self, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> dict[str, Refused]:
        """Change settings of topics: topic -> setting -> its new value; None removes it. Others stay.

        `validate_only`: only check whether the cluster accepts the changes. Returns the errors for topics
        whose changes it does not accept.
        """
        entries_by_topic = {
            topic: [_entry(name, value) for name, value in sorted(settings.items())]
            for topic, settings in changes.items()
            if settings
        }
        send = partial(self._alter_settings, validate_only=validate_only)
        return self._refusals(entries_by_topic, send, "change the settings of topic", [])

    def _alter_settings(
        self, changes: Mapping[str, list[ConfigEntry]], *, validate_only: bool
    ) -> dict[str, Future[Any]]:
        resources = [
            ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
            for name, entries in changes.items()
        ]
        futures = self._admin.incremental_alter_configs(resources, validate_only=validate_only)
        return {resource.name: future for resource, future in futures.items()}


def _entry(name: str, value: str | None) -> ConfigEntry:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(name, value or "", incremental_operation=operation)
