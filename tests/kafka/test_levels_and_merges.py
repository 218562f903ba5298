"""Backups of several levels and `lakebackup merge`: what each reads and what each point restores to."""

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
from tests.support.compacted import put
from tests.support.faults import Killed, expire_leases, watched
from tests.support.kafka_truth import Record
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Damaged, EnvironmentProblem, Refused
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup_jobs.topics.tasks import merge as merge_task

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]
Found = list[tuple[int, Record]]


def fill(lab: Lab, name: str, step: int) -> Found:
    """Some more records, also tombstones and ones without a key; all that the topic then holds."""
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


def in_order(found: Any) -> Found:
    return sorted(found, key=lambda pair: (pair[1].partition, pair[0]))


def restored(lab: Lab, name: str, tmp_path: Path, **changes: Any) -> Found:
    """What a restore into a folder gives, offsets too, by fastavro alone."""
    out = tmp_path / f"out-{len(list(tmp_path.glob('out-*')))}"
    lab.restore(name, target=f"dir:{out}", **changes)
    return in_order(truth.records_below(out))


def backups(lab: Lab) -> dict[int, dict[str, Any]]:
    return {row["number"]: row for row in lab.sql("SELECT * FROM backups")}


@pytest.mark.long
def test_a_chain_that_lost_a_file_is_not_continued(lab: Lab, topic: Make, tmp_path: Path) -> None:
    """No verify ran: the next backup lists what it would depend on, says what is gone, and is a full."""
    name = topic("t", partitions=2)
    fill(lab, name, 0)
    first = lab.backup(name)["backup_id"]
    lost = lab.sql("SELECT path FROM files WHERE role = 'data' ORDER BY path")[0]["path"]
    (lab.folder / lost).unlink()
    held = fill(lab, name, 1)
    taken = lab.backup(name)
    assert (taken["kind"], taken["entries"]) == ("full", len(held))
    assert f"{lost} is missing" in lab.warnings.getvalue()
    (point,) = lab.sql("SELECT backup_id FROM restore_points")
    assert point["backup_id"] == taken["backup_id"] != first
    assert restored(lab, name, tmp_path) == held


