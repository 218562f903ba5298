"""An interrupted backup: the next run completes an incremental one, and deletes all of a full one."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import Killed, Steps, expire_leases, rows_of, stored_records, watched
from tests.support.lives import read_draft
from tests.support.runs import Lab

from lakebackup.errors import EnvironmentProblem
from lakebackup.plan import splits
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.topics import resume
from lakebackup_jobs.topics.backup import TopicsBackup

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 4


@pytest.fixture
def name(topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic whose backups have a task for each partition."""
    monkeypatch.setattr(splits, "LEAST_OFFSETS_PER_TASK", 10)
    return topic("unfinished", partitions=PARTITIONS)


def interrupt_at(lab: Lab, topic: str, step: str, folder: Path, **options: Any) -> Steps:
    """A backup that dies before a step; returns its steps."""
    with watched(folder, kill_at=step) as steps:
        with suppress(Killed, EnvironmentProblem):
            lab.backup(topic, **{"parallelism": 4, **options})
        assert steps.dead, f"never: {step}"
    expire_leases(lab.folder)
    return steps


def on_disk(lab: Lab) -> set[str]:
    return {str(path.relative_to(lab.folder)) for path in lab.folder.glob("lab/*/topics/*/*/*.data")}


def in_catalog(lab: Lab) -> set[str]:
    batches = CatalogReader(str(lab.folder)).select("SELECT path FROM files")
    return set(batches.read_all()["path"].to_pylist())


def parts(lab: Lab) -> dict[str, int]:
    """The parts of the unfinished backup, and when each was written."""
    backup_id = json.loads((lab.folder / "lab/begun.json").read_text())["prepared"]["backup_id"]
    files = (lab.folder / "lab/backups" / backup_id / "parts").glob("*.jsonl")
    return {path.name: path.stat().st_mtime_ns for path in files}


def assert_whole(lab: Lab, topic: str) -> None:
    """Check that every record is stored once, every object named, and nothing unfinished."""
    assert stored_records(lab) == truth.contents(lab.bootstrap, topic)
    assert on_disk(lab) == in_catalog(lab)
    assert not (lab.folder / "lab/begun.json").exists()


@pytest.mark.long
def test_an_incremental_continues_after_several_interruptions(lab: Lab, name: str, tmp_path: Path) -> None:
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20))
    full = lab.backup(name, parallelism=4)
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20, start=20))
    interrupt_at(lab, name, "put part #3", tmp_path / "1", codec="deflate")
    first = parts(lab)
    assert 0 < len(first) <= 2  # a task at its step may have been stopped together with the others

    # The later runs have other options, which apply to what is read after the end of the first.
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20, start=40))
    interrupt_at(lab, name, "put part #2", tmp_path / "2")
    second = parts(lab)
    assert len(second) <= 3
    assert second.items() >= first.items()
    interrupt_at(lab, name, "put manifest.json", tmp_path / "3")
    assert parts(lab).items() >= second.items()
    result = lab.backup(name, parallelism=4)

    resumed = result["ended"]
    assert (resumed["parent"], resumed["kind"], resumed["entries"]) == (full["backup_id"], "differential", 80)
    assert (result["parent"], result["kind"], result["entries"]) == (resumed["backup_id"], "differential", 80)
    files = lab.sql("SELECT backup_id, codec FROM files ORDER BY added_in, path")
    codecs = {(row["backup_id"], row["codec"]) for row in files}
    assert {(resumed["backup_id"], "deflate"), (result["backup_id"], "zstandard")} < codecs
    assert len(codecs) == 3
    assert stored_records(lab) == truth.contents(lab.bootstrap, name)


def test_a_full_starts_over_and_leaves_nothing(lab: Lab, name: str, tmp_path: Path) -> None:
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20))
    interrupt_at(lab, name, "put part #4", tmp_path / "1")
    leftover = on_disk(lab)
    assert len(leftover) >= 3
    # A file that another run has not committed yet does not belong to this one.
    foreign_path = min(leftover).replace("-0000000000.data", "-0000000007.data")
    data = (lab.folder / min(leftover)).read_bytes()
    draft_id = json.loads((lab.folder / "lab/begun.json").read_text())["prepared"]["backup_id"].encode()
    (lab.folder / foreign_path).write_bytes(data.replace(draft_id, draft_id[:-8] + b"00000000"))

    interrupt_at(lab, name, "delete data", tmp_path / "2")
    result = lab.backup(name)
    assert (result["kind"], result["entries"]) == ("full", 80)
    assert on_disk(lab) - in_catalog(lab) == {foreign_path}
    (lab.folder / foreign_path).unlink()
    assert_whole(lab, name)
    assert [path.name for path in (lab.folder / "lab/backups").iterdir() if any(path.rglob("*.*"))] == [
        result["backup_id"]
    ]


@pytest.mark.long
def test_a_full_interrupted_at_its_end_precedes_an_incremental(lab: Lab, name: str, tmp_path: Path) -> None:
    """The second run has only the changes since the first, which lacked only its marker."""
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20))
    interrupt_at(lab, name, "put complete", tmp_path / "1", mode="full")
    full = lab.backup(name, mode="full")
    assert (full["kind"], full["entries"]) == ("full", 80)
    interrupt_at(lab, name, "put complete", tmp_path / "2", mode="full")
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20, start=20))
    result = lab.backup(name, mode="full")
    assert (result["ended"]["kind"], result["ended"]["entries"]) == ("full", 80)
    assert (result["parent"], result["entries"]) == (result["ended"]["backup_id"], 80)
    assert not (lab.folder / "lab/begun.json").exists()


@pytest.mark.long
def test_a_backup_whose_unread_records_are_gone_is_not_resumed(lab: Lab, name: str, tmp_path: Path) -> None:
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20))
    lab.backup(name, parallelism=4)
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20, start=20))
    interrupt_at(lab, name, "put part #3", tmp_path / "1")
    lab.make_catalog()
    draft = read_draft(open_storage(str(lab.folder)), "lab", TopicsBackup)
    assert draft
    cluster = Cluster({"bootstrap.servers": lab.bootstrap})
    request = lab.topics_request((name,))
    work = Workspace(request, "lab", lab.reporter)

    def blocker(in_progress: resume.InProgress = draft, **changes: Any) -> str | None:
        return resume.blocker(in_progress, replace(request, **changes), work, cluster)

    assert blocker() is None
    assert blocker(mode="incr-diff", level=1, codec="null") is None
    assert blocker(mode="full") == "another mode is asked for"
    assert blocker(level=2) == "another level is asked for"
    assert blocker(topics=(name, "more")) == "another topics is asked for"
    assert "was taken since" in str(blocker(replace(draft, prepared=replace(draft.prepared, number=9))))
    assert draft.prepared.plan.parent
    foreign_parent = replace(draft.prepared.plan.parent, backup_id=layout.new_backup_id(datetime.now(UTC)))
    plan = replace(draft.prepared.plan, parent=foreign_parent)
    assert "depends on" in str(blocker(replace(draft, prepared=replace(draft.prepared, plan=plan))))

    # Deletes all unread records: the stored ones cannot be completed any more.
    truth.delete_records(lab.bootstrap, name, dict.fromkeys(range(PARTITIONS), 30))
    assert "are gone" in str(blocker())
    result = lab.backup(name, on_gap="continue")
    assert (result["entries"], result["gaps"], result.get("ended")) == (40, PARTITIONS, None)
    assert on_disk(lab) == in_catalog(lab)
