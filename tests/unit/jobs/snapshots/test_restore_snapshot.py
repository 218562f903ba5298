"""Restores of snapshots, whole: real catalogs, objects and folders. What is little needs no Java."""

from __future__ import annotations

import fcntl
import io
import json
import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.command_line import quiet
from tests.support.disks import fill, read_only, small_disk
from tests.support.given_snapshots import Given, GivenSnapshots
from tests.support.rows import filled

from lakebackup.errors import Busy, Damaged, EnvironmentProblem, Refused, UsageProblem
from lakebackup.formats.snapshots.names import OWN
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.rows.upkeep import Check
from lakebackup.rules import layout
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.tasks.arrow_splits import ArrowSplitWriter
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots import target
from lakebackup_jobs.snapshots.restore import run
from lakebackup_jobs.snapshots.target import Target
from lakebackup_jobs.snapshots.tasks import write
from lakebackup_jobs.snapshots.tasks.write import Folder, WriteJob

SNAPSHOTS: tuple[list[Given], ...] = (
    [
        Given(name="CURRENT", data=b"MANIFEST-1\n", mtime_ms=1000),
        Given(name="000001.sst", data=b"one" * 1000, mtime_ms=1000, mode=0o600),
        Given(name="intents/000002.sst", data=b"", mtime_ms=1001),
        Given(region="a2", name="000001.sst", data=b"linked" * 99, mtime_ms=1002, link="l"),
        Given(region="a2", name="000003.sst", data=b"linked" * 99, mtime_ms=1002, link="l"),
        Given(scope="t2", region="-", name="a name\nwith 'all' \\ sorts.sst", data=b"odd", mtime_ms=-5),
        Given(scope="-", region="-", name="SnapshotInfoPB", data=b"info", mtime_ms=1000),
    ],
    [
        Given(name="CURRENT", data=b"MANIFEST-2\n", mtime_ms=2000),
        Given(name="000001.sst", data=b"one" * 1000, mtime_ms=1000, mode=0o600),
        Given(region="a2", name="000001.sst", data=b"other" * 99, mtime_ms=2002),
    ],
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> GivenSnapshots:
    made = GivenSnapshots(tmp_path_factory.mktemp("template"))
    for files in SNAPSHOTS:
        made.backup(files, pack_below=100)
    return made


@pytest.fixture
def made(template: GivenSnapshots, tmp_path: Path) -> GivenSnapshots:
    return template.copied(tmp_path / "backups")


def restore(made: GivenSnapshots, folder: Path, **asked: Any) -> dict[str, Any]:
    return run(SnapshotRestoreRequest(str(made.folder), str(folder), **asked), reporter=quiet())


def there(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {
        str(path.relative_to(folder)): (path.read_bytes(), at.st_mtime_ns // 1_000_000, at.st_mode & 0o777)
        for path, at in found.items()
    }


def expected(files: Sequence[Given]) -> dict[str, tuple[bytes, int, int]]:
    return {
        "/".join(part for part in file.key if part != "-"): (file.data, file.mtime_ms, file.mode)
        for file in files
    }


def test_each_backup_comes_back_as_it_was(made: GivenSnapshots, tmp_path: Path) -> None:
    for number, files in enumerate(SNAPSHOTS, 1):
        out = tmp_path / f"out{number}"
        told = restore(made, out, to_ts=1000 * number)
        assert there(out) == expected(files)
        assert (told["written"], told["bytes"]) == (len(files), sum(len(file.data) for file in files))
    assert (tmp_path / "out1/t1/a2/000001.sst").samefile(tmp_path / "out1/t1/a2/000003.sst")
    restores = made.reader().select("SELECT state, entries FROM restores ORDER BY at").read_all()
    assert restores.to_pylist() == [{"state": "complete", "entries": count} for count in (7, 3)]


def test_all_is_durable_before_the_state_is_deleted(
    made: GivenSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_snapshot, "_SPLIT_BYTES", 1)  # several splits, and one sync for all
    out = tmp_path / "out"
    synced = []
    sync = write._sync_file_system

    def seen(handle: int) -> None:
        synced.append((len(there(out)), (out / OWN / "state.json").exists()))
        sync(handle)

    monkeypatch.setattr(write, "_sync_file_system", seen)
    restore(made, out)
    ((files, has_state),) = synced
    assert files > len(SNAPSHOTS[-1])  # with what is the restore's own
    assert has_state


def test_a_destination_that_is_read_only_is_restored(made: GivenSnapshots, tmp_path: Path) -> None:
    said = io.StringIO()
    with read_only(made.folder) as place:
        request = SnapshotRestoreRequest(str(place), str(tmp_path / "out"))
        run(request, reporter=quiet(said))
    assert there(tmp_path / "out") == expected(SNAPSHOTS[-1])
    assert "warning: no lease could be taken" in said.getvalue()
    assert made.reader().select("SELECT * FROM restores").read_all().num_rows == 0


@pytest.mark.parametrize("free", [8 << 10, 32 << 10])
def test_a_destination_that_is_nearly_full_is_restored(
    made: GivenSnapshots, tmp_path: Path, free: int
) -> None:
    """Room for the lease is none for the rows: the restore failed in the middle."""
    said = io.StringIO()
    with small_disk(tmp_path, "16m") as disk:
        shutil.copytree(made.folder, disk / "backups")
        fill(disk / "filler", free)
        run(SnapshotRestoreRequest(str(disk / "backups"), str(tmp_path / "out")), reporter=quiet(said))
    assert there(tmp_path / "out") == expected(SNAPSHOTS[-1])
    assert "KiB free" in said.getvalue()


def test_what_is_no_file_is_damaged_and_the_rest_is_restored(made: GivenSnapshots, tmp_path: Path) -> None:
    """A FIFO hung a restore for ever, a symbolic link ended all of it."""
    kept = expected(SNAPSHOTS[-1])
    stored = "SELECT path, scope, region, name FROM snapshot_files WHERE bytes > 100 AND gone_in IS NULL"
    rows = made.reader().select(stored).read_all().to_pylist()
    first, second = (made.folder / row["path"] for row in rows[:2])
    first.unlink()
    os.mkfifo(first)
    second.rename(tmp_path / "aside")
    second.symlink_to(tmp_path / "aside")
    with pytest.raises(Damaged, match=r"2 files could not be restored into .*; all others were") as raised:
        restore(made, tmp_path / "out", backup=made.reader().rows("every_backup")[-1]["backup_id"])
    assert "no regular file" in raised.value.message
    lost = {f"{row['scope']}/{row['region']}/{row['name']}" for row in rows[:2]}
    assert {name: data for name, data in there(tmp_path / "out").items() if OWN not in name} == {
        name: data for name, data in kept.items() if name not in lost
    }


def test_a_restore_that_is_done_says_so(made: GivenSnapshots, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = restore(made, out, to_ts=1000)
    again = restore(made, out, to_ts=1000)
    assert (again["done_before"], again["files"], "written" in again) == (True, first["files"], False)
    assert restore(made, out, to_ts=1000, dry_run=True)["done_before"]
    assert there(out) == expected(SNAPSHOTS[0])
    with pytest.raises(Refused, match="already"):
        restore(made, out, to_ts=2000)
    some = next(path for path in out.rglob("*") if path.is_file())
    before = some.stat()
    for change in (
        lambda: (out / "more").write_bytes(b""),
        lambda: os.utime(some, (12_345, 12_345)),
        lambda: (out / "more").unlink(),
    ):
        change()
        with pytest.raises(Refused, match="already"):
            restore(made, out, to_ts=1000)
    os.utime(some, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert restore(made, out, to_ts=1000)["done_before"]


def test_many_splits_cut_where_the_object_changes(
    made: GivenSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_snapshot, "_SPLIT_BYTES", 1)
    monkeypatch.setattr(restore_snapshot, "_MOST_SPLITS", 1 << 40)
    taken = list[int]()
    run = WriteJob.run

    def counted(job: WriteJob, number: int) -> Any:
        taken.append(number)
        return run(job, number)

    monkeypatch.setattr(WriteJob, "run", counted)
    restore(made, tmp_path / "out", to_ts=1000)
    assert there(tmp_path / "out") == expected(SNAPSHOTS[0])
    assert sorted(taken) == [0, 1, 2]  # one for each object: a pack, a file, and one of two hard links
    assert (tmp_path / "out/t1/a2/000001.sst").samefile(tmp_path / "out/t1/a2/000003.sst")


def test_a_dry_run_writes_nothing(made: GivenSnapshots, tmp_path: Path) -> None:
    told = restore(made, tmp_path / "out", dry_run=True)
    assert (told["dry_run"], told["files"], told["refused_because"]) == (True, 3, None)
    assert not (tmp_path / "out").exists()
    assert made.reader().select("SELECT * FROM restores").read_all().num_rows == 0


def test_a_folder_that_holds_something_is_left_alone(made: GivenSnapshots, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("x")
    assert "'mine'" in restore(made, out, dry_run=True)["refused_because"]
    with pytest.raises(Refused, match="holds 'mine' already"):
        restore(made, out)
    with pytest.raises(Refused, match="is no folder"):
        restore(made, out / "mine")
    assert there(out) == {"mine": (b"x", *there(out)["mine"][1:])}
    with pytest.raises(UsageProblem, match="no folder of this machine"):
        run(SnapshotRestoreRequest(str(made.folder), "s3://bucket/x"), reporter=quiet())


@pytest.mark.parametrize("name", ["", "/lock", "/plan", "/state.json"])
def test_a_link_in_the_place_of_what_a_restore_keeps_is_not_followed(
    made: GivenSnapshots, tmp_path: Path, name: str
) -> None:
    elsewhere, planted = tmp_path / "elsewhere", tmp_path / f"out/{OWN}{name}"
    elsewhere.mkdir()
    (elsewhere / "plan").mkdir()
    (elsewhere / "plan/mine").write_text("x")
    planted.parent.mkdir(parents=True)
    planted.symlink_to(elsewhere)
    assert "symbolic link" in restore(made, tmp_path / "out", dry_run=True)["refused_because"]
    with pytest.raises(Refused, match="is a symbolic link"):
        restore(made, tmp_path / "out")
    assert [path.name for path in elsewhere.rglob("*")] == ["plan", "mine"]


def test_damage_is_named_and_the_same_command_continues_once_it_is_mended(
    made: GivenSnapshots, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = layout.snapshot_path(
        "yb", f"{made.reader().resolve_backup('20260101T000001')}", *SNAPSHOTS[0][1].key
    )
    whole = made.storage.get(path)
    made.storage.put(path, whole[:-1] + bytes([whole[-1] ^ 1]))
    command = ["restore", "snapshot", "--repo", str(made.folder), "--to", f"dir:{tmp_path}/out"]
    assert main(command) == Damaged.exit_code
    told = capsys.readouterr()
    assert "1 file could not be restored into" in told.err
    assert "t1/a1/000001.sst" in told.err
    (tmp_path / "out" / OWN / "unfinished" / "stray").write_text("of a process that was killed")
    left = {name for name in there(tmp_path / "out") if not name.startswith(OWN)}
    assert left == {"t1/a1/CURRENT", "t1/a2/000001.sst"}
    made.storage.put(path, whole)
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["resumed"], result["written"], result["files"]) == (True, 1, 3)
    assert there(tmp_path / "out") == expected(SNAPSHOTS[1])
    states = made.reader().select("SELECT state FROM restores ORDER BY at").read_all()["state"].to_pylist()
    assert states == ["failed", "complete"]


def test_a_restore_that_was_cut_off_continues_and_no_other_takes_its_folder(
    made: GivenSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, write = tmp_path / "out", Folder.write

    def cut(folder: Folder, file: Any, *rest: Any) -> bool:
        if file.target.endswith("CURRENT"):
            raise KeyboardInterrupt
        return write(folder, file, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", cut)
        with pytest.raises(KeyboardInterrupt):
            restore(made, out)
    assert (out / "t1/a1/000001.sst").exists()
    with pytest.raises(Refused, match="holds a restore of other files that did not finish"):
        restore(made, out, to_ts=1000)
    with (out / OWN / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Busy):
            restore(made, out)
    (out / "t1/a1/CURRENT").write_text("somebody's")
    with pytest.raises(Refused, match="not written by this restore"):
        restore(made, out)
    (out / "t1/a1/CURRENT").unlink()
    told = restore(made, out, tables=("t1",))  # the same files, asked for in another way
    assert (told["resumed"], told["written"]) == (True, 2)
    assert there(out) == expected(SNAPSHOTS[1])


def test_a_restore_that_wrote_nothing_leaves_the_folder_to_any_other(
    made: GivenSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "_new", full)
        with pytest.raises(EnvironmentProblem, match="No space left"):
            restore(made, tmp_path / "out")
    for folder in sorted((tmp_path / "out").glob("t1*/**/"), reverse=True):
        folder.rmdir()
    restore(made, tmp_path / "out", to_ts=1000)
    assert there(tmp_path / "out") == expected(SNAPSHOTS[0])


def test_too_little_room_is_reported_before_anything_is_written(
    made: GivenSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = target.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(target.shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(EnvironmentProblem, match="room for 10 bytes"):
        restore(made, tmp_path / "out")
    linked = len(SNAPSHOTS[0][4].data)
    needed = sum(len(file.data) for file in SNAPSHOTS[0]) - linked
    monkeypatch.setattr(target.shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
    with pytest.raises(EnvironmentProblem, match=f"the files have {needed}"):
        restore(made, tmp_path / "out", to_ts=1000)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(target.shutil, "disk_usage", lambda _: usage._replace(free=needed))
    assert restore(made, tmp_path / "out", to_ts=1000)["bytes"] == needed + linked


def test_names_that_lead_out_of_the_folder_write_nothing(made: GivenSnapshots, tmp_path: Path) -> None:
    names = ["../../evil", "a/../../../evil", f"../../{OWN}/state.json", "CURRENT/x"]
    current = next(row for row in made.rows() if row.name == "CURRENT")
    made.writer.append([replace(current, name=name) for name in names])
    with pytest.raises(Refused, match="cannot all exist") as told:
        restore(made, tmp_path / "out")
    assert told.value.message.count("\n") == len(names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backups"]


def test_a_damaged_backup_that_a_person_names_is_on_record(made: GivenSnapshots, tmp_path: Path) -> None:
    backup_id = made.reader().resolve_backup("20260101T000002")
    where = {"backup_id": backup_id, "destination": made.destination, "mode": "restore", "detail": "torn"}
    made.writer.append([filled(Check, at=1, outcome="damaged", **where)])
    told = io.StringIO()
    asked = SnapshotRestoreRequest(str(made.folder), str(tmp_path / "out"))
    assert run(asked, reporter=quiet(told))["taken"] == "1970-01-01T00:00:01.000Z"
    assert f"backup {backup_id}" in told.getvalue()
    assert restore(made, tmp_path / "named", backup=backup_id)["backup_id"] == backup_id
    rows = made.reader().select("SELECT action, subject FROM audit").read_all().to_pylist()
    assert rows == [{"action": "restore with damage", "subject": backup_id}]


def test_a_case_insensitive_file_system_is_recognized(tmp_path: Path) -> None:
    assert not target._folds(tmp_path)
    assert not target._folds(tmp_path / "nowhere")
    limits = Target(str(tmp_path / "a/b")).limits()
    assert (limits.name, limits.path) == (255, os.pathconf("/", "PC_PATH_MAX") - len(f"{tmp_path}/a/b") - 2)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ((), "Missing --to: where do the files go?"),
        (("--to", "x", "--to-time", "-2h", "--backup", "2026"), "exclude each other"),
        (("--to", "x", "--select", "SELECT 1", "--table", "t"), "excludes --table"),
    ],
)
def test_flags_that_make_no_sense(
    flags: Sequence[str], why: str, made: GivenSnapshots, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", "snapshot", "--repo", str(made.folder), *flags]) == UsageProblem.exit_code
    assert why in capsys.readouterr().err


def test_shares_are_of_about_one_size_and_never_part_an_object() -> None:
    dice = random.Random(3)
    rows = [
        {"destination": "d", "path": f"p{number:04d}", "bytes": dice.choice([0, 10, 3000, None]), "at": at}
        for number in range(300)
        for at in range(dice.choice([1, 1, 1, 40]))
    ]
    table = pa.Table.from_pylist(rows)
    cuts = sorted(dice.sample(range(len(rows)), 40))
    batches = [b for a, z in pairwise([0, *cuts, len(rows)]) for b in table[a:z].to_batches()]
    size = 10 * restore_snapshot.FILE_COST
    pieces = list(
        ArrowSplitWriter("", "", size, weight="bytes", each=restore_snapshot.FILE_COST)._numbered(batches)
    )
    assert [row for _, piece in pieces for row in piece.to_pylist()] == rows
    assert [split for split, _ in pieces] == sorted(split for split, _ in pieces)
    splits: dict[int, list[str]] = {}
    for split, piece in pieces:
        splits.setdefault(split, []).extend(piece.column("path").to_pylist())
    held = [set(paths) for paths in splits.values()]
    assert sum(map(len, held)) == 300
    assert all(len(paths) <= 10 + 40 for paths in splits.values())
    assert len(splits) > len(rows) / 50
