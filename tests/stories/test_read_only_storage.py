# In `make test`: after an attack, storage is often locked, and a restore must not need to write there.
"""The storage of the backups has become read-only, by a failing disk or because somebody locked it.

No backup can be written, and the command says why. But everything can be asked and restored.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.disks import read_only
from tests.support.faults import rows_of

if TYPE_CHECKING:
    from tests.support.command_line import Terminal

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_backups_on_read_only_storage_can_be_asked_and_restored(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str]
) -> None:
    orders = topic("orders")
    truth.produce(broker.bootstrap, orders, rows_of(1, 50))
    backup = lakebackup.rows(f"backup topics {orders}")[-1]
    with read_only(Path("backups")):
        assert "Read-only file system" in lakebackup.fails(6, f"backup topics {orders}")
        assert backup["backup_id"] in lakebackup("list --wide")
        lakebackup(f"restore topics {orders} --to dir:restored")
    assert [record for _, record in truth.records_below(Path("restored"))] == rows_of(1, 50)
