"""`lakebackup drill` on snapshots, which needs no JVM.

The tests cover what a drill restores, compares and records, and what a failed drill reports and leaves.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.command_line import Commands, quiet
from tests.support.given_snapshots import FileContent, GivenSnapshots
from tests.support.rows import filled

from lakebackup.errors import Damaged, EnvironmentProblem, Incomplete, NotFound, UsageProblem
from lakebackup.rows.upkeep import Restore
from lakebackup.storage.scratch_folder import FolderLock
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots.target import Target
from lakebackup_jobs.upkeep import drill
from lakebackup_jobs.upkeep.drill import DrillRequest
from lakebackup_jobs.upkeep.verify import VerifyRequest
from lakebackup_jobs.upkeep.verify import run as verify

FILES = [FileContent(name=f"{n}.sst", data=b"%d" % n * 100) for n in range(5)]


class Lab(NamedTuple):
    """Two snapshots of one source, and a folder for what is restored."""

    snapshots: GivenSnapshots
    scratch: Path
    backups: tuple[str, str]

    @property
    def folder(self) -> str:
        return str(self.snapshots.folder)

    def drill(self, **options: Any) -> dict[str, Any]:
        request = DrillRequest(self.folder, scratch=str(self.scratch), **options)
        return drill.run(request, reporter=quiet())

    def rows(self, select: str = "SELECT * FROM drills ORDER BY at") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = CatalogReader(self.folder).select(select).read_all().to_pylist()
        return rows

    def flip(self) -> Path:
        """Change one bit of a stored file."""
        path = next(self.snapshots.folder.rglob("*3.sst*"))
        data = bytearray(path.read_bytes())
        data[7] ^= 1
        path.write_bytes(data)
        return path


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    snapshots = GivenSnapshots(tmp_path / "backups")
    backups = snapshots.backup(FILES[:3]), snapshots.backup(FILES)
    (tmp_path / "scratch").mkdir()
    return Lab(snapshots, tmp_path / "scratch", backups)


def test_a_good_drill_is_a_row_and_leaves_nothing_else(lab: Lab) -> None:
    (drill_row,) = lab.drill(backup_id=lab.backups[1])["drills"]
    assert not list(lab.scratch.iterdir())
    (row,) = lab.rows()
    assert {name: row[name] for name in drill_row} == drill_row
    assert (row["source"], row["backup_id"], row["target"], row["outcome"]) == (
        "yb",
        lab.backups[1],
        "dir",
        "ok",
    )
    assert (row["files"], row["bytes"], row["to_ts"], row["seed"]) == (5, 500, 2000, None)
    assert (row["predicted_ms"], row["detail"]) == (None, "5 files restored")
    assert row["real_ms"] >= 0
    (status,) = lab.rows("SELECT last_drill, drill_failures FROM status")
    assert status == {"last_drill": row["time"], "drill_failures": 0}
    # The audit log has an entry of it too, from which a rebuilt catalog gets it.
    (entry,) = lab.rows("SELECT subject, detail FROM audit WHERE action = 'drill'")
    assert (entry["subject"], json.loads(entry["detail"])["drill_id"]) == ("yb", row["drill_id"])


@pytest.mark.long
def test_a_seed_draws_the_same_restore_point_again_and_seeds_draw_them_all(lab: Lab) -> None:
    def drawn(seed: int) -> str:
        plan = lab.drill(seed=seed, dry_run=True)
        assert plan["seed"] == seed
        return str(plan["drills"][0]["backup_id"])

    drawn_ids = [drawn(seed) for seed in range(12)]
    assert [drawn(seed) for seed in range(12)] == drawn_ids
    assert set(drawn_ids) == set(lab.backups)
    drawn_by_chance = lab.drill()
    (row,) = lab.rows()
    assert row["seed"] == drawn_by_chance["seed"]
    assert lab.drill(seed=row["seed"])["drills"][0]["backup_id"] == row["backup_id"]


def test_a_time_chooses_the_newest_snapshot_before_it(lab: Lab) -> None:
    (planned,) = lab.drill(to_ts=1999, dry_run=True)["drills"]
    assert (planned["backup_id"], planned["files"]) == (lab.backups[0], 3)
    with pytest.raises(NotFound, match="nothing to restore"):
        lab.drill(to_ts=1)


def test_a_dry_run_predicts_by_earlier_drills_and_starts_nothing(lab: Lab) -> None:
    assert lab.drill(dry_run=True)["drills"][0]["predicted_ms"] is None
    lab.drill(backup_id=lab.backups[1])
    (row,) = lab.rows()
    paths_before = sorted(lab.snapshots.folder.rglob("*"))
    (planned,) = lab.drill(backup_id=lab.backups[0], dry_run=True)["drills"]
    assert planned["predicted_ms"] == round(row["real_ms"] * 300 / 500)
    assert (planned["outcome"], planned["real_ms"], planned["bytes"]) == ("planned", None, 300)
    assert planned["needed_bytes"] == 300 < planned["free_bytes"]
    assert sorted(lab.snapshots.folder.rglob("*")) == paths_before
    assert not list(lab.scratch.iterdir())


def test_a_flipped_bit_is_a_difference_and_the_next_source_is_drilled_all_the_same(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    zoo_snapshots = GivenSnapshots(lab.snapshots.folder, "zoo", CatalogWriter(None, lab.folder))
    zoo_snapshots.number = 10
    zoo_snapshots.backup([FileContent(name="z.log", data=b"z")])
    lab.flip()
    commands = Commands(capsys)
    code, output, err = commands.run(
        "drill", "--repo", lab.folder, "--seed", "1", "--scratch", lab.scratch, "--json"
    )
    assert code == Damaged.exit_code
    result = json.loads(output.splitlines()[-1])
    outcomes = {row["source"]: row["outcome"] for row in result["drills"]}
    # Seed 1 draws the newer snapshot, which has the file.
    assert outcomes == {"yb": "different", "zoo": "ok"}
    assert {row["source"]: row["outcome"] for row in lab.rows()} == outcomes
    assert "3.sst" in json.loads(err)["message"]
    assert not list(lab.scratch.iterdir())
    assert {
        row["source"]: (row["last_drill"] is None, row["drill_failures"])
        for row in lab.rows("SELECT * FROM status")
    } == {
        "yb": (True, 1),
        "zoo": (False, 0),
    }
    # `verify --restore` makes the same comparison.
    verify_result = verify(VerifyRequest(lab.folder, mode="restore"), reporter=quiet())
    assert verify_result["damaged"] == 1


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda folder: (folder / "t1/a1/1.sst").write_bytes(b"2" * 100), "t1/a1/1.sst: sha256 is"),
        (
            lambda folder: (folder / "t1/a1/1.sst").write_bytes(b"1"),
            "t1/a1/1.sst: 1 bytes are there, not 100",
        ),
        (
            lambda folder: (folder / "t1/a1/1.sst").unlink(),
            "4 files are there, not 5; t1/a1/1.sst: No such file",
        ),
        (lambda folder: (folder / "more").write_bytes(b""), "6 files are there, not 5"),
    ],
)
def test_wrongly_restored_files_are_found(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, spoil: Any, text: str
) -> None:
    """The restore itself reports success."""
    finish = Target.finish

    def spoiled(target: Target) -> None:
        finish(target)
        spoil(target.folder)

    monkeypatch.setattr(Target, "finish", spoiled)
    (drill_row,) = lab.drill(backup_id=lab.backups[1])["drills"]
    assert drill_row["outcome"] == "different"
    assert text in drill_row["detail"]


@pytest.mark.long
def test_a_check_is_good_when_it_returns_no_row(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands, check = Commands(capsys), tmp_path / "check.sql"
    words = ("drill", "--repo", lab.folder, "--backup", lab.backups[1], "--check", check)
    check.write_text("SELECT path FROM restored WHERE bytes <> 100")
    assert commands.result(*words)["drills"][0]["outcome"] == "ok"
    check.write_text("SELECT r.path FROM restored AS r JOIN backups AS b ON r.bytes = 100 ORDER BY 1")
    code, output, err = commands.run(*words)
    assert code == Damaged.exit_code
    assert "the check found 10 rows" in err
    assert "path=t1/a1/0.sst" in output
    check.write_text("SELECT a.path FROM restored AS a, restored AS b")
    assert "the check found more than 20 rows" in commands.fails(Damaged.exit_code, *words)
    # Only a SELECT over the given tables is allowed. A drill whose check cannot run has failed.
    check.write_text("SELECT * FROM read_text('/etc/passwd')")
    assert "read_text" in commands.fails(Incomplete.exit_code, *words)
    assert [row["outcome"] for row in lab.rows()] == ["ok", "different", "different", "failed"]
    check.unlink()
    assert "--check" in commands.fails(NotFound.exit_code, *words)


def test_a_disk_without_room_is_an_error_in_words(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil.disk_usage(lab.scratch)._replace(free=499)
    monkeypatch.setattr(drill.shutil, "disk_usage", lambda _: full)
    (planned,) = lab.drill(backup_id=lab.backups[1], dry_run=True)["drills"]
    message = f"No room in {lab.scratch}: the restore takes 500 bytes, and 499 are free there."
    assert (planned["outcome"], planned["needed_bytes"], planned["free_bytes"]) == ("refused", 500, 499)
    assert planned["detail"].startswith(message)
    result = lab.drill(backup_id=lab.backups[1])
    (drill_row,) = result["drills"]
    assert (drill_row["outcome"], drill_row["real_ms"]) == ("failed", None)
    assert drill_row["detail"] == planned["detail"]
    with pytest.raises(Incomplete, match="Drills failed: yb: "):
        drill.require_good(result)
    assert not list(lab.scratch.iterdir())


def test_a_disk_that_fills_up_during_a_drill_is_an_error_in_words(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise EnvironmentProblem("Cannot write 1.sst: No space left on device.")

    monkeypatch.setattr(restore_snapshot, "_write", full)
    (drill_row,) = lab.drill()["drills"]
    assert (drill_row["outcome"], drill_row["detail"]) == (
        "failed",
        "Cannot write 1.sst: No space left on device.",
    )
    assert not list(lab.scratch.iterdir())


def test_a_trial_restore_without_room_is_no_damage(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise EnvironmentProblem("Cannot write 1.sst: No space left on device.")

    monkeypatch.setattr(restore_snapshot, "_write", full)
    error = Commands(capsys).fails(Incomplete.exit_code, "verify", "--restore", "--repo", lab.folder)
    assert f"Trial restores failed: {lab.backups[1]}: Cannot write 1.sst: No space left on device." in error
    assert lab.rows("SELECT * FROM checks WHERE mode = 'restore'") == []
    assert lab.rows("SELECT status FROM status") == [{"status": "OK"}]


def test_ctrl_c_leaves_nothing_behind(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: Any, **__: Any) -> None:
        assert list(lab.scratch.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(restore_snapshot, "_write", pressed)
    with pytest.raises(KeyboardInterrupt):
        lab.drill()
    assert not list(lab.scratch.iterdir())
    assert lab.rows() == []


_KILLED = """
import os, signal, sys
from tests.support.command_line import quiet
from lakebackup_jobs.snapshots import restore
from lakebackup_jobs.upkeep.drill import DrillRequest, run
write = restore._write
def killed(*given):
    write(*given)
    os.kill(os.getpid(), signal.SIGKILL)
