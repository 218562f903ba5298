"""Delete working objects, which a run needs only while it runs.

Some accounts may add objects but delete none, so that an intruder on their machine cannot delete backups.
Runs of such an account must succeed too. Objects that it may not delete stay, until a run of another account
deletes them. An object to which the next run would react is replaced by the note `over`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lakebackup.errors import NoPermission, NotFound
from lakebackup.storage.interface import MANY, Storage

OVER = b"over\n"
_log = logging.getLogger(__name__)
_warned: set[str] = set()


def delete(storage: Storage, paths: Iterable[str]) -> int:
    """Delete working objects and return how many. If this account may not delete them, they stay, and a
    process logs one warning per server."""
    count = 0
    try:
        for path in paths:
            storage.delete(path)
            count += 1
    except NoPermission as error:
        if storage.server not in _warned:
            _warned.add(storage.server)
            _log.warning(
                "Working files in %s stay, since this account may not delete them: %s A run of an account "
                "that may delete them does so.",
                storage.uri,
                error.message,
            )
    return count


def empty(storage: Storage, folder: str) -> int:
    """Delete all working objects in a folder, as `delete` does."""
    return delete(storage, [stat.path for stat in storage.list(folder)])


def retire(storage: Storage, path: str) -> None:
    """Delete a working object. If this account may not, replace it by the note, so that `read_latest` finds
    none."""
    if not delete(storage, [path]) and storage.exists(path):
        storage.put(path, OVER)


def read_latest(storage: Storage, path: str) -> bytes:
    """Read a working object. Raises NotFound if it does not exist, or if the note replaces it."""
    data = storage.get(path, length=MANY)
    if data == OVER:
        raise NotFound(f"{path} in {storage.uri} is over.")
    return data
