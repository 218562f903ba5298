# In `make test`: a merge replaces fulls from Kafka, so it must need no broker and lose no record.
"""A chain of nightly incrementals has become long, and Kafka does not have its topic any more.

A merge turns the chain into a full, from the stored files alone. A prune may then delete the merged backups,
and the new full restores every record without them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import rows_of

if TYPE_CHECKING:
    from tests.support.command_line import Terminal

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_merge_turns_a_chain_into_a_full_without_the_broker(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str]
) -> None:
    orders = topic("orders")
    for start in (0, 50, 100):
        truth.produce(broker.bootstrap, orders, rows_of(1, 50, start))
        lakebackup(f"backup topics {orders} --source prod")
    contents = truth.contents(broker.bootstrap, orders)
    truth.delete_topic(broker.bootstrap, orders)

    merge = lakebackup.rows("merge 1 --source prod")[-1]
    assert (merge["kind"], merge["entries"]) == ("full", 150)
    lakebackup("policy set prod --redundancy 1")
    lakebackup("prune --source prod --delete")
    chains = lakebackup.rows("sql \"SELECT backup_id, kind FROM backups WHERE state = 'complete'\"")
    assert chains == [{"backup_id": merge["backup_id"], "kind": "full"}]

    lakebackup(f"restore topics {orders} --to dir:restored")
    assert [record for _, record in truth.records_below(Path("restored"))] == contents[0]
