"""A backup of a snapshot ended by SIGKILL at any time; tests/contract/test_lifecycle.py has each step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.faults import expire_leases
from tests.support.life_cases import SnapshotCase

ROOT = Path(__file__).parents[2]
_CHILD = """
import sys
from tests.support.command_line import quiet
from lakebackup_jobs.snapshots.backup import SnapshotRequest, run
request = SnapshotRequest(
    destination=sys.argv[2], paths=(sys.argv[1],), source="db", layout=sys.argv[3], snapshots=("s3",),
    bandwidth=40_000, lease_ttl_s=1.0,
)
print("begins", flush=True)
run(request, reporter=quiet(sys.stderr))
"""


@pytest.mark.parametrize("kills", [(8,), pytest.param((1, 8, 20), marks=pytest.mark.long)])
def test_killed_at_any_time(kills: tuple[int, ...], tmp_path: Path) -> None:
    """While files are copied, slowly; each run continues what the one before left."""
    case = SnapshotCase(tmp_path)
    files = {f"f{number:02d}": os.urandom(1000) for number in range(30)}
    case.make("s3", files, at=1_600_000_200)
    for wanted in kills:
        command = [sys.executable, "-c", _CHILD, str(case.tree), str(case.root), case.LAYOUT]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout.readline() == b"begins\n"
            while child.poll() is None and sum("/f" in path for path in case.data()) < wanted:
                pass
            assert child.poll() is None
            child.send_signal(signal.SIGKILL)
        assert "f00" not in case.contents()
        expire_leases(case.root)
    done = case.run(snapshots=("s3",))
    assert done
    assert (done["copied"], done["gone"], done["unchanged"]) == (30, 3, 0)
    case.assert_whole(files)
