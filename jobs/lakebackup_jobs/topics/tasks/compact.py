"""What the Spark tasks of a compaction do: find the newest offset of each key, then copy those records.

Between the two, Spark brings together what tasks found of the same key. Keys are compared whole, so no two
are ever taken for one; records are copied as the bytes they are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from itertools import chain, groupby
from operator import add, attrgetter, itemgetter
from typing import TYPE_CHECKING

import numpy as np

from lakebackup.errors import Damaged
from lakebackup.sql_engine.worker import PerNumber, runs
from lakebackup.storage import Storage, open_storage
from lakebackup_jobs.kafka.client.consume import BLOCK_BYTES
from lakebackup_jobs.kafka.format.container import FileWriter
from lakebackup_jobs.kafka.format.key_filter import KeyFilters, hashes_of
from lakebackup_jobs.kafka.format.records import (
    KEY_LENGTH,
    OFFSET,
    TIMESTAMP,
    VALUE_LENGTH,
    Block,
    Columns,
)
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.tasks.errors import guarded
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.splits import batched, read_lines, split_path, write_lines
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, totals
from lakebackup_jobs.topics.tasks.copy import publish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from lakebackup.rows.backups import DataFile
    from lakebackup.store.roots import Roots
    from lakebackup_jobs.kafka.memory import Longs

FOUND = "part INT, piece INT, key BINARY, position BIGINT"
SURVIVORS = "piece INT, position BIGINT"
# Keys and offsets that a task holds before it reports the newest among them to Spark.
HELD_BYTES = 64 << 20
_ROWS_AT_ONCE = 50_000
# Where much is dropped, less would leave many small files; more would hold the task's offsets in memory.
PIECE_BYTES = 128 << 20
PIECE_ENTRIES = 8_000_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive files of one partition: what one task reads and, of what stays, writes.

    `part` numbers the partitions, `rank` a partition's pieces, both from 0 in order.
    """

    part: int
    rank: int
    files: tuple[StoredFile, ...]


def write_pieces(storage: Storage, folder: str, files: Iterable[StoredFile]) -> int:
    """Write the pieces of `files`, which come one partition after another in order; returns their number."""
    number = 0
    for number, piece in enumerate(_pieces(files), 1):
        head = {"part": piece.part, "rank": piece.rank}
        write_lines(storage, split_path(folder, number - 1), chain([head], map(asdict, piece.files)))
    return number


def read_piece(storage: Storage, folder: str, number: int) -> Piece:
    """The piece with a number, from 0. Raises NotFound."""
    head, *files = read_lines(storage, split_path(folder, number))
    return Piece(**head, files=tuple(StoredFile(**file) for file in files))


def _pieces(files: Iterable[StoredFile]) -> Iterator[Piece]:
    limits = (attrgetter("bytes"), PIECE_BYTES), (attrgetter("entries"), PIECE_ENTRIES)
    for part, (_, some) in enumerate(groupby(files, key=attrgetter("place"))):
        for rank, held in enumerate(batched(some, *limits)):
            yield Piece(part, rank, tuple(held))


@dataclass(frozen=True, slots=True)
class FindNewest(PerNumber):
    """The newest offset of each key in a piece, columns of FOUND.

    A key may come more than once. Raises Damaged (a file that is not what the catalog says).
    """

    uri: str
    folder: str
    roots: Roots

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from lakebackup_jobs.kafka.format.arrow import keys

        storage = open_storage(self.uri)
        piece = read_piece(storage, self.folder, number)
        done = TaskProgress(storage, self.folder).counter(f"found-{number:06d}")
        held: list[pa.RecordBatch] = []
        size = 0
        for file in piece.files:
            for columns in open_verified(self.roots, file):
                rows = columns.rows
                if (rows[:, KEY_LENGTH] < 0).any():
                    raise Damaged(f"{file.path} holds records without a key; its row says there are none.")
                positions = pa.array(np.ascontiguousarray(rows[:, OFFSET]))
                held.append(pa.RecordBatch.from_arrays([keys(columns), positions], ["key", "position"]))
                size += held[-1].nbytes
                done(len(rows), 0)
                if size >= HELD_BYTES:
                    yield from _newest(number, piece.part, held)
                    held, size = [], 0
        if held:
            yield from _newest(number, piece.part, held)


def _newest(number: int, part: int, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    found = pa.Table.from_batches(held).group_by("key", use_threads=False).aggregate([("position", "max")])
    for batch in found.to_batches(max_chunksize=_ROWS_AT_ONCE):
        rows = batch.num_rows
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(rows, part, np.int32)),
                pa.array(np.full(rows, number, np.int32)),
                batch["key"],
                batch["position_max"],
            ],
            ["part", "piece", "key", "position"],
        )


