# In `make test`: evidence must come from the deletion itself, and be about real files.
"""An auditor asks what was deleted, by whom, with which command, and why.

A prune has deleted an older full, since the policy keeps one. The catalog has the row of the prune, the rule
that made the backup obsolete, and each deleted file.
"""

from __future__ import annotations

import getpass
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


def test_the_catalog_says_what_was_deleted_by_whom_and_why(
    lakebackup: Terminal, broker: Broker, topic: Callable[..., str]
) -> None:
    orders = topic("orders")
    truth.produce(broker.bootstrap, orders, rows_of(1, 50))
    old, new = (
        lakebackup.rows(f"backup topics {orders} --source prod --mode full")[-1]["backup_id"]
        for _ in range(2)
    )
    lakebackup("policy set prod --redundancy 1")
    lakebackup("prune --source prod --delete")

    # These SELECTs are on the page docs/auditors.md.
    (prune,) = lakebackup.rows(
        "sql \"SELECT actor, subject, outcome, command FROM audit WHERE action = 'prune'\""
    )
    assert prune["actor"].startswith(getpass.getuser())
    assert (prune["command"], prune["outcome"]) == ("lakebackup prune --source prod --delete", "ok")
    (state,) = lakebackup.rows(
        "sql \"SELECT subject, get_json_object(detail, '$.reason') AS reason FROM audit "
        "WHERE action = 'set_state' AND get_json_object(detail, '$.state') = 'deleted'\""
    )
    assert state == {"subject": old, "reason": f"prune {prune['subject']}: redundancy"}
    (removal,) = lakebackup.rows('sql "SELECT prune_id, backup_id, scope, reason, path FROM removals"')
    assert (removal["prune_id"], removal["backup_id"], removal["scope"]) == (prune["subject"], old, orders)
    assert not (Path("backups") / removal["path"]).exists()

    lakebackup(f"restore topics {orders} --backup {new} --to dir:restored")
    assert len(list(truth.records_below(Path("restored")))) == 50
