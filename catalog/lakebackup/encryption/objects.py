"""Encrypted objects: which data key encrypts an object, and which name is bound to it.

A stored object begins with a magic (8 bytes) and the id of its data key (8 bytes); the segments follow. The
name that is bound to them is a JSON array: the key's id, the source and the backup of the key, the kind of
object, and what distinguishes it from all other objects of its key. docs/adr/0020-encrypted-objects.md says
why.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from lakebackup.encryption import segments
from lakebackup.encryption.segments import KEY_BYTES, ReadRange, SealedObject, Sealer, stored_bytes
from lakebackup.errors import Damaged

MAGIC = b"LKBENC1\n"
KEY_ID_BYTES = 8
PREFIX_BYTES = len(MAGIC) + KEY_ID_BYTES
#: A data file of topics, the key filter of one, an object with files of a snapshot, or one of metadata.
Kind = Literal["data", "keys", "files", "metadata"]
#: Topic, epoch, partition and first offset of a data file. Its key filter has those of the file.
FileName = tuple[str, str, str, int]
#: What distinguishes an object from all others of its data key. Of an object of a snapshot, it is the path;
#: metadata has nothing, since some of it is written before its path is known.
BoundName = FileName | tuple[str] | tuple[()]


class NamedFile(Protocol):
    """The columns of a data file's row that an encrypted file and its key filter are bound to."""

    @property
    def scope(self) -> str: ...
    @property
    def epoch(self) -> str: ...
    @property
    def region(self) -> str: ...
    @property
    def start_position(self) -> int: ...


def name_of(file: NamedFile) -> FileName:
    """Return what distinguishes a data file from all others of its data key."""
    return file.scope, file.epoch, file.region, file.start_position


def key_id_of(prefix: bytes) -> str | None:
    """Return the id of the data key of an object that begins with `prefix`; None if it is not encrypted."""
    if not prefix.startswith(MAGIC) or len(prefix) < PREFIX_BYTES:
        return None
    return prefix[len(MAGIC) : PREFIX_BYTES].hex()


def sealed_bytes(content_bytes: int) -> int:
    """Return the size of an encrypted object whose content has `content_bytes`."""
    return PREFIX_BYTES + stored_bytes(content_bytes)


def opened_bytes(object_bytes: int) -> int | None:
    """Return the size of the content of an encrypted object of `object_bytes`; None if none has that size."""
    return segments.content_bytes(object_bytes - PREFIX_BYTES)


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key of a backup's objects. `key_id`: 16 hex digits. Its repr does not show the key."""

    key_id: str
    key: bytes = field(repr=False)

    @classmethod
    def random(cls) -> DataKey:
        """Return a new key."""
        return cls(secrets.token_hex(KEY_ID_BYTES), secrets.token_bytes(KEY_BYTES))

    @classmethod
    def derive(cls, secret: bytes, *context: str) -> DataKey:
        """Return the key that follows from a secret and a context. The id does not show the key."""
        size = KEY_ID_BYTES + KEY_BYTES
        derived = HKDFExpand(SHA256(), size, json.dumps(context).encode()).derive(secret)
        return cls(derived[:KEY_ID_BYTES].hex(), derived[KEY_ID_BYTES:])


@dataclass(frozen=True, slots=True)
class BackupKey:
    """A data key, and the backup whose objects it encrypts."""

    data_key: DataKey
    source: str
    backup_id: str

    @property
    def key_id(self) -> str:
        return self.data_key.key_id

    def sealer(self, kind: Kind, name: BoundName) -> ObjectSealer:
        """Return what encrypts one object."""
        return ObjectSealer(self, kind, name)

    def file_sealer(self, partition: tuple[str, str, str]) -> Callable[[int], ObjectSealer]:
        """Return the function that makes the sealer of a data file from the file's first offset.

        `partition`: topic, epoch and partition of the files.
        """
        return lambda start: self.sealer("data", (*partition, start))

    def seal(self, kind: Kind, name: BoundName, content: bytes) -> bytes:
        """Encrypt a small object."""
        sealer = self.sealer(kind, name)
        return sealer.update(content) + sealer.finish()

    def open(self, path: str, kind: Kind, name: BoundName, size: int, read_range: ReadRange) -> SealedObject:
        """Return the content of an object that this key encrypts. The arguments are those of
        `Keyring.open`."""
        return SealedObject(
            self.data_key.key,
            self.bound_name(kind, name),
            size - PREFIX_BYTES,
            lambda start, length: read_range(PREFIX_BYTES + start, length),
            path=path,
        )

    def bound_name(self, kind: Kind, name: BoundName) -> str:
        """Return the name that is bound to an object."""
        return json.dumps([self.key_id, self.source, self.backup_id, kind, *name])


class ObjectSealer:
    """Encrypts one object, piece by piece."""

    def __init__(self, key: BackupKey, kind: Kind, name: BoundName) -> None:
        self._prefix = MAGIC + bytes.fromhex(key.key_id)
        self._sealer = Sealer(key.data_key.key, key.bound_name(kind, name))
        self._content = 0

    @property
    def size(self) -> int:
        """The size of the stored object, if nothing follows."""
        return sealed_bytes(self._content)

    def update(self, data: bytes | memoryview) -> bytes:
        """Return the stored bytes that are complete once `data` follows."""
        self._content += len(data)
        return self._take_prefix() + self._sealer.update(data)

    def finish(self) -> bytes:
        """Return the rest of the stored bytes."""
        return self._take_prefix() + self._sealer.finish()

    def chunks(self, content: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the stored bytes of a whole content, in pieces that are not empty."""
        for piece in content:
            if sealed_piece := self.update(piece):
                yield sealed_piece
        yield self.finish()

    def _take_prefix(self) -> bytes:
        prefix, self._prefix = self._prefix, b""
        return prefix


class Keyring(Mapping[str, BackupKey]):
    """The data keys that a run has opened, by their ids. Its repr shows no key."""

    def __init__(self, keys: Iterable[BackupKey] = ()) -> None:
        self._keys = {key.key_id: key for key in keys}

    def __getitem__(self, key_id: str) -> BackupKey:
        return self._keys[key_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._keys)})"

    def open(self, path: str, kind: Kind, name: BoundName, size: int, read_range: ReadRange) -> SealedObject:
        """Return the content of an encrypted object as a stream, which raises Damaged where it is damaged.

        `size` is that of the stored object, and `read_range` reads its bytes. Raises Damaged if the object is
        not encrypted, or if its key was not opened.
        """
        key_id = key_id_of(bytes(read_range(0, PREFIX_BYTES)))
        if key_id is None:
            raise Damaged(
                f"{path} is not encrypted, and its row in the catalog names a data key.",
                hint="Restore it from another copy of the repository.",
            )
        key = self.get(key_id)
        if key is None:
            raise Damaged(
                f"{path} is encrypted with the data key {key_id}, which was not opened for it.",
                hint="Set an identity that opens it. If it is the object of another backup, restore this one "
                "from another copy of the repository.",
            )
        return key.open(path, kind, name, size, read_range)

    def open_data(self, path: str, kind: Kind, name: BoundName, data: bytes) -> SealedObject:
        """Return the content of an encrypted object whose bytes are `data`. Raises as `open`."""
        view = memoryview(data)
        return self.open(path, kind, name, len(data), lambda start, length: view[start : start + length])