@pytest.mark.long
def test_backups_of_one_level_become_one_and_then_all_one_full(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name, other = topic("merged", partitions=2), topic("dropped")
    truths: dict[int, Found] = {}

    def take(*topics: str, **changes: Any) -> dict[str, Any]:
        held = fill(lab, name, len(truths))
        done = lab.backup(*(topics or (name,)), **changes)
        truths[done["end_ts"]] = held
        return done

    def check() -> None:
        assert restored(lab, name, tmp_path) == truths[max(truths)]

    put(lab.bootstrap, other, [(0, b"k", b"v")])
    take(name, other)
    take(name, other, mode="incr-diff", level=1)
    take(name, other, mode="incr-diff", level=2)
    take(mode="incr-diff", level=2)
    with pytest.raises(Refused, match=rf"do(es)? not have .*: {other}\."):
        lab.merge(2)
    told = lab.merge(2, drop_gone=True, dry_run=True)
    assert [m["level"] for m in told["merged"]] == [2, 2]
    assert (told["kind"], told["entries"]) == ("differential", 120)
    assert len(backups(lab)) == 4

    done = lab.merge(2, drop_gone=True)
    made = backups(lab)[5]
    assert (made["backup_id"], made["kind"], made["level"]) == (done["backup_id"], "differential", 1)
    assert (made["place"], made["parent_place"], made["parent"]) == (4, 2, backups(lab)[2]["backup_id"])
    assert (made["entries"], made["files"], done["files"]) == (120, 2, 4)
    assert (done["left_out"], made["intact"]) == ([other], True)
    assert [b["unlinked"] for _, b in sorted(backups(lab).items())] == [6, 6, 5, 5, 6]
    check()
    end_ts, then = sorted(truths.items())[2]  # of one that was merged
    assert restored(lab, name, tmp_path, to_ts=end_ts) == [
        (offset, record) for offset, record in then if record.timestamp <= end_ts
    ]

    after = take(mode="incr-diff", level=2)
    assert after["parent"] == done["backup_id"]
    full = lab.merge(1, drop_gone=True)
    made = backups(lab)[7]
    assert (made["kind"], made["level"], made["place"], made["parent"]) == ("full", 0, 4, None)
    assert (made["base"], made["entries"], made["files"]) == (full["backup_id"], 240, 2)
    check()  # of the backup of level 2, which stays where it was
    assert lab.merge(2)["backup_id"] is None
    tip = take(mode="incr-diff", level=1)
    assert tip["parent"] == full["backup_id"]
    # No file of what they were made of is needed any more.
    kept = f"'{full['backup_id']}', '{tip['backup_id']}'"
    for row in lab.sql(f"SELECT path FROM files WHERE backup_id NOT IN ({kept})"):
        (lab.folder / row["path"]).unlink()
    check()


# Before the last part is whole; with rows of files that no backup has; with one without its marker.
KILLED = ("put part #4", "commit backups", "put complete")


@pytest.mark.long
@pytest.mark.parametrize("every", [False, True])
def test_killed_the_chain_stays_whole_and_the_next_merge_goes_on(
    every: bool, lab: Lab, topic: Make, tmp_path: Path, empty_catalog: Path
) -> None:
    name = topic("killed", partitions=2)
    for step in range(3):
        held = fill(lab, name, step)
        lab.backup(name)

    def run(kill_at: int | str) -> bool:
        at = Lab(lab.spark, lab.bootstrap, tmp_path / str(kill_at), empty_catalog)
        shutil.copytree(lab.folder, at.folder)
        with (
            mock.patch.object(merge_task, "TASK_FILES", 1),
            watched(tmp_path / f"steps-{kill_at}", kill_at=kill_at) as steps,
        ):
            with suppress(Killed, EnvironmentProblem):
                at.merge(1)
            if not steps.dead:
                return False
        taken = steps.taken()
        exists = "commit backups" in taken[:-1]
        assert len(backups(at)) == 3 + exists, kill_at
        expire_leases(at.folder)
        if every or kill_at == "commit files":
            assert restored(at, name, tmp_path) == held, kill_at
        left = set(at.folder.rglob("*.data"))
        done = at.merge(1)
        assert (done["backup_id"] is None) == exists, kill_at
        assert len(backups(at)) == 4
        assert restored(at, name, tmp_path) == held, kill_at
        assert (at.folder / "lab" / "backups" / backups(at)[4]["backup_id"] / "complete").exists()
        assert not list(at.folder.glob("lab/merge.json"))
        if taken[:-1].count("put merge.json") == 2:  # the second one says that it is planned to its end
            assert done.get("resumed", False) == (not exists), kill_at
        if taken.count("put part") == 4 and taken[-1] != "put part":
            assert left == set(at.folder.rglob("*.data")), "parts count that are there"
        return True

    points: list[int | str] = list(range(1, 60)) if every else list(KILLED)
    for point in points:
        if not run(point):
            assert every, point
            break


def test_the_command_line(lab: Lab, topic: Make, cli: Commands) -> None:
    name = topic("cli")
    where = str(lab.folder)
    merge = ("merge", "1", "--repo", where)
    put(lab.bootstrap, name, [(0, b"k", b"v")])
    lab.backup(name)
    assert "no two backups of level 1" in cli.out(*merge)
    put(lab.bootstrap, name, [(0, b"k", b"w")])
    lab.backup(name)
    cli.fails(2, "merge", "0", "--repo", where)
    assert "merge_scopes" in cli.out(*merge, "--explain")
    cli.fails(3, *merge, "--backup", "2020")
    cli.fails(3, "merge", "1", "--repo", f"{where}/nowhere")
    with Lease.acquire(open_storage(where), "source-lab", "me"):
        cli.fails(8, *merge)
    (file,) = [lab.folder / r["path"] for r in lab.sql("SELECT path FROM files WHERE level = 1")]
    good = file.read_bytes()
    file.write_bytes(good[:-1])
    with pytest.raises(Damaged, match=r"\.data"):
        lab.merge(1)
    assert len(backups(lab)) == 2
    file.write_bytes(good)
    failed = "SELECT failed_run, failed_runs FROM status"
    assert lab.sql(failed) == [{"failed_run": "merge", "failed_runs": 1}]
    told = cli.told(*merge)
    assert lab.sql(failed) == [{"failed_run": None, "failed_runs": 0}]
    assert (told["kind"], told["files"], told["made_files"], told["entries"]) == ("full", 2, 1, 2)


def some(partition: int, count: int) -> list[Record]:
    return [Record(partition, b"k%d" % i, b"v%d" % i, (), now_ms()) for i in range(count)]


class Week:
    """Backups of one topic, under names, and what the topic held when each was taken."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.name = lab, name
        self.held: dict[str, dict[int, list[Record]]] = {}
        self.made: dict[str, dict[str, Any]] = {}

    def take(self, called: str, produced: int, **how: Any) -> None:
        truth.produce(self.lab.bootstrap, self.name, some(0, produced) + some(1, 1))
        self.made[called] = self.lab.backup(self.name, **how)
        self.held[called] = truth.contents(self.lab.bootstrap, self.name)

    def back(self, called: str, copy: str, *, by_id: bool = False) -> None:
        """Restore one and compare."""
        made = self.made[called]
        point = {"backup": made["backup_id"]} if by_id else {"to_ts": made["end_ts"]}
        self.lab.restore(self.name, maps={self.name: copy}, **point)
        assert truth.contents(self.lab.bootstrap, copy) == self.held[called], called

    def names(self, found: list[dict[str, Any]]) -> list[str]:
        called = {made["backup_id"]: name for name, made in self.made.items()}
        return [called[row["backup_id"]] for row in found]


def test_levels_read_what_is_new_to_them_and_every_point_comes_back(lab: Lab, topic: Make) -> None:
    week = Week(lab, topic("levels", partitions=2))
    week.take("sun", 10, mode="incr-diff")  # no full yet
    week.take("mon", 20, mode="incr-diff")
    week.take("mon 01", 3, mode="incr-diff", level=2)
    week.take("tue", 30, mode="incr-accu")
    week.take("tue 01", 4, mode="incr-accu", level=2)
    # On from a chosen one, named by the beginning of its id: the day's in place of the hour's.
    week.take("wed", 50, parent=week.made["tue"]["backup_id"][:-2])

    assert [(m["kind"], m["level"], m["entries"]) for m in week.made.values()] == [
        ("full", 0, 11),
        ("differential", 1, 21),
        ("differential", 2, 4),
        ("cumulative", 1, 21 + 4 + 31),
        ("cumulative", 2, 5),
        ("differential", 1, 5 + 51),
    ]
    ids = {called: m["backup_id"] for called, m in week.made.items()}
    assert {called: m["parent"] for called, m in week.made.items()} == {
        "sun": None,
        "mon": ids["sun"],
        "mon 01": ids["mon"],
        "tue": ids["sun"],
        "tue 01": ids["tue"],
        "wed": ids["tue"],
    }
    week.back("mon 01", topic("copy", partitions=2), by_id=True)
    week.back("wed", topic("copy", partitions=2))
    planned = lab.restore(week.name, to_ts=week.made["wed"]["end_ts"], dry_run=True)
    assert week.names(planned["backups"]) == ["sun", "tue", "wed"]
    assert [row["entries"] for row in planned["backups"]] == [11, 56, 56]
    assert "alternatives" not in planned
    planned = lab.restore(week.name, to_ts=week.made["tue 01"]["end_ts"], dry_run=True)
    assert week.names(planned["backups"]) == ["sun", "tue", "tue 01"]
    with pytest.raises(Refused, match="in its place"):
        lab.backup(week.name, parent=ids["mon"])
