# In `make test`: no other story decides something by a question to the catalog, before a restore.
"""The engineer on call asks SQL what a restore of `orders` needs, before anything is restored.

One view says which backups it reads, in which order, and how large they are; another, which times are
covered. The plan of the restore says the same, and a time that no backup covers is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import rows_of

if TYPE_CHECKING:
    from tests.support.command_line import Terminal

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_sql_names_the_backups_that_a_restore_needs(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str]
) -> None:
    orders = topic("orders")
    backups = []
    for start in (0, 50, 100):
        truth.produce(broker.bootstrap, orders, rows_of(1, 50, start))
        backups.append(lakebackup.rows(f"backup topics {orders}")[-1]["backup_id"])

    path = lakebackup.rows(
        'sql "SELECT step, backup_id, kind, entries, bytes FROM restore_paths '
        f"WHERE scope = '{orders}' AND target_id = '{backups[1]}' ORDER BY step\""
    )
    assert [(row["step"], row["backup_id"], row["kind"], row["entries"]) for row in path] == [
        (1, backups[0], "full", 50),
        (2, backups[1], "differential", 50),
    ]
    plan = lakebackup.rows(f"restore topics {orders} --backup {backups[1]} --to dir:then --dry-run")[-1]
    assert plan["topics"][0]["bytes"] == sum(row["bytes"] for row in path)
    assert plan["topics"][0]["entries"] == 100

    (coverage,) = lakebackup.rows(f"sql \"SELECT status, to_time FROM coverage WHERE scope = '{orders}'\"")
    assert coverage["status"] == "restorable"
    refusal = lakebackup.fails(5, f"restore topics {orders} --to-time 2999-01-01 --to dir:then")
    assert f"{orders} is covered until" in refusal
