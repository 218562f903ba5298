"""The key of a repository's metadata, stored in the repository and wrapped for the recipients of its backups.

The object has no name to hide, and is stored in clear. It is written before the repository's lakebackup.json,
so that no metadata is stored that only a lost file could open.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from lakebackup.encryption.metadata_key import MetadataKey
from lakebackup.encryption.recipients import Identities, WrappedKey, recipient, wrap
from lakebackup.encryption.storage import KEY_FIELD, EncryptedStorage
from lakebackup.errors import NotFound, UsageProblem
from lakebackup.rules import layout
from lakebackup.rules.stored_json import NO_JSON
from lakebackup.storage import A_FEW, Storage
from lakebackup.store.manifest import read_record, write_record

_HINT = "Restore it from another copy of the repository, or keep the file of the key."


class NoMetadataKey(UsageProblem):
    """The metadata of a repository is encrypted, and this process does not have its key."""


def _nobody() -> tuple[str, ...]:
    return ()


# The URIs of repositories whose metadata this process has seen to be stored in clear.
_in_clear: set[str] = set()
_recipients: Callable[[], tuple[str, ...]] = _nobody


def wrap_for(recipients: Callable[[], tuple[str, ...]]) -> None:
    """Set who can open the key of a new repository's metadata, in this process."""
    global _recipients
    _recipients = recipients


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMetadataKey:
    """The object of the key. `wrapped_at`: microseconds since 1970 UTC."""

    key_id: str
    wrapped_at: int
    wrapped_keys: list[WrappedKey]


def root_fields(storage: Storage) -> dict[str, str]:
    """Return what lakebackup.json says of a repository's metadata: the id of the key that encrypts it."""
    return {KEY_FIELD: storage.uri.key.key_id} if isinstance(storage, EncryptedStorage) else {}


def prepare(storage: Storage) -> None:
    """Store the key of a new repository's metadata, if it is encrypted, for the recipients of the settings.

    Raises UsageProblem if there are none, and if the repository has a key already, but not this one.
    """
    try:
        key_id = _read(storage).key_id
    except NotFound:
        key_id = None
    if isinstance(storage, EncryptedStorage) and key_id is None:
        recipients = _recipients()
        if not recipients:
            raise UsageProblem(
                f"The metadata of {storage.uri} would be encrypted, and nobody could open its backups.",
                hint="Set recipients under [encryption] beside metadata_key_file.",
            )
        rewrap(storage, recipients)
    elif key_id is not None:  # an earlier run was killed here, or lakebackup.json is lost
        require_opened(storage, {KEY_FIELD: key_id})


def rewrap(storage: Storage, recipients: Iterable[str]) -> None:
    """Store the key of a repository's metadata, if it is encrypted, for some recipients and nobody else."""
    if isinstance(storage, EncryptedStorage):
        data_key = storage.uri.key.data_key
        wrapped_keys = wrap(data_key, map(recipient, recipients))
        wrapped_at = time.time_ns() // 1000
        record = StoredMetadataKey(key_id=data_key.key_id, wrapped_at=wrapped_at, wrapped_keys=wrapped_keys)
        write_record(storage, layout.METADATA_KEY_FILE, record)


def open_key(storage: Storage, identities: Identities) -> MetadataKey:
    """Open the key that a repository stores. Raises NotFound (it stores none), and Damaged."""
    try:
        record = _read(storage)
    except NotFound:
        raise NotFound(
            f"{storage.uri} has no {layout.METADATA_KEY_FILE}: its metadata is stored in clear.",
            hint="Check --repo. A repository without encrypted metadata needs no metadata_key_file.",
        ) from None
    return MetadataKey(identities.open(record.key_id, record.wrapped_keys, layout.METADATA_KEY_FILE))


def require_opened(storage: Storage, root_file: Mapping[str, object]) -> None:
    """Raise NoMetadataKey if the metadata of a repository is encrypted and the storage does not decrypt it,
    UsageProblem the other way round, and Damaged if it has another key."""
    if isinstance(storage, EncryptedStorage):
        storage.uri.require_agreement(root_file)
    elif (key_id := root_file.get(KEY_FIELD)) is None:
        _in_clear.add(storage.uri)
    else:
        raise NoMetadataKey(
            f"The metadata of {storage.uri} is encrypted with the key {key_id}, and no such key is set.",
            hint="Set metadata_key_file under [encryption]. `lakebackup key recover` writes the file with an "
            "identity.",
        )


def require_key(storage: Storage) -> None:
    """Raise NoMetadataKey if the repository's metadata is encrypted and the storage does not decrypt it.

    Call it before the first object of a command is written, which would be in clear and seen by nobody. A
    process reads lakebackup.json once for it.
    """
    if isinstance(storage, EncryptedStorage) or storage.uri in _in_clear:
        return
    with suppress(NotFound, AttributeError, *NO_JSON):  # a new repository; others report a damaged file
        require_opened(storage, json.loads(storage.get(layout.ROOT_FILE, length=A_FEW)))


def _read(storage: Storage) -> StoredMetadataKey:
    return read_record(storage, layout.METADATA_KEY_FILE, StoredMetadataKey, _HINT)
