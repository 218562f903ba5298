# In `make test`: only a real SIGKILL shows what is on the disk afterwards.
"""The machine dies in the middle of a nightly backup.

Nothing of that backup can be seen, and a run that starts at once is refused, since the dead one holds a
lease. The administrator ends the lease, and the next run stores each record once and leaves no file behind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.processes import Run

if TYPE_CHECKING:
    from tests.support.command_line import Terminal
    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def orders_of(numbers: range) -> list[Record]:
    return [Record(0, b"%d" % number, b"x" * 1000, (), 1_700_000_000_000) for number in numbers]


def test_the_run_after_a_killed_backup_stores_each_record_once(
    lakebackup: Terminal, lab: Lab, topic: Callable[..., str]
) -> None:
    orders = topic("orders")
    backup = f"backup topics {orders} --source prod --codec null --target-size 100KB"
    truth.produce(lab.bootstrap, orders, orders_of(range(10)))
    first = lakebackup.rows(backup)[-1]["backup_id"]
    truth.produce(lab.bootstrap, orders, orders_of(range(10, 1000)))

    def data_files() -> set[str]:
        return {str(path.relative_to("backups")) for path in Path("backups/prod").rglob("*.data")}

    run = Run(lab, *backup.split(), "--runner", "local", "--bandwidth", "200KB/s")
    run.kill_when(lambda: len(data_files()) > 1, "a file of the second backup is stored")

    assert [row["backup_id"] for row in lakebackup.rows("list")] == [first]
    assert "prod is in use" in lakebackup.fails(8, backup)
    lakebackup("catalog break-lease source-prod --reason 'its machine is gone'")
    result = lakebackup.rows(backup)[-1]
    assert (result["kind"], result["parent"], result["entries"]) == ("differential", first, 990)

    assert {row["path"] for row in lakebackup.rows('sql "SELECT path FROM files"')} == data_files()
    lakebackup(f"restore topics {orders} --to dir:restored")
    assert [record for _, record in truth.records_below(Path("restored"))] == orders_of(range(1000))
