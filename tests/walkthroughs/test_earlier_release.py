"""A destination that an earlier state wrote, with a topic, a snapshot and an engine's queues, each with a
backup that was killed: it opens, restores, and continues. Layer: Spark and Kafka; no copy of a format in a
test's own code would show what users have on disk.

`data/destination-of-0.1.tar.gz` was made by the state before backups had one lifecycle.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.command_line import quiet
from tests.support.faults import rows_of

from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.store.behind import current_catalog
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots.backup import SnapshotRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

LAYOUT = "t-{scope}/{snapshot}/{name}"


@pytest.fixture
def expected(lab: Lab, tmp_path: Path) -> dict[str, Any]:
    """What the destination of `lab`, unpacked, holds."""
    with tarfile.open(Path(__file__).parent / "data/destination-of-0.1.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    found: dict[str, Any] = json.loads((tmp_path / "expected.json").read_text())
    return found


def test_it_opens_restores_and_continues(
    lab: Lab, expected: dict[str, Any], topic: Callable[..., str], tmp_path: Path
) -> None:
    current_catalog(str(lab.folder))
    assert lab.verify(mode="full")["damaged"] == 0
    done = lab.restore(expected["topic"], expected["keyed"], source="lab", target=f"dir:{tmp_path / 'out'}")
    assert done["entries"] == 2 * 40 + 12

    # The cluster is another one by now: the backup that was killed is discarded, and nothing else.
    before = {row["path"] for row in lab.sql("SELECT path FROM files")}
    name = topic("again")
    truth.produce(lab.bootstrap, name, rows_of(1, 5))
    again = lab.backup(name, mode="full")
    assert again["entries"] == 5
    assert not (lab.folder / "lab/begun.json").exists()
    now = {row["path"] for row in lab.sql("SELECT path FROM files")}
    assert before < now
    there = {str(path.relative_to(lab.folder)) for path in lab.folder.glob("lab/**/*.data")}
    assert there == {path for path in now if path.startswith("lab/") and path.endswith(".data")}


def test_a_snapshot_continues(lab: Lab, expected: dict[str, Any], tmp_path: Path) -> None:
    assert expected
    request = SnapshotRequest(
        destination=str(lab.folder), paths=(str(tmp_path / "tree"),), source="db", layout=LAYOUT,
        snapshots=("s2",),
    )  # fmt: skip
    done = backup_snapshot.run(request, reporter=quiet())
    assert (done["kind"], done["gone"], done["end_ts"]) == ("differential", 1, 2_000_000)
    assert not (lab.folder / "db/begun.json").exists()
    asked = SnapshotRestoreRequest(str(lab.folder), str(tmp_path / "out"), source="db")
    restore_snapshot.run(asked, reporter=quiet())
    restored = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    taken = {path.name: path.read_bytes() for path in (tmp_path / "tree/t-x/s2").iterdir()}
    assert restored.items() >= taken.items()
