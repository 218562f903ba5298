"""Complete restores of snapshots, with real catalogs, objects and folders. Small ones need no Java."""

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
from tests.support.disks import fill, small_disk
from tests.support.given_snapshots import FileContent, GivenSnapshots
from tests.support.rows import filled

from lakebackup.errors import Busy, Damaged, EnvironmentProblem, Refused, UsageProblem
from lakebackup.formats.snapshots.names import OWN
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.rows.upkeep import Check
from lakebackup.rules import layout
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.tasks.plan_shares import weighed
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots import target
from lakebackup_jobs.snapshots.restore import run
from lakebackup_jobs.snapshots.target import Target
from lakebackup_jobs.snapshots.tasks import write
from lakebackup_jobs.snapshots.tasks.write import Folder, WriteJob

SNAPSHOTS: tuple[list[FileContent], ...] = (
    [
        FileContent(name="CURRENT", data=b"MANIFEST-1\n", mtime_ms=1000),
        FileContent(name="000001.sst", data=b"one" * 1000, mtime_ms=1000, mode=0o600),
        FileContent(name="intents/000002.sst", data=b"", mtime_ms=1001),
        FileContent(region="a2", name="000001.sst", data=b"linked" * 99, mtime_ms=1002, link="l"),
        FileContent(region="a2", name="000003.sst", data=b"linked" * 99, mtime_ms=1002, link="l"),
        FileContent(scope="t2", region="-", name="a name\nwith 'all' \\ sorts.sst", data=b"odd", mtime_ms=-5),
        FileContent(scope="-", region="-", name="SnapshotInfoPB", data=b"info", mtime_ms=1000),
    ],
    [
        FileContent(name="CURRENT", data=b"MANIFEST-2\n", mtime_ms=2000),
        FileContent(name="000001.sst", data=b"one" * 1000, mtime_ms=1000, mode=0o600),
        FileContent(region="a2", name="000001.sst", data=b"other" * 99, mtime_ms=2002),
    ],
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> GivenSnapshots:
    snapshots = GivenSnapshots(tmp_path_factory.mktemp("template"))
    for files in SNAPSHOTS:
        snapshots.backup(files, pack_below=100)
    return snapshots


@pytest.fixture
def snapshots(template: GivenSnapshots, tmp_path: Path) -> GivenSnapshots:
    return template.copied(tmp_path / "backups")


def restore(snapshots: GivenSnapshots, folder: Path, **options: Any) -> dict[str, Any]:
    return run(SnapshotRestoreRequest(str(snapshots.folder), str(folder), **options), reporter=quiet())


def contents(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    stats = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {
        str(path.relative_to(folder)): (
            path.read_bytes(),
            stat.st_mtime_ns // 1_000_000,
            stat.st_mode & 0o777,
        )
        for path, stat in stats.items()
    }


def expected(files: Sequence[FileContent]) -> dict[str, tuple[bytes, int, int]]:
    return {
        "/".join(part for part in file.key if part != "-"): (file.data, file.mtime_ms, file.mode)
        for file in files
    }


def test_each_backup_comes_back_as_it_was(snapshots: GivenSnapshots, tmp_path: Path) -> None:
    for number, files in enumerate(SNAPSHOTS, 1):
        target_folder = tmp_path / f"out{number}"
        result = restore(snapshots, target_folder, to_ts=1000 * number)
        assert contents(target_folder) == expected(files)
        assert (result["written"], result["bytes"]) == (len(files), sum(len(file.data) for file in files))
    assert (tmp_path / "out1/t1/a2/000001.sst").samefile(tmp_path / "out1/t1/a2/000003.sst")
    restores = snapshots.reader().select("SELECT state, entries FROM restores ORDER BY at").read_all()
    assert restores.to_pylist() == [{"state": "complete", "entries": count} for count in (7, 3)]


def test_all_is_durable_before_the_state_is_deleted(
    snapshots: GivenSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_snapshot, "_SHARE_BYTES", 1)  # several shares, and one sync for all
    target_folder = tmp_path / "out"
    synced = []
    sync = write._sync_file_system

    def record_sync(handle: int) -> None:
        synced.append((len(contents(target_folder)), (target_folder / OWN / "state.json").exists()))
        sync(handle)

    monkeypatch.setattr(write, "_sync_file_system", record_sync)
    restore(snapshots, target_folder)
    ((files, has_state),) = synced
    assert files > len(SNAPSHOTS[-1])  # the restore's own files count too
    assert has_state


@pytest.mark.parametrize("free", [8 << 10, 32 << 10])
def test_a_destination_that_is_nearly_full_is_restored(
    snapshots: GivenSnapshots, tmp_path: Path, free: int
) -> None:
    """There is room for the lease and none for the rows, which made the restore fail in the middle."""
    warnings = io.StringIO()
    with small_disk(tmp_path, "16m") as disk:
        shutil.copytree(snapshots.folder, disk / "backups")
        fill(disk / "filler", free)
        run(SnapshotRestoreRequest(str(disk / "backups"), str(tmp_path / "out")), reporter=quiet(warnings))
    assert contents(tmp_path / "out") == expected(SNAPSHOTS[-1])
    assert "KiB free" in warnings.getvalue()


def test_a_fifo_or_a_link_is_damage_and_all_other_files_are_restored(
    snapshots: GivenSnapshots, tmp_path: Path
) -> None:
    """A FIFO made a restore wait for ever, and a symbolic link ended all of it."""
    all_files = expected(SNAPSHOTS[-1])
    query = "SELECT path, scope, region, name FROM snapshot_files WHERE bytes > 100 AND gone_in IS NULL"
    rows = snapshots.reader().select(query).read_all().to_pylist()
    first, second = (snapshots.folder / row["path"] for row in rows[:2])
    first.unlink()
    os.mkfifo(first)
    second.rename(tmp_path / "aside")
    second.symlink_to(tmp_path / "aside")
    with pytest.raises(Damaged, match=r"2 files could not be restored into .*; all others were") as raised:
        restore(snapshots, tmp_path / "out", backup=snapshots.reader().rows("every_backup")[-1]["backup_id"])
    assert "no regular file" in raised.value.message
    lost = {f"{row['scope']}/{row['region']}/{row['name']}" for row in rows[:2]}
    assert {name: data for name, data in contents(tmp_path / "out").items() if OWN not in name} == {
        name: data for name, data in all_files.items() if name not in lost
    }


def test_a_restore_that_is_complete_says_so(snapshots: GivenSnapshots, tmp_path: Path) -> None:
    target_folder = tmp_path / "out"
    first = restore(snapshots, target_folder, to_ts=1000)
    second = restore(snapshots, target_folder, to_ts=1000)
    assert (second["done_before"], second["files"], "written" in second) == (True, first["files"], False)
    assert restore(snapshots, target_folder, to_ts=1000, dry_run=True)["done_before"]
    assert contents(target_folder) == expected(SNAPSHOTS[0])
    with pytest.raises(Refused, match="already"):
        restore(snapshots, target_folder, to_ts=2000)
    file = next(path for path in target_folder.rglob("*") if path.is_file())
    stat = file.stat()
    for change in (
        lambda: (target_folder / "more").write_bytes(b""),
        lambda: os.utime(file, (12_345, 12_345)),
        lambda: (target_folder / "more").unlink(),
    ):
        change()
        with pytest.raises(Refused, match="already"):
            restore(snapshots, target_folder, to_ts=1000)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert restore(snapshots, target_folder, to_ts=1000)["done_before"]


def test_shares_are_cut_where_the_object_changes(
    snapshots: GivenSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_snapshot, "_SHARE_BYTES", 1)
    monkeypatch.setattr(restore_snapshot, "MOST_TASKS", 1 << 40)
    task_numbers = list[int]()
    run = WriteJob.run

    def record_task(job: WriteJob, number: int) -> Any:
        task_numbers.append(number)
        return run(job, number)

    monkeypatch.setattr(WriteJob, "run", record_task)
    restore(snapshots, tmp_path / "out", to_ts=1000)
    assert contents(tmp_path / "out") == expected(SNAPSHOTS[0])
    # One for each object: a pack, a file, and one of two hard links.
    assert sorted(task_numbers) == [0, 1, 2]
    assert (tmp_path / "out/t1/a2/000001.sst").samefile(tmp_path / "out/t1/a2/000003.sst")


def test_a_dry_run_writes_nothing(snapshots: GivenSnapshots, tmp_path: Path) -> None:
    result = restore(snapshots, tmp_path / "out", dry_run=True)
    assert (result["dry_run"], result["files"], result["refused_because"]) == (True, 3, None)
    assert not (tmp_path / "out").exists()
    assert snapshots.reader().select("SELECT * FROM restores").read_all().num_rows == 0


def test_a_folder_that_is_not_empty_is_refused(snapshots: GivenSnapshots, tmp_path: Path) -> None:
    target_folder = tmp_path / "out"
    target_folder.mkdir()
    (target_folder / "mine").write_text("x")
    assert "'mine'" in restore(snapshots, target_folder, dry_run=True)["refused_because"]
    with pytest.raises(Refused, match="holds 'mine' already"):
        restore(snapshots, target_folder)
    with pytest.raises(Refused, match="is no folder"):
        restore(snapshots, target_folder / "mine")
    assert contents(target_folder) == {"mine": (b"x", *contents(target_folder)["mine"][1:])}
    with pytest.raises(UsageProblem, match="no folder of this machine"):
        run(SnapshotRestoreRequest(str(snapshots.folder), "s3://bucket/x"), reporter=quiet())


@pytest.mark.parametrize("name", ["", "/lock", "/plan", "/state.json"])
def test_a_link_in_place_of_a_restores_own_files_is_not_followed(
    snapshots: GivenSnapshots, tmp_path: Path, name: str
) -> None:
    elsewhere, planted = tmp_path / "elsewhere", tmp_path / f"out/{OWN}{name}"
    elsewhere.mkdir()
    (elsewhere / "plan").mkdir()
    (elsewhere / "plan/mine").write_text("x")
    planted.parent.mkdir(parents=True)
    planted.symlink_to(elsewhere)
    assert "symbolic link" in restore(snapshots, tmp_path / "out", dry_run=True)["refused_because"]
    with pytest.raises(Refused, match="is a symbolic link"):
        restore(snapshots, tmp_path / "out")
    assert [path.name for path in elsewhere.rglob("*")] == ["plan", "mine"]


def test_damage_is_named_and_the_same_command_continues_once_it_is_mended(
    snapshots: GivenSnapshots, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = layout.snapshot_path(
        "yb", f"{snapshots.reader().resolve_backup('20260101T000001')}", *SNAPSHOTS[0][1].key
    )
    content = snapshots.storage.get(path)
    snapshots.storage.put(path, content[:-1] + bytes([content[-1] ^ 1]))
    command = ["restore", "snapshot", "--repo", str(snapshots.folder), "--to", f"dir:{tmp_path}/out"]
    assert main(command) == Damaged.exit_code
    captured = capsys.readouterr()
    assert "1 file could not be restored into" in captured.err
    assert "t1/a1/000001.sst" in captured.err
    (tmp_path / "out" / OWN / "unfinished" / "stray").write_text("of a process that was killed")
    restored = {name for name in contents(tmp_path / "out") if not name.startswith(OWN)}
    assert restored == {"t1/a1/CURRENT", "t1/a2/000001.sst"}
    snapshots.storage.put(path, content)
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["resumed"], result["written"], result["files"]) == (True, 1, 3)
    assert contents(tmp_path / "out") == expected(SNAPSHOTS[1])
    states = (
        snapshots.reader().select("SELECT state FROM restores ORDER BY at").read_all()["state"].to_pylist()
    )
    assert states == ["complete"]  # of one restore, which the second run continued


def test_a_restore_that_was_cut_off_continues_and_no_other_takes_its_folder(
    snapshots: GivenSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target_folder, write = tmp_path / "out", Folder.write

    def cut(folder: Folder, file: Any, *args: Any) -> bool:
        if file.target.endswith("CURRENT"):
            raise KeyboardInterrupt
        return write(folder, file, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", cut)
        with pytest.raises(KeyboardInterrupt):
            restore(snapshots, target_folder)
    assert (target_folder / "t1/a1/000001.sst").exists()
    with pytest.raises(Refused, match="holds a restore of other files that did not finish"):
        restore(snapshots, target_folder, to_ts=1000)
    with (target_folder / OWN / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Busy):
            restore(snapshots, target_folder)
    (target_folder / "t1/a1/CURRENT").write_text("somebody's")
    with pytest.raises(Refused, match="not written by this restore"):
        restore(snapshots, target_folder)
    (target_folder / "t1/a1/CURRENT").unlink()
    result = restore(snapshots, target_folder, tables=("t1",))  # the same files, chosen in another way
    assert (result["resumed"], result["written"]) == (True, 2)
    assert contents(target_folder) == expected(SNAPSHOTS[1])


def test_a_restore_that_wrote_nothing_leaves_the_folder_to_any_other(
    snapshots: GivenSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "_new", full)
        with pytest.raises(EnvironmentProblem, match="No space left"):
            restore(snapshots, tmp_path / "out")
    for folder in sorted((tmp_path / "out").glob("t1*/**/"), reverse=True):
        folder.rmdir()
    restore(snapshots, tmp_path / "out", to_ts=1000)
    assert contents(tmp_path / "out") == expected(SNAPSHOTS[0])


def test_too_little_room_is_reported_before_anything_is_written(
    snapshots: GivenSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = target.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(target.shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(EnvironmentProblem, match="room for 10 bytes"):
        restore(snapshots, tmp_path / "out")
    linked = len(SNAPSHOTS[0][4].data)
    needed = sum(len(file.data) for file in SNAPSHOTS[0]) - linked
    monkeypatch.setattr(target.shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
    with pytest.raises(EnvironmentProblem, match=f"the files have {needed}"):
        restore(snapshots, tmp_path / "out", to_ts=1000)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(target.shutil, "disk_usage", lambda _: usage._replace(free=needed))
    assert restore(snapshots, tmp_path / "out", to_ts=1000)["bytes"] == needed + linked


def test_names_that_lead_out_of_the_folder_write_nothing(snapshots: GivenSnapshots, tmp_path: Path) -> None:
    names = ["../../evil", "a/../../../evil", f"../../{OWN}/state.json", "CURRENT/x"]
    current = next(row for row in snapshots.rows() if row.name == "CURRENT")
    snapshots.writer.append([replace(current, name=name) for name in names])
    with pytest.raises(Refused, match="cannot all exist") as refused:
        restore(snapshots, tmp_path / "out")
    assert refused.value.message.count("\n") == len(names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backups"]


def test_a_restore_of_a_damaged_backup_by_its_id_is_on_record(
    snapshots: GivenSnapshots, tmp_path: Path
) -> None:
    backup_id = snapshots.reader().resolve_backup("20260101T000002")
    check_columns = {
        "backup_id": backup_id,
        "destination": snapshots.destination,
        "mode": "restore",
        "detail": "torn",
    }
    snapshots.writer.append([filled(Check, at=1, outcome="damaged", **check_columns)])
    warnings = io.StringIO()
    request = SnapshotRestoreRequest(str(snapshots.folder), str(tmp_path / "out"))
    assert run(request, reporter=quiet(warnings))["taken"] == "1970-01-01T00:00:01.000Z"
    assert f"backup {backup_id}" in warnings.getvalue()
    assert restore(snapshots, tmp_path / "named", backup=backup_id)["backup_id"] == backup_id
    rows = snapshots.reader().select("SELECT action, subject FROM audit").read_all().to_pylist()
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
def test_flags_that_contradict_each_other_are_refused(
    flags: Sequence[str], why: str, snapshots: GivenSnapshots, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", "snapshot", "--repo", str(snapshots.folder), *flags]) == UsageProblem.exit_code
    assert why in capsys.readouterr().err


def test_shares_have_about_one_size_and_never_divide_an_object() -> None:
    dice = random.Random(3)
    rows = [
        {
            "destination": "d",
            "path": f"p{number:04d}",
            "bytes": dice.choice([0, 10, 3000, None]),
            "at": row_number,
        }
        for number in range(300)
        for row_number in range(dice.choice([1, 1, 1, 40]))
    ]
    table = pa.Table.from_pylist(rows)
    cuts = sorted(dice.sample(range(len(rows)), 40))
    batches = [b for a, z in pairwise([0, *cuts, len(rows)]) for b in table[a:z].to_batches()]
    size = 10 * restore_snapshot.FILE_COST
    shares = weighed(batches, size, weight="bytes", each=restore_snapshot.FILE_COST)
    paths_by_share = [[row["path"] for row in rows[share.first : share.end]] for share in shares]
    assert sum(map(len, paths_by_share)) == len(rows)
    assert sum(len(set(paths)) for paths in paths_by_share) == 300
    assert all(len(paths) <= 10 + 40 for paths in paths_by_share)
    assert len(shares) > len(rows) / 50
