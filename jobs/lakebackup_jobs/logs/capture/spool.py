"""Write the records of a change feed into one log file per group, in bounded memory.

The spool buffers records. When they exceed HELD_BYTES, it writes the largest groups to temporary files until
half of that is left. So one busy region needs as much memory as ten thousand quiet ones, and few frames are
small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakebackup.formats.logs.logfile import MOST_RAW, LogFileWriter

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
    """A group's records in memory, and the unfinished log file with its earlier records."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0
    writer: LogFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.bytes += batch.nbytes

    def drain(self) -> pa.RecordBatch:
        """Remove all records; returns them copied into one batch."""
        return next(self.frames(self.bytes + 1))

    def frames(self, most: int) -> Iterator[pa.RecordBatch]:
        """Remove all records; yields batches of about `most` bytes, and frees each before the next."""
        slices = deque(chain.from_iterable(_slices(batch, most) for batch in self.batches))
        self.batches, self.bytes = [], 0
        while slices:
            frame = [slices.popleft()]
            frame_bytes = frame[0].nbytes
            while slices and frame_bytes + slices[0].nbytes <= most:
                frame_bytes += slices[0].nbytes
                frame.append(slices.popleft())
            yield pa.concat_batches(frame)


class Spool:
    """Distributes records over log files. `open_file` opens a file, `publish` stores a complete one.

    `publish` runs on several threads at once. `held_bytes`: most bytes of records in memory. `most_raw`: most
    bytes of a file before compression.
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
        """Add records (`events.captured_schema()`). Raises EnvironmentProblem and Damaged."""
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
        buffered_bytes = self._bytes = sum(buffer.bytes for buffer in self._groups.values())
        groups = [(group, buffer) for group, buffer in self._groups.items() if buffer.batches]
        for group, buffer in sorted(groups, key=lambda pair: -pair[1].bytes):
            if buffered_bytes > self._limit // 2:
                buffered_bytes -= buffer.bytes
                buffer.writer = self._write(group, buffer)
            elif len(buffer.batches) > 1 or _is_slice(buffer.batches[0]):
                # A slice keeps its whole batch in memory; a copy does not.
                buffer.add(buffer.drain())
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
    """Split records of `events.captured_schema()` by group, in their order; drops the group's columns."""
    if not len(records):
        return
    encoded = [records[name].dictionary_encode() for name in ("store", "cf", "op")]
    codes = [np.asarray(array.indices) for array in encoded]
    columns = [codes[0], np.asarray(records["region"]), np.asarray(records["table_id"]), *codes[1:]]
    order = np.lexsort(columns[::-1])
    is_same_group = np.ones(len(order) - 1, bool)
    for column in columns:
        ordered = column[order]
        is_same_group &= ordered[1:] == ordered[:-1]
    starts = [0, *(np.flatnonzero(~is_same_group) + 1).tolist(), len(order)]
    events = records.select([name for name in records.schema.names if name not in Group._fields])
    if not (order[1:] > order[:-1]).all():
        events = events.take(pa.array(order))
    first_rows = order[starts[:-1]]
    stores, families, ops = (
        array.dictionary.take(array.indices.take(first_rows)).to_pylist() for array in encoded
    )
    regions, tables = (column[first_rows].tolist() for column in columns[1:3])
    for i, group in enumerate(map(Group, stores, regions, tables, families, ops)):
        yield group, events.slice(starts[i], starts[i + 1] - starts[i])


def _slices(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Slices of a batch, of about `most` bytes each."""
    count = min(len(batch), -(-batch.nbytes // most))
    step = -(-len(batch) // max(1, count))
    for begin in range(0, len(batch), step):
        yield batch.slice(begin, step)


def _is_slice(batch: pa.RecordBatch) -> bool:
    """Whether a batch is a small part of the memory that it keeps allocated."""
    return bool(batch.get_total_buffer_size() > 2 * batch.nbytes)
