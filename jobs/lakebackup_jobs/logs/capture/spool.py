"""Write the records of a change feed into one log file per group, in bounded memory.

Records are buffered. Above HELD_BYTES, the largest groups are written to temporary files until half is left:
one busy region needs as much memory as ten thousand quiet ones, and few frames are small.
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
#: Most bytes that are compressed as one frame.
FRAME_BYTES = 8 << 20
# Requests and syncs have high latency: files smaller than _LARGE_FILE are published in parallel.
_PUBLISH_THREADS = 8
_LARGE_FILE = 4 << 20


class Group(NamedTuple):
    """What the records of one log file have in common."""

    store: str
    region: int
    table_id: int
    cf: str
    op: str


@dataclass(slots=True)
class _Buffer:
    """A group's records in memory, and its log file with the records that were written before."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0
    writer: LogFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.bytes += batch.nbytes

    def take(self) -> pa.RecordBatch:
        """Remove all records; returns them copied into one batch."""
        return next(self.frames(self.bytes + 1))

    def frames(self, most: int) -> Iterator[pa.RecordBatch]:
        """Remove all records; yields batches of about `most` bytes, and frees each before the next."""
        slices = deque(chain.from_iterable(_slices(batch, most) for batch in self.batches))
        self.batches, self.bytes = [], 0
        while slices:
            frame = [slices.popleft()]
            size = frame[0].nbytes
            while slices and size + slices[0].nbytes <= most:
                size += slices[0].nbytes
                frame.append(slices.popleft())
            yield pa.concat_batches(frame)


class Spool:
    """Distributes records over log files. `open_file` opens one, `publish` stores a complete one.

    `publish` runs on several threads at once.
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
        self._groups: dict[Group, _Buffer] = {}
        self._bytes = 0

    def add(self, records: pa.RecordBatch) -> None:
        """More records: columns of `events.captured_schema()`. Raises EnvironmentProblem, Damaged."""
        for group, piece in split(records):
            self._groups.setdefault(group, _Buffer()).add(piece)
        self._bytes += records.nbytes
        if self._bytes > self._limit:
            self._spill()

    def finish(self) -> None:
        """Publish all remaining files. Raises EnvironmentProblem."""
        small: list[LogFileWriter] = []
        for group in sorted(self._groups):
            writer = self._write(group, self._groups.pop(group))
            if writer.raw_bytes < _LARGE_FILE:
                small.append(writer)
            else:
                self._publish(writer)
        self._bytes = 0
        with ThreadPoolExecutor(_PUBLISH_THREADS) as pool:
            try:
                for _ in pool.map(self._publish, small):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _spill(self) -> None:
        """Write the largest groups to their files until half the limit is left."""
        left = self._bytes = sum(buffer.bytes for buffer in self._groups.values())
        buffered = [(group, buffer) for group, buffer in self._groups.items() if buffer.batches]
        for group, buffer in sorted(buffered, key=lambda item: -item[1].bytes):
            if left > self._limit // 2:
                left -= buffer.bytes
                buffer.writer = self._write(group, buffer)
            elif len(buffer.batches) > 1 or _is_slice(buffer.batches[0]):
                # A slice keeps its whole batch in memory; a copy does not.
                buffer.add(buffer.take())
        self._bytes = sum(buffer.bytes for buffer in self._groups.values())

    def _write(self, group: Group, buffer: _Buffer) -> LogFileWriter:
        """Write all buffered records of a group; publishes full files, and returns the last one."""
        writer = buffer.writer or self._open_file(group)
        if not buffer.batches:
            return writer
        for frame in buffer.frames(min(FRAME_BYTES, self._most_raw // 2)):
            if writer.entries and writer.raw_bytes + frame.nbytes > self._most_raw:
                self._publish(writer)
                writer = self._open_file(group)
            writer.add(frame)
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
    starts = [0, *(np.flatnonzero(~same) + 1).tolist(), len(order)]
    rest = records.select([name for name in records.schema.names if name not in Group._fields])
    if not (order[1:] > order[:-1]).all():
        rest = rest.take(pa.array(order))
    firsts = order[starts[:-1]]
    stores, families, ops = (array.dictionary.take(array.indices.take(firsts)).to_pylist() for array in coded)
    regions, tables = (column[firsts].tolist() for column in columns[1:3])
    for i, group in enumerate(map(Group, stores, regions, tables, families, ops)):
        yield group, rest.slice(starts[i], starts[i + 1] - starts[i])


def _slices(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Slices of about `most` bytes."""
    count = min(len(batch), -(-batch.nbytes // most))
    step = -(-len(batch) // max(1, count))
    for begin in range(0, len(batch), step):
        yield batch.slice(begin, step)


def _is_slice(batch: pa.RecordBatch) -> bool:
    """Whether a batch is a small part of the memory that it keeps."""
    return bool(batch.get_total_buffer_size() > 2 * batch.nbytes)
