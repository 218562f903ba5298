# In `make test`: a restore to any moment is what backups alone cannot do.
"""A shop's database sends its changes through Kafka, and a log task captures them.

At noon the orders are right, and later a wrong statement changes them. The table is restored at both moments,
between which no backup was taken, and has the rows that it had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from tests.support.change_feed import ChangeFeed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.command_line import Terminal

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_table_is_restored_at_two_moments(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    feed, feed_topic = ChangeFeed(), topic("changes", partitions=2)
    orders = feed.create_table("shop", "orders")
    with feed.begin() as transaction:
        transaction.put_row(orders, b"1", b"paid")
        transaction.put_row(orders, b"2", b"new")
    noon = feed.last_ts
    with feed.begin() as transaction:
        transaction.put_row(orders, b"1", b"cancelled")
        transaction.delete(orders, b"2")
    feed.resolve()
    feed.send(broker.bootstrap, feed_topic)

    server = f"--bootstrap-server {broker.bootstrap}"
    lakebackup(
        f"log start shop {server} --pattern {feed_topic} --endts {feed.last_ts} --flush-every 200ms --no-run"
    )
    lakebackup("log run shop")
    lakebackup(f"restore point shop --endts {noon} --to delta:{tmp_path}/noon")
    lakebackup(f"restore point shop --to delta:{tmp_path}/newest")

    for table, moment in (("noon", noon), ("newest", feed.last_ts)):
        rows = DeltaTable(str(tmp_path / table)).to_pyarrow_table(columns=["key", "value"]).to_pylist()
        assert {row["key"]: row["value"] for row in rows} == feed.rows(moment)["shop.orders"]
