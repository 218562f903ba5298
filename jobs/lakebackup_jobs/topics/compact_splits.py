"""The files that a compaction reads, cut into pieces: consecutive files of one partition, one object a piece.

A piece is what one task reads and, of what stays, writes. Rows stream from the catalog to storage; the driver
keeps their number.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.kafka.format.stored_file import StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakebackup.storage import Storage

# Where much is dropped, less would leave many small files; more would hold the task's offsets in memory.
PIECE_BYTES = 128 << 20
PIECE_ENTRIES = 8_000_000


@dataclass(frozen=True, slots=True)
class Piece:
    """`part` numbers the partitions, `rank` a partition's pieces, both from 0 in order."""

    part: int
    rank: int
    files: tuple[StoredFile, ...]

    @property
    def entries(self) -> int:
        return sum(file.entries for file in self.files)


def cut(storage: Storage, folder: str, files: Iterable[StoredFile]) -> int:
    """Write the pieces of `files`, which come one partition after another in order; returns their number."""
    number = 0
    for number, piece in enumerate(_pieces(files), 1):
        text = json.dumps({"part": piece.part, "rank": piece.rank}) + "\n"
        text += "".join(json.dumps(_row(file)) + "\n" for file in piece.files)
        storage.put(_path(folder, number - 1), text.encode())
    return number


def read(storage: Storage, folder: str, number: int) -> Piece:
    """The piece with a number, from 0. Raises NotFound."""
    head, *lines = storage.get(_path(folder, number)).splitlines()
    return Piece(**json.loads(head), files=tuple(StoredFile(**json.loads(line)) for line in lines))


def clear(storage: Storage, folder: str) -> None:
    """Take the pieces away."""
    for found in list(storage.list(f"{folder}plan/")):
        storage.delete(found.path)


def _path(folder: str, number: int) -> str:
    return f"{folder}plan/{number:06d}.jsonl"


def _row(file: StoredFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in StoredFile.__match_args__}


def _pieces(files: Iterable[StoredFile]) -> Iterator[Piece]:
    for part, (_, some) in enumerate(groupby(files, key=lambda f: (f.scope, f.epoch, f.region))):
        rank = size = entries = 0
        held: list[StoredFile] = []
        for file in some:
            if size >= PIECE_BYTES or entries >= PIECE_ENTRIES:
                yield Piece(part, rank, tuple(held))
                rank, size, entries, held = rank + 1, 0, 0, []
            held.append(file)
            size += file.bytes
            entries += file.entries
        yield Piece(part, rank, tuple(held))
