"""Opens the data keys of the files that a run has chosen, once, on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from lakebackup.encryption.objects import BackupKey, DataKey, Keyring
from lakebackup.encryption.recipients import Identities
from lakebackup.errors import Damaged, LakebackupError, Refused, UsageProblem
from lakebackup.storage import Storage
from lakebackup.store import data_keys
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import Roots
from lakebackup_jobs.runtime.identities import MISSING_HINT, configured_identities


def has_keys(reader: CatalogReader) -> bool:
    """Whether any backup in the catalog is encrypted."""
    return reader.count("data_keys") > 0


def keyring(reader: CatalogReader, roots: Roots, *, identity_file: str | None = None) -> Keyring:
    """Open the data keys of the relation `selected` of a reader, which has the columns destination and path.

    `identity_file`: in place of that of the settings. Reads one object a key. Raises UsageProblem (files are
    encrypted, and no identity is set) and Damaged (a key is lost, damaged, or another's), and as
    `Identities.load`. An error says whether it concerns the identity.
    """
    rows = reader.rows("selected_keys") if has_keys(reader) else []
    return open_keys(roots, rows, identity_file=identity_file)


def open_keys(roots: Roots, rows: list[dict[str, Any]], *, identity_file: str | None = None) -> Keyring:
    """Open the data keys of rows of selected_keys. Raises as `keyring`."""
    if not rows:
        return Keyring()
    try:
        identities = configured_identities(identity_file)
    except LakebackupError as error:
        raise error.with_identity_concern() from None
    if identities is None:
        key_object = read_key(roots, rows[0])
        others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        raise UsageProblem(
            f"Backup {key_object.backup_id}{others} is encrypted, and no identity is set. Its recipients: "
            f"{', '.join(key_object.recipients)}.",
            hint=MISSING_HINT,
        ).with_identity_concern()
    return Keyring(open_key(identities, read_key(roots, row)) for row in rows)


def open_roots(reader: CatalogReader, plan: PlanFile) -> Roots:
    """The roots of a run that reads the files of a plan, with their data keys. Raises as `keyring`."""
    roots = reader.destinations()
    return roots.with_keys(keyring(reader.with_rows("selected", plan), roots))


def open_replaced(reader: CatalogReader, plan: PlanFile, encryption: RunEncryption | None) -> Roots:
    """The roots of a run that reads the files of a plan and replaces them by new ones, with their data keys.

    Raises Refused if files are encrypted and those that replace them would not be, and as `keyring`.
    """
    roots = open_roots(reader, plan)
    if roots.keys and encryption is None:
        raise Refused(
            "These backups are encrypted, and what replaces them would not be: no recipient is set.",
            hint="Set recipients under [encryption] of lakebackup.toml.",
        )
    return roots


def keys_of_backups(storage: Storage, backups: Iterable[tuple[str, str]]) -> Keyring:
    """Open the data keys of backups (source, id) that the identity of the settings opens."""
    identities = configured_identities()
    if identities is None:
        return Keyring()
    keys: list[BackupKey] = []
    for source, backup_id in backups:
        for key_id in data_keys.key_ids(storage, source, backup_id):
            with suppress(Damaged):  # what it encrypts is reported where it is read
                keys.append(open_key(identities, data_keys.read(storage, source, backup_id, key_id)))
    return Keyring(keys)


def open_key(identities: Identities, key_object: data_keys.StoredKey) -> BackupKey:
    """Open a stored data key. Raises Damaged as `Identities.open`."""
    data_key = identities.open(key_object.key_id, key_object.wrapped_keys, key_object.path)
    return BackupKey(data_key, key_object.source, key_object.backup_id)


def staged_key(key: BackupKey, restore_id: str) -> BackupKey:
    """The key of what a restore stages in the repository: it follows from a data key of what it reads."""
    return BackupKey(DataKey.derive(key.data_key.key, "staged", restore_id), key.source, restore_id)


def read_key(roots: Roots, row: Mapping[str, Any]) -> data_keys.StoredKey:
    """Read the object of the data key of a row: destination, source, backup_id, key_id. Raises Damaged."""
    return data_keys.read(roots.open(row["destination"]), row["source"], row["backup_id"], row["key_id"])
