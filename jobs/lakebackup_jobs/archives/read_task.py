"""Spark tasks that check the files of an archive and copy them, and what they share with readers."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

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


@contextmanager
def as_file(storage: Storage, path: str) -> Iterator[Path]:
    """Yield an object as a file that SQLite can open: a copy, unless the object is a local file."""
    if storage.uri.startswith("file://"):
        storage.stat(path)  # raises NotFound, and follows no symbolic link
        yield Path(storage.uri.removeprefix("file://"), path)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "data.cbb")
        with storage.open(path) as stream, copy.open("wb") as sink:
            shutil.copyfileobj(stream, sink, _CHUNK_BYTES)
        yield copy


def copy(
    source: Storage,
    path: str,
    sha256: str,
    target: Storage,
    to: str,
    count: Callable[[int, int], None] = lambda _files, _bytes: None,
) -> int:
    """Copy an object and return its size in bytes. The copy is committed only if `sha256` is its digest.

    `count(files, bytes)` is called for each chunk, and once for the file. Raises Damaged.
    """
    digest, size = hashlib.sha256(), 0
    with target.writer() as writer, source.open(path) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            writer.write(chunk)
            count(0, len(chunk))
        if digest.hexdigest() != sha256:
            raise Damaged(
                f"{path} is not what it was: its SHA-256 differs.",
                hint="Nothing of it was taken. Run this again when nothing writes to it.",
            )
        writer.commit(to, if_absent=False)
    count(1, 0)
    return size


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
        with as_file(storage, path) as file:
            summary = scan(file, path)
        return {"file": _ARCHIVE_FILES.dump_json([ArchiveFile(path, size, sha256, summary)]).decode()}


def check(cluster: Cluster | None, uri: str, paths: Sequence[str]) -> dict[str, ArchiveFile]:
    """Check .cbb files, each in its own task, and return them by path. Raises the first error of a task."""
    rows = run_all(CheckJob(uri, tuple(paths)), range(len(paths)), cluster, MOST_TASKS)
    return {file.path: file for row in rows for file in _ARCHIVE_FILES.validate_json(row.file)}


@dataclass(frozen=True, slots=True)
class CopyJob(Task):
    """Copies the file `files[number]` (path, sha256, path in the target) from `uri` to `target`.

    Tasks report their progress below `folder` of the target. For `private` see `open_storage`.
    """

    COLUMNS = "bytes BIGINT, error STRING"

    uri: str
    target: str
    files: tuple[tuple[str, str, str], ...]
    folder: str
    private: bool = True

    def run(self, number: int) -> Mapping[str, Any]:
        path, sha256, target_path = self.files[number]
        target = open_storage(self.target, private=self.private)
        count = TaskProgress(target, self.folder).counter(
            hashlib.sha256(target_path.encode()).hexdigest()[:16]
        )
        return {"bytes": copy(open_storage(self.uri), path, sha256, target, target_path, count)}
