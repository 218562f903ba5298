"""Destinations and their roots. A root's own lakebackup.json proves which destination it is."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping

from lakebackup.encryption.objects import Keyring
from lakebackup.encryption.storage import KEY_FIELD
from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.rules import layout
from lakebackup.rules.stored_json import NO_JSON
from lakebackup.storage import A_FEW, AlreadyExists, Storage, open_storage, with_key
from lakebackup.store import metadata_keys

FORMAT = 1
#: The format of a repository whose metadata is encrypted. Earlier versions refuse it.
ENCRYPTED_FORMAT = 2


class Roots:
    """The roots of a catalog's destinations. `uris`: id -> URI of the root.

    A row of the catalog may be wrong or forged. So `open` and `uri` first check that the root proves itself,
    once for each object of this class (a Spark task has one), before anything below it is read or deleted.
    `refused`: destinations that this machine does not read, and why. `keys`: the data keys of the encrypted
    objects that are read below them.
    """

    def __init__(
        self,
        uris: Mapping[str, str],
        refused: Mapping[str, Refused] | None = None,
        keys: Keyring | None = None,
    ) -> None:
        self.uris = dict(uris)
        self.refused = dict(refused or {})
        self.keys = keys or Keyring()
        self._proved: dict[str, Storage] = {}

    def __reduce__(self) -> tuple[object, ...]:
        # In another process, only its key opens a repository whose metadata is encrypted.
        return Roots, ({name: with_key(uri) for name, uri in self.uris.items()}, self.refused, self.keys)

    @property
    def readable(self) -> Mapping[str, str]:
        """The roots that this machine reads: id -> URI."""
        return {name: uri for name, uri in self.uris.items() if name not in self.refused}

    def including(self, destination: str, uri: str) -> Roots:
        """These roots and one more, which the caller knows and which is not refused."""
        refused = {name: refusal for name, refusal in self.refused.items() if name != destination}
        return Roots({**self.uris, destination: uri}, refused, self.keys)

    def with_keys(self, keys: Keyring) -> Roots:
        """These roots with the data keys of what is read."""
        return Roots(self.uris, self.refused, keys)

    def open(self, destination: str) -> Storage:
        """The storage of a destination, after its lakebackup.json has proved its id.

        Raises Refused when the file has another id or is missing, when the catalog does not know the
        destination, or when the destination was not approved on this machine. Raises Damaged when the file
        cannot be read.
        """
        if destination in self.refused:
            raise self.refused[destination]
        if destination not in self._proved:
            self._proved[destination] = self._prove(destination)
        return self._proved[destination]

    def uri(self, destination: str) -> str:
        """The URI of a destination's root, which has proved itself. Raises the same errors as `open`."""
        return self.open(destination).uri

    def _prove(self, destination: str) -> Storage:
        if destination not in self.uris:
            raise Refused(
                f"The catalog does not know where repository {destination} is.",
                hint="If its row was left out of an import, run `lakebackup catalog import` again with "
                "--trust-root URI.",
            )
        storage = open_storage(self.uris[destination])
        try:
            root_id = destination_id(storage, create=False)
        except NotFound:
            root_id = None
        if root_id != destination:
            has = f"that of repository {root_id}" if root_id else "none"
            raise Refused(
                f"{storage.uri} does not prove to be repository {destination}: the {layout.ROOT_FILE} there "
                f"is {has}.",
                hint="Nothing was read or deleted there. Check that the right file system is mounted. If the "
                f"file was lost, and only then, put it back: {root_file(storage, destination)}",
            )
        return storage


def destination_id(storage: Storage, *, create: bool = True) -> str:
    """The id of a destination, from its lakebackup.json. With `create`, a missing file is written.

    Raises NotFound (the file is missing and `create` is false), Refused (it is missing although there are
    backups, which would then belong to no destination), Damaged, or UsageProblem (a newer version wrote it,
    or the key of its metadata is not set).
    """
    try:
        content = json.loads(storage.get(layout.ROOT_FILE, length=A_FEW))
        version, destination = content["format"], content["destination"]
        if not isinstance(version, int) or not isinstance(destination, str):
            raise TypeError("a field is of the wrong type")
        newest = ENCRYPTED_FORMAT if KEY_FIELD in content else FORMAT
    except NotFound:
        if not create:
            raise
        _require_new(storage)
        destination = secrets.token_hex(8)
        metadata_keys.prepare(storage)
        try:
            storage.put(layout.ROOT_FILE, root_file(storage, destination).encode(), if_absent=True)
        except AlreadyExists:
            return destination_id(storage)
        return destination
    except (KeyError, TypeError, *NO_JSON) as error:
        raise Damaged(
            f"{layout.ROOT_FILE} in {storage.uri} cannot be read: {error!r}.",
            hint='It should be like {"format": 1, "destination": "<id>"}; the id is a column of `files`.',
        ) from error
    if version > newest:
        raise UsageProblem(
            f"{storage.uri} has format version {version}; this lakebackup knows versions up to {newest}.",
            hint="Use the lakebackup that wrote it, or a newer one.",
        )
    metadata_keys.require_opened(storage, content)
    return destination


def root_file(storage: Storage, destination: str) -> str:
    """The content of lakebackup.json of a destination."""
    fields = metadata_keys.root_fields(storage)
    return json.dumps(
        {"format": ENCRYPTED_FORMAT if fields else FORMAT, "destination": destination, **fields}
    )


def _require_new(storage: Storage) -> None:
    """Raises Refused if there are backups: their rows have the lost id, so a new one would cut them off."""
    for source in filter(None, map(layout.source_of, storage.folders())):
        for backup_id in storage.folders(layout.backups_folder(source)):
            if layout.is_backup_id(backup_id) and storage.exists(
                layout.marker_path(source, backup_id, "complete")
            ):
                raise Refused(
                    f"{storage.uri} holds backups of {source}, but no {layout.ROOT_FILE}.",
                    hint=f"Put it back: {root_file(storage, '<id>')}; the id is the column `destination` of "
                    "the view `files`.",
                )
