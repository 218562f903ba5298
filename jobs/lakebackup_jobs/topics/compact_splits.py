"""The files that a compaction reads, cut into pieces: consecutive files of one partition, one object a piece.

A piece is what one task reads and, of what stays, writes. Rows stream from the catalog to storage; the driver
keeps their number.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from lakebackup_jobs.kafka.format.stored import StoredFile
from lakebackup_jobs.lifecycle.tasks.splits import PARTITION, batched, share_path, write_lines

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


def write(storage: Storage, folder: str, files: Iterable[StoredFile]) -> int:
    """Write the pieces of `files`, which come one partition after another in order; returns their number."""
    number = 0
    for number, piece in enumerate(_pieces(files), 1):
        head = {"part": piece.part, "rank": piece.rank}
        write_lines(storage, share_path(folder, number - 1), chain([head], map(asdict, piece.files)))
    return number


def read(storage: Storage, folder: str, number: int) -> Piece:
    """The piece with a number, from 0. Raises NotFound."""
    head, *lines = storage.get(share_path(folder, number)).splitlines()
    return Piece(**json.loads(head), files=tuple(StoredFile(**json.loads(line)) for line in lines))


def _pieces(files: Iterable[StoredFile]) -> Iterator[Piece]:
    limits = (attrgetter("bytes"), PIECE_BYTES), (attrgetter("entries"), PIECE_ENTRIES)
    for part, (_, some) in enumerate(groupby(files, key=attrgetter(*PARTITION))):
        for rank, held in enumerate(batched(some, *limits)):
            yield Piece(part, rank, tuple(held))
