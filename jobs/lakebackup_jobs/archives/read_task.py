"""Spark tasks that check the files of an archive and copy them, and what they share with readers."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ConfigDict, TypeAdapter

from lakebackup.encryption.objects import BackupKey, Keyring
from lakebackup.encryption.segments import SealedObject
from lakebackup.errors import Damaged
from lakebackup.formats.archives.cbb import scan
from lakebackup.formats.archives.chain import ArchiveFile
from lakebackup.sql_engine.worker import Cluster
from lakebackup.storage import Storage, open_storage
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import Task, run_all

MOST_TASKS = 2_000
_ARCHIVE_FILES = TypeAdapter(list[ArchiveFile], config=ConfigDict(ser_json_bytes="hex", val_json_bytes="hex"))
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A file of an archive as it is stored: in the archive itself, or in a repository.

    `key_id`: the data key that encrypts it; None if it is not encrypted. `bytes` and `sha256` are of the
    stored object.
    """

    path: str
    sha256: str
    bytes: int = 0
    key_id: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> StoredObject:
        """The object of a row of archive_files."""
        return cls(row["path"], row["sha256"], row["bytes"], row["key_id"])


@contextmanager
def opened(storage: Storage, file: StoredObject, keys: Keyring) -> Iterator[BinaryIO | SealedObject]:
    """Yield the content of a file as a stream. Raises NotFound, and Damaged as `Keyring.open`."""
    if file.key_id is None:
        with storage.open(file.path) as stream:
            yield stream
        return

    def read_range(start: int, length: int) -> bytes:
        return storage.get(file.path, start=start, length=length)

    yield keys.open(file.path, "files", (file.path,), file.bytes, read_range)


@contextmanager
def as_file(storage: Storage, file: StoredObject, keys: Keyring) -> Iterator[Path]:
    """Yield the content of an object as a file that SQLite can open: a copy, unless it is such a file."""
    if storage.uri.startswith("file://") and file.key_id is None:
        storage.stat(file.path)  # raises NotFound, and follows no symbolic link
        yield Path(storage.uri.removeprefix("file://"), file.path)
        return
    with tempfile.TemporaryDirectory() as folder:
        content = Path(folder, "data.cbb")
        with opened(storage, file, keys) as stream, content.open("wb") as sink:
            shutil.copyfileobj(stream, sink, _CHUNK_BYTES)
        yield content


def copy(
    source: Storage,
    file: StoredObject,
    target: Storage,
    to: str,
    *,
    keys: Keyring,
    key: BackupKey | None = None,
    count: Callable[[int, int], None] = lambda _files, _bytes: None,
) -> StoredObject:
    """Copy an object, and return the copy. `keys` decrypt it, and `key` encrypts the copy, if there is one.

    The copy is committed only if the object is what it was. `count(files, bytes)` is called for each chunk,
    and once for the file. Raises Damaged.
    """
    sealer = key.sealer("files", (to,)) if key else None
    content_digest, stored_digest, size = hashlib.sha256(), hashlib.sha256(), 0

    def content() -> Iterator[bytes]:
        with opened(source, file, keys) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                content_digest.update(chunk)
                count(0, len(chunk))
                yield chunk

    with target.writer() as writer:
        for piece in sealer.chunks(content()) if sealer else content():
            stored_digest.update(piece)
            size += len(piece)
            writer.write(piece)
        if file.key_id is None and content_digest.hexdigest() != file.sha256:
            raise Damaged(
                f"{file.path} is not what it was: its SHA-256 differs.",
                hint="Nothing of it was taken. Run this again when nothing writes to it.",
            )
        writer.commit(to, if_absent=False)
    count(1, 0)
    return StoredObject(to, stored_digest.hexdigest(), size, key.key_id if key else None)


def require_same(storage: Storage, path: str, sha256: str) -> None:
    """Raise Damaged when an object is not what the catalog says, NotFound when it does not exist."""
    if storage.sha256(path) != sha256:
        raise Damaged(
            f"{path} is not what was written: its SHA-256 differs.",
            hint="Restore the file from a copy, or choose another backup.",
        )


@dataclass(frozen=True, slots=True)
class CheckJob(Task):
    """Checks the .cbb file `paths[number]`."""

    COLUMNS = "file STRING, error STRING"

    uri: str
    paths: tuple[str, ...]

    def run(self, number: int) -> Mapping[str, Any]:
        storage, path = open_storage(self.uri), self.paths[number]
        sha256, size = storage.sha256(path), storage.stat(path).bytes
        with as_file(storage, StoredObject(path, sha256, size), Keyring()) as file:
            summary = scan(file, path)
        return {"file": _ARCHIVE_FILES.dump_json([ArchiveFile(path, size, sha256, summary)]).decode()}


def check(cluster: Cluster | None, uri: str, paths: Sequence[str]) -> dict[str, ArchiveFile]:
    """Check .cbb files, each in its own task, and return them by path. Raises the first error of a task."""
    rows = run_all(CheckJob(uri, tuple(paths)), range(len(paths)), cluster, MOST_TASKS)
    return {file.path: file for row in rows for file in _ARCHIVE_FILES.validate_json(row.file)}


@dataclass(frozen=True, slots=True)
class CopyJob(Task):
    """Copies the file `files[number]` (object, path in the target) from `uri` to `target`.

    `keys` and `key`: see `copy`. Tasks report their progress below `folder` of the target. For `private` see
    `open_storage`.
    """

    COLUMNS = "path STRING, bytes BIGINT, sha256 STRING, error STRING"

    uri: str
    target: str
    files: tuple[tuple[StoredObject, str], ...]
    folder: str
    keys: Keyring
    key: BackupKey | None = None
    private: bool = True

    def run(self, number: int) -> Mapping[str, Any]:
        file, to = self.files[number]
        target = open_storage(self.target, private=self.private)
        count = TaskProgress(target, self.folder).counter(hashlib.sha256(to.encode()).hexdigest()[:16])
        stored = copy(open_storage(self.uri), file, target, to, keys=self.keys, key=self.key, count=count)
        return {"path": stored.path, "bytes": stored.bytes, "sha256": stored.sha256}
