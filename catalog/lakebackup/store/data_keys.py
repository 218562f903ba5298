"""Data keys beside their backups: objects with the keys, each wrapped for its recipients.

A run writes its key's object before its first data object. The backup's rows of `data_keys` are made from
these objects, when it is published and when a catalog is rebuilt.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lakebackup.encryption.objects import BackupKey, DataKey
from lakebackup.encryption.recipients import WrappedKey, recipient, wrap
from lakebackup.encryption.storage import EncryptedStorage
from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.rows.backups import KeyRecipient
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store.manifest import read_record, write_record

_SECRET_BYTES = 32
_HINT = "Restore it from another copy of the repository: without it, the files of its backup stay encrypted."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """The object of a data key. `created_at`, `wrapped_at`: microseconds since 1970 UTC."""

    key_id: str
    source: str
    backup_id: str
    created_at: int
    wrapped_at: int
    wrapped_keys: Sequence[WrappedKey]

    @property
    def path(self) -> str:
        return layout.data_key_path(self.source, self.backup_id, self.key_id)

    @property
    def recipients(self) -> list[str]:
        """The names of the recipients."""
        return [wrapped.recipient for wrapped in self.wrapped_keys]

    @property
    def rows(self) -> list[KeyRecipient]:
        """The rows of the table `data_keys`."""
        return [
            KeyRecipient(
                key_id=self.key_id,
                source=self.source,
                backup_id=self.backup_id,
                recipient=recipient,
                created_at=self.created_at,
                wrapped_at=self.wrapped_at,
            )
            for recipient in self.recipients
        ]


@dataclass(frozen=True, slots=True)
class RunEncryption:
    """How a run encrypts its backups: `recipients` can open its data keys.

    The keys follow from a secret, so that all processes of the run have the same key for a backup. A run that
    resumes a backup has another secret, and so another key.
    """

    recipients: tuple[str, ...]
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(_SECRET_BYTES), repr=False)

    @classmethod
    def of(cls, recipients: Iterable[str], storage: Storage) -> RunEncryption | None:
        """Return how a run encrypts for some recipients; None without recipients.

        Raises UsageProblem if the storage's metadata is encrypted: then the data is encrypted too.
        """
        names = tuple(recipients)
        if not names and isinstance(storage, EncryptedStorage):
            raise UsageProblem(
                f"The metadata of {storage.uri} is encrypted, and nobody could open the backup.",
                hint="Set recipients under [encryption] beside metadata_key_file.",
            )
        return cls(names) if names else None

    def key(self, source: str, backup_id: str) -> BackupKey:
        """Return this run's key of a backup."""
        return BackupKey(DataKey.derive(self.secret, source, backup_id), source, backup_id)

    def stored_key(self, storage: Storage, source: str, backup_id: str) -> BackupKey:
        """Write the object of this run's key of a backup, and return the key. Call it before the first file
        is written. Raises UsageProblem (a recipient is none) and EnvironmentProblem."""
        key = self.key(source, backup_id)
        store(storage, key, self.recipients)
        return key


def store(
    storage: Storage, key: BackupKey, recipients: Iterable[str], *, created_at: int | None = None
) -> StoredKey:
    """Wrap a key for some recipients and write its object. Replaces an older one."""
    time_us = time.time_ns() // 1000
    key_object = StoredKey(
        key_id=key.key_id,
        source=key.source,
        backup_id=key.backup_id,
        created_at=time_us if created_at is None else created_at,
        wrapped_at=time_us,
        wrapped_keys=wrap(key.data_key, map(recipient, recipients)),
    )
    write_record(storage, key_object.path, key_object)
    return key_object


def read(storage: Storage, source: str, backup_id: str, key_id: str) -> StoredKey:
    """Read the object of a key. Raises Damaged (it is missing, torn, or that of another key)."""
    path = layout.data_key_path(source, backup_id, key_id)
    try:
        key_object = read_record(storage, path, StoredKey, _HINT)
    except NotFound:
        raise Damaged(f"The data key {path} is lost.", hint=_HINT) from None
    if key_object.path != path:
        raise Damaged(f"{path} is the object of another data key: {key_object.path}.", hint=_HINT)
    return key_object


def key_ids(storage: Storage, source: str, backup_id: str) -> list[str]:
    """Return the ids of the data keys of a backup."""
    folder = layout.data_keys_folder(source, backup_id)
    names = (entry.path.removeprefix(folder) for entry in storage.list(folder))
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def of_backup(storage: Storage, source: str, backup_id: str) -> Iterator[StoredKey]:
    """Read the objects of all data keys of a backup. Raises Damaged."""
    return (read(storage, source, backup_id, key_id) for key_id in key_ids(storage, source, backup_id))
