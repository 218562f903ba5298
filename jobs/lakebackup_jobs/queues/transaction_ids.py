"""Sets of transaction ids: bytes found by their hash and compared byte by byte, in compiled code.

A table is a few arrays: `slots` (open addressing; a number + 1, 0: free), and of the ids by number their
`hashes`, their bytes `data[starts[number]:starts[number + 1]]`, and in `state` how many there are.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lakebackup.errors import Damaged, NotFound
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.key_filter import hash_key
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, copy_bytes, load8, load64
from lakebackup_jobs.lifecycle.tasks.rows import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader

    Chosen = npt.NDArray[np.bool_]

#: Slots of a table's state: ids in it, bytes of them.
COUNT, USED, STATE = range(3)


@compiled
def same_bytes(one: int, other: int, length: int) -> bool:
    """Whether as many bytes at two addresses are the same."""
    at = 0
    while at + 8 <= length:
        if load64(one + at) != load64(other + at):
            return False
        at += 8
    while at < length:
        if load8(one + at) != load8(other + at):
            return False
        at += 1
    return True


@compiled
def find(
    slots: Longs, hashes: Longs, starts: Longs, data: Bytes, hashed: int, address: int, length: int
) -> int:
    """The slot of the id at an address, or the free one where it belongs."""
    base = data.ctypes.data
    mask = slots.shape[0] - 1
    at = (hashed ^ (hashed >> 32)) & mask
    while slots[at] != 0:
        number = slots[at] - 1
        if (
            hashes[number] == hashed
            and starts[number + 1] - starts[number] == length
            and same_bytes(base + starts[number], address, length)
        ):
            break
        at = (at + 1) & mask
    return int(at)


@compiled
def put(
    slots: Longs, hashes: Longs, starts: Longs, data: Bytes, state: Longs, address: int, length: int
) -> int:
    """The number of the id at an address, put in if it was not there; -1 if there is no room for it."""
    hashed = hash_key(address, length)
    slot = find(slots, hashes, starts, data, hashed, address, length)
    if slots[slot] != 0:
        return int(slots[slot] - 1)
    number = int(state[COUNT])
    used = state[USED]
    if number == hashes.shape[0] or length > data.shape[0] - used:
        return -1
    copy_bytes(data.ctypes.data + used, address, length)
    hashes[number] = hashed
    starts[number + 1] = used + length
    slots[slot] = number + 1
    state[COUNT] = number + 1
    state[USED] = used + length
    return number


@compiled
def _put_all(
    pieces: Bytes, offsets: Longs, slots: Longs, hashes: Longs, starts: Longs, data: Bytes, state: Longs
) -> None:
    base = pieces.ctypes.data
    for i in range(offsets.shape[0] - 1):
        put(slots, hashes, starts, data, state, base + offsets[i], offsets[i + 1] - offsets[i])


@compiled
def _members(
    block: Bytes, pieces: Longs, slots: Longs, hashes: Longs, starts: Longs, data: Bytes, found: Chosen
) -> None:
    base = block.ctypes.data
    for i in range(pieces.shape[0]):
        length = pieces[i, 1]
        found[i] = False
        if length >= 0:
            address = base + pieces[i, 0]
            slot = find(slots, hashes, starts, data, hash_key(address, length), address, length)
            found[i] = slots[slot] != 0


class IdTable:
    """The arrays of a table with room for `capacity` ids of `room` bytes in all; compiled code fills it."""

    def __init__(self, capacity: int, room: int) -> None:
        self.slots: Longs = np.zeros(1 << max(1, 2 * capacity - 1).bit_length(), np.int64)
        self.hashes: Longs = np.empty(capacity, np.int64)
        self.starts: Longs = np.zeros(capacity + 1, np.int64)
        self.data: Bytes = np.empty(max(1, room), np.uint8)  # the byte keeps its address valid
        self.state: Longs = np.zeros(STATE, np.int64)

    @property
    def count(self) -> int:
        """How many ids are in it."""
        return int(self.state[COUNT])

    def clear(self, room: int = 0) -> None:
        """Take all ids out; there is room for at least `room` bytes then."""
        self.slots[:] = 0
        self.state[:] = 0
        if room > len(self.data):
            self.data = np.empty(room, np.uint8)

    def ids(self) -> Any:
        """The ids by number, as a pa.string() array of its own; they are UTF-8."""
        import pyarrow as pa

        starts = self.starts[: self.count + 1].astype(np.int32)
        data = self.data[: int(self.state[USED])].copy()
        return pa.Array.from_buffers(
            pa.string(), self.count, [None, pa.py_buffer(starts), pa.py_buffer(data)]
        )


class TransactionIds:
    """A set of transaction ids that may be large: about 50 bytes each beside their own."""

    def __init__(self, ids: Iterable[bytes | str] = ()) -> None:
        import pyarrow as pa

        pieces = [one.encode() if isinstance(one, str) else one for one in ids]
        self._fill([pa.array(pieces, pa.large_binary())])

    @classmethod
    def of(cls, column: Any) -> TransactionIds:
        """Those of an Arrow column of strings (an array or a chunked one), null ones left out."""
        import pyarrow as pa

        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        made = cls()
        made._fill([chunk.drop_null().cast(pa.large_binary()) for chunk in chunks])
        return made

    def _fill(self, arrays: list[Any]) -> None:
        pieces: list[tuple[Bytes, Longs]] = []
        for array in arrays:
            if len(array):
                _, offsets, data = array.buffers()
                ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
                # Ids that are all empty have no bytes, and need an address.
                pieces.append((np.frombuffer(data if data and data.size else b"\0", np.uint8), ends))
        count, room = sum(len(ends) - 1 for _, ends in pieces), sum(int(e[-1] - e[0]) for _, e in pieces)
        self._table = table = IdTable(count, room)
        for found, ends in pieces:
            _put_all(found, ends, table.slots, table.hashes, table.starts, table.data, table.state)

    def __len__(self) -> int:
        return self._table.count

    def __contains__(self, one: bytes) -> bool:
        block = np.frombuffer(one + b"\0", np.uint8)
        return bool(self.members(block, np.array([[0, len(one)]], np.int64))[0])

    def members(self, block: Bytes, pieces: Longs) -> Chosen:
        """Which of some pieces of a block (int64[n, 2] of position and length; length -1: none) are in it."""
        found: Chosen = np.empty(len(pieces), np.bool_)
        table = self._table
        if not table.count:
            found[:] = False
        else:
            _members(block, pieces, table.slots, table.hashes, table.starts, table.data, found)
        return found


def read_ids(storage: Storage, path: str) -> TransactionIds:
    """The column `transaction_id` of a Parquet object. Raises Damaged when it is gone or torn."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        data = io.BytesIO(storage.get(path))
        return TransactionIds.of(pq.read_table(data, columns=["transaction_id"])["transaction_id"])
    except (NotFound, pa.ArrowException, OSError) as error:
        raise Damaged(
            f"{path}, which names the transactions of the messages in front, is gone or torn.",
            hint="Run the same command again: it is written again.",
        ) from error


@dataclass(frozen=True, slots=True)
class _IdsWriter:
    """Over ids of transactions, in one task: writes them as an object, and returns their count."""

    uri: str
    path: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = pa.schema([("transaction_id", pa.string())])
        ids = (batch.select(schema.names).cast(schema) for batch in batches)
        _, count, _ = write_rows(open_storage(self.uri), self.path, schema, ids)
        yield pa.RecordBatch.from_pydict({"transactions": pa.array([count], pa.int64())})


def write_ids(reader: CatalogReader, uri: str, path: str, query: str, **parameters: Any) -> int:
    """Write the ids that a query gives as an object, for `read_ids`; returns how many they are."""
    rows = reader.map(
        _IdsWriter(uri, path),
        "transactions BIGINT",
        query,
        spread=lambda rows: rows.coalesce(1),
        **parameters,
    )
    # Spark leaves a task out that it knows to have no row.
    return int(rows[0]["transactions"]) if rows else 0
