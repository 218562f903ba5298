# In `make test`, 5 s: only a real SIGKILL shows what is on the disk afterwards.
"""The machine dies in the middle of a backup: nothing of it is visible, and nothing that it stored is lost.

The administrator ends the dead run's lease instead of waiting for it. The next run goes on with what the first
one stored, and makes the same backup.
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


def test_the_backup_after_a_kill_goes_on_with_what_was_stored(
    lakebackup: Terminal, lab: Lab, topic: Callable[..., str]
) -> None:
    orders = topic("orders", partitions=8)
    records = [
        Record(number % 8, b"%d" % number, b"x" * 1000, (), 1_700_000_000_000) for number in range(800)
    ]
    truth.produce(lab.bootstrap, orders, records)
    backup = f"backup topics {orders} --source prod --codec null"

    def stored_files() -> set[Path]:
        return set(Path("backups").rglob("*.data"))

    run = Run(lab, *backup.split(), "--runner", "local", "--bandwidth", "200KB/s")
    run.kill_when(lambda: len(stored_files()) >= 2, "two files are stored")
    files = stored_files()

    assert "source-prod" in lakebackup.fails(8, backup)
    lakebackup("catalog break-lease source-prod --reason 'its machine is gone'")
    result = lakebackup.rows(backup)[-1]
    print(result)
    assert (result["kind"], result["entries"]) == ("full", 800)
    assert files < stored_files()
    assert len(stored_files()) == 8
