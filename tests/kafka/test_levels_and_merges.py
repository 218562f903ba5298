"""Backups of several levels and `lakebackup merge`: what each reads, and what each point restores."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.compacted import produce_pairs
from tests.support.faults import Killed, expire_leases, watched
from tests.support.kafka_truth import Record
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Damaged, EnvironmentProblem, Refused
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup_jobs.topics.tasks import merge as merge_task

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

MakeTopic = Callable[..., str]
Records = list[tuple[int, Record]]


def fill(lab: Lab, name: str, step: int) -> Records:
    """Produce more records, some of them tombstones or without a key. Returns all records of the topic."""
    records = [
        Record(
            i % 2,
            None if i % 7 == 0 else b"k%d" % (i if i % 3 else i % 5),
            None if i % 11 == 0 and i % 7 else b"value %d-%d" % (step, i) * (i % 9),
            (("h", None), ("h", b"%d" % i)) if i % 4 == 0 else (),
            now_ms() - 1000 * (i % 5),
        )
        for i in range(100 * step, 100 * step + 60)
    ]
    truth.produce(lab.bootstrap, name, records)
    return in_order(truth.read(lab.bootstrap, name))


def in_order(records: Any) -> Records:
    return sorted(records, key=lambda pair: (pair[1].partition, pair[0]))


def restore_records(lab: Lab, name: str, tmp_path: Path, **changes: Any) -> Records:
    """Restore a topic into a folder. Returns its records with offsets, decoded by fastavro alone."""
    target = tmp_path / f"out-{len(list(tmp_path.glob('out-*')))}"
    lab.restore(name, target=f"dir:{target}", **changes)
    return in_order(truth.records_below(target))


def backups(lab: Lab) -> dict[int, dict[str, Any]]:
    return {row["number"]: row for row in lab.sql("SELECT * FROM backups")}


@pytest.mark.long
def test_a_chain_with_a_missing_file_is_not_continued(lab: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """No verify ran. The next backup lists the files that it would depend on, reports the missing one, and
    becomes a full."""
    name = topic("t", partitions=2)
    fill(lab, name, 0)
    first_id = lab.backup(name)["backup_id"]
    lost_path = lab.sql("SELECT path FROM files WHERE role = 'data' ORDER BY path")[0]["path"]
    (lab.folder / lost_path).unlink()
    records = fill(lab, name, 1)
    backup = lab.backup(name)
    assert (backup["kind"], backup["entries"]) == ("full", len(records))
    assert f"{lost_path} is missing" in lab.warnings.getvalue()
    (point,) = lab.sql("SELECT backup_id FROM restore_points")
    assert point["backup_id"] == backup["backup_id"] != first_id
    assert restore_records(lab, name, tmp_path) == records


@pytest.mark.long
def test_backups_of_one_level_merge_and_then_all_become_a_full(
    lab: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    name, dropped_topic = topic("merged", partitions=2), topic("dropped")
    records_by_end: dict[int, Records] = {}

    def back_up(*topics: str, **changes: Any) -> dict[str, Any]:
        records = fill(lab, name, len(records_by_end))
        backup = lab.backup(*(topics or (name,)), **changes)
        records_by_end[backup["end_ts"]] = records
        return backup

    def check() -> None:
        assert restore_records(lab, name, tmp_path) == records_by_end[max(records_by_end)]

    produce_pairs(lab.bootstrap, dropped_topic, [(0, b"k", b"v")])
    back_up(name, dropped_topic)
    back_up(name, dropped_topic, mode="incr-diff", level=1)
    back_up(name, dropped_topic, mode="incr-diff", level=2)
    back_up(mode="incr-diff", level=2)
    with pytest.raises(Refused, match=rf"do(es)? not have .*: {dropped_topic}\."):
        lab.merge(2)
    plan = lab.merge(2, drop_gone=True, dry_run=True)
    assert [member["level"] for member in plan["merged"]] == [2, 2]
    assert (plan["kind"], plan["entries"]) == ("differential", 120)
    assert len(backups(lab)) == 4

    merge = lab.merge(2, drop_gone=True)
    merge_row = backups(lab)[5]
    assert (merge_row["backup_id"], merge_row["kind"], merge_row["level"]) == (
        merge["backup_id"],
        "differential",
        1,
    )
    assert (merge_row["place"], merge_row["parent_place"], merge_row["parent"]) == (
        4,
        2,
        backups(lab)[2]["backup_id"],
    )
    assert (merge_row["entries"], merge_row["files"], merge["files"]) == (120, 2, 4)
    assert (merge["left_out"], merge_row["intact"]) == ([dropped_topic], True)
    assert [b["unlinked"] for _, b in sorted(backups(lab).items())] == [6, 6, 5, 5, 6]
    check()
    end_ts, records = sorted(records_by_end.items())[2]  # of a backup that was merged
    assert restore_records(lab, name, tmp_path, to_ts=end_ts) == [
        (offset, record) for offset, record in records if record.timestamp <= end_ts
    ]

    next_backup = back_up(mode="incr-diff", level=2)
    assert next_backup["parent"] == merge["backup_id"]
    full_merge = lab.merge(1, drop_gone=True)
    merge_row = backups(lab)[7]
    assert (merge_row["kind"], merge_row["level"], merge_row["place"], merge_row["parent"]) == (
        "full",
        0,
        4,
        None,
    )
    assert (merge_row["base"], merge_row["entries"], merge_row["files"]) == (full_merge["backup_id"], 240, 2)
    check()  # the newest point is still the backup of level 2, which the merge left in place
    assert lab.merge(2)["backup_id"] is None
    last_backup = back_up(mode="incr-diff", level=1)
    assert last_backup["parent"] == full_merge["backup_id"]
    # The files of the merged backups are not needed any more.
    kept_ids = f"'{full_merge['backup_id']}', '{last_backup['backup_id']}'"
    for row in lab.sql(f"SELECT path FROM files WHERE backup_id NOT IN ({kept_ids})"):
        (lab.folder / row["path"]).unlink()
    check()


# The run dies before its last part is complete, then with rows of files but no backup, then with a backup
# that lacks its marker.
KILL_STEPS = ("put part #2", "commit backups", "put complete")


@pytest.mark.long
@pytest.mark.parametrize("every_step", [False, True])
def test_a_killed_merge_leaves_the_chain_restorable_and_the_next_merge_resumes(
    every_step: bool, lab: Lab, topic: MakeTopic, tmp_path: Path, empty_catalog: Path
) -> None:
    name = topic("killed", partitions=2)
    for step in range(3):
        records = fill(lab, name, step)
        lab.backup(name)

    def run(kill_at: int | str) -> bool:
        lab_copy = Lab(lab.spark, lab.bootstrap, tmp_path / str(kill_at), empty_catalog)
        shutil.copytree(lab.folder, lab_copy.folder)
        with (
            mock.patch.object(merge_task, "TASK_FILES", 1),
            watched(tmp_path / f"steps-{kill_at}", kill_at=kill_at) as steps,
        ):
            with suppress(Killed, EnvironmentProblem):
                lab_copy.merge(1)
            if not steps.dead:
                return False
        step_names = steps.names()
        is_committed = "commit backups" in step_names[:-1]
        assert len(backups(lab_copy)) == 3 + is_committed, kill_at
        expire_leases(lab_copy.folder)
        if every_step or kill_at == "commit files":
            assert restore_records(lab_copy, name, tmp_path) == records, kill_at
        data_files = set(lab_copy.folder.rglob("*.data"))
        merge = lab_copy.merge(1)
        assert (merge["backup_id"] is None) == is_committed, kill_at
        assert len(backups(lab_copy)) == 4
        assert restore_records(lab_copy, name, tmp_path) == records, kill_at
        assert (lab_copy.folder / "lab" / "backups" / backups(lab_copy)[4]["backup_id"] / "complete").exists()
        assert not list(lab_copy.folder.glob("lab/merge.json"))
        if step_names[:-1].count("put merge.json") == 2:  # the second put records that the plan is complete
            assert merge.get("resumed", False) == (not is_committed), kill_at
        if step_names.count("put part") == 2 and step_names[-1] != "put part":
            assert data_files == set(lab_copy.folder.rglob("*.data")), "parts count that are there"
        return True

    kill_steps: list[int | str] = list(range(1, 60)) if every_step else list(KILL_STEPS)
    for kill_step in kill_steps:
        if not run(kill_step):
            assert every_step, kill_step
            break


def test_merge_on_the_command_line(lab: Lab, topic: MakeTopic, cli: Commands) -> None:
    name = topic("cli")
    repo = str(lab.folder)
    merge_command = ("merge", "1", "--repo", repo)
    produce_pairs(lab.bootstrap, name, [(0, b"k", b"v")])
    lab.backup(name)
    assert "no two backups of level 1" in cli.output(*merge_command)
    produce_pairs(lab.bootstrap, name, [(0, b"k", b"w")])
    lab.backup(name)
    cli.fails(2, "merge", "0", "--repo", repo)
    assert "merge_scopes" in cli.output(*merge_command, "--explain")
    cli.fails(3, *merge_command, "--backup", "2020")
    cli.fails(3, "merge", "1", "--repo", f"{repo}/nowhere")
    with Lease.acquire(open_storage(repo), "source-lab", "me"):
        cli.fails(8, *merge_command)
    (file,) = [lab.folder / r["path"] for r in lab.sql("SELECT path FROM files WHERE level = 1")]
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(Damaged, match=r"\.data"):
        lab.merge(1)
    assert len(backups(lab)) == 2
    file.write_bytes(content)
    failed_query = "SELECT failed_run, failed_runs FROM status"
    assert lab.sql(failed_query) == [{"failed_run": "merge", "failed_runs": 1}]
    result = cli.result(*merge_command)
    assert lab.sql(failed_query) == [{"failed_run": None, "failed_runs": 0}]
    assert (result["kind"], result["files"], result["made_files"], result["entries"]) == ("full", 2, 1, 2)


def records_of(partition: int, count: int) -> list[Record]:
    return [Record(partition, b"k%d" % i, b"v%d" % i, (), now_ms()) for i in range(count)]


class Week:
    """Backups of one topic by name, and the records that the topic held at each."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.name = lab, name
        self.records: dict[str, dict[int, list[Record]]] = {}
        self.backups: dict[str, dict[str, Any]] = {}

    def back_up(self, name: str, count: int, **options: Any) -> None:
        truth.produce(self.lab.bootstrap, self.name, records_of(0, count) + records_of(1, 1))
        self.backups[name] = self.lab.backup(self.name, **options)
        self.records[name] = truth.contents(self.lab.bootstrap, self.name)

    def restore_and_compare(self, name: str, copy_topic: str, *, by_id: bool = False) -> None:
        """Restore a backup, by its end or by its id, and compare the records."""
        backup = self.backups[name]
        point = {"backup": backup["backup_id"]} if by_id else {"to_ts": backup["end_ts"]}
        self.lab.restore(self.name, maps={self.name: copy_topic}, **point)
        assert truth.contents(self.lab.bootstrap, copy_topic) == self.records[name], name

    def names(self, rows: list[dict[str, Any]]) -> list[str]:
        names_by_id = {backup["backup_id"]: name for name, backup in self.backups.items()}
        return [names_by_id[row["backup_id"]] for row in rows]


