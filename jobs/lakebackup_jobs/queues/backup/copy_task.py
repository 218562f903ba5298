"""What a task of a backup of queues does: read offset ranges, store their messages, tell what it saw.

Like a topic backup's task, but for the look at each block's headers on its way: messages in front, the tids
of a file, and transactions. The part is the task's commit; what was seen is put before it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from lakebackup.errors import NotFound, Refused
from lakebackup.formats.queues.headers import NAMES
from lakebackup.rows.backups import DataFile
from lakebackup.rules import layout
from lakebackup.storage import ObjectWriter, Storage, open_storage
from lakebackup.store.manifest import read_part, write_part
from lakebackup_jobs.kafka.client.consume import Progress, copy_range, reader
from lakebackup_jobs.kafka.format.key_filter import KeyFilters, hashes_of
from lakebackup_jobs.kafka.format.records import OFFSET, Block
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2
from lakebackup_jobs.lifecycle.task_errors import guarded
from lakebackup_jobs.lifecycle.task_progress import TaskBoard
from lakebackup_jobs.lifecycle.task_totals import OUTCOME, totals
from lakebackup_jobs.queues.backup.skipped import by_partition
from lakebackup_jobs.queues.messages import chosen, read_messages, watermarks, without
from lakebackup_jobs.queues.transaction_ids import TransactionIds, read_ids
from lakebackup_jobs.queues.transaction_scan import RangeSeen, Seen, SeenWriter
from lakebackup_jobs.topics.tasks.copy import BACKUP_ID, publish

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.formats.queues.headers import HeaderNames
    from lakebackup.plan.queues.backup import QueueRange
    from lakebackup_jobs.kafka.format.records import Columns
    from lakebackup_jobs.kafka.format.stats import FileStats
    from lakebackup_jobs.queues.backup.skipped import Place
    from lakebackup_jobs.queues.messages import Messages
    from lakebackup_jobs.queues.transaction_ids import Chosen


@dataclass(frozen=True, slots=True)
class QueueCopyJob:
    """The same for every task of one backup. `sequences` maps (topic, partition) to its first free number.

    `carried`: the Parquet object in the destination whose column `transaction_id` names the transactions
    that the messages in front are of; None: there are none. `keep` False: no message is stored, the ranges
    are looked at alone, and what stands before a restore's watermark does not count. `watermarks`: (topic,
    epoch, partition, restore) of those that may stand in what is stored. `skipped`: messages that are left
    out, as a person said.
    """

    destination_uri: str
    destination: str
    source: str
    backup_id: str
    number: int
    level: int
    parent: str | None
    client: Mapping[str, str]
    isolation: str
    codec: str
    compression_level: int | None
    target_bytes: int
    tasks: tuple[tuple[QueueRange, ...], ...]
    sequences: Mapping[tuple[str, str], int]
    report: bool
    names: HeaderNames
    carried: str | None = None
    keep: bool = True
    watermarks: frozenset[tuple[str, str, str, str]] = frozenset()
    skipped: frozenset[Place] = frozenset()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` over task numbers: one row a task, columns as in OUTCOME."""
        for task in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            yield guarded(OUTCOME, partial(self.run, task), task=task)

    def run(self, task: int) -> dict[str, object]:
        """Do one task, in any process: columns of OUTCOME but for its error, which is raised.

        What it saw is read by seen.read_ranges and seen.read_seen afterwards.
        """
        storage = open_storage(self.destination_uri)
        part = layout.parts_path(self.source, self.backup_id, task)
        try:
            rows = read_part(storage, part)
        except NotFound:
            rows = write_part(storage, part, self._rows(storage, task))
        return totals(task, rows)

    def _rows(self, storage: Storage, task: int) -> list[DataFile]:
        board = TaskBoard(storage, layout.backup_folder(self.source, self.backup_id)) if self.report else None
        done = board.counter(f"{task:06d}") if board else None
        rows: list[DataFile] = []
        ranges: list[RangeSeen] = []
        front = _Front(storage, self.carried)
        skipped = by_partition(self.skipped)
        with (
            KeyFilters(storage, self.source, self.backup_id, task) as keys,
            SeenWriter(storage, self.source, self.backup_id, task) as writer,
        ):
            for span in self.tasks[task]:
                seen = Seen(span.scope, span.epoch, span.region, writer.sink)
                look = _Look(
                    span,
                    self.names,
                    front,
                    seen,
                    self.watermarks if self.keep else None,
                    skipped.get((span.scope, span.epoch, span.region), ()),
                )
                if self.keep:
                    rows += self._copy(storage, span, look, keys, done)
                else:
                    self._scan(span, look, done)
                ranges.append(look.finish())
            keys.commit()
            writer.commit(ranges)
        return rows

    def _scan(self, span: QueueRange, look: _Look, done: Progress | None) -> None:
        if span.start >= span.end:
            return
        source = reader(self.client, self.isolation, (span.scope, span.epoch))
        blocks = source.blocks(span.scope, int(span.region), span.start, span.end, on_progress=done)
        with closing(blocks):
            for block in blocks:
                look(block)

    def _copy(
        self, storage: Storage, span: QueueRange, look: _Look, keys: KeyFilters, done: Progress | None
    ) -> Iterator[DataFile]:
        seq = self.sequences.get((span.scope, span.region), 0) + span.rank
        writers: list[ObjectWriter] = []

        def new_file() -> ObjectWriter:
            writers.append(storage.writer())
            return writers[-1]

        try:
            for stats in copy_range(
                self.client,
                span.scope,
                int(span.region),
                span.start,
                span.end,
                new_file,
                isolation=self.isolation,
                codec=self.codec,
                compression_level=self.compression_level,
                target_bytes=self.target_bytes,
                on_progress=done,
                metadata={BACKUP_ID: self.backup_id, NAMES: self.names.text},
                topic_id=span.epoch,
                look=look,
            ):
                path, seq = publish(writers[-1], self.source, span, seq, stats.columns())
                yield self._row(span, path, stats, keys)
        finally:
            for writer in writers:
                writer.__exit__(None, None, None)

    def _row(self, span: QueueRange, path: str, stats: FileStats, keys: KeyFilters) -> DataFile:
        return DataFile(
            destination=self.destination,
            path=path,
            backup_id=self.backup_id,
            added_in=self.number,
            source=self.source,
            scope=span.scope,
            epoch=span.epoch,
            region=span.region,
            format=FORMAT_V2,
            codec=self.codec,
            **stats.columns(),
            **keys.add(stats.keys),
            level=self.level,
            parent=self.parent,
        )


