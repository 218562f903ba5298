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
OTHER = "20260102T000000Z-00000002"
OVER_FOLDER = layout.restore_folder("over")


def of_backup(backup_id: str, path: str) -> str:
    return f"{layout.backups_folder('prod')}{backup_id}/{path}"


def age(folder: Path, days: float) -> None:
    at = time.time() - days * 86_400
    for path in folder.rglob("*"):
        os.utime(path, (at, at))


def test_working_files_of_what_is_over_go_and_all_else_stays(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    over = {
        f"{OVER_FOLDER}plan/000000.jsonl": b"{}",
        f"{OVER_FOLDER}plan/tasks.json": working.OVER,
        of_backup(BACKUP, "work/share"): b"x",
        of_backup(BACKUP, "progress/1"): b"[1, 2]",
    }
    others = {
        f"{OVER_FOLDER}translation/epoch/0.parquet": b"rows",
        f"{layout.restore_folder('under-way')}plan/tasks.json": b"[[]]",
        of_backup(BACKUP, "complete"): b"",
        of_backup(BACKUP, "manifest.json"): b"{}",
        of_backup(OTHER, "work/share"): b"of a backup that is not complete",
    }
    for path, data in (over | others).items():
        storage.put(path, data)
    assert sweep(storage, ["prod"]) == 0
    age(tmp_path, days=1.1)
    assert sweep(storage, ["prod"]) == len(over)
    assert {found.path for found in storage.list()} == others.keys()


@pytest.mark.parametrize(
    ("notes", "needed"),
    [
        (("aside/epoch-0.parquet",), ("plan/tasks.json", "plan/000000.jsonl", "plan/copy/0/base")),
        (("queue.json", "done.json"), ("settings.json",)),  # it starts again, and puts them back when done
    ],
)
def test_what_an_interrupted_restore_needs_stays(
    tmp_path: Path, notes: tuple[str, ...], needed: tuple[str, ...]
) -> None:
    storage, folder = open_storage(str(tmp_path)), layout.restore_folder("interrupted")
    for path in notes:
        storage.put(f"{folder}{path}", working.OVER)
    for path in needed:
        storage.put(f"{folder}{path}", b"[[]]")
    age(tmp_path, days=1.1)
    assert sweep(storage, []) == len(notes)
    assert {item.path for item in storage.list()} == {f"{folder}{path}" for path in needed}


def test_who_may_not_delete_ends_what_a_later_run_would_act_on_and_warns_once(
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
    assert {found.path: storage.get(found.path) for found in storage.list()} == {
        "plan/a": b"data",
        "plan/b": b"data",
        "index": working.OVER,
    }
    assert caplog.text.count("may not delete them") == 1
