"""Working objects: what a run needs only while it runs, and deletes when it ends.

Some roles may add objects and delete none, so that whoever takes over a machine cannot delete its backups. A
run under such a role must end well. What it may not delete stays, for one who may; what would make the next
run act is replaced by a note that it is over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lakebackup.errors import NoPermission, NotFound
from lakebackup.storage import MANY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebackup.storage import Storage

OVER = b"over\n"
_log = logging.getLogger(__name__)
_warned: set[str] = set()


def delete(storage: Storage, paths: Iterable[str]) -> int:
    """Delete working objects; returns how many. Where this account may delete none they stay, which a process
    warns of once."""
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
    """Delete the working objects below a folder, as `delete` does."""
    return delete(storage, [item.path for item in storage.list(folder)])


def retire(storage: Storage, path: str) -> None:
    """Delete a working object, or replace it where this account may not: `get` then finds none."""
    if not delete(storage, [path]) and storage.exists(path):
        storage.put(path, OVER)


def get(storage: Storage, path: str) -> bytes:
    """A working object that is not over. Raises NotFound."""
    data = storage.get(path, length=MANY)
    if data == OVER:
        raise NotFound(f"{path} in {storage.uri} is over.")
    return data
