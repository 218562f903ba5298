"""Ctrl-C at a terminal while a Spark job runs: one message, exit code 130, no process left.

The tests use a real pseudo-terminal, which sends the signal to Spark's processes too. The quick test runs one
verb (a new JVM, 8 s); the tests of what differs between verbs are long.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.log_tasks import LogTask, busy
from tests.support.processes import TerminalRun
from tests.support.runs import Lab

from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader

pytestmark = pytest.mark.spark

INTERRUPTED = 130
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def interrupted(
    run: TerminalRun, reached: Callable[[], bool], description: str, expected: int = INTERRUPTED
) -> list[str]:
    """Press Ctrl-C at a moment, and check the command's end; returns the lines on the terminal."""
    with run:
        run.until(reached, description)
        run.press_ctrl_c()
        code = run.exit_code()
    lines = [line.strip() for line in ANSI.sub("", run.output.decode()).splitlines() if line.strip()]
    assert code == expected, lines[-5:]
    assert not re.search("py4j|Traceback", "".join(lines), re.IGNORECASE), lines
    return lines


def test_backup(tmp_path: Path) -> None:
    tree, target = tmp_path / "tree" / "t-x" / "s1", tmp_path / "to"
    tree.mkdir(parents=True)
    for number in range(100):  # sparse files, too large to be copied without Spark
        with (tree / f"f{number}").open("wb") as file:
            file.truncate(1 << 20)
    layout = "t-{scope}/{snapshot}/{name}"
    command = ("backup", "snapshot", str(tmp_path / "tree"), "--repo", str(target), "--layout", layout)
    lines = interrupted(
        TerminalRun(*command, "--bandwidth", "5MB/s"),
        lambda: any(target.rglob("f[0-9]*")),
        "tasks copy files",
    )
    assert (
        lines[-1]
        == "error: Interrupted; no unfinished backup was published. Run the same command again to resume."
    )
    assert CatalogReader.require(str(target)).rows("find_backups", prefix="") == []
    with Lease.acquire(open_storage(str(target)), "source-tree", "the next run"):
        pass


@pytest.mark.long
@pytest.mark.kafka
def test_restore(lab: Lab, topic: Callable[..., str], tmp_path: Path) -> None:
    """Interrupted while Spark's Python workers run."""
    name, target = topic("orders", partitions=2), f"dir:{tmp_path / 'out'}"
    rows = [truth.Record(n % 2, b"%d" % n, b"v", (), 1_600_000_000_000 + n) for n in range(2000)]
    truth.produce(lab.bootstrap, name, rows)
    lab.backup(name)
    command = ("restore", "topics", name, "--repo", str(lab.folder), "--to", target, "--runner", "spark")
    run = TerminalRun(*command)
    lines = interrupted(
        run,
        lambda: any("worker_daemon" in command_line for command_line in run.running_processes()),
        "tasks run",
    )
    assert (
        lines[-1] == "error: Interrupted; the restore is not complete. Run the same command again to resume."
    )
    with TerminalRun(*command) as second_run:
        assert second_run.exit_code(120) == 0, second_run.output.decode()


@pytest.mark.long
@pytest.mark.kafka
def test_follow(lab: Lab, topic: Callable[..., str]) -> None:
    """The batch ends normally, as documented: nothing is interrupted."""
    name = topic("orders")
    lab.make_catalog()
    client = ("--bootstrap-server", lab.bootstrap, "--source", "lab", "--groups", "none")
    run = TerminalRun("backup", "topics", name, "--repo", str(lab.folder), *client, "--follow")
    interrupted(run, lambda: any(lab.folder.glob("lab/backups/*/complete")), "the first batch", expected=0)


@pytest.mark.long
@pytest.mark.kafka
def test_log_run(lab: Lab, topic: Callable[..., str]) -> None:
    """The flush ends normally, like a batch of follow."""
    name, feed = topic("feed"), ChangeFeed(partitions=1)
    busy(feed, feed.create_table("shop", "orders"), 10)
    feed.send(lab.bootstrap, name)
    LogTask(lab, name).begin()
    run = TerminalRun("log", "run", "lab", "--repo", str(lab.folder))
    interrupted(run, lambda: any(lab.folder.glob("lab/backups/*/complete")), "the first flush", expected=0)
