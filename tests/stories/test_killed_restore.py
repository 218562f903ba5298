# In `make test`: only a process of its own can be killed by SIGKILL, and it starts a JVM.
"""The restore of a topic is killed in the middle, when a part of the records is there.

The administrator ends the dead run's lease, and types the same command again. It goes on where the first one
ended: afterwards every record is in the topic exactly once, in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.processes import Run

if TYPE_CHECKING:
    from tests.support.command_line import Terminal
    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_restore_after_a_kill_goes_on_without_a_duplicate(
    lakebackup: Terminal, lab: Lab, topic: Callable[..., str]
) -> None:
    orders, copy = topic("orders", partitions=4), topic("copy", partitions=4)
    records = [
        Record(number % 4, b"%d" % number, b"x" * 1000, (), 1_700_000_000_000) for number in range(4000)
    ]
    truth.produce(lab.bootstrap, orders, records)
    lakebackup(f"backup topics {orders} --codec null --target-size 100KB")
    restore = f"restore topics {orders} --to kafka://{lab.bootstrap} --map {orders}={copy}"

    run = Run(lab, *restore.split(), "--bandwidth", "500KB/s")
    run.kill_when(lambda: bool(truth.contents(lab.bootstrap, copy)), "records arrive")
    arrived = truth.contents(lab.bootstrap, copy)

    lease = lakebackup.fails(8, restore).removeprefix("error: ").split()[0]
    lakebackup(f"catalog break-lease {lease} --reason 'its machine is gone'")
    assert lakebackup.rows(restore)[-1]["resumed"]
    assert 0 < sum(map(len, arrived.values())) < 4000
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, orders)
