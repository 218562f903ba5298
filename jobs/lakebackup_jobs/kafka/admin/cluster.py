"""Reads the state of a Kafka cluster and its topics (Admin API). topic_changes.py changes topics."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
)
from tenacity import (
    Retrying,
    retry,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_exponential,
    wait_fixed,
)

from lakebackup.errors import EnvironmentProblem, NotFound, Refused, UsageProblem
from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup.rules.kafka_properties import require_usable
from lakebackup_jobs.kafka.admin.committed import Ends, Partition
from lakebackup_jobs.kafka.admin.problems import Unanswered, fatal_event, problem
from lakebackup_jobs.kafka.admin.tls import tls_problem
from lakebackup_jobs.kafka.format.offsets_log import isolation_of

T = TypeVar("T")

ADMIN_TIMEOUT_S = 30.0
#: How long to wait for transaction markers. The broker answers a commit before its markers are in the
#: partitions. They follow within milliseconds, but later after the loss of a broker.
MARKERS_S = 60.0
#: How long a backup waits for transactions that are open at its instant. It leaves out what they still hide.
SETTLE_S = 1.0
#: How long to wait when every broker refuses or drops connections. Slow brokers have ADMIN_TIMEOUT_S.
ALL_DOWN_S = 8.0
#: How long brokers may take to restart.
RESTART_S = 60.0
#: A client that was idle for longer is replaced. Brokers close idle connections (by default after 10 min),
#: and load balancers do too (after 4 min). librdkafka's requests to coordinators do not recover from that.
IDLE_S = 60.0
MIN_IN_SYNC = "min.insync.replicas"
#: Specifications of a partition's offsets at the broker.
LOW = (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]
HIGH = (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]
STABLE = (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]

# The number of a setting's source at the broker -> its origin. Brokers also report DEFAULT_CONFIG for times
# that were configured in hours.
_ORIGINS: Mapping[object, str] = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "broker",
    ConfigSource.STATIC_BROKER_CONFIG.value: "broker",
    ConfigSource.DEFAULT_CONFIG.value: "default",
}
# A topic's retention setting -> the brokers' settings in order of precedence, with their unit in the topic's.
_BROKER_NAMES = {
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ),
    "retention.bytes": (("log.retention.bytes", 1),),
    "cleanup.policy": (("log.cleanup.policy", None),),
}
_CHECK = "Check --bootstrap-server, the credentials and the ACLs, and that a broker is up."
_TLS = "Check security.protocol, ssl.ca.location and the other ssl.* settings, and the broker's certificate."
_RIGHTS_HINT = "Give this user the rights that are missing, or name another user."
# The rights on a topic that a backup needs besides Describe.
_BACKUP_RIGHTS = {"Read": AclOperation.READ, "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS}
#: The brokers' error codes for a user who lacks a right on the resource.
DENIALS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# Errors while a leader or a coordinator starts, or after one was lost.
_RETRIABLE = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
# Errors from the cluster's own rules. The same request fails again until the request or the rules change.
_REFUSALS = frozenset(
    {
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_ALREADY_EXISTS,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REPLICA_ASSIGNMENT,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
_NO_ANSWER = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001 - public names


class Passing(EnvironmentProblem):
    """An error that goes away by itself within moments."""


#: For methods that only read. Right after a topic was created or a leader was lost, brokers refer to each
#: other for a moment.
patiently = retry(
    retry=retry_if_exception_type(Passing), wait=wait_fixed(0.1), stop=stop_after_delay(10), reraise=True
)


#: For requests in the middle of a run. They wait for brokers that restart.
outlasting_restarts = retry(
    retry=retry_if_exception_type(Unanswered),
    wait=wait_fixed(1),
    stop=stop_after_delay(RESTART_S),
    reraise=True,
)


class QuotaExceeded(Refused):
    """The run creates or changes topics faster than the cluster's quota allows."""


class Denied(EnvironmentProblem):
    """The broker knows this user but denies the operation."""


