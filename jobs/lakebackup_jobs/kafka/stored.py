"""Data files as restore tasks get them: in order, one partition after another, verified before use."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from lakebackup.errors import Damaged, NotFound
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.container import FileReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A row of the query selected_files, without its columns for sorting."""

    scope: str
    epoch: str
    region: str
    start_position: int
    end_position: int
    destination: str
    path: str
    format: str
    codec: str
    bytes: int
    sha256: str
    entries: int

    @property
    def partition(self) -> tuple[str, str, str]:
        return self.scope, self.epoch, self.region


def partitions(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[StoredFile, Iterator[StoredFile]]]:
    """The files of each partition in turn, as (the first of them, all of them); batches come sorted."""
    rows = (row for batch in batches for row in batch.select(StoredFile.__match_args__).to_pylist())
    files = (StoredFile(**row) for row in rows)
    for _, group in groupby(files, key=lambda file: file.partition):
        first = next(group)
        yield first, _again(first, group)  # noqa: B031 - each element is used once


def _again(first: StoredFile, rest: Iterator[StoredFile]) -> Iterator[StoredFile]:
    yield first
    yield from rest


def open_verified(roots: Mapping[str, str], file: StoredFile) -> FileReader:
    """The file's reader, after its size and sha256 were found to be the catalog's; Damaged otherwise.

    Holds the file in memory: what was hashed is what is read.
    """
    try:
        data = open_storage(roots[file.destination]).get(file.path)
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
    return FileReader(io.BytesIO(data), file.path)


class Counted:
    """Counts a file's records while it is used, and refuses one that holds others than its row says."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self.entries = 0

    def add(self, entries: int) -> None:
        self.entries += entries

    def check(self) -> None:
        """Raises Damaged when the file's records are not as many as the catalog says."""
        if self.entries != self._file.entries:
            raise Damaged(
                f"{self._file.path} holds {self.entries} records, its manifest says {self._file.entries}."
            )
