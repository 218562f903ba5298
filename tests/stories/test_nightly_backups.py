# In `make test`: it shows what an incremental is, on which all other stories build.
"""A backup runs every night.

The first one is a full; each later one stores only the records since the night before, and the catalog says
how many. A restore to any night takes one command, and gives the records of that night.
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


def test_each_night_stores_only_what_is_new_and_every_night_can_be_restored(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str]
) -> None:
    orders = topic("orders", partitions=2)
    nights = []
    for records in (rows_of(2, 100), rows_of(2, 5, start=100), []):
        truth.produce(broker.bootstrap, orders, records)
        nights.append(lakebackup.rows(f"backup topics {orders} --note nightly")[-1]["backup_id"])

    backups = lakebackup.rows('sql "SELECT kind, files, entries, parent FROM backups ORDER BY number"')
    assert backups == [
        {"kind": "full", "files": 2, "entries": 200, "parent": None},
        {"kind": "differential", "files": 2, "entries": 10, "parent": nights[0]},
        {"kind": "differential", "files": 0, "entries": 0, "parent": nights[1]},
    ]
    assert orders in lakebackup(f"files {nights[1]}")

    for night, records in zip(nights, (200, 210, 210), strict=True):
        lakebackup(f"restore topics {orders} --backup {night} --to dir:{night}")
        assert len(list(truth.records_below(Path(night)))) == records
