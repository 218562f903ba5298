"""A storage whose names and metadata are encrypted: whoever can read it sees sizes, times and numbers.

It wraps the storage that has the objects. Each part of a path becomes a token, except the folders of leases,
prunes and the like, which are the same in every repository. Objects with a data key are stored as they are;
all others are encrypted with the metadata key. docs/adr/0022-encrypted-metadata.md says why.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from lakebackup.encryption.metadata_key import MetadataKey
from lakebackup.encryption.objects import (
    MAGIC,
    PREFIX_BYTES,
    BackupKey,
    ObjectSealer,
    key_id_of,
    opened_bytes,
    sealed_bytes,
)
from lakebackup.encryption.segments import ReadRange, SealedObject
from lakebackup.errors import Damaged, LakebackupError, NotFound, UsageProblem
from lakebackup.rules.layout import DATA_SUFFIXES, METADATA_KEY_FILE, RESERVED, ROOT_FILE
from lakebackup.rules.stored_json import NO_JSON
from lakebackup.storage import A_FEW, EncryptedUri, ObjectStat, ObjectWriter, Source, Storage

#: The field of lakebackup.json with the id of the key.
KEY_FIELD = "metadata_key"
_IN_CLEAR = frozenset({ROOT_FILE, METADATA_KEY_FILE})
_READ_BYTES = 1 << 20


class RepositoryUri(EncryptedUri):
    """The URI of a repository whose metadata is encrypted. `file`: what errors call the key."""

    key: MetadataKey
    file: str
    _agrees: bool

    @classmethod
    def of(cls, uri: str, key: MetadataKey, file: Path) -> RepositoryUri:
        self = cls(uri)
        self.key, self.file, self._agrees = key, str(file), False
        return self

    def open(self, storage: Storage) -> EncryptedStorage:
        """Raises UsageProblem if the repository's metadata is stored in clear, and Damaged if it has another
        key."""
        if not self._agrees:
            with suppress(NotFound):  # a new repository
                content = storage.get(ROOT_FILE, length=A_FEW)
                with suppress(*NO_JSON, AttributeError):  # whoever needs the file reports that it is damaged
                    self.require_agreement(json.loads(content))
                    self._agrees = True
        return EncryptedStorage(storage, self)

    def require_agreement(self, root_file: Mapping[str, object]) -> None:
        """Raise the errors of `open`, given the content of the repository's lakebackup.json."""
        key_id = root_file.get(KEY_FIELD)
        if key_id is None:
            raise UsageProblem(
                f"The metadata of {self} is stored in clear, and metadata_key_file is set.",
                hint="Its encryption begins with a new repository: name one, or unset metadata_key_file.",
            )
        if key_id != self.key.key_id:
            raise Damaged(
                f"The metadata of {self} is encrypted with the key {key_id}, and {self.file} is the key "
                f"{self.key.key_id}.",
                hint="Name its own key as metadata_key_file. `lakebackup key recover` writes it with an "
                "identity.",
            )


