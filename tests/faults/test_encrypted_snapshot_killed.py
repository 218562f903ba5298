"""An encrypted backup of a snapshot is killed by SIGKILL. The next run cannot open its key, and completes it
with another.

Layer: make test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.command_line import Commands
from tests.support.encrypted import Host
from tests.support.faults import expire_leases
from tests.support.kafka_truth import until

# Runs a command whose backup has two tasks, one after the other, though it is small.
IN_SMALL_TASKS = """
import os, sys
os.cpu_count = lambda: 1
from lakebackup.plan.snapshots import backup
from lakebackup_jobs.cli import main
backup._ONE_TASK = 0
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_backup_is_completed_with_a_second_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The first run has completed tasks, and is killed amid another: that one's objects are deleted."""
    repository, tree = tmp_path / "backups", tmp_path / "tree"
    monkeypatch.setenv("LAKEBACKUP_REPO", str(repository))
    monkeypatch.setenv("LAKEBACKUP_RUNNER", "local")
    host, commands = Host(monkeypatch, tmp_path / "keys"), Commands(capsys)
    keys = host.key_pair("identity")
    host.has(keys.recipient)
    files = {f"f{number:02d}": os.urandom(10_000) for number in range(40)}
    (tree / "t-x" / "s1").mkdir(parents=True)
    for name, data in files.items():
        (tree / "t-x" / "s1" / name).write_bytes(data)
    words = ["backup", "snapshot", tree, "--source", "db", "--layout", "t-{scope}/{snapshot}/{name}"]
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-c", IN_SMALL_TASKS, *map(str, words), "--bandwidth", "100kB/s"]
        run = subprocess.Popen(command, stdout=log, stderr=log)

    def is_amid_a_task() -> bool:
        assert run.poll() is None, (tmp_path / "log").read_text()
        tasks_done = len(list(repository.glob("db/backups/*/parts/*")))
        return tasks_done > 0 and len(list(repository.glob("db/snapshots/**/*.enc"))) > 20 * tasks_done

    try:
        until(is_amid_a_task, "the run is amid a task, and has completed others")
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    killed_objects = {path.name for path in repository.glob("db/snapshots/**/*.enc")}
    expire_leases(repository)
    code, output, err = commands.run(*words, "--json")
    assert code == 0, err
    assert "resuming backup" in output + err
    query = "SELECT count(DISTINCT f.key_id) AS keys, count(DISTINCT k.key_id) AS stored FROM files AS f "
    assert commands.rows("sql", query + "JOIN data_keys AS k ON f.backup_id = k.backup_id") == [
        {"keys": 2, "stored": 2}
    ]
    objects = {path.name for path in repository.glob("db/snapshots/**/*.enc")}
    assert len(objects) == len(files)
    assert killed_objects & objects
    assert killed_objects - objects
    checked = commands.result("verify")
    assert not any(checked[name] for name in ("damaged", "changed", "missing", "orphan"))
    host.has(identity_file=keys.file)
    commands.output("restore", "snapshot", "--to", tmp_path / "out")
    restored = tmp_path / "out" / "x"
    assert {file.name: file.read_bytes() for file in restored.iterdir()} == files
