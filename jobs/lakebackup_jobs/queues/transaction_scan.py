"""The transactions that a task found in its ranges, in bounded memory, and the objects that record them.

Which transactions are open is unknown until all partitions were read: one that began and ended in a range
may have messages elsewhere. So a task records all that it found, as Parquet. One transaction may be in
several rows: they are added up over all tasks anyway.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebackup.errors import Damaged, NotFound
from lakebackup.formats.queues.headers import Kind
from lakebackup.rules import layout
from lakebackup.store.manifest import get_sealed, put_sealed
from lakebackup_jobs.kafka.format.records import OFFSET
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled
from lakebackup_jobs.queues.transaction_ids import IdTable, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakebackup.plan.partitions import Place
    from lakebackup.storage import ObjectWriter, Storage
    from lakebackup_jobs.kafka.format.records import Columns
    from lakebackup_jobs.queues.messages import Messages
    from lakebackup_jobs.queues.transaction_ids import Chosen

#: `first_tid`: of the message at `first_position`. `entries` may be 0: only messages in front were found,
#: which the backup before has counted. `ended`: a commit or a rollback was found.
SCAN_SCHEMA = pa.schema(
    [
        pa.field("transaction_id", pa.string(), nullable=False),
        pa.field("scope", pa.string(), nullable=False),
        pa.field("epoch", pa.string(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        pa.field("first_position", pa.int64(), nullable=False),
        pa.field("first_tid", pa.int64(), nullable=False),
        pa.field("entries", pa.int64(), nullable=False),
        pa.field("ended", pa.bool_(), nullable=False),
    ]
)
#: The same, as Spark reads a schema.
SCAN_COLUMNS = (
    "transaction_id STRING, scope STRING, epoch STRING, region STRING, first_position BIGINT, "
    "first_tid BIGINT, entries BIGINT, ended BOOLEAN"
)
#: So many transactions are held at once (about 8 MB), and so many bytes of their ids.
HELD = 1 << 16
_ROOM = 4 << 20
#: A third of the time and half the bytes: ids and positions are much like the ones before them.
_ENCODINGS = {
    "transaction_id": "DELTA_BYTE_ARRAY",
    "first_position": "DELTA_BINARY_PACKED",
    "first_tid": "DELTA_BINARY_PACKED",
}
_COMMIT, _ROLLBACK = int(Kind.COMMIT), int(Kind.ROLLBACK)
_WATERMARK = int(Kind.WATERMARK)


@dataclass(frozen=True, slots=True)
class RangeScan:
    """What a range held of messages: those kept, and among them those in front (`carried`).

    `last_tid` is the greatest tid, at offset `last_tid_position`; None when there was no message.
    `watermark`: the offset of the last watermark, where what was before it was forgotten; `restore_id`,
    `restored_tid`: the restore that wrote it, and the tid that it restored the engine to; None: unknown.
    """

    scope: str
    epoch: str
    region: str
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

    @property
    def place(self) -> Place:
        """Topic, epoch and partition."""
        return self.scope, self.epoch, self.region


@compiled
def _see(
    block: Bytes, rows: Longs, begin: int, chosen: Chosen, tids: Longs, kinds: Bytes, transactions: Longs,
    own_from: int, slots: Longs, hashes: Longs, starts: Longs, data: Bytes, state: Longs, figures: Longs
) -> int:  # fmt: skip
    """Take in the rows from `begin` on; returns the first that found no room, or the number of rows."""
    base = block.ctypes.data
    count = state[0]
    for i in range(begin, rows.shape[0]):
        if not chosen[i] or transactions[i, 1] < 0:
            continue
        number = put(slots, hashes, starts, data, state, base + transactions[i, 0], transactions[i, 1])
        if number < 0:
            return i
        offset = rows[i, OFFSET]
        if state[0] > count:
            count = state[0]
            figures[number, 0], figures[number, 1], figures[number, 2], figures[number, 3] = (
                offset, tids[i], 0, 0
            )  # fmt: skip
        elif offset < figures[number, 0]:
            figures[number, 0], figures[number, 1] = offset, tids[i]
        if offset >= own_from:
            figures[number, 2] += 1
        if kinds[i] == _COMMIT or kinds[i] == _ROLLBACK:
            figures[number, 3] = 1
    return int(rows.shape[0])


class TransactionScan:
    """Collects the transactions of one range; rows go to `sink` (default: they are held) `HELD` at a time."""

    def __init__(
        self, scope: str, epoch: str, region: str, sink: Callable[[pa.RecordBatch], object] | None = None
    ) -> None:
        self._place = (scope, epoch, region)
        self._batches: list[pa.RecordBatch] = []
        self._sink = self._batches.append if sink is None else sink
        self._table = IdTable(HELD, _ROOM)
        #: first_position, first_tid, entries, ended, by an id's number
        self._figures: Longs = np.empty((HELD, 4), np.int64)
        self._entries = self._carried = 0
        self._first: int | None = None
        self._last: tuple[int, int] | None = None  # (tid, offset)
        self._mark: tuple[int, str | None, int | None] | None = None

    def add(
        self, columns: Columns, messages: Messages, chosen: Chosen | None = None, own_from: int = 0
    ) -> None:
        """Take in messages, those `chosen` alone; ones before `own_from` are not counted in `entries`."""
        own = messages.kinds != _WATERMARK
        chosen = own if chosen is None else chosen & own
        self._count(columns.rows[:, OFFSET], messages.tids, chosen, own_from)
        table, at = self._table, 0
        while True:
            at = _see(
                columns.data, columns.rows, at, chosen, messages.tids, messages.kinds, messages.transactions,
                own_from, table.slots, table.hashes, table.starts, table.data, table.state, self._figures
            )  # fmt: skip
            if at == len(columns.rows):
                return
            self.flush(int(messages.transactions[at, 1]))

    def forget(self, offset: int, restore_id: str | None, restored_tid: int | None) -> None:
        """A restore's watermark is at this offset: what was before it is of another history.

        Rows that were handed out already are left out by read_scans.
        """
        self._table.clear()
        self._entries = self._carried = 0
        self._first = self._last = None
        self._mark = offset, restore_id, restored_tid

    def _count(self, offsets: Longs, tids: Longs, chosen: Chosen, own_from: int) -> None:
        if not chosen.all():
            offsets, tids = offsets[chosen], tids[chosen]
        if not len(tids):
            return
        self._entries += len(tids)
        if offsets[0] < own_from:
            self._carried += int((offsets < own_from).sum())
        least, at = int(tids.min()), int(tids.argmax())
        self._first = least if self._first is None else min(self._first, least)
        if self._last is None or tids[at] > self._last[0]:
            self._last = int(tids[at]), int(offsets[at])

    def flush(self, room: int = 0) -> None:
        """Hand out the rows so far; `room` is wanted for the next id."""
        count = self._table.count
        if count:
            figures = self._figures[:count]
            self._sink(
                pa.RecordBatch.from_arrays(
                    [
                        self._table.ids(),
                        *(pa.repeat(pa.scalar(name), count) for name in self._place),
                        *(pa.array(np.ascontiguousarray(figures[:, i])) for i in range(3)),
                        pa.array(figures[:, 3] == 1),
                    ],
                    schema=SCAN_SCHEMA,
                )
            )
        self._table.clear(room)

    def table(self) -> pa.Table:
        """All rows (SCAN_SCHEMA), where there is no sink."""
        self.flush()
        return pa.Table.from_batches(self._batches, SCAN_SCHEMA)

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


@dataclass(frozen=True, slots=True)
class TaskScan:
    """A task's record: its ranges, and its rows of transactions, in the object `path` (None: no rows)."""

    ranges: tuple[RangeScan, ...]
    rows: int
    path: str | None