class EncryptedStorage(Storage):
    """The objects of another storage, by their names in clear. Objects of other programs are not seen."""

    def __init__(self, storage: Storage, uri: RepositoryUri) -> None:
        self._storage, self._uri = storage, uri
        self._names = uri.key.names
        self._key = BackupKey(uri.key.contents, "", "metadata")

    @property
    def uri(self) -> RepositoryUri:
        return self._uri

    @property
    def server(self) -> str:
        return self._storage.server

    def hurried(self, seconds: float) -> Storage:
        return EncryptedStorage(self._storage.hurried(seconds), self._uri)

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        self._storage.put_all({self._token(path): self._sealed(path, data) for path, data in objects.items()})

    def put_in_parts(self, path: str, data: bytes) -> None:
        with self.token_of(path) as token:
            self._storage.put_in_parts(token, self._sealed(path, data))

    def writer(self) -> ObjectWriter:
        return _Writer(self._storage.writer(), self, self._content())

    def upload(
        self,
        path: str,
        stream: Source,
        *,
        size_hint: int | None = None,
        if_absent: bool = True,
        metadata: Mapping[str, str] | None = None,  # noqa: ARG002 (it would be in clear)
    ) -> int:
        content = self._content()
        source = stream if path in _IN_CLEAR else _SealedSource(path, stream, content)
        size = None if size_hint is None else sealed_bytes(size_hint)
        with self.token_of(path) as token:
            stored = self._storage.upload(token, source, size_hint=size, if_absent=if_absent)
        return stored if path in _IN_CLEAR else content.size

    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        self._check_range(path, start, length)
        with self.token_of(path) as token:
            if _is_stored_as_it_is(path):
                return self._storage.get(token, start=start, length=length)
            if start:
                with self.open(path) as stream:
                    stream.seek(start)
                    return stream.read(-1 if length is None else length)
            # A whole object, as most are, takes one request.
            most = None if length is None else sealed_bytes(length) + 1
            data = self._storage.get(token, length=most)
            if most is None or len(data) < most:
                view = memoryview(data)
                opened = self._opened(path, len(data), lambda begin, size: view[begin : begin + size])
                return opened.read(length)
        with self.open(path) as stream:
            return stream.read(-1 if length is None else length)

    def open(self, path: str) -> BinaryIO:
        with self.token_of(path) as token, ExitStack() as stack:
            stream = self._storage.open(token)
            if _is_stored_as_it_is(path):
                return stream
            stack.callback(stream.close)

            def read_range(start: int, length: int) -> bytes:
                stream.seek(start)
                return stream.read(length)

            content = self._opened(path, stream.seek(0, io.SEEK_END), read_range)
            return cast("BinaryIO", _Reader(content, stack.pop_all()))

    def _opened(self, path: str, size: int, read_range: ReadRange) -> SealedObject:
        """The content of an object of metadata that has `size` bytes."""
        if key_id_of(bytes(read_range(0, PREFIX_BYTES))) != self._key.key_id:
            raise Damaged(
                f"{path} is not encrypted with the key of the repository's metadata.",
                hint="Another program wrote it, or it is damaged. Restore it from another copy of the "
                "repository.",
            )
        return self._key.open(path, "metadata", (), size, read_range)

    def stat(self, path: str) -> ObjectStat:
        with self.token_of(path) as token:
            return self._in_clear(path, self._storage.stat(token))

    def sha256(self, path: str) -> str:
        if not _is_stored_as_it_is(path):
            return super().sha256(path)
        with self.token_of(path) as token:
            return self._storage.sha256(token)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectStat]:
        """As in every storage, with a request for each folder. Memory holds the names of one folder."""
        children = {name if stat else f"{name}/": stat for name, stat in self.children(prefix)}
        for name in sorted(children):
            path, stat = prefix + name, children[name]
            if stat is None:
                if path > start_after or start_after.startswith(path):
                    yield from self.list(path, start_after=start_after)
            elif path > start_after:
                yield stat

    def children(self, prefix: str = "") -> Iterator[tuple[str, ObjectStat | None]]:
        self._check_prefix(prefix)
        folder = f"{self._token(prefix[:-1])}/" if prefix else ""
        for token, stat in self._storage.children(folder):
            name = token if _stays(prefix + token) else self._names.name(prefix, token)
            if name is not None:
                yield name, stat and self._in_clear(prefix + name, stat)

    def folders(self, prefix: str = "") -> Iterator[str]:
        for name in sorted(name for name, stat in self.children(prefix) if stat is None):
            if any(True for _ in self.list(f"{prefix}{name}/")):
                yield name

    def delete(self, path: str) -> None:
        with self.token_of(path) as token:
            self._storage.delete(token)

    def _token(self, path: str) -> str:
        """The path of an object or a folder as it is stored."""
        self._check(path)
        tokens, folder = [], ""
        for name in path.split("/"):
            tokens.append(name if _stays(folder + name) else self._names.token(folder, name))
            folder += f"{name}/"
        return "/".join(tokens)

    @contextmanager
    def token_of(self, path: str) -> Iterator[str]:
        """Yield the token of a path. Errors in the block name the path instead."""
        token = self._token(path)
        try:
            yield token
        except LakebackupError as error:
            error.message = error.message.replace(token, path)
            raise

    def _in_clear(self, path: str, stat: ObjectStat) -> ObjectStat:
        """The stat of an object with its name, and the size of its content. A damaged one has that of what is
        stored."""
        size = stat.bytes if _is_stored_as_it_is(path) else opened_bytes(stat.bytes)
        return ObjectStat(path, stat.bytes if size is None else size, stat.modified_ms)

    def _content(self) -> _Content:
        return _Content(self._key.sealer("metadata", ()))

    def _sealed(self, path: str, data: bytes) -> bytes:
        if path in _IN_CLEAR:
            return data
        content = self._content()
        sealed = content.update(data) + content.finish()
        content.require_name(path)
        return sealed