restore._write = killed
run(DrillRequest(sys.argv[1], scratch=sys.argv[2]), reporter=quiet())
"""


def test_the_next_drill_deletes_the_scratch_folder_of_one_that_was_killed(lab: Lab) -> None:
    process = subprocess.run([sys.executable, "-c", _KILLED, lab.folder, lab.scratch], check=False)
    assert process.returncode == -signal.SIGKILL
    (scratch_folder,) = lab.scratch.iterdir()
    assert scratch_folder.name.startswith(drill.PREFIX)
    assert lab.rows() == []
    lab.drill(dry_run=True)
    assert [*lab.scratch.iterdir()] == [scratch_folder]
    lock = FolderLock(scratch_folder)  # as if its drill were still running
    assert lab.drill()["drills"][0]["outcome"] == "ok"
    lock.release()
    assert [*lab.scratch.iterdir()] == [scratch_folder]
    assert lab.drill()["drills"][0]["outcome"] == "ok"
    assert not list(lab.scratch.iterdir())
    assert [row["outcome"] for row in lab.rows()] == ["ok", "ok"]


def test_the_next_drill_forgets_the_plan_of_one_that_ended_early(lab: Lab) -> None:
    """A prune spares the files in the plan of an unfinished restore, and nobody resumes a drill."""
    plan_folders = {}
    for name, target in (("drill", f"dir:/gone/{drill.PREFIX}x/restored"), ("person", "dir:/mine")):
        row = filled(
            Restore,
            restore_id=name,
            at=1,
            scope=None,
            region=None,
            state="running",
            target=target,
            detail=json.dumps({"digest": name}),
        )
        CatalogWriter(None, lab.folder).append([row])
        plan_folders[name] = lab.snapshots.folder / "restores" / name / "plan"
        plan_folders[name].mkdir(parents=True)
        for file in ("tasks.json", "000000.jsonl"):
            (plan_folders[name] / file).write_text("[]")
    lease = Lease.acquire(lab.snapshots.storage, "restore-drill", "another drill", ttl_s=60)
    lab.drill()
    assert list(plan_folders["drill"].glob("*"))
    lease.release()
    lab.drill()
    lab.drill()
    assert not list(plan_folders["drill"].glob("*"))
    assert len(list(plan_folders["person"].glob("*"))) == 2


def test_impossible_drills_are_refused(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands, repo = Commands(capsys), ("--repo", lab.folder)
    assert "no source 'orders'" in commands.fails(NotFound.exit_code, "drill", "orders", *repo)
    exclusive_flags = ("--seed", "1", "--backup", "latest")
    assert "--seed and --backup exclude" in commands.fails(
        UsageProblem.exit_code, "drill", *exclusive_flags, *repo
    )
    missing_scratch = ("--scratch", tmp_path / "gone")
    assert "--scratch" in commands.fails(UsageProblem.exit_code, "drill", *missing_scratch, *repo)
    empty = GivenSnapshots(tmp_path / "empty")
    assert "nothing to restore" in commands.fails(NotFound.exit_code, "drill", "--repo", empty.folder)


def test_a_catalog_of_an_earlier_version_is_brought_up_to_date(lab: Lab) -> None:
    from lakebackup.rows.upkeep import Migration
    from lakebackup.sql_engine.delta.ddl import make_table
    from lakebackup.sql_engine.delta.table import append
    from lakebackup.storage import open_storage

    catalog = lab.snapshots.folder / "catalog"
    for table in ("drills", "migrations"):
        shutil.rmtree(catalog / table)
    make_table(open_storage(str(catalog)), "migrations")
    rows = [Migration(version=version, name="a", applied_at=1) for version in (1, 2, 3, 4)]
    append(open_storage(str(catalog)), "migrations", rows, "m")
    assert lab.rows() == []
    assert lab.rows("SELECT last_drill, drill_failures FROM status") == [
        {"last_drill": None, "drill_failures": 0}
    ]
    lab.drill()
    assert len(lab.rows()) == 1


def test_drills_use_the_folder_of_temporary_files_by_default(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(lab.scratch))
    scratch_contents: list[Path] = []
    write = restore_snapshot._write

    def record_scratch(*args: Any) -> Any:
        scratch_contents.extend(lab.scratch.iterdir())
        return write(*args)

    monkeypatch.setattr(restore_snapshot, "_write", record_scratch)
    drill.run(DrillRequest(lab.folder), reporter=quiet())
    assert scratch_contents
    assert not list(lab.scratch.iterdir())
