# In `make test`: what most people want from a backup first, in their words: "as it was at 14:05".
"""Somebody deletes the topic `orders`, and the last orders in it were wrong.

The person on call restores it from a backup to 14:05, after a look at the plan. It comes back with the same
partitions, keys, values, headers, times and settings, and without the later orders.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record

if TYPE_CHECKING:
    from tests.support.command_line import Terminal

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def order(minute: int) -> Record:
    """An order of 14:00 and so many minutes."""
    time = datetime(2026, 3, 14, 14, minute, tzinfo=UTC)
    headers = (("source", b"web"),)
    return Record(
        minute % 2, b"customer-%d" % minute, b"total %d" % minute, headers, int(time.timestamp() * 1000)
    )


def test_a_lost_topic_comes_back_as_it_was_at_a_time(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str]
) -> None:
    orders = topic("orders", partitions=2, **{"max.message.bytes": "2000000"})
    settings = truth.settings(broker.bootstrap, orders)
    truth.produce(broker.bootstrap, orders, [order(minute) for minute in range(10)])
    lakebackup(f"backup topics {orders}")

    truth.delete_topic(broker.bootstrap, orders)
    restore = f"restore topics {orders} --to kafka://{broker.bootstrap} --to-time '2026-03-14 14:05'"
    plan = lakebackup.rows(f"{restore} --dry-run")[-1]
    assert plan["target_topics"] == [{"target": orders, "action": "create", "refused_because": None}]
    lakebackup(restore)

    assert truth.contents(broker.bootstrap, orders) == {
        0: [order(0), order(2), order(4)],
        1: [order(1), order(3), order(5)],
    }
    assert truth.settings(broker.bootstrap, orders) == settings
