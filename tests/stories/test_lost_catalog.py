# In `make test`: it keeps the promise that a catalog can be lost, from the backup to the restore.
"""Somebody deletes the folder of the catalog, and with it every Delta table.

No command knows the backups any more, until `catalog rebuild` reads the manifests beside them. Then the same
backups are listed, can be restored, and the next backup continues their chain.
"""

from __future__ import annotations

import shutil
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


def test_a_lost_catalog_is_rebuilt_from_the_backups(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str]
) -> None:
    orders = topic("orders")
    for start in (0, 50):
        truth.produce(broker.bootstrap, orders, rows_of(1, 50, start))
        lakebackup(f"backup topics {orders}")
    query = 'sql "SELECT number, backup_id, kind, entries, end_time FROM backups ORDER BY number"'
    backups = lakebackup.rows(query)

    shutil.rmtree("backups/catalog")
    assert "no catalog" in lakebackup.fails(3, "list")
    lakebackup("catalog rebuild")

    assert lakebackup.rows(query) == backups
    lakebackup(f"restore topics {orders} --to dir:restored")
    assert len(list(truth.records_below(Path("restored")))) == 100
    truth.produce(broker.bootstrap, orders, rows_of(1, 5, start=100))
    backup = lakebackup.rows(f"backup topics {orders}")[-1]
    assert (backup["kind"], backup["parent"], backup["entries"]) == (
        "differential",
        backups[1]["backup_id"],
        5,
    )
