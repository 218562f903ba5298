"""Working files of runs whose account may not delete: `lakebackup.storage.working` says why they stay."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakebackup.rules import layout
from lakebackup.storage import working

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakebackup.storage import Storage

_DAY_MS = 86_400_000
# Of a backup's folder, what its run needed only while it ran.
_OF_BACKUP = ("made", "marks", "plan", "progress", "seen", "work")
# Of a restore's folder, what its runs look for first. Other notes there do not say that the restore is over.
_INDEXES = frozenset({"plan/tasks.json", "staged.json", "queue.json", "own.json"})
# Of a restore's folder, what a catalog is rebuilt from, and the settings that topics get back.
_PERMANENT = ("translation/", "settings.json")


def sweep(storage: Storage, sources: Iterable[str]) -> int:
    """Delete the working files of a destination that no run needs; returns their number.

    Files of the last day stay, since a run may be resuming from them.
    """
    count = working.delete(storage, _of_restores(storage))
    for source in sources:
        count += working.delete(storage, _of_backups(storage, source))
    return count


def _of_restores(storage: Storage) -> Iterator[str]:
    for name in storage.folders(f"{layout.RESTORES_FOLDER}/"):
        folder = layout.restore_folder(name)
        aged = [item for item in storage.list(folder) if item.modified_ms < _yesterday()]
        notes = {
            item.path.removeprefix(folder)
            for item in aged
            if item.bytes == len(working.OVER) and storage.get(item.path) == working.OVER
        }
        if not notes.isdisjoint(_INDEXES):
            others = {item.path.removeprefix(folder) for item in aged} - notes
            yield from (f"{folder}{path}" for path in others if not path.startswith(_PERMANENT))
        yield from (f"{folder}{path}" for path in notes)


def _of_backups(storage: Storage, source: str) -> Iterator[str]:
    complete, backups = "", layout.backups_folder(source)
    for item in storage.list(backups):
        backup_id, _, path = item.path.removeprefix(backups).partition("/")
        if path == "complete":  # listed before the others
            complete = backup_id
        is_working = path.partition("/")[0] in _OF_BACKUP
        if is_working and backup_id == complete and item.modified_ms < _yesterday():
            yield item.path


def _yesterday() -> float:
    return time.time() * 1000 - _DAY_MS
