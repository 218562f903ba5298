"""The Spark tasks of a compaction: they find the newest offset of each key, then copy the records there.

Between the two steps, Spark groups the offsets by key. It compares complete keys, not hashes, so it never
takes two keys for one. The copy does not change a record's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain, groupby
from operator import add, attrgetter, itemgetter

import numpy as np
import pyarrow as pa

from lakebackup.errors import Damaged
from lakebackup.rows.backups import DataFile
from lakebackup.sql_engine.worker import PerNumber, runs
from lakebackup.storage import Storage, open_storage
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.client.consume import BLOCK_BYTES
from lakebackup_jobs.kafka.format.arrow import keys
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
from lakebackup_jobs.kafka.memory import Longs
from lakebackup_jobs.lifecycle.tasks.batched import batched
from lakebackup_jobs.lifecycle.tasks.errors import guarded
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares, Share, ShareRows, divided
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, totals
from lakebackup_jobs.topics.tasks.copy import publish

NEWEST_COLUMNS = "part INT, piece INT, key BINARY, position BIGINT"
SURVIVORS = "piece INT, position BIGINT"
# A task holds keys and offsets up to this size before it reports the newest offset of each key to Spark.
HELD_BYTES = 64 << 20
_ROWS_AT_ONCE = 50_000
# Smaller pieces would leave many small files where much is dropped. Larger ones would need more memory,
# because a task holds the offsets of its piece.
PIECE_BYTES = 128 << 20
PIECE_ENTRIES = 8_000_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive files of one partition. One task reads them, and writes those of their records that stay.

    `part` is the number of the partition's first piece, `rank` that of the piece in its partition, from 0.
    """

    part: int
    rank: int
    files: ShareRows[StoredFile]


def divide(files: Iterable[StoredFile]) -> list[Share]:
    """The shares of the pieces of `files`, which are sorted by partition and offset."""
    limits = (attrgetter("bytes"), PIECE_BYTES), (attrgetter("entries"), PIECE_ENTRIES)
    return divided(files, attrgetter("key"), *limits)


def piece_of(plan: PlanShares, number: int) -> Piece:
    """The piece with this number, counted from 0, of a plan in which each piece has a task of its own."""
    (share,) = plan.tasks[number]
    part = next(first for first, (piece,) in enumerate(plan.tasks) if piece.partition == share.partition)
    return Piece(part, number - part, ShareRows(plan.file, share, StoredFile))


@dataclass(frozen=True, slots=True)
class FindNewest(PerNumber):
    """Finds the newest offset of each key in a piece: rows with the columns FOUND.

    A key may have several rows. Raises Damaged (a file differs from its row in the catalog).
    """

    plan: PlanShares
    roots: Roots

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        piece = piece_of(self.plan, number)
        count = self.plan.task_progress().counter(f"found-{number:06d}")
        batches: list[pa.RecordBatch] = []
        size = 0
        for file in piece.files:
            for columns in open_verified(self.roots, file):
                rows = columns.rows
                if (rows[:, KEY_LENGTH] < 0).any():
                    raise Damaged(f"{file.path} holds records without a key; its row says there are none.")
                positions = pa.array(np.ascontiguousarray(rows[:, OFFSET]))
                batches.append(pa.RecordBatch.from_arrays([keys(columns), positions], ["key", "position"]))
                size += batches[-1].nbytes
                count(len(rows), 0)
                if size >= HELD_BYTES:
                    yield from _newest(number, piece.part, batches)
                    batches, size = [], 0
        if batches:
            yield from _newest(number, piece.part, batches)