def test_each_level_reads_records_new_to_it_and_every_point_is_restorable(lab: Lab, topic: MakeTopic) -> None:
    week = Week(lab, topic("levels", partitions=2))
    week.back_up("sun", 10, mode="incr-diff")  # no full yet
    week.back_up("mon", 20, mode="incr-diff")
    week.back_up("mon 01", 3, mode="incr-diff", level=2)
    week.back_up("tue", 30, mode="incr-accu")
    week.back_up("tue 01", 4, mode="incr-accu", level=2)
    # The parent is the backup of the day, not of the hour. The start of its id names it.
    week.back_up("wed", 50, parent=week.backups["tue"]["backup_id"][:-2])

    assert [(backup["kind"], backup["level"], backup["entries"]) for backup in week.backups.values()] == [
        ("full", 0, 11),
        ("differential", 1, 21),
        ("differential", 2, 4),
        ("cumulative", 1, 21 + 4 + 31),
        ("cumulative", 2, 5),
        ("differential", 1, 5 + 51),
    ]
    ids = {name: backup["backup_id"] for name, backup in week.backups.items()}
    assert {name: backup["parent"] for name, backup in week.backups.items()} == {
        "sun": None,
        "mon": ids["sun"],
        "mon 01": ids["mon"],
        "tue": ids["sun"],
        "tue 01": ids["tue"],
        "wed": ids["tue"],
    }
    week.restore_and_compare("mon 01", topic("copy", partitions=2), by_id=True)
    week.restore_and_compare("wed", topic("copy", partitions=2))
    plan = lab.restore(week.name, to_ts=week.backups["wed"]["end_ts"], dry_run=True)
    assert week.names(plan["backups"]) == ["sun", "tue", "wed"]
    assert [row["entries"] for row in plan["backups"]] == [11, 56, 56]
    assert "alternatives" not in plan
    plan = lab.restore(week.name, to_ts=week.backups["tue 01"]["end_ts"], dry_run=True)
    assert week.names(plan["backups"]) == ["sun", "tue", "tue 01"]
    with pytest.raises(Refused, match="in its place"):
        lab.backup(week.name, parent=ids["mon"])
