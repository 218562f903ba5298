"""Opens data files for tasks: a file is verified before its first record is read, and counted at its end."""

from __future__ import annotations

import hashlib
import io
import platform
from dataclasses import dataclass
from typing import BinaryIO

from lakebackup.encryption.objects import PREFIX_BYTES, NamedFile, key_id_of, name_of
from lakebackup.errors import Damaged, EnvironmentProblem, NotFound
from lakebackup.plan.partitions import Partition
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.runtime.memory_limit import memory_limit

# Smaller files fit into memory anywhere.
_LARGE_BYTES = 256 << 20
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredFile(Partition):
    """A data file of a partition as a restore task needs it: a row of the query selected_files."""

    start_position: int
    end_position: int
    destination: str
    path: str
    format: str
    codec: str
    bytes: int
    sha256: str
    entries: int


def open_verified(roots: Roots, file: StoredFile) -> FileReader:
    """Return a file's reader. Raises Damaged unless its size and sha256 are the catalog's, and
    EnvironmentProblem when it does not fit into memory.

    Keeps the file in memory, so that the bytes that are read are those that were hashed.
    """
    if file.bytes > _LARGE_BYTES and file.bytes > memory_limit():
        raise EnvironmentProblem(
            f"{file.path} has {file.bytes} bytes. A task holds it in memory, and {platform.node()} has "
            f"{memory_limit()} bytes (the machine, or the limit of its container).",
            hint="Run this where there is more memory. A lower --target-size of backups makes smaller files.",
        )
    try:
        data = roots.open(file.destination).get(file.path)
    except NotFound:
        raise Damaged(
            f"{file.path} is missing.",
            hint="`lakebackup verify` lists all that is missing; --select with --partial leaves it out.",
        ) from None
    if len(data) != file.bytes or hashlib.sha256(data).hexdigest() != file.sha256:
        raise Damaged(
            f"{file.path} is not what was written: {len(data)} bytes where the catalog says {file.bytes}, "
            "or other contents (sha256).",
            hint="Nothing of it was restored. Bring the file back from a copy, or choose another backup.",
        )
    return FileReader(open_stored(roots, file.path, file, data), file.path, file.entries)


def open_stored(roots: Roots, path: str, file: NamedFile, data: bytes) -> BinaryIO:
    """Return the content of a stored data file as a stream, which decrypts an encrypted file. Raises Damaged
    if its key was not opened, or is another one's."""
    if key_id_of(data[:PREFIX_BYTES]) is None:
        return io.BytesIO(data)
    return io.BufferedReader(roots.keys.open_data(path, "data", name_of(file), data), _BUFFER_BYTES)