@dataclass(frozen=True, kw_only=True)
class KeepNewest(Parts):
    """For `mapInArrow` over rows of SURVIVORS in order: copies those records, one row of OUTCOME a piece.

    A position of -1 means none, so that each piece has a row. By topic: `generations` to write, and
    `drop_before`, the instant (ms) before which tombstones go.
    """

    roots: Roots
    codec: str
    compression_level: int | None
    target_bytes: int
    sequences: Mapping[tuple[str, str], int]
    generations: Mapping[str, int]
    drop_before: Mapping[str, int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, some in groupby(runs(batches, "piece"), itemgetter(0)):
            positions = np.concatenate([rows.column("position").to_numpy() for _, rows in some])
            yield guarded(OUTCOME, partial(self._totals, number, positions))

    def _totals(self, number: int, positions: Longs) -> dict[str, object]:
        storage = open_storage(self.uri)
        return totals(number, self.once(storage, number, lambda: self._copy(storage, number, positions)))

    def _copy(self, storage: Storage, number: int, positions: Longs) -> list[DataFile]:
        piece = read_piece(storage, self.folder, number)
        done = self.progress(storage, number, "kept-")
        with KeyFilters(storage, self.source, self.backup_id, number) as keys:
            rows = list(self._write(storage, piece, positions, keys, done))
            keys.commit()
        return rows

    def _write(
        self,
        storage: Storage,
        piece: Piece,
        positions: Longs,
        keys: KeyFilters,
        done: Callable[[int, int], None],
    ) -> Iterator[DataFile]:
        place = piece.files[0]
        seq = self.sequences.get((place.scope, place.region), 0) + piece.rank
        blocks = _merged(self._kept(piece, positions, done))
        for fmt, some in groupby(blocks, key=itemgetter(0)):
            for first in some:
                with storage.writer() as sink:
                    file = FileWriter(sink, codec=self.codec, level=self.compression_level, fmt=fmt)
                    for _, block in chain([first], some):
                        file.write_block(block)
                        if file.bytes >= self.target_bytes:
                            break
                    stats = file.finish()
                    path, seq = publish(sink, self.source, place, seq, stats.columns())
                yield self.row(
                    path=path,
                    scope=place.scope,
                    epoch=place.epoch,
                    region=place.region,
                    format=fmt,
                    codec=self.codec,
                    **stats.columns(),
                    **keys.add(stats.keys),
                    generation=self.generations[place.scope],
                )

    def _kept(
        self, piece: Piece, positions: Longs, done: Callable[[int, int], None]
    ) -> Iterator[tuple[str, Block]]:
        drop_before = self.drop_before[piece.files[0].scope]
        for file in piece.files:
            if not _holds(file, positions):
                done(file.entries, 0)
                continue
            for columns in open_verified(self.roots, file):
                block = _chosen(columns, positions, drop_before)
                if block is not None:
                    yield columns.fmt, block
                done(len(columns.rows), 0)


def _holds(file: StoredFile, positions: Longs) -> bool:
    begin, end = np.searchsorted(positions, [file.start_position, file.end_position])
    return bool(begin < end)


def _chosen(columns: Columns, positions: Longs, drop_before: int) -> Block | None:
    """The records of a block whose offsets are among `positions`, but for tombstones that are due."""
    rows = columns.rows
    at = np.minimum(np.searchsorted(positions, rows[:, OFFSET]), len(positions) - 1)
    kept = positions[at] == rows[:, OFFSET]
    # A record without a timestamp (-1) has no age.
    due = (rows[:, VALUE_LENGTH] < 0) & (rows[:, TIMESTAMP] >= 0) & (rows[:, TIMESTAMP] < drop_before)
    chosen = replace(columns, rows=rows[kept & ~due])
    block = chosen.packed()
    # The block's own buffer is as large as what it was chosen from, and many may be held at once.
    return None if block is None else replace(block, data=block.data.copy(), hashes=hashes_of(chosen))


def _merged(blocks: Iterable[tuple[str, Block]]) -> Iterator[tuple[str, Block]]:
    """The same records in blocks of about BLOCK_BYTES."""
    for fmt, some in groupby(blocks, key=itemgetter(0)):
        for held in batched((block for _, block in some), (lambda block: block.data.shape[0], BLOCK_BYTES)):
            yield fmt, _joined(held)


def _joined(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    hashes = np.concatenate([b.hashes for b in blocks if b.hashes is not None])
    data = np.concatenate([b.data for b in blocks])
    return Block(data, reduce(add, (b.stats for b in blocks)), hashes=hashes)