def _newest(number: int, part: int, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    newest = (
        pa.Table.from_batches(batches).group_by("key", use_threads=False).aggregate([("position", "max")])
    )
    for batch in newest.to_batches(max_chunksize=_ROWS_AT_ONCE):
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
    """For `mapInArrow` over sorted rows of SURVIVORS: copies these records; returns a row of OUTCOME a piece.

    A position of -1 stands for no record; it gives each piece a row. `generations` maps a topic to the
    generation of its new files, `drop_before` to the instant (ms) before which tombstones are dropped.
    """

    plan: PlanShares
    roots: Roots
    codec: str
    compression_level: int | None
    target_bytes: int
    sequences: Mapping[tuple[str, str], int]
    generations: Mapping[str, int]
    drop_before: Mapping[str, int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, runs_of_piece in groupby(runs(batches, "piece"), itemgetter(0)):
            positions = np.concatenate([rows.column("position").to_numpy() for _, rows in runs_of_piece])
            yield guarded(OUTCOME, partial(self._totals, number, positions))

    def _totals(self, number: int, positions: Longs) -> dict[str, object]:
        storage = open_storage(self.uri)
        return totals(
            number, self.write_once(storage, number, lambda: self._copy(storage, number, positions))
        )

    def _copy(self, storage: Storage, number: int, positions: Longs) -> list[DataFile]:
        piece = piece_of(self.plan, number)
        count = self.progress(storage, number, "kept-")
        with KeyFilters(storage, self.source, self.backup_id, number, self.key) as keys:
            rows = list(self._write(storage, piece, positions, keys, count))
            keys.commit()
        return rows

    def _write(
        self,
        storage: Storage,
        piece: Piece,
        positions: Longs,
        keys: KeyFilters,
        count: Callable[[int, int], None],
    ) -> Iterator[DataFile]:
        first_file = next(iter(piece.files))
        seq = self.sequences.get((first_file.scope, first_file.region), 0) + piece.rank
        blocks = _merge_blocks(self._survivors(piece, positions, count))
        seal = self.seal(first_file)
        for fmt, pairs in groupby(blocks, key=itemgetter(0)):
            for first_pair in pairs:
                with storage.writer() as sink:
                    file = FileWriter(
                        sink, codec=self.codec, level=self.compression_level, fmt=fmt, seal=seal
                    )
                    for _, block in chain([first_pair], pairs):
                        file.write_block(block)
                        if file.bytes >= self.target_bytes:
                            break
                    stats = file.finish()
                    path, seq = publish(sink, self.source, first_file, seq, stats.columns())
                yield self.row(
                    path=path,
                    scope=first_file.scope,
                    epoch=first_file.epoch,
                    region=first_file.region,
                    format=fmt,
                    codec=self.codec,
                    **stats.columns(),
                    **keys.add(stats.keys, (*first_file.key, stats.start_position)),
                    generation=self.generations[first_file.scope],
                )

    def _survivors(
        self, piece: Piece, positions: Longs, count: Callable[[int, int], None]
    ) -> Iterator[tuple[str, Block]]:
        for file in piece.files:
            if not _has_positions(file, positions):
                count(file.entries, 0)
                continue
            for columns in open_verified(self.roots, file):
                block = _select_survivors(columns, positions, self.drop_before[file.scope])
                if block is not None:
                    yield columns.fmt, block
                count(len(columns.rows), 0)


def _has_positions(file: StoredFile, positions: Longs) -> bool:
    begin, end = np.searchsorted(positions, [file.start_position, file.end_position])
    return bool(begin < end)


def _select_survivors(columns: Columns, positions: Longs, drop_before: int) -> Block | None:
    """The records of a block at the offsets `positions`, without tombstones older than `drop_before`."""
    rows = columns.rows
    index = np.minimum(np.searchsorted(positions, rows[:, OFFSET]), len(positions) - 1)
    is_newest = positions[index] == rows[:, OFFSET]
    # A record without a timestamp (-1) has no age, so it never expires.
    is_expired = (rows[:, VALUE_LENGTH] < 0) & (rows[:, TIMESTAMP] >= 0) & (rows[:, TIMESTAMP] < drop_before)
    survivors = replace(columns, rows=rows[is_newest & ~is_expired])
    block = survivors.packed()
    # Copies the bytes: the buffer is as large as the one selected from, and a task may hold many blocks.
    return None if block is None else replace(block, data=block.data.copy(), hashes=hashes_of(survivors))


def _merge_blocks(blocks: Iterable[tuple[str, Block]]) -> Iterator[tuple[str, Block]]:
    """Join small blocks of one format into blocks of about BLOCK_BYTES."""
    for fmt, pairs in groupby(blocks, key=itemgetter(0)):
        for group in batched((block for _, block in pairs), (lambda block: block.data.shape[0], BLOCK_BYTES)):
            yield fmt, _join_blocks(group)


def _join_blocks(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    hashes = np.concatenate([b.hashes for b in blocks if b.hashes is not None])
    data = np.concatenate([b.data for b in blocks])
    return Block(data, reduce(add, (b.stats for b in blocks)), hashes=hashes)
