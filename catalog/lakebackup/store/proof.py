"""Checks that a storage refuses a second conditional put of a name, and that its listings are up to date.

Leases and the catalog's commits depend on both. A server that ignores `If-None-Match`, or that lists an old
state, lets two runs win one name, and nobody notices before a restore. So the first lease in a storage tests
the storage before anything else is written there:

1. Put the probe, with a random length, whether or not it exists.
2. Put the same name conditionally, at once and as an upload in parts. The server must refuse both.
3. List the folder. The listing must show the probe with the length of the first put.

A record beside the probe names the server, so each storage is tested once, and again after a move. Both
objects stay, so no right to delete is needed, and there are never more than two.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial

from lakebackup.errors import EnvironmentProblem, NotFound
from lakebackup.rules import layout
from lakebackup.rules.stored_json import object_of
from lakebackup.storage import A_FEW, AlreadyExists, Storage
from lakebackup.store.metadata_keys import require_key

_PROBE = f"{layout.PROOF_FOLDER}probe"
_RECORD = f"{layout.PROOF_FOLDER}proved.json"
_FORMAT = 1
_LENGTHS = range(64, 4096)
# Another process may test the same storage and overwrite the probe. Then the test is repeated.
_ATTEMPTS = 8
_HINT = (
    "Nothing else was written there. Use a server with conditional puts (If-None-Match: *) and strong "
    "consistency, or a folder. If a gateway, a proxy or a cache in front of it does this, go around that and "
    "run the same command again."
)
#: Root, server and class of each storage that this process has proved. With and without the key of its
#: metadata, a storage is not the same.
_proved: set[tuple[str, str, type[Storage]]] = set()
_proving = threading.RLock()


def require_conditional_puts(storage: Storage) -> None:
    """Prove a storage, unless a record says that it was proved.

    Raises EnvironmentProblem when it accepts a second conditional put, or does not list what was put.
    """
    with _proving:
        kind = type(storage)
        if any(
            (server, proved_kind) == (storage.server, kind) and f"{storage.uri}/".startswith(f"{root}/")
            for root, server, proved_kind in _proved
        ):
            return
        if _record(storage) != storage.server:
            require_key(storage)  # otherwise the record may be there, under a name that is encrypted
            _prove(storage)
            content = {"format": _FORMAT, "server": storage.server, "at": time.time_ns() // 1_000_000}
            storage.put(_RECORD, json.dumps(content).encode())
        _proved.add((storage.uri, storage.server, kind))


def _record(storage: Storage) -> str | None:
    """The server that the record names as proved; None when there is no record that can be read."""
    try:
        content = object_of(storage.get(_RECORD, length=A_FEW))
    except NotFound:
        return None
    return content.get("server") if content.get("format") == _FORMAT else None


def _prove(storage: Storage) -> None:
    for _ in range(_ATTEMPTS):
        data = secrets.token_bytes(secrets.choice(_LENGTHS))
        storage.put(_PROBE, data)
        _require_refused(storage, "a put", partial(storage.put, if_absent=True))
        _require_refused(storage, "an upload in parts", storage.put_in_parts)
        sizes = [listed.bytes for listed in storage.list(layout.PROOF_FOLDER) if listed.path == _PROBE]
        content = _content(storage)
        # A probe that another process put since then proves the listing just as well.
        if content is not None and sizes == [len(content)]:
            return
        if content == data:
            listing = f"with {sizes[0]} bytes, as it was before" if sizes else "not at all"
            raise EnvironmentProblem(
                f"{storage.server} is not safe for backups: it lists {_PROBE} in {storage.uri} {listing}, "
                f"after it acknowledged a put of {len(data)} bytes. A run would not see what another wrote.",
                hint=_HINT,
            )
        time.sleep(secrets.randbelow(1000) / 1000)
        if _record(storage) == storage.server:
            return
    raise EnvironmentProblem(
        f"{storage.uri} could not be tried out: something else writes {_PROBE} there all the time.",
        hint="Stop that, then run the same command again.",
    )


def _require_refused(storage: Storage, operation: str, write: Callable[[str, bytes], None]) -> None:
    try:
        write(_PROBE, secrets.token_bytes(16))
    except AlreadyExists:
        return
    raise EnvironmentProblem(
        f"{storage.server} is not safe for backups: it accepted {operation} of {_PROBE} in {storage.uri} on "
        "the condition that there is no such object, although there was one. Two runs at once would "
        "overwrite each other's work.",
        hint=_HINT,
    )


def _content(storage: Storage) -> bytes | None:
    try:
        return storage.get(_PROBE, length=A_FEW)
    except NotFound:
        return None
