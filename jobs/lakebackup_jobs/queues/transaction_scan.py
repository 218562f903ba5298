"""The transactions that a task found in its ranges, in bounded memory, and the objects that record them.

Which transactions are open is unknown until all partitions were read: one that began and ended in a range
may have messages elsewhere. So a task records all that it found, as Parquet. One transaction may be in
several rows: they are added up over all tasks anyway.
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebackup.errors import Damaged, NotFound
from lakebackup.formats.queues.headers import Kind
from lakebackup.plan.partitions import Partition
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import open_storage
from lakebackup.store.manifest import get_sealed, put_sealed
from lakebackup_jobs.kafka.format.arrow import binary
from lakebackup_jobs.kafka.format.records import OFFSET
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.plan.partitions import Place
    from lakebackup.storage import ObjectWriter, Storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.kafka.format.records import Columns
    from lakebackup_jobs.kafka.memory import Longs
    from lakebackup_jobs.queues.messages import Messages
    from lakebackup_jobs.queues.transaction_ids import Chosen

#: `first_tid`: of the message at `first_position`. `entries` may be 0: only messages in front were found,
#: which the backup before has counted. `ended`: a commit or a rollback was found.
SCAN_COLUMNS = (
    "transaction_id STRING, scope STRING, epoch STRING, region STRING, first_position BIGINT, "
    "first_tid BIGINT, entries BIGINT, ended BOOLEAN"
)
SCAN_SCHEMA = arrow_schema(SCAN_COLUMNS)
#: So many messages of transactions are held before they are added up.
HELD = 1 << 16
#: A third of the time and half the bytes: ids and positions are much like the ones before them.
_ENCODINGS = {
    "transaction_id": "DELTA_BYTE_ARRAY",
    "first_position": "DELTA_BINARY_PACKED",
    "first_tid": "DELTA_BINARY_PACKED",
}
_FIGURES = (("first_position", "first"), ("first_tid", "first"), ("entries", "sum"), ("ended", "max"))


@dataclass(frozen=True, slots=True)
class RangeScan(Partition):
    """What a range held of messages: those kept, and among them those in front (`carried`).

    `last_tid` is the greatest tid, at offset `last_tid_position`; None when there was no message.
    `watermark`: the offset of the last watermark, where what was before it was forgotten; `restore_id`,
    `restored_tid`: the restore that wrote it, and the tid that it restored the engine to; None: unknown.
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
    """Collects the transactions of one range, whose messages come in the order of their offsets.

    Rows of SCAN_COLUMNS go to `sink`, about every HELD messages: one transaction may be in several.
    """

    def __init__(self, of: Partition, sink: Callable[[pa.RecordBatch], object]) -> None:
        self._place, self._sink = of.place, sink
        self._held: list[pa.RecordBatch] = []
        self._rows = self._entries = self._carried = 0
        self._first: int | None = None
        self._last: tuple[int, int] | None = None  # (tid, offset)
        self._mark: tuple[int, str | None, int | None] | None = None

    def add(self, columns: Columns, messages: Messages, chosen: Chosen, own_from: int = 0) -> None:
        """Take in the messages `chosen`; ones before `own_from` are not counted in `entries`."""
        offsets = columns.rows[:, OFFSET]
        self._count(offsets[chosen], messages.tids[chosen], own_from)
        named = chosen & (messages.transactions[:, 1] >= 0)
        if not named.any():
            return
        ids, positions = messages.transactions[named], offsets[named]
        arrays = [
            binary(columns.data, ids[:, 0], ids[:, 1]),
            pa.array(positions),
            pa.array(messages.tids[named]),
            pa.array((positions >= own_from).astype(np.int64)),
            pa.array(np.isin(messages.kinds[named], (Kind.COMMIT, Kind.ROLLBACK))),
        ]
        names = ["transaction_id", *(name for name, _ in _FIGURES)]
        self._held.append(pa.RecordBatch.from_arrays(arrays, names))
        self._rows += len(positions)
        if self._rows >= HELD:
            self.flush()

    def forget(self, offset: int, restore_id: str | None, restored_tid: int | None) -> None:
        """A restore's watermark is at this offset: what was before it is of another history.

        Rows that were handed out already are left out by read_scans.
        """
        self._held.clear()
        self._rows = self._entries = self._carried = 0
        self._first = self._last = None
        self._mark = offset, restore_id, restored_tid

    def _count(self, offsets: Longs, tids: Longs, own_from: int) -> None:
        if not len(tids):
            return
        self._entries += len(tids)
        self._carried += int((offsets < own_from).sum())
        least, at = int(tids.min()), int(tids.argmax())
        self._first = least if self._first is None else min(self._first, least)
        if self._last is None or tids[at] > self._last[0]:
            self._last = int(tids[at]), int(offsets[at])

    def flush(self) -> None:
        """Hand out the rows so far."""
        if not self._held:
            return
        # Without threads the first of each transaction is the first that came.
        grouped = pa.Table.from_batches(self._held).group_by("transaction_id", use_threads=False)
        found = grouped.aggregate(list(_FIGURES))
        place = (pa.repeat(pa.scalar(name), len(found)) for name in self._place)
        figures = (found[f"{name}_{how}"] for name, how in _FIGURES)
        rows = pa.table([found["transaction_id"].cast(pa.string()), *place, *figures], SCAN_SCHEMA)
        for batch in rows.to_batches(max_chunksize=HELD):
            self._sink(batch)
        self._held.clear()
        self._rows = 0

    def range(self, start: int, end: int) -> RangeScan:
        """What the range [start, end) held, when all of it was added."""
        tid, position = self._last or (None, None)
        return RangeScan(
            *self._place, start, end, self._entries, self._carried, self._first, tid, position,
            *(self._mark or ())
        )  # fmt: skip


