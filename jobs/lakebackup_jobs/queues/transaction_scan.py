"""Collects the transactions in the offset ranges of a task, in bounded memory, and stores them as objects.

Which transactions are open is unknown until all partitions have been read: a transaction that began and ended
in one range may have messages elsewhere. So a task records every transaction that it reads, as Parquet. One
transaction may have several rows, since its rows are added up over all tasks anyway.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lakebackup.errors import Damaged, NotFound
from lakebackup.formats.queues.headers import Kind
from lakebackup.plan.partitions import Partition, PartitionKey
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import ObjectWriter, Storage, open_storage
from lakebackup.store.manifest import get_sealed, put_sealed
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.format.arrow import binary
from lakebackup_jobs.kafka.format.records import OFFSET, Columns
from lakebackup_jobs.kafka.memory import Longs
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.queues.messages import Messages
from lakebackup_jobs.queues.transaction_ids import RowMask

#: `first_tid`: the tid of the message at `first_position`. `entries` is 0 when the task read only messages in
#: front of its own range, which the previous backup has counted. `ended`: it read a commit or a rollback.
SCAN_COLUMNS = (
    "transaction_id STRING, scope STRING, epoch STRING, region STRING, first_position BIGINT, "
    "first_tid BIGINT, entries BIGINT, ended BOOLEAN"
)
SCAN_SCHEMA = arrow_schema(SCAN_COLUMNS)
#: The number of messages of transactions that are buffered before they are added up.
BUFFERED_MESSAGES = 1 << 16
#: These take a third of the time and half the bytes: each id and position is much like the previous one.
_ENCODINGS = {
    "transaction_id": "DELTA_BYTE_ARRAY",
    "first_position": "DELTA_BINARY_PACKED",
    "first_tid": "DELTA_BINARY_PACKED",
}
_AGGREGATES = (("first_position", "first"), ("first_tid", "first"), ("entries", "sum"), ("ended", "max"))


@dataclass(frozen=True, slots=True)
class RangeScan(Partition):
    """The messages of a range: how many were selected, and how many of these are in front (`carried`).

    `last_tid`: the greatest tid, at offset `last_tid_position`; None when there was no message. `watermark`:
    the offset of the last watermark, if all before it was forgotten. `restore_id`, `restored_tid`: the
    restore that wrote it, and the tid that it restored the engine to; None: unknown.
    """

    start: int
    end: int
    entries: int
    carried: int
    first_tid: int | None
    last_tid: int | None
    last_tid_position: int | None
    watermark: int | None = None
    restore_id: str | None = None
    restored_tid: int | None = None


class TransactionScan:
    """Collects the transactions of one range, whose messages are added in the order of their offsets.

    Rows of SCAN_COLUMNS go to `sink` about every HELD messages, so one transaction may have several rows.
    """

    def __init__(self, of: Partition, sink: Callable[[pa.RecordBatch], object]) -> None:
        self._partition, self._sink = of.key, sink
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._entries = self._carried = 0
        self._first_tid: int | None = None
        self._last_tid: tuple[int, int] | None = None  # (tid, offset)
        self._watermark: tuple[int, str | None, int | None] | None = None

    def add(self, columns: Columns, messages: Messages, selected: RowMask, own_from: int = 0) -> None:
        """Add the messages that `selected` selects; those before `own_from` do not count as `entries`."""
        offsets = columns.rows[:, OFFSET]
        self._count(offsets[selected], messages.tids[selected], own_from)
        in_transaction = selected & (messages.transactions[:, 1] >= 0)
        if not in_transaction.any():
            return
        ids, positions = messages.transactions[in_transaction], offsets[in_transaction]
        arrays = [
            binary(columns.data, ids[:, 0], ids[:, 1]),
            pa.array(positions),
            pa.array(messages.tids[in_transaction]),
            pa.array((positions >= own_from).astype(np.int64)),
            pa.array(np.isin(messages.kinds[in_transaction], (Kind.COMMIT, Kind.ROLLBACK))),
        ]
        names = ["transaction_id", *(name for name, _ in _AGGREGATES)]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, names))
        self._rows += len(positions)
        if self._rows >= BUFFERED_MESSAGES:
            self.flush()

    def forget(self, offset: int, restore_id: str | None, restored_tid: int | None) -> None:
        """Drop all messages before the watermark of a restore at `offset`: they belong to another history.

        TaskScans leaves out those of their rows that have gone to `sink` already.
        """
        self._batches.clear()
        self._rows = self._entries = self._carried = 0
        self._first_tid = self._last_tid = None
        self._watermark = offset, restore_id, restored_tid

    def _count(self, offsets: Longs, tids: Longs, own_from: int) -> None:
        if not len(tids):
            return
        self._entries += len(tids)
        self._carried += int((offsets < own_from).sum())
        least_tid, greatest = int(tids.min()), int(tids.argmax())
        self._first_tid = least_tid if self._first_tid is None else min(self._first_tid, least_tid)
        if self._last_tid is None or tids[greatest] > self._last_tid[0]:
            self._last_tid = int(tids[greatest]), int(offsets[greatest])

    def flush(self) -> None:
        """Pass the rows of all buffered messages to `sink`."""
        if not self._batches:
            return
        # With threads, the batches would lose their order, on which `first` depends.
        grouped = pa.Table.from_batches(self._batches).group_by("transaction_id", use_threads=False)
        sums = grouped.aggregate(list(_AGGREGATES))
        partition = (pa.repeat(pa.scalar(name), len(sums)) for name in self._partition)
        figures = (sums[f"{name}_{function}"] for name, function in _AGGREGATES)
        rows = pa.table([sums["transaction_id"].cast(pa.string()), *partition, *figures], SCAN_SCHEMA)
        for batch in rows.to_batches(max_chunksize=BUFFERED_MESSAGES):
            self._sink(batch)
        self._batches.clear()
        self._rows = 0

    def range(self, start: int, end: int) -> RangeScan:
        """Return the totals of the range [start, end), all of whose messages have been added."""
        tid, position = self._last_tid or (None, None)
        return RangeScan(
            *self._partition, start, end, self._entries, self._carried, self._first_tid, tid, position,
            *(self._watermark or ())
        )  # fmt: skip


def marks_of(ranges: Iterable[RangeScan]) -> dict[PartitionKey, int]:
    """Return the offset of the last watermark of each partition, of those before which all was forgotten."""
    marks: dict[PartitionKey, int] = {}
    for scan in ranges:
        if scan.watermark is not None:
            marks[scan.key] = max(marks.get(scan.key, 0), scan.watermark)
    return marks


def behind_marks(ranges: Sequence[RangeScan]) -> list[RangeScan]:
    """Return the ranges; those that end before the last watermark of their partition become empty."""
    marks = marks_of(ranges)
    return [
        scan
        if scan.end > marks.get(scan.key, 0)
        else RangeScan(*scan.key, scan.start, scan.end, 0, 0, None, None, None)
        for scan in ranges
    ]


# --- in the destination


class ScanWriter:
    """Writes the objects of one task. A task that runs again replaces them with equal ones."""

    def __init__(self, storage: Storage, source: str, backup_id: str, task: int) -> None:
        self._storage = storage
        self._path = layout.scan_path(source, backup_id, task)
        self._ranges_path = layout.scan_ranges_path(source, backup_id, task)
        self._stream: _Stream | None = None
        self._parquet: Any = None
        self._rows = 0

    def sink(self, batch: pa.RecordBatch) -> None:
        """Append rows to the task's object of transactions."""
        if self._stream is None:
            self._stream = _Stream(self._storage.writer())
            self._parquet = pq.ParquetWriter(
                self._stream,
                SCAN_SCHEMA,
                compression="zstd",
                write_page_checksum=True,
                write_statistics=False,
                use_dictionary=["scope", "epoch", "region", "entries"],
                column_encoding=_ENCODINGS,
            )
        self._rows += len(batch)
        self._parquet.write_batch(batch)

    def commit(self, ranges: Iterable[RangeScan]) -> None:
        """Store the objects. This comes before the task's part, which is its commit."""
        if self._stream is not None:
            self._parquet.close()
            self._stream.object.commit(self._path, if_absent=False)
        content = {"format": 1, "rows": self._rows, "ranges": [asdict(scan) for scan in ranges]}
        put_sealed(self._storage, self._ranges_path, content)

    def __enter__(self) -> ScanWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._stream is not None:
            if self._parquet.is_open:  # it would write its footer when it is garbage-collected
                self._stream.dropped = True
                self._parquet.close()
            self._stream.object.close()


