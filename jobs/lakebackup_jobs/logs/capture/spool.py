"""Records of a change feed on their way into log files, in bounded memory.

They are held until they take HELD_BYTES, then the largest groups are written as frames to one temporary file,
until half is left: a hot region and ten thousand quiet ones take the same memory, and few frames are small.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from lakebackup.formats.logs.logfile import MOST_RAW, LogFileWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HELD_BYTES = 64 << 20
#: What is compressed at once.
FRAME_BYTES = 8 << 20
# An object store takes long to answer, a disk long to sync: small files go several at a time, large ones not.
_AT_ONCE = 8
_LARGE = 4 << 20


class Group(NamedTuple):
    """What the records of one log file have in common."""

    store: str
    region: int
    table_id: int
    cf: str
    op: str


@dataclass(slots=True)
class _Held:
    """Records of a group that are in memory, and its file as far as it is on disk."""

    pieces: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0
    writer: LogFileWriter | None = None

    def add(self, piece: pa.RecordBatch) -> None:
        self.pieces.append(piece)
        self.bytes += piece.nbytes

    def take(self) -> pa.RecordBatch:
        """All of them as one batch of its own memory."""
        return next(self.frames(self.bytes + 1))

    def frames(self, most: int) -> Iterator[pa.RecordBatch]:
        """All of them as batches of about `most` bytes; each is dropped before the next one is made."""
        pieces = deque(chain.from_iterable(_cut(piece, most) for piece in self.pieces))
        self.pieces, self.bytes = [], 0
        while pieces:
            some = [pieces.popleft()]
            size = some[0].nbytes
            while pieces and size + pieces[0].nbytes <= most:
                size += pieces[0].nbytes
                some.append(pieces.popleft())
            yield pa.concat_batches(some)


class Spool:
    """Sorts records into log files. `open_file` starts one, `publish` stores one that is whole.

    `publish` is called on several threads at once.
    """

    def __init__(
        self,
        open_file: Callable[[Group], LogFileWriter],
        publish: Callable[[LogFileWriter], None],
        *,
        held_bytes: int = HELD_BYTES,
        most_raw: int = MOST_RAW,
    ) -> None:
        self._open_file, self._publish = open_file, publish
        self._limit, self._most_raw = held_bytes, most_raw
        self._groups: dict[Group, _Held] = {}
        self._bytes = 0

    def add(self, records: pa.RecordBatch) -> None:
        """More records: columns of `events.captured_schema()`. Raises EnvironmentProblem, Damaged."""
        for group, piece in split(records):
            self._groups.setdefault(group, _Held()).add(piece)
        self._bytes += records.nbytes
        if self._bytes > self._limit:
            self._spill()

    def finish(self) -> None:
        """Publish what is left. Raises EnvironmentProblem."""
        small: list[LogFileWriter] = []
        for group in sorted(self._groups):
            held = self._groups.pop(group)
            writer = self._written(group, held)
            if writer.raw_bytes < _LARGE:
                small.append(writer)
            else:
                self._publish(writer)
        self._bytes = 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                for _ in pool.map(self._publish, small):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _spill(self) -> None:
        left = self._bytes = sum(held.bytes for held in self._groups.values())
        waiting = [(group, held) for group, held in self._groups.items() if held.pieces]
        for group, held in sorted(waiting, key=lambda item: -item[1].bytes):
            if left > self._limit // 2:
                left -= held.bytes
                held.writer = self._written(group, held)
            elif len(held.pieces) > 1 or _borrows(held.pieces[0]):
                # A slice holds on to the whole batch that it is of.
                held.add(held.take())
        self._bytes = sum(held.bytes for held in self._groups.values())

    def _written(self, group: Group, held: _Held) -> LogFileWriter:
        """The group's file with all that was held; files that it filled are published."""
        writer = held.writer or self._open_file(group)
        if not held.pieces:
            return writer
        for piece in held.frames(min(FRAME_BYTES, self._most_raw // 2)):
            if writer.entries and writer.raw_bytes + piece.nbytes > self._most_raw:
                self._publish(writer)
                writer = self._open_file(group)
            writer.add(piece)
        return writer


def split(records: pa.RecordBatch) -> Iterator[tuple[Group, pa.RecordBatch]]:
    """Records of `events.captured_schema()` by group, in their order, without the group's columns."""
    if not len(records):
        return
    coded = [records[name].dictionary_encode() for name in ("store", "cf", "op")]
    codes = [np.asarray(array.indices) for array in coded]
    columns = [codes[0], np.asarray(records["region"]), np.asarray(records["table_id"]), *codes[1:]]
    order = np.lexsort(columns[::-1])
    same = np.ones(len(order) - 1, bool)
    for column in columns:
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    begins = [0, *(np.flatnonzero(~same) + 1).tolist(), len(order)]
    rest = records.select([name for name in records.schema.names if name not in Group._fields])
    if not (order[1:] > order[:-1]).all():
        rest = rest.take(pa.array(order))
    firsts = order[begins[:-1]]
    stores, families, ops = (array.dictionary.take(array.indices.take(firsts)).to_pylist() for array in coded)
    regions, tables = (column[firsts].tolist() for column in columns[1:3])
    for i, group in enumerate(map(Group, stores, regions, tables, families, ops)):
        yield group, rest.slice(begins[i], begins[i + 1] - begins[i])


def _cut(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Pieces of about `most` bytes, one where it is small."""
    count = min(len(batch), -(-batch.nbytes // most))
    step = -(-len(batch) // max(1, count))
    for begin in range(0, len(batch), step):
        yield batch.slice(begin, step)


def _borrows(batch: pa.RecordBatch) -> bool:
    return bool(batch.get_total_buffer_size() > 2 * batch.nbytes)
