"""A backup that was cut off: an incremental one is ended by the next run, a full one leaves nothing."""

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
from tests.support.faults import Killed, Steps, expire_leases, rows_of, stored, watched
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


def cut_off(lab: Lab, topic: str, at: str, folder: Path, **how: Any) -> Steps:
    """A backup that dies at a step."""
    with watched(folder, kill_at=at) as steps:
        with suppress(Killed, EnvironmentProblem):
            lab.backup(topic, **{"parallelism": 4, **how})
        assert steps.dead, f"never: {at}"
    expire_leases(lab.folder)
    return steps


def on_disk(lab: Lab) -> set[str]:
    return {str(path.relative_to(lab.folder)) for path in lab.folder.glob("lab/*/topics/*/*/*.data")}


def in_catalog(lab: Lab) -> set[str]:
    found = CatalogReader(str(lab.folder)).select("SELECT path FROM files")
    return set(found.read_all()["path"].to_pylist())


def parts(lab: Lab) -> dict[str, int]:
    """Each part of a backup that was begun, and when it was put."""
    at = json.loads((lab.folder / "lab/begun.json").read_text())["prepared"]["backup_id"]
    found = (lab.folder / "lab/backups" / at / "parts").glob("*.jsonl")
    return {path.name: path.stat().st_mtime_ns for path in found}


def assert_whole(lab: Lab, topic: str) -> None:
    """Every record once, every object named, nothing left to do."""
    assert stored(lab) == truth.contents(lab.bootstrap, topic)
    assert on_disk(lab) == in_catalog(lab)
    assert not (lab.folder / "lab/begun.json").exists()


@pytest.mark.long
def test_an_incremental_goes_on_however_often_it_is_cut_off(lab: Lab, name: str, tmp_path: Path) -> None:
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20))
    full = lab.backup(name, parallelism=4)
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20, start=20))
    cut_off(lab, name, "put part #3", tmp_path / "1", codec="deflate")
    first = parts(lab)
    assert 0 < len(first) <= 2  # a task that had come to its step may have been stopped with the others

    # From here on with other options, which count for what is read from the end of the first on.
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20, start=40))
    cut_off(lab, name, "put part #2", tmp_path / "2")
    second = parts(lab)
    assert len(second) <= 3
    assert second.items() >= first.items()
    cut_off(lab, name, "put manifest.json", tmp_path / "3")
    assert parts(lab).items() >= second.items()
    done = lab.backup(name, parallelism=4)

    ended = done["ended"]
    assert (ended["parent"], ended["kind"], ended["entries"]) == (full["backup_id"], "differential", 80)
    assert (done["parent"], done["kind"], done["entries"]) == (ended["backup_id"], "differential", 80)
    found = lab.sql("SELECT backup_id, codec FROM files ORDER BY added_in, path")
    codecs = {(row["backup_id"], row["codec"]) for row in found}
    assert {(ended["backup_id"], "deflate"), (done["backup_id"], "zstandard")} < codecs
    assert len(codecs) == 3
    assert stored(lab) == truth.contents(lab.bootstrap, name)


def test_a_full_starts_over_and_leaves_nothing(lab: Lab, name: str, tmp_path: Path) -> None:
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20))
    cut_off(lab, name, "put part #4", tmp_path / "1")
    lost = on_disk(lab)
    assert len(lost) >= 3
    # A file that another run has not committed yet is none of its.
    other = min(lost).replace("-0000000000.data", "-0000000007.data")
    data = (lab.folder / min(lost)).read_bytes()
    at = json.loads((lab.folder / "lab/begun.json").read_text())["prepared"]["backup_id"].encode()
    (lab.folder / other).write_bytes(data.replace(at, at[:-8] + b"00000000"))

    cut_off(lab, name, "delete data", tmp_path / "2")
    done = lab.backup(name)
    assert (done["kind"], done["entries"]) == ("full", 80)
    assert on_disk(lab) - in_catalog(lab) == {other}
    (lab.folder / other).unlink()
    assert_whole(lab, name)
    assert [path.name for path in (lab.folder / "lab/backups").iterdir() if any(path.rglob("*.*"))] == [
        done["backup_id"]
    ]


@pytest.mark.long
def test_a_full_that_was_cut_off_at_its_very_end_is_not_all_of_the_next(
    lab: Lab, name: str, tmp_path: Path
) -> None:
    """Tonight's run has what came since last night's, whose marker was not there yet."""
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20))
    cut_off(lab, name, "put complete", tmp_path / "1", mode="full")
    full = lab.backup(name, mode="full")
    assert (full["kind"], full["entries"]) == ("full", 80)
    cut_off(lab, name, "put complete", tmp_path / "2", mode="full")
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20, start=20))
    done = lab.backup(name, mode="full")
    assert (done["ended"]["kind"], done["ended"]["entries"]) == ("full", 80)
    assert (done["parent"], done["entries"]) == (done["ended"]["backup_id"], 80)
    assert not (lab.folder / "lab/begun.json").exists()


@pytest.mark.long
def test_what_was_not_read_and_is_gone_is_not_gone_on_with(lab: Lab, name: str, tmp_path: Path) -> None:
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20))
    lab.backup(name, parallelism=4)
    truth.produce(lab.bootstrap, name, rows_of(PARTITIONS, 20, start=20))
    cut_off(lab, name, "put part #3", tmp_path / "1")
    lab.make_catalog()
    begun = read_draft(open_storage(str(lab.folder)), "lab", TopicsBackup)
    assert begun
    cluster = Cluster({"bootstrap.servers": lab.bootstrap})
    asked = lab.topics_request((name,))
    work = Workspace(asked, "lab", lab.reporter)

    def why(of: resume.InProgress = begun, **changes: Any) -> str | None:
        return resume.blocker(of, replace(asked, **changes), work, cluster)

    assert why() is None
    assert why(mode="incr-diff", level=1, codec="null") is None
    assert why(mode="full") == "another mode is asked for"
    assert why(level=2) == "another level is asked for"
    assert why(topics=(name, "more")) == "another topics is asked for"
    assert "was taken since" in str(why(replace(begun, prepared=replace(begun.prepared, number=9))))
    assert begun.prepared.plan.parent
    stranger = replace(begun.prepared.plan.parent, backup_id=layout.new_backup_id(datetime.now(UTC)))
    plan = replace(begun.prepared.plan, parent=stranger)
    assert "depends on" in str(why(replace(begun, prepared=replace(begun.prepared, plan=plan))))

    # All that is there of the unread goes: what it had stored cannot be made whole any more.
    truth.delete_records(lab.bootstrap, name, dict.fromkeys(range(PARTITIONS), 30))
    assert "are gone" in str(why())
    done = lab.backup(name, on_gap="continue")
    assert (done["entries"], done["gaps"], done.get("ended")) == (40, PARTITIONS, None)
    assert on_disk(lab) == in_catalog(lab)