class _Stream(io.RawIOBase):
    """Lets a Parquet writer write to an object; `dropped`: what it writes from now on is ignored."""

    def __init__(self, writer: ObjectWriter) -> None:
        super().__init__()
        self.object, self.dropped, self._position = writer, False, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if not self.dropped:
            self.object.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position


def read_ranges(storage: Storage, source: str, backup_id: str, task: int) -> tuple[list[RangeScan], int]:
    """Return the ranges of a task, and how many rows of transactions it has recorded.

    Raises NotFound (the task is not done), Damaged.
    """
    path = layout.scan_ranges_path(source, backup_id, task)
    content = get_sealed(storage, path)
    try:
        return [RangeScan(**fields) for fields in content["ranges"]], int(content["rows"])
    except (KeyError, TypeError, ValueError) as error:
        raise _torn(path, source, backup_id) from error


@dataclass(frozen=True, slots=True)
class TaskScans(PerNumber):
    """The recorded transactions of each task, without rows before `marks`, the watermarks of partitions."""

    uri: str
    source: str
    backup_id: str
    marks: Mapping[PartitionKey, int]

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, with SCAN_COLUMNS. Raises NotFound, Damaged."""
        storage, path = open_storage(self.uri), layout.scan_path(self.source, self.backup_id, number)
        _, missing = read_ranges(storage, self.source, self.backup_id, number)
        if not missing:
            return
        try:
            data = pa.BufferReader(storage.get(path))
            for batch in pq.ParquetFile(data, page_checksum_verification=True).iter_batches():
                missing -= len(batch)
                rows = batch.cast(SCAN_SCHEMA)
                yield _after_marks(rows, self.marks) if self.marks else rows
        except (NotFound, pa.ArrowException, OSError) as error:
            raise _torn(path, self.source, self.backup_id) from error
        if missing:
            raise _torn(path, self.source, self.backup_id)


def with_scans(
    reader: CatalogReader, spark: SparkSession | None, name: str, scans: PerNumber, count: int
) -> CatalogReader:
    """The reader in which `name` stands for the transactions that `count` tasks have recorded.

    `spark` None: they are loaded into this process. On Spark no row of them passes through the driver.
    """
    if spark is None:
        batches = [batch for number in range(count) for batch in scans.rows(number)]
        return reader.with_rows(name, pa.Table.from_batches(batches, SCAN_SCHEMA))
    return reader.with_rows(name, scans.over(spark, range(count), SCAN_COLUMNS))


def _after_marks(batch: pa.RecordBatch, marks: Mapping[PartitionKey, int]) -> pa.RecordBatch:
    """Return the rows whose first message is after the watermark of its partition."""
    names = [batch.column(name) for name in ("scope", "epoch", "region")]
    codes: Longs = np.zeros(len(batch), np.int64)
    for column in map(pa.StringArray.dictionary_encode, names):
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    _, rows, indices = np.unique(codes, return_index=True, return_inverse=True)
    scopes, epochs, regions = (column.take(pa.array(rows)).to_pylist() for column in names)
    least = [marks.get(partition, -1) for partition in zip(scopes, epochs, regions, strict=True)]
    selected = batch.column("first_position").to_numpy() > np.array(least, np.int64)[indices]
    return batch.filter(pa.array(selected))


def _torn(path: str, source: str, backup_id: str) -> Damaged:
    return Damaged(
        f"{path}, the record of what a task of an interrupted backup found, is gone or torn.",
        hint=f"Delete the folder {layout.parts_folder(source, backup_id)}: the backup reads again.",
    )