class Cluster:
    """One Kafka cluster, through its admin API.

    `config` is a map of librdkafka properties. Every method raises EnvironmentProblem when no broker can be
    reached, or when a broker refuses. The message never shows the properties, which may hold secrets.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        require_usable(config)
        self._servers, self._config = config.get("bootstrap.servers", ""), config
        self._events: list[KafkaError] = []
        self._id = ""
        self._connected, self._used_at_s = False, time.monotonic()
        self._client = self._new_client()

    @property
    def _admin(self) -> AdminClient:
        """The admin client. After IDLE_S without a request it is a new one."""
        if time.monotonic() - self._used_at_s > IDLE_S:
            self._connected = False
            self._events.clear()
            self._client = self._new_client()
        self._used_at_s = time.monotonic()
        return self._client

    def _new_client(self) -> AdminClient:
        properties: dict[str, Any] = {
            "log_level": 0,
            "socket.connection.setup.timeout.ms": "10000",
            "socket.timeout.ms": str(int(ADMIN_TIMEOUT_S * 1000)),  # of each request
            **self._config,
            "error_cb": self._events.append,
        }
        try:
            return AdminClient(properties)
        except KafkaException as error:
            raise UsageProblem(
                f"The Kafka client refuses its configuration: {error.args[0].str()}",
                hint="Check the [kafka] table, --kafka-config and LAKEBACKUP_KAFKA__* settings.",
            ) from None

    def cluster_id(self) -> str:
        """The cluster's own id, as its brokers report it."""
        return self._id or str(self._describe_cluster().cluster_id)

    def brokers(self) -> int:
        """The number of brokers that are up."""
        return len(self._describe_cluster().nodes)

    def topic_names(self) -> list[str]:
        """All topics that this user may see, internal ones too, sorted."""
        if not self._connected:
            self.brokers()  # unlike a list request, this reports why the client cannot connect
        try:
            return sorted(self._admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics)
        except KafkaException as error:
            raise self._unreachable("list the topics", error) from None

    def denied(self, names: Collection[str]) -> dict[str, str]:
        """Topic that this user may not back up -> the reason. Skips `names` that do not exist."""
        return self._readable(names)[1]

    def _readable(self, names: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """The descriptions of the topics that this user may back up, and why it may not back up others."""
        if not names:
            return {}, {}
        futures = self._admin.describe_topics(
            TopicCollection(sorted(names)), include_authorized_operations=True
        )
        descriptions, reasons = {}, {}
        for name, future in futures.items():
            try:
                description = self._wait(future, f"describe topics ({name})")
            except NotFound:
                continue
            except Denied:
                reasons[name] = "this user may not see it (Describe)"
                continue
            allowed = description.authorized_operations
            missing_rights = [
                right for right, operation in _BACKUP_RIGHTS.items() if operation not in allowed
            ]
            if allowed and missing_rights:  # an old broker does not report rights
                reasons[name] = f"this user lacks the right {' and '.join(missing_rights)}"
            else:
                descriptions[name] = description
        return descriptions, reasons

    def require_readable(self, names: Collection[str]) -> None:
        """Raise Denied, with the missing rights, when this user may not back up one of the topics."""
        if reasons := self.denied(names):
            topics = "; ".join(f"topic {name}: {reason}" for name, reason in sorted(reasons.items()))
            raise Denied(f"Nothing is written: {topics}.", hint=_RIGHTS_HINT)

    def describe(self, names: Collection[str]) -> list[TopicState]:
        """Id, partitions, replication and settings of topics, sorted. Raises NotFound for missing topics."""
        if not names:
            return []
        settings = self._ask_settings(names)
        descriptions = self._all(
            self._admin.describe_topics(TopicCollection(sorted(names))), "describe topics"
        )
        return self._states(descriptions, settings)

    def describe_readable(self, names: Collection[str]) -> tuple[list[TopicState], dict[str, str]]:
        """Describe the topics that this user may back up, as `describe` does, and tell why it may not back up
        others. Raises NotFound for missing topics."""
        settings = self._ask_settings(names)
        descriptions, reasons = self._readable(names)
        if missing := sorted(set(names) - descriptions.keys() - reasons.keys()):
            raise NotFound(f"Topic {missing[0]} was deleted just now.", hint="Run the command again.")
        return self._states(descriptions, settings), reasons

    def _ask_settings(self, names: Collection[str]) -> Mapping[str, Future[Any]]:
        """Ask for the settings of topics, which takes the brokers longer than other descriptions."""
        if not names:
            return {}
        futures = self._admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name) for name in sorted(names)]
        )
        return {resource.name: future for resource, future in futures.items()}

    def _states(
        self, descriptions: Mapping[str, Any], settings: Mapping[str, Future[Any]]
    ) -> list[TopicState]:
        entries = self._all({name: settings[name] for name in descriptions}, "read the topics' settings")
        configs = {name: _by_origin(entries_of_topic) for name, entries_of_topic in entries.items()}
        return [
            TopicState(
                scope=name,
                epoch=_hex(topic.topic_id),
                regions=len(topic.partitions),
                replication=min((len(p.replicas) for p in topic.partitions), default=1),
                settings=configs[name].get("topic", {}),
                inherited={
                    origin: configs[name][origin]
                    for origin in ("broker", "default")
                    if origin in configs[name]
                },
            )
            for name, topic in sorted(descriptions.items())
        ]

    @outlasting_restarts
    def require_same(self, epochs: Mapping[str, str]) -> None:
        """Raise EnvironmentProblem when a topic (name -> id) was deleted and recreated while it was read.

        The new topic's offsets start at 0 again. Requests to brokers name the topic, so the new topic's
        records would be stored as records of the deleted one. Raises nothing for one that is only deleted.
        """
        if not epochs:
            return
        futures = self._admin.describe_topics(TopicCollection(sorted(epochs)))
        for name, future in futures.items():
            with suppress(NotFound):
                topic = self._wait(future, f"describe topics ({name})")
                if _hex(topic.topic_id) != epochs[name]:
                    raise EnvironmentProblem(
                        f"Topic {name} was deleted and recreated while it was backed up; nothing of this run "
                        "is visible.",
                        hint="Run it again: it backs up the new one.",
                    )

    def positions(self, topics: Iterable[TopicState], isolation: str) -> tuple[int, list[RegionState]]:
        """The begin and end offsets of all partitions, and an instant (ms since 1970 UTC).

        Everything that was written before the instant lies below `end`, except what open transactions hide.
        `end` is the last stable offset for read_committed, and the high watermark for read_uncommitted. It
        is below `high` only while a transaction is open that began before the instant.
        """
        partitions = [(t, TopicPartition(t.scope, p)) for t in topics for p in range(t.regions)]
        instant = time.time_ns() // 1_000_000
        topic_partitions = [tp for _, tp in partitions]
        stable, high, low = self._offsets(topic_partitions, STABLE, HIGH, LOW)
        # The two answers may be from different moments, and most transactions end within milliseconds.
        if committed := [
            tp for tp in topic_partitions if isolation_of(tp.topic, isolation) == "read_committed"
        ]:
            stable |= self._stable_offsets(
                {tp: high[tp].offset for tp in committed if stable[tp].offset < high[tp].offset}
            )

        def end(tp: TopicPartition) -> Any:
            return (stable if isolation_of(tp.topic, isolation) == "read_committed" else high)[tp]

        return instant, [
            RegionState(
                scope=topic.scope,
                epoch=topic.epoch,
                region=str(tp.partition),
                low=low[tp].offset,
                end=max(end(tp).offset, low[tp].offset),
                high=max(high[tp].offset, stable[tp].offset),  # either answer may be the older one
                leader_epoch=end(tp).leader_epoch,
            )
            for topic, tp in partitions
        ]

    def _stable_offsets(self, wanted_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """The last stable offsets, after a wait of at most SETTLE_S until they reach the wanted offsets."""
        retrying = Retrying(
            retry=retry_if_result(
                lambda stable: any(stable[tp].offset < offset for tp, offset in wanted_offsets.items())
            ),
            wait=wait_fixed(0.05),
            stop=stop_after_delay(SETTLE_S),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else {},
        )
        return retrying(lambda: self._offsets(wanted_offsets.keys(), STABLE)[0])

    def offsets_at(self, regions: Sequence[RegionState], ts: int) -> list[int]:
        """For each partition, the offset of its first record at or after the time `ts` (ms); -1 if none."""
        partitions = [TopicPartition(r.scope, int(r.region)) for r in regions]
        (offsets,) = self._offsets(
            partitions, (OffsetSpec.for_timestamp(ts), IsolationLevel.READ_UNCOMMITTED)
        )
        return [int(offsets[partition].offset) for partition in partitions]

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, Ends]:
        """Both ends of each partition. `stable` is read first: all below it was written before `high`."""
        topic_partitions = {partition: TopicPartition(*partition) for partition in partitions}
        (stable,) = self._offsets(topic_partitions.values(), STABLE)
        (high,) = self._offsets(topic_partitions.values(), HIGH)
        return {
            partition: Ends(stable[tp].offset, high[tp].offset) for partition, tp in topic_partitions.items()
        }

    def read_end_offsets(self, end_offsets: Mapping[Partition, int]) -> dict[Partition, Ends]:
        """Wait at most MARKERS_S until readers of committed records see each partition up to its offset.

        Returns the ends at that time. A caller compares them to learn whether the wait succeeded.
        """
        retrying = Retrying(
            retry=retry_if_result(
                lambda ends: any(ends[partition].stable < offset for partition, offset in end_offsets.items())
            ),
            wait=wait_exponential(multiplier=0.001, max=0.1),
            stop=stop_after_delay(MARKERS_S),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else {},
        )
        return retrying(self.ends, end_offsets.keys())

    def retention_of_brokers(self) -> dict[str, str]:
        """The retention settings for topics that do not override them, by the topics' names of the settings.

        They come from a broker, because the description of a topic that overrides them lacks a time that its
        brokers have in hours or minutes. Raises Denied without the right DescribeConfigs on the cluster.
        """
        entries = self._broker_settings()
        settings = {}
        for setting, names in _BROKER_NAMES.items():
            for name, unit in names:
                value = entries[name].value if name in entries else None
                if value:
                    settings[setting] = value if unit is None else str(max(int(value) * unit, -1))
                    break
        return settings

    def least_in_sync(self) -> int:
        """The brokers' `min.insync.replicas`, for topics without a setting of their own.

        Raises Denied without the right DescribeConfigs on the cluster.
        """
        entry = self._broker_settings().get(MIN_IN_SYNC)
        return int(entry.value) if entry and entry.value else 1

    def _broker_settings(self) -> Mapping[str, ConfigEntry]:
        resource = ConfigResource(
            ResourceType.BROKER, str(min(node.id for node in self._describe_cluster().nodes))
        )
        (entries,) = self._all(self._admin.describe_configs([resource]), "read a broker's settings").values()
        settings: Mapping[str, ConfigEntry] = entries
        return settings

    def delete_group(self, group: str) -> None:
        """Delete a consumer group. A group that does not exist is no error."""
        try:
            self._admin.delete_consumer_groups([group])[group].result()
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.NOT_COORDINATOR):
                raise self._unreachable(f"delete consumer group {group}", error) from None

    def _describe_cluster(self) -> Any:
        description = self._wait(self._admin.describe_cluster(), "describe the cluster")
        self._id = str(description.cluster_id)
        return description

    @patiently
    def _offsets(
        self, topic_partitions: Collection[TopicPartition], *specs: tuple[OffsetSpec, IsolationLevel]
    ) -> list[dict[TopicPartition, Any]]:
        """The offsets for each of the `specs`. All requests run at the same time."""
        if not topic_partitions:
            return [{} for _ in specs]
        futures_by_spec = [
            self._admin.list_offsets(dict.fromkeys(topic_partitions, spec), isolation_level=level)
            for spec, level in specs
        ]
        return [self._all(futures, "read the partitions' offsets") for futures in futures_by_spec]

    def _all(self, futures: Mapping[T, Future[Any]], doing: str) -> dict[T, Any]:
        return {key: self._wait(future, f"{doing} ({key})") for key, future in futures.items()}

    def _wait(self, future: Future[Any], doing: str) -> Any:
        if not future.done():
            self._admin.poll(0)
            # Before, a refusal may have come already, and the next one comes only after ten seconds.
            if self._connected:
                self._events.clear()  # drops events of earlier calls
        start_s = time.monotonic()
        while True:
            try:
                answer = future.result(timeout=0.1)
            except KafkaException as error:
                raise self._unreachable(doing, error) from None
            except TimeoutError:
                self._raise_fatal_events(doing, time.monotonic() - start_s)
            else:
                self._connected = True
                return answer

    def _raise_fatal_events(self, doing: str, waited_s: float) -> None:
        """Raise an error when the client's own events show that no answer will come."""
        self._admin.poll(0)
        for event in self._events:
            if fatal_event(event.code()):
                raise problem(event.code(), event.str(), f"Kafka at {self._servers}, could not {doing}")
        down_events = [event for event in self._events if event.code() == KafkaError._ALL_BROKERS_DOWN]  # noqa: SLF001
        if down_events and waited_s > ALL_DOWN_S:
            if cause := tls_problem(self._config):
                raise EnvironmentProblem(f"Kafka could not {doing}: {cause}.", hint=_TLS)
            raise self._unanswered(doing, self._events[0])
        if waited_s > ADMIN_TIMEOUT_S * 2:
            raise Unanswered(f"Kafka at {self._servers} did not answer: could not {doing}.")

    def _unanswered(self, doing: str, event: KafkaError) -> Unanswered:
        # librdkafka adds the connection's state and how long it lasted. That is removed.
        reason = re.sub(r" \(after \d+ms in state \w+.*\)$", "", event.str())
        return Unanswered(f"No broker answers at {self._servers}: could not {doing} ({reason}).", hint=_CHECK)

    def _unreachable(self, doing: str, error: KafkaException) -> EnvironmentProblem | NotFound | Refused:
        reason: KafkaError = error.args[0]
        if reason.code() in _REFUSALS:
            kind = QuotaExceeded if reason.code() == KafkaError.THROTTLING_QUOTA_EXCEEDED else Refused
            return kind(
                f"Kafka at {self._servers} refuses to {doing}: {reason.str().rstrip('.')}.",
                hint="Choose another name with --map, or create the topic yourself as the cluster allows it "
                "and restore into it.",
            )
        if reason.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001 - its public name
            return NotFound(f"Kafka at {self._servers} has no such topic: could not {doing}.")
        if reason.code() in _RETRIABLE:
            return Passing(
                f"Kafka at {self._servers} could not {doing}: {reason.str()}", hint="Run it again."
            )
        if reason.code() in DENIALS:
            return Denied(f"Kafka at {self._servers} does not allow this user to {doing}.", hint=_RIGHTS_HINT)
        if cause := tls_problem(self._config):
            return EnvironmentProblem(f"Kafka could not {doing}: {cause}.", hint=_TLS)
        message = f"Kafka at {self._servers} could not {doing}: {reason.str()}"
        if reason.code() in _NO_ANSWER:
            return self._unanswered(doing, reason)
        return EnvironmentProblem(message, hint=_CHECK)


def _by_origin(entries: Mapping[str, ConfigEntry]) -> dict[str, dict[str, str]]:
    """Return the settings that have a value, sorted, by their origins."""
    settings: dict[str, dict[str, str]] = {}
    for name, entry in sorted(entries.items()):
        if (origin := _ORIGINS.get(entry.source)) and entry.value is not None:
            settings.setdefault(origin, {})[name] = entry.value
    return settings


def _hex(topic_id: Any) -> str:
    mask = (1 << 64) - 1
    high: Callable[[], int] = topic_id.get_most_significant_bits
    low: Callable[[], int] = topic_id.get_least_significant_bits
    return f"{high() & mask:016x}{low() & mask:016x}"
