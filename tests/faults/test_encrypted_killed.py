"""An encrypted backup is killed by SIGKILL. The next run cannot open its key, and completes it with another.

Layer: make test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.encrypted import Host
from tests.support.faults import expire_leases
from tests.support.kafka_truth import Record

from lakebackup_jobs.demo.broker import Broker

pytestmark = pytest.mark.kafka

# Runs a command whose backup has several tasks, though it is small.
IN_SMALL_TASKS = """
import sys
from lakebackup.plan import splits
from lakebackup_jobs.cli import main
splits.LEAST_OFFSETS_PER_TASK = 10
sys.exit(main(sys.argv[1:]))
"""
SMALL = [Record(0, b"key-%d" % i, b"value-%d" % i, (), 1_600_000_000_000 + i) for i in range(50)]
LARGE = [Record(1, b"key-%d" % i, os.urandom(10_000), (), 1_600_000_000_000 + i) for i in range(2_000)]


def test_a_killed_backup_is_completed_with_a_second_key(
    broker: Broker,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    monkeypatch.setenv("LAKEBACKUP_RUNNER", "local")
    host, commands = Host(monkeypatch, tmp_path / "keys"), Commands(capsys)
    keys = host.key_pair("identity")
    host.has(keys.recipient)
    name, copy = topic("killed", partitions=2), topic("copy", partitions=2)
    words = ["backup", "topics", name, "--bootstrap-server", broker.bootstrap, "--groups", "none"]
    truth.produce(broker.bootstrap, name, SMALL)
    commands.output(*words)
    truth.produce(broker.bootstrap, name, [*SMALL, *LARGE])
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, "-c", IN_SMALL_TASKS, *words, "--bandwidth", "2MB/s"], stdout=log, stderr=log
        )
    folder = tmp_path / "backups"

    def has_begun() -> bool:
        assert run.poll() is None, (tmp_path / "log").read_text()
        return bool(list(folder.glob("*/begun.json"))) and len(list(folder.glob("*/backups/*/parts/*"))) == 2

    try:
        truth.until(has_begun, "the first task of the second backup is done")
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    expire_leases(folder)
    resumed = commands.run(*words, "--json")
    assert resumed[0] == 0, resumed
    assert "resuming backup" in resumed[1] + resumed[2]
    backups = commands.rows(
        "sql",
        "SELECT count(DISTINCT f.key_id) AS keys, count(DISTINCT k.key_id) AS stored FROM files AS f "
        "JOIN data_keys AS k ON f.backup_id = k.backup_id GROUP BY f.backup_id ORDER BY f.backup_id",
    )
    assert backups == [{"keys": 1, "stored": 1}, {"keys": 2, "stored": 2}]
    assert commands.result("verify")["damaged"] == 0
    host.has(identity_file=keys.file)
    target = f"kafka://{broker.bootstrap}"
    commands.output("restore", "topics", name, "--to", target, "--map", f"{name}={copy}")
    assert truth.contents(broker.bootstrap, copy) == truth.contents(broker.bootstrap, name)
