"""Delete working files that runs left because their account may not delete; see
`lakebackup.storage.working`."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator

from lakebackup.rules import layout
from lakebackup.storage import Storage, working

_DAY_MS = 86_400_000
# The subfolders of a backup's folder that only its run needed.
_BACKUP_FOLDERS = ("made", "marks", "plan", "progress", "seen", "work")
# The objects of a restore's folder that its runs read first. Only a note in place of one of these shows that
# the restore is over.
_INDEXES = frozenset({"plan/plan.json", "plan/tasks.json", "staged.json", "queue.json", "own.json"})
# The objects of a restore's folder that stay, since a rebuild of the catalog reads them.
_TRANSLATION = "translation/"
# Until a restore is complete, topics get their settings back from this object.
_SETTINGS = "settings.json"


def sweep(storage: Storage, sources: Iterable[str], complete: Container[str] = ()) -> int:
    """Delete the working files of a destination that no run needs. Returns their number.

    Files of the last day stay, because a run may resume from them. `complete`: ids of restores that are
    complete; a run that is killed right after its last row leaves its plan, and settings that it gave back.
    """
    count = working.delete(storage, _restore_leftovers(storage, complete))
    for source in sources:
        count += working.delete(storage, _backup_leftovers(storage, source))
    return count


def _restore_leftovers(storage: Storage, complete: Container[str]) -> Iterator[str]:
    for name in storage.folders(f"{layout.RESTORES_FOLDER}/"):
        folder = layout.restore_folder(name)
        old_objects = [entry for entry in storage.list(folder) if entry.modified_ms < _yesterday()]
        note_paths = {
            entry.path.removeprefix(folder)
            for entry in old_objects
            if entry.bytes == len(working.OVER) and storage.get(entry.path) == working.OVER
        }
        if name in complete or not note_paths.isdisjoint(_INDEXES):
            permanent = (_TRANSLATION,) if name in complete else (_TRANSLATION, _SETTINGS)
            paths = {entry.path.removeprefix(folder) for entry in old_objects} - note_paths
            yield from (f"{folder}{path}" for path in paths if not path.startswith(permanent))
        yield from (f"{folder}{path}" for path in note_paths)


def _backup_leftovers(storage: Storage, source: str) -> Iterator[str]:
    complete, backups = "", layout.backups_folder(source)
    for entry in storage.list(backups):
        backup_id, _, path = entry.path.removeprefix(backups).partition("/")
        if path == "complete":  # the marker is listed before the working files
            complete = backup_id
        is_working = path.partition("/")[0] in _BACKUP_FOLDERS
        if is_working and backup_id == complete and entry.modified_ms < _yesterday():
            yield entry.path


def _yesterday() -> float:
    return time.time() * 1000 - _DAY_MS
