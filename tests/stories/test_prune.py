# In `make test`: the command that deletes backups, and why it may not delete some of them.
"""The policy keeps only the newest full, but an incremental before it is on hold.

That incremental needs the full before it, so the prune keeps both and says why. When the hold ends it deletes
them, and the newest full stays restorable.
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


def test_a_prune_keeps_what_a_backup_on_hold_needs(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str]
) -> None:
    orders = topic("orders")
    backups = []
    for start, mode in ((0, "full"), (50, "auto"), (100, "full")):
        truth.produce(broker.bootstrap, orders, rows_of(1, 50, start))
        backups.append(
            lakebackup.rows(f"backup topics {orders} --source prod --mode {mode}")[-1]["backup_id"]
        )
    first_full, release, second_full = backups
    lakebackup("policy set prod --redundancy 1")
    reasons = 'sql "SELECT backup_id, status, reason, because_of FROM obsolete_backups ORDER BY number"'

    lakebackup(f"hold {release} --forever --reason 'the release'")
    assert [tuple(row.values()) for row in lakebackup.rows(reasons)] == [
        (first_full, "VALID", "needed", release),
        (release, "KEEP", "held", None),
        (second_full, "VALID", "redundancy", None),
    ]
    assert lakebackup.rows("prune --source prod --delete")[-1]["backups"] == []
    lakebackup(f"restore topics {orders} --backup {release} --to dir:release")
    assert len(list(truth.records_below(Path("release")))) == 100

    lakebackup(f"hold {release} --release --reason 'the next release is out'")
    lakebackup("prune --source prod --delete")
    assert [row["status"] for row in lakebackup.rows(reasons)] == ["DELETED", "DELETED", "VALID"]
    lakebackup(f"restore topics {orders} --to dir:newest")
    assert len(list(truth.records_below(Path("newest")))) == 150
