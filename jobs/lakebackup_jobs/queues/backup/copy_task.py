"""A task of a backup of queues: it reads offset ranges, stores their messages and records their transactions.

It is like a task of a topic backup, but it reads the headers of each block on the way. It drops messages in
front of its own range that belong to no open transaction, records the tids of each file, and collects
transactions. The part is the task's commit; the transactions are written before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from lakebackup.errors import Refused
from lakebackup.formats.queues.headers import NAMES, HeaderNames
from lakebackup.plan.queues.backup import QueueRange
from lakebackup.rows.backups import DataFile
from lakebackup.storage import Storage
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client.consume import Progress, reader
from lakebackup_jobs.kafka.format.key_filter import KeyFilters, hashes_of
from lakebackup_jobs.kafka.format.records import OFFSET, Block, Columns
from lakebackup_jobs.queues.backup.skipped import MessageOffset, by_partition
from lakebackup_jobs.queues.messages import (
    Messages,
    read_messages,
    select_messages,
    select_rows,
    watermarks,
    without,
)
from lakebackup_jobs.queues.transaction_ids import RowMask, read_ids
from lakebackup_jobs.queues.transaction_scan import RangeScan, ScanWriter, TransactionScan
from lakebackup_jobs.topics.tasks.copy import OffsetsTask


@dataclass(frozen=True, kw_only=True)
class QueueCopyJob(OffsetsTask):
    """Copies ranges of queues.

    `carried`: the Parquet object in the destination whose column `transaction_id` names the transactions
    whose messages in front are stored; None: there are none. `keep` False: the task only reads the ranges
    and stores no message, and messages before a restore's watermark do not count. `watermarks`: (topic,
    epoch, partition, restore) of the watermarks that stored messages may include. `skipped`: messages that
    a person leaves out.
    """

    tasks: tuple[tuple[QueueRange, ...], ...]
    names: HeaderNames
    carried: str | None = None
    keep: bool = True
    watermarks: frozenset[tuple[str, str, str, str]] = frozenset()
    skipped: frozenset[MessageOffset] = frozenset()

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        """See PartTask. `read_ranges` and TaskScans read what the task records of its transactions."""
        progress = self.counter(storage, task)
        rows: list[DataFile] = []
        ranges: list[RangeScan] = []
        read = cache(partial(read_ids, storage))
        skipped = by_partition(self.skipped)
        metadata = {NAMES: self.names.text}
        with (
            KeyFilters(storage, self.source, self.backup_id, task, self.key) as keys,
            ScanWriter(storage, self.source, self.backup_id, task) as writer,
        ):
            for span in self.tasks[task]:
                scan = TransactionScan(span, writer.sink)
                look = _Look(self, span, scan, skipped.get(span.key, ()), read)
                if self.keep:
                    rows += self.copy(storage, span, keys, progress, metadata=metadata, look=look)
                else:
                    self._scan(span, look, progress)
                scan.flush()
                ranges.append(scan.range(span.start, span.end))
            Cluster(self.client).require_same({span.scope: span.epoch for span in self.tasks[task]})
            keys.commit()
            writer.commit(ranges)
        return rows

    def _scan(self, span: QueueRange, look: _Look, progress: Progress | None) -> None:
        if span.start >= span.end:
            return
        source = reader(self.client, self.isolation, (span.scope, span.epoch))
        blocks = source.blocks(span.scope, int(span.region), span.start, span.end, on_progress=progress)
        with closing(blocks):
            for block in blocks:
                look(block)


@dataclass(frozen=True, slots=True)
class _Look:
    """Filters the blocks of one range, in order, and scans their transactions; see consume.Look.

    `skipped`: offsets of messages that are left out. `read` reads the ids of transactions from an object;
    it is called at the first block in front of the range's own messages.
    """

    job: QueueCopyJob
    span: QueueRange
    scan: TransactionScan
    skipped: Sequence[int]
    read: Callable[[str], Any]

    @property
    def location(self) -> str:
        return f"{self.span.scope}[{self.span.region}]"

    def __call__(self, block: Block) -> Block | None:
        job, span = self.job, self.span
        all_columns = block.columns(self.location)
        columns = without(all_columns, self.skipped)
        messages = read_messages(columns, job.names, self.location)
        in_front = block.stats.start_position < span.own_from
        selected = select_messages(
            columns,
            messages,
            only=self.read(job.carried) if in_front and job.carried else None,
            own_from=span.own_from if in_front else None,
        )
        self._mark(columns, messages, selected)
        self.scan.add(columns, messages, selected, span.own_from)
        if selected.all() and columns is all_columns:
            stored_block: Block | None = block
        else:
            columns, messages = select_rows(columns, selected), messages.select(selected)
            stored_block = columns.packed()
        bounds = messages.bounds
        if stored_block is None or bounds is None:
            return None
        stats = replace(stored_block.stats, min_tid=bounds[0], max_tid=bounds[1])
        hashes = block.hashes if stored_block is block else hashes_of(columns)
        return Block(stored_block.data, stats, block.opens, hashes)

    def _mark(self, columns: Columns, messages: Messages, selected: RowMask) -> None:
        """Raise Refused at the watermark of a restore that the backup does not continue, since the messages
        after it are copies of older ones. Without `keep`, forget the messages before each watermark."""
        for row, watermark in watermarks(columns, messages):
            offset, restore_id = int(columns.rows[row, OFFSET]), watermark.restore if watermark else None
            if not self.job.keep:
                self.scan.forget(offset, restore_id, watermark.to_tid if watermark else None)
                selected[:row] = False
            elif offset >= self.span.own_from and (*self.span.key, restore_id) not in self.job.watermarks:
                restore = f"restore {restore_id}" if watermark else "a restore whose watermark cannot be read"
                raise Refused(
                    f"{self.location} at offset {offset}: what follows was written by {restore}, and "
                    "this backup does not continue that one.",
                    hint="Nothing of it is visible. Run its command again to finish that restore; if it is "
                    "not in this catalog, or is given up, take a new full with --mode full.",
                )