class _Content:
    """Encrypts the content of an object piece by piece, unless a data key encrypts it already. `size`: its
    bytes so far."""

    def __init__(self, sealer: ObjectSealer) -> None:
        self._sealer, self._beginning, self.size = sealer, b"", 0
        self._has_data_key: bool | None = None
        self._is_over = False

    def update(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return the stored bytes that are complete once `data` follows."""
        if data and self._is_over:
            raise ValueError("an encrypted object is complete once it was committed")
        self.size += len(data)
        piece = bytes(data)
        if self._has_data_key is None:
            self._beginning += piece
            if len(self._beginning) < len(MAGIC):
                return b""
            piece, self._beginning = self._beginning, b""
            self._has_data_key = piece.startswith(MAGIC)
        return piece if self._has_data_key else self._sealer.update(piece)

    def finish(self) -> bytes:
        """Return the rest of the stored bytes; none if it was called before."""
        if self._has_data_key or self._is_over:
            return b""
        self._has_data_key, self._is_over = False, True
        return self._sealer.update(self._beginning) + self._sealer.finish()

    def require_name(self, path: str) -> None:
        """Raise UsageProblem if the finished content has no data key, and objects of that name have one."""
        if _has_data_key(path) and not self._has_data_key:
            raise UsageProblem(
                f"{path} would not be encrypted, and the metadata of the repository is.",
                hint="Set recipients under [encryption]: whoever hides the metadata encrypts the data too.",
            )
        if self._has_data_key and not _has_data_key(path):
            raise ValueError(f"{path} has a data key, and its name does not show it")


class _Reader(io.BufferedReader):
    """The content of an encrypted object. Closing it closes the stream of what is stored."""

    def __init__(self, content: SealedObject, stored: ExitStack) -> None:
        super().__init__(content, _READ_BYTES)
        self._stored = stored

    def close(self) -> None:
        super().close()
        self._stored.close()


class _SealedSource:
    """The stored bytes of a stream."""

    def __init__(self, path: str, stream: Source, content: _Content) -> None:
        self._path, self._stream, self._content = path, stream, content
        self._pending, self._is_over = b"", False

    def read(self, size: int, /) -> bytes:
        while len(self._pending) < size and not self._is_over:
            if data := self._stream.read(size):
                self._pending += self._content.update(data)
            else:
                self._is_over = True
                self._pending += self._content.finish()
                self._content.require_name(self._path)
        data, self._pending = self._pending[:size], self._pending[size:]
        return data


class _Writer(ObjectWriter):
    def __init__(self, writer: ObjectWriter, storage: EncryptedStorage, content: _Content) -> None:
        self._writer, self._storage, self._content = writer, storage, content

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if piece := self._content.update(data):
            self._writer.write(piece)

    def commit(self, path: str, *, if_absent: bool = True, metadata: Mapping[str, str] | None = None) -> None:
        del metadata  # it would be in clear
        if rest := self._content.finish():
            self._writer.write(rest)
        self._content.require_name(path)
        with self._storage.token_of(path) as token:
            self._writer.commit(token, if_absent=if_absent)

    def close(self) -> None:
        self._writer.close()


def _stays(path: str) -> bool:
    """Whether the last name of a path is stored in clear: it is the same in every repository."""
    return path in _IN_CLEAR or path in RESERVED


def _has_data_key(path: str) -> bool:
    return path.endswith(DATA_SUFFIXES)


def _is_stored_as_it_is(path: str) -> bool:
    return path in _IN_CLEAR or _has_data_key(path)