def marks_of(ranges: Iterable[RangeScan]) -> dict[Place, int]:
    """Where in each partition the last watermark is, of those before which all was forgotten."""
    marks: dict[Place, int] = {}
    for one in ranges:
        if one.watermark is not None:
            marks[one.place] = max(marks.get(one.place, 0), one.watermark)
    return marks


def behind_marks(ranges: Sequence[RangeScan]) -> list[RangeScan]:
    """Ranges of which nothing counts that is before the last watermark of their partition."""
    marks = marks_of(ranges)
    return [
        one
        if one.end > marks.get(one.place, 0)
        else RangeScan(*one.place, one.start, one.end, 0, 0, None, None, None)
        for one in ranges
    ]


# --- in the destination


class ScanWriter:
    """The objects of one task; put again, they are replaced by the same. `sink` takes rows as they come."""

    def __init__(self, storage: Storage, source: str, backup_id: str, task: int) -> None:
        self._storage = storage
        self._path = layout.scan_path(source, backup_id, task)
        self._ranges_path = layout.scan_ranges_path(source, backup_id, task)
        self._stream: _Stream | None = None
        self._parquet: Any = None
        self._rows = 0

    def sink(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
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
        """Put the objects, before the part that makes the task done."""
        if self._stream is not None:
            self._parquet.close()
            self._stream.object.commit(self._path, if_absent=False)
        content = {"format": 1, "rows": self._rows, "ranges": [asdict(one) for one in ranges]}
        put_sealed(self._storage, self._ranges_path, content)

    def __enter__(self) -> ScanWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._stream is not None:
            if self._parquet.is_open:  # it would write its end when it is collected
                self._stream.dropped = True
                self._parquet.close()
            self._stream.object.close()


class _Stream(io.RawIOBase):
    """An object that is being written, as Parquet's writer wants it."""

    def __init__(self, writer: ObjectWriter) -> None:
        super().__init__()
        self.object, self.dropped, self._at = writer, False, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if not self.dropped:
            self.object.write(data)
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at


def read_ranges(storage: Storage, source: str, backup_id: str, task: int) -> tuple[list[RangeScan], int]:
    """The ranges of a task, and how many rows of transactions it has recorded.

    Raises NotFound (it is not done), Damaged.
    """
    path = layout.scan_ranges_path(source, backup_id, task)
    content = get_sealed(storage, path)
    try:
        return [RangeScan(**one) for one in content["ranges"]], int(content["rows"])
    except (KeyError, TypeError, ValueError) as error:
        raise _torn(path, source, backup_id) from error


@dataclass(frozen=True, slots=True)
class TaskScans(PerNumber):
    """By a task's number, the transactions in its ranges. Rows of before `marks`, the watermarks of
    partitions, are left out."""

    uri: str
    source: str
    backup_id: str
    marks: Mapping[Place, int]

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """Rows of SCAN_COLUMNS. Raises NotFound, Damaged."""
        storage, path = open_storage(self.uri), layout.scan_path(self.source, self.backup_id, number)
        _, left = read_ranges(storage, self.source, self.backup_id, number)
        if not left:
            return
        try:
            data = pa.BufferReader(storage.get(path))
            for batch in pq.ParquetFile(data, page_checksum_verification=True).iter_batches():
                left -= len(batch)
                found = batch.cast(SCAN_SCHEMA)
                yield _behind(found, self.marks) if self.marks else found
        except (NotFound, pa.ArrowException, OSError) as error:
            raise _torn(path, self.source, self.backup_id) from error
        if left:
            raise _torn(path, self.source, self.backup_id)


def give_scans(
    reader: CatalogReader, spark: SparkSession | None, relation: str, scans: PerNumber, count: int
) -> None:
    """Let statements call the transactions that `count` tasks have found `relation`: in this process, or on
    Spark, where no row of them passes through the driver."""
    if spark is None:
        batches = [batch for number in range(count) for batch in scans.rows(number)]
        reader.give(relation, pa.Table.from_batches(batches, SCAN_SCHEMA))
    else:
        scans.over(spark, range(count), SCAN_COLUMNS).createOrReplaceTempView(relation)


def _behind(batch: pa.RecordBatch, marks: Mapping[Place, int]) -> pa.RecordBatch:
    """The rows whose first message is behind its partition's mark."""
    names = [batch.column(name) for name in ("scope", "epoch", "region")]
    codes: Longs = np.zeros(len(batch), np.int64)
    for column in map(pa.StringArray.dictionary_encode, names):
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    _, rows, places = np.unique(codes, return_index=True, return_inverse=True)
    scopes, epochs, regions = (column.take(pa.array(rows)).to_pylist() for column in names)
    least = [marks.get(place, -1) for place in zip(scopes, epochs, regions, strict=True)]
    kept = batch.column("first_position").to_numpy() > np.array(least, np.int64)[places]
    return batch.filter(pa.array(kept))


def _torn(path: str, source: str, backup_id: str) -> Damaged:
    return Damaged(
        f"{path}, the record of what a task of an interrupted backup found, is gone or torn.",
        hint=f"Delete the folder {layout.parts_folder(source, backup_id)}: the backup reads again.",
    )