class ScanWriter:
    """The objects of one task; put again, they are replaced by the same. `sink` takes rows as they come."""

    def __init__(self, storage: Storage, source: str, backup_id: str, task: int) -> None:
        self._storage = storage
        self._path = layout.seen_path(source, backup_id, task)
        self._ranges_path = layout.seen_ranges_path(source, backup_id, task)
        self._object: ObjectWriter | None = None
        self._parquet: Any = None
        self._rows = 0

    def sink(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        if self._parquet is None:
            self._object = self._storage.writer()
            self._stream = _Stream(self._object)
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
        if self._parquet is not None and self._object is not None:
            self._parquet.close()
            self._object.commit(self._path, if_absent=False)
        content = {"format": 1, "rows": self._rows, "ranges": [asdict(one) for one in ranges]}
        put_sealed(self._storage, self._ranges_path, content)

    def __enter__(self) -> ScanWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._object is not None:
            if self._parquet.is_open:  # it would write its end when it is collected
                self._stream.dropped = True
                self._parquet.close()
            self._object.__exit__(*error)


class _Stream:
    """An object that is being written, as Parquet's writer wants it."""

    closed = False

    def __init__(self, writer: ObjectWriter) -> None:
        self._writer, self._at = writer, 0
        self.dropped = False

    def write(self, data: bytes) -> int:
        if not self.dropped:
            self._writer.write(data)
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def read_ranges(storage: Storage, source: str, backup_id: str, task: int) -> TaskScan:
    """What a task recorded of its ranges. Raises NotFound (it is not done), Damaged."""
    path = layout.seen_ranges_path(source, backup_id, task)
    content = get_sealed(storage, path)
    try:
        ranges = tuple(RangeScan(**one) for one in content["ranges"])
        rows = int(content["rows"])
    except (KeyError, TypeError, ValueError) as error:
        raise _torn(path, source, backup_id) from error
    return TaskScan(ranges, rows, layout.seen_path(source, backup_id, task) if rows else None)


def read_scans(
    storage: Storage,
    source: str,
    backup_id: str,
    tasks: Iterable[int],
    marks: Mapping[Place, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The transactions that tasks found (SCAN_SCHEMA), in batches. Raises NotFound, Damaged.

    One transaction and partition may be in several rows, of one task and of many. Rows of before `marks`, the
    watermarks of partitions, are left out.
    """
    for task in tasks:
        scan = read_ranges(storage, source, backup_id, task)
        if scan.path is None:
            continue
        rows = 0
        try:
            data = pa.BufferReader(storage.get(scan.path))
            for batch in pq.ParquetFile(data, page_checksum_verification=True).iter_batches():
                rows += len(batch)
                found = batch.cast(SCAN_SCHEMA)
                yield _behind(found, marks) if marks else found
        except (NotFound, pa.ArrowException, OSError) as error:
            raise _torn(scan.path, source, backup_id) from error
        if rows != scan.rows:
            raise _torn(scan.path, source, backup_id)


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
