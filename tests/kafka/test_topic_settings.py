"""What a real broker says of the settings that are in force on a topic, and where each comes from.

Half a second on the shared broker. Its `log.retention.hours` is not Kafka's default, and is not in the
description of a topic that overrides `retention.ms`: only a real broker shows that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.servers import RETENTION_HOURS

from lakebackup_jobs.targets.topics import SUSPENDED, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebackup_jobs.demo.broker import Broker

pytestmark = pytest.mark.kafka


def test_settings_in_force_are_known_with_their_origin(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(**{"segment.ms": "777777"})
    cluster = Topics({"bootstrap.servers": broker.bootstrap})
    cluster.alter_settings(name, put={}, drop=["retention.ms"])
    hours = str(RETENTION_HOURS * 3_600_000)

    (state,) = cluster.describe([name])
    assert state.settings == {"segment.ms": "777777"}
    assert state.inherited["default"]["cleanup.policy"] == "delete"
    assert state.effective["retention.ms"] == hours
    assert state.effective == truth.settings(broker.bootstrap, name)

    # Also while the topic overrides them.
    cluster.alter_settings(name, put=SUSPENDED)
    of_brokers = {"retention.ms": hours, "retention.bytes": "-1", "cleanup.policy": "delete"}
    assert cluster.retention_of_brokers() == of_brokers
