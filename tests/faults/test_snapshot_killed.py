"""A backup of a snapshot is killed at any time; tests/contract/test_lifecycle.py kills it before each
step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.support.faults import expire_leases
from tests.support.life_cases import SnapshotCase

from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.plan_shares import clear

ROOT = Path(__file__).parents[2]
_CHILD = """
import sys
from tests.support.command_line import quiet
from lakebackup_jobs.snapshots.backup import run
from lakebackup_jobs.snapshots.request import SnapshotRequest
request = SnapshotRequest(
    destination=sys.argv[2], paths=(sys.argv[1],), source="db", layout=sys.argv[3], snapshots=("s3",),
    bandwidth=40_000, lease_ttl_s=1.0,
)
print("begins", flush=True)
run(request, reporter=quiet(sys.stderr))
"""


@pytest.mark.parametrize("kills", [(8,), pytest.param((1, 8, 20), marks=pytest.mark.long)])
def test_a_snapshot_backup_killed_at_any_time_is_resumed(kills: tuple[int, ...], tmp_path: Path) -> None:
    """Killed during the copy, which is slow; each run continues the work of the one before. Every other file
    is compressed."""
    case = SnapshotCase(tmp_path)
    files = {
        f"f{number:02d}": os.urandom(1000) if number % 2 else b"%d" % number * 500 for number in range(30)
    }
    case.make("s3", files, mtime=1_600_000_200)
    for copied_files in kills:
        command = [sys.executable, "-c", _CHILD, str(case.tree), str(case.root), case.LAYOUT]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout.readline() == b"begins\n"
            while child.poll() is None and sum("/f" in path for path in case.data()) < copied_files:
                pass
            assert child.poll() is None
            child.send_signal(signal.SIGKILL)
        assert "f00" not in case.contents()
        expire_leases(case.root)
    result = case.run(snapshots=("s3",))
    assert result
    assert (result["copied"], result["gone"], result["unchanged"]) == (30, 3, 0)
    case.assert_whole(files)


@pytest.mark.parametrize("plan", ["an object for each task", "without the codec"])
def test_a_backup_that_an_older_version_left_unfinished_starts_over(plan: str, tmp_path: Path) -> None:
    """Older versions wrote an object for each task in place of a plan, and then plans with fewer columns."""
    case = SnapshotCase(tmp_path)
    assert case.killed("put part")
    storage, (old_id,) = (
        open_storage(str(case.root)),
        {path.split("/")[2] for path in case.data()} - {*case.ids()},
    )
    folder = layout.backup_folder(case.NAME, old_id)
    if plan == "without the codec":
        (path,) = (entry.path for entry in storage.list(f"{folder}plan/") if entry.path.endswith(".parquet"))
        rows = pq.read_table(case.root / path).drop_columns(["same_codec", "same_stored_bytes"])
        pq.write_table(rows, case.root / path)
    else:
        clear(storage, folder)
        storage.put(f"{folder}work/share-000000.parquet", b"rows of the first task")
    result = case.run()
    assert result
    assert result["backup_id"] != old_id
    case.assert_whole()
    assert not [entry.path for entry in storage.list() if old_id in entry.path]
