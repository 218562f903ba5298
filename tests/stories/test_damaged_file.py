# In `make test`: storage loses bits, and a person must see which file it is and what can be done.
"""A bit flips in a stored file, and nobody notices until `verify` runs.

It names the file, and SQL names the backup that cannot be used now. A restore to the newest time is refused,
one around the damage works, and the next backup reads the lost records from Kafka again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.disks import flip
from tests.support.faults import rows_of

if TYPE_CHECKING:
    from tests.support.command_line import Terminal

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_verify_names_a_damaged_file_and_the_restore_goes_around_it(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str]
) -> None:
    orders = topic("orders")
    backups = []
    for start in (0, 50):
        truth.produce(broker.bootstrap, orders, rows_of(1, 50, start))
        backups.append(lakebackup.rows(f"backup topics {orders}")[-1]["backup_id"])
    (row,) = lakebackup.rows(f"sql \"SELECT path FROM files WHERE backup_id = '{backups[1]}'\"")
    flip(Path("backups") / row["path"])

    assert "Stored files are not intact: 1 changed" in lakebackup.fails(7, "verify")
    unusable = lakebackup.rows('sql "SELECT backup_id, reason, path FROM unusable_backups"')
    assert unusable == [{"backup_id": backups[1], "reason": "changed", "path": row["path"]}]

    refusal = lakebackup.fails(5, f"restore topics {orders} --to dir:newest")
    assert row["path"] in refusal
    assert not Path("newest").exists()
    lakebackup(f"restore topics {orders} --backup {backups[0]} --to dir:around")
    assert len(list(truth.records_below(Path("around")))) == 50

    lakebackup(f"backup topics {orders}")
    lakebackup(f"restore topics {orders} --to dir:healed")
    assert len(list(truth.records_below(Path("healed")))) == 100
