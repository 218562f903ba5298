from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from lakebackup.errors import NoPermission
from lakebackup.rules import layout
from lakebackup.storage import open_storage, working
from lakebackup.storage.local import LocalStorage
from lakebackup_jobs.lifecycle.leftovers import sweep

if TYPE_CHECKING:
    from pathlib import Path

BACKUP = "20260101T000000Z-00000001"
OTHER_BACKUP = "20260102T000000Z-00000002"
FINISHED_FOLDER = layout.restore_folder("over")


def of_backup(backup_id: str, path: str) -> str:
    return f"{layout.backups_folder('prod')}{backup_id}/{path}"


def age(folder: Path, days: float) -> None:
    mtime = time.time() - days * 86_400
    for path in folder.rglob("*"):
        os.utime(path, (mtime, mtime))


def test_working_files_of_finished_runs_are_deleted_and_all_else_stays(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    leftovers = {
        f"{FINISHED_FOLDER}plan/000000.jsonl": b"{}",
        f"{FINISHED_FOLDER}plan/tasks.json": working.OVER,
        f"{layout.restore_folder('over-too')}plan/rows-000000.parquet": b"rows",
        f"{layout.restore_folder('over-too')}plan/plan.json": working.OVER,
        f"{layout.restore_folder('complete')}plan/plan.json": b"{}",
        f"{layout.restore_folder('complete')}settings.json": b"{}",
        of_backup(BACKUP, "work/share"): b"x",
        of_backup(BACKUP, "progress/1"): b"[1, 2]",
    }
    needed = {
        f"{FINISHED_FOLDER}translation/epoch/0.parquet": b"rows",
        f"{layout.restore_folder('complete')}translation/epoch/0.parquet": b"rows",
        f"{layout.restore_folder('under-way')}plan/plan.json": b"[[]]",
        of_backup(BACKUP, "complete"): b"",
        of_backup(BACKUP, "manifest.json"): b"{}",
        of_backup(OTHER_BACKUP, "work/share"): b"of a backup that is not complete",
    }
    for path, data in (leftovers | needed).items():
        storage.put(path, data)
    assert sweep(storage, ["prod"], {"complete"}) == 0
    age(tmp_path, days=1.1)
    assert sweep(storage, ["prod"], {"complete"}) == len(leftovers)
    assert {entry.path for entry in storage.list()} == needed.keys()


@pytest.mark.parametrize(
    ("notes", "needed"),
    [
        (("aside/epoch-0.parquet",), ("plan/tasks.json", "plan/000000.jsonl", "plan/copy/0/base")),
        # It starts again, and puts the settings back at its end.
        (("queue.json", "done.json"), ("settings.json",)),
    ],
)
def test_files_that_an_interrupted_restore_needs_stay(
    tmp_path: Path, notes: tuple[str, ...], needed: tuple[str, ...]
) -> None:
    storage, folder = open_storage(str(tmp_path)), layout.restore_folder("interrupted")
    for path in notes:
        storage.put(f"{folder}{path}", working.OVER)
    for path in needed:
        storage.put(f"{folder}{path}", b"[[]]")
    age(tmp_path, days=1.1)
    assert sweep(storage, []) == len(notes)
    assert {entry.path for entry in storage.list()} == {f"{folder}{path}" for path in needed}


def test_without_permission_to_delete_an_index_is_overwritten_and_one_warning_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: LocalStorage, path: str) -> None:
        raise NoPermission(f"Cannot delete {path}.")

    storage = open_storage(str(tmp_path))
    monkeypatch.setattr(LocalStorage, "delete", refused)
    monkeypatch.setattr(working, "_warned", set())
    for path in ("plan/a", "plan/b", "index"):
        storage.put(path, b"data")
    assert working.empty(storage, "plan/") == 0
    working.retire(storage, "index")
    working.retire(storage, "what was never there")
    assert {entry.path: storage.get(entry.path) for entry in storage.list()} == {
        "plan/a": b"data",
        "plan/b": b"data",
        "index": working.OVER,
    }
    assert caplog.text.count("may not delete them") == 1