class _Front:
    """The transactions that messages in front are of, read when the first range asks for them."""

    def __init__(self, storage: Storage, path: str | None) -> None:
        self._storage, self._path = storage, path
        self._ids: TransactionIds | None = None

    def ids(self) -> TransactionIds:
        """Raises Damaged when they are gone or torn."""
        if self._ids is None:
            self._ids = TransactionIds() if self._path is None else read_ids(self._storage, self._path)
        return self._ids


class _Look:
    """Looks at the blocks of one range in order, see consume.Look.

    `watermarks`: as of QueueCopyJob; None: what stands before one, whichever it is, is forgotten. `skipped`:
    offsets of messages that are left out.
    """

    def __init__(
        self,
        span: QueueRange,
        names: HeaderNames,
        front: _Front,
        seen: Seen,
        watermarks: frozenset[tuple[str, str, str, str]] | None,
        skipped: Sequence[int],
    ) -> None:
        self._span, self._names, self._front, self._seen = span, names, front, seen
        self._watermarks, self._skipped = watermarks, skipped
        self._where = f"{span.scope}[{span.region}]"

    def __call__(self, block: Block) -> Block | None:
        span, where = self._span, self._where
        whole = block.columns(where)
        columns = without(whole, self._skipped)
        messages = read_messages(columns, self._names, where)
        in_front = block.stats.first_offset < span.own_from
        kept = chosen(
            columns,
            messages,
            only=self._front.ids() if in_front else None,
            before=span.own_from if in_front else None,
        )
        self._mark(columns, messages, kept)
        self._seen.add(columns, messages, kept, span.own_from)
        if kept.all() and columns is whole:
            made: Block | None = block
        else:
            columns, messages = replace(columns, rows=columns.rows[kept]), messages.take(kept)
            made = columns.packed()
        bounds = messages.bounds
        if made is None or bounds is None:
            return None
        stats = replace(made.stats, min_tid=bounds[0], max_tid=bounds[1])
        hashes = block.hashes if made is block else hashes_of(columns)
        return Block(made.data, stats, block.opens, hashes)

    def _mark(self, columns: Columns, messages: Messages, kept: Chosen) -> None:
        """Mind watermarks: behind one of a restore that the backup does not stand behind, messages are old
        ones that come a second time. Raises Refused."""
        for row, said in watermarks(columns, messages):
            offset = int(columns.rows[row, OFFSET])
            if self._watermarks is None:
                self._seen.forget(offset, said.restore if said else None, said.to_tid if said else None)
                kept[:row] = False
            elif offset >= self._span.own_from and not (said and self._known(said.restore)):
                restore = f"restore {said.restore}" if said else "a restore whose watermark cannot be read"
                raise Refused(
                    f"{self._where} at offset {offset}: what follows is what {restore} brought back, and "
                    "this backup does not stand behind that one.",
                    hint="Nothing of it is visible. End that restore by running its command again; if it is "
                    "not in this catalog, or is given up, take a new full with --mode full.",
                )

    def _known(self, restore_id: str) -> bool:
        span = self._span
        return (span.scope, span.epoch, span.region, restore_id) in (self._watermarks or ())

    def finish(self) -> RangeSeen:
        """What the range held."""
        self._seen.flush()
        return self._seen.range(self._span.start, self._span.end)
