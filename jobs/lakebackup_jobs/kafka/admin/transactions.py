"""Tells, before anything is written, why a cluster cannot carry out the transactions of a restore."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType

from lakebackup.errors import EnvironmentProblem, NotFound
from lakebackup_jobs.kafka.admin.cluster import MIN_IN_SYNC, Cluster, Denied, patiently
from lakebackup_jobs.kafka.admin.problems import TransactionTooLong

#: The topic in which brokers record transactions.
STATE_TOPIC = "__transaction_state"
_TIMEOUT, _LONGEST = "transaction.timeout.ms", "transaction.max.timeout.ms"
_REPLICATION = "transaction.state.log.replication.factor"
_LEAST_IN_SYNC = "transaction.state.log.min.isr"


class Transactions(Cluster):
    """The transactions of one cluster."""

    def require_transactions(self) -> None:
        """Raise EnvironmentProblem when the brokers cannot record transactions, TransactionTooLong when they
        refuse the client's own `transaction.timeout.ms`.

        What this user may not describe is not checked: then the tasks report it.
        """
        state_topic = self._state_topic()
        if state_topic is not None:
            self._require_in_sync(state_topic)
        own_timeout = str(self._config.get(_TIMEOUT, ""))
        if state_topic is not None and not own_timeout.isdecimal():
            return
        settings: Mapping[str, ConfigEntry] = {}
        with suppress(Denied):
            settings = self._broker_settings()
        if state_topic is None:
            self._require_brokers(settings)
        longest = settings[_LONGEST].value if _LONGEST in settings else None
        if longest and own_timeout.isdecimal() and int(own_timeout) > int(longest):
            raise TransactionTooLong(
                f"{_TIMEOUT} is {own_timeout}, and this cluster allows {longest} ({_LONGEST} of its "
                "brokers).",
                hint=f"Set {_TIMEOUT} to {longest} or less in the file of --kafka-config, or leave it out.",
            )

    @patiently
    def _state_topic(self) -> Any:
        """The description of STATE_TOPIC; None: it does not exist yet, or this user may not see it."""
        futures = self._admin.describe_topics(TopicCollection([STATE_TOPIC]))
        with suppress(NotFound, Denied):
            return self._wait(futures[STATE_TOPIC], f"describe topics ({STATE_TOPIC})")
        return None

    def _require_in_sync(self, state_topic: Any) -> None:
        least = self._least_in_sync()
        short = [p for p in state_topic.partitions if len(p.isr) < min(least, len(p.replicas))]
        if short:
            raise EnvironmentProblem(
                f"The brokers cannot record transactions: {len(short)} of {len(state_topic.partitions)} "
                f"partitions of {STATE_TOPIC} have fewer replicas in sync than {MIN_IN_SYNC} ({least}). The "
                f"first one is {short[0].id}, with {len(short[0].isr)} of {len(short[0].replicas)}.",
                hint="Start the brokers that are down, and run the same command again. `kafka-topics.sh "
                f"--describe --topic {STATE_TOPIC}` shows their ids.",
            )

    def _least_in_sync(self) -> int:
        resource = ConfigResource(ResourceType.TOPIC, STATE_TOPIC)
        future = self._admin.describe_configs([resource])[resource]
        try:
            return int(self._wait(future, f"read the settings of {STATE_TOPIC}")[MIN_IN_SYNC].value)
        except (Denied, NotFound):
            return 1

    def _require_brokers(self, settings: Mapping[str, ConfigEntry]) -> None:
        """Raise EnvironmentProblem when too few brokers are up for transactions in a new STATE_TOPIC.

        Its replication factor does not matter: the cluster also assigns replicas to brokers that are down.
        """
        least = settings[_LEAST_IN_SYNC].value if _LEAST_IN_SYNC in settings else None
        brokers = self.brokers()
        if least and brokers < int(least):
            raise EnvironmentProblem(
                f"The brokers cannot record transactions: {STATE_TOPIC} needs {least} brokers "
                f"({_LEAST_IN_SYNC}), and {brokers} {'is' if brokers == 1 else 'are'} up.",
                hint=f"Start more brokers, or lower {_LEAST_IN_SYNC} and {_REPLICATION}.",
            )
