"""A task of a backup of queues: read offset ranges, store their messages, record their transactions.

Like a topic backup's task, but for the look at each block's headers on its way: messages in front, the tids
of a file, and transactions. The part is the task's commit; the transactions are written before it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.formats.queues.headers import NAMES
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client.consume import Progress, reader
from lakebackup_jobs.kafka.format.key_filter import KeyFilters, hashes_of
from lakebackup_jobs.kafka.format.records import OFFSET, Block
from lakebackup_jobs.queues.backup.skipped import by_partition
from lakebackup_jobs.queues.messages import chosen, read_messages, taken, watermarks, without
from lakebackup_jobs.queues.transaction_ids import read_ids
from lakebackup_jobs.queues.transaction_scan import ScanWriter, TransactionScan
from lakebackup_jobs.topics.tasks.copy import OffsetsTask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebackup.formats.queues.headers import HeaderNames
    from lakebackup.plan.queues.backup import QueueRange
    from lakebackup.rows.backups import DataFile
    from lakebackup.storage import Storage
    from lakebackup_jobs.kafka.format.records import Columns
    from lakebackup_jobs.queues.backup.skipped import Place
    from lakebackup_jobs.queues.messages import Messages
    from lakebackup_jobs.queues.transaction_ids import Chosen
    from lakebackup_jobs.queues.transaction_scan import RangeScan


@dataclass(frozen=True, kw_only=True)
class QueueCopyJob(OffsetsTask):
    """Copies queues.

    `carried`: the Parquet object in the destination whose column `transaction_id` names the transactions
    that the messages in front are of; None: there are none. `keep` False: no message is stored, the ranges
    are looked at alone, and what is before a restore's watermark does not count. `watermarks`: (topic,
    epoch, partition, restore) of those that may be in what is stored. `skipped`: messages that are left
    out, as a person asked.
    """

    tasks: tuple[tuple[QueueRange, ...], ...]
    names: HeaderNames
    carried: str | None = None
    keep: bool = True
    watermarks: frozenset[tuple[str, str, str, str]] = frozenset()
    skipped: frozenset[Place] = frozenset()

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        """As PartTask; its scan is read by read_ranges and read_scans."""
        done = self.counter(storage, task)
        rows: list[DataFile] = []
        ranges: list[RangeScan] = []
        read = cache(partial(read_ids, storage))
        skipped = by_partition(self.skipped)
        metadata = {NAMES: self.names.text}
        with (
            KeyFilters(storage, self.source, self.backup_id, task) as keys,
            ScanWriter(storage, self.source, self.backup_id, task) as writer,
        ):
            for span in self.tasks[task]:
                scan = TransactionScan(span, writer.sink)
                look = _Look(self, span, scan, skipped.get(span.place, ()), read)
                if self.keep:
                    rows += self.copy(storage, span, keys, done, metadata=metadata, look=look)
                else:
                    self._scan(span, look, done)
                scan.flush()
                ranges.append(scan.range(span.start, span.end))
            Cluster(self.client).require_same({span.scope: span.epoch for span in self.tasks[task]})
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


@dataclass(frozen=True, slots=True)
class _Look:
    """Looks at the blocks of one range in order, see consume.Look.

    `skipped`: offsets of messages that are left out. `read`: the ids of transactions in an object; it is
    called when the first block in front comes.
    """

    job: QueueCopyJob
    span: QueueRange
    scan: TransactionScan
    skipped: Sequence[int]
    read: Callable[[str], Any]

    @property
    def where(self) -> str:
        return f"{self.span.scope}[{self.span.region}]"

    def __call__(self, block: Block) -> Block | None:
        job, span = self.job, self.span
        whole = block.columns(self.where)
        columns = without(whole, self.skipped)
        messages = read_messages(columns, job.names, self.where)
        in_front = block.stats.start_position < span.own_from
        kept = chosen(
            columns,
            messages,
            only=self.read(job.carried) if in_front and job.carried else None,
            before=span.own_from if in_front else None,
        )
        self._mark(columns, messages, kept)
        self.scan.add(columns, messages, kept, span.own_from)
        if kept.all() and columns is whole:
            made: Block | None = block
        else:
            columns, messages = taken(columns, kept), messages.take(kept)
            made = columns.packed()
        bounds = messages.bounds
        if made is None or bounds is None:
            return None
        stats = replace(made.stats, min_tid=bounds[0], max_tid=bounds[1])
        hashes = block.hashes if made is block else hashes_of(columns)
        return Block(made.data, stats, block.opens, hashes)

    def _mark(self, columns: Columns, messages: Messages, kept: Chosen) -> None:
        """Check watermarks: behind one of a restore that the backup does not continue, messages are old
        ones that come a second time. Raises Refused."""
        for row, found in watermarks(columns, messages):
            offset, restore_id = int(columns.rows[row, OFFSET]), found.restore if found else None
            if not self.job.keep:
                self.scan.forget(offset, restore_id, found.to_tid if found else None)
                kept[:row] = False
            elif offset >= self.span.own_from and (*self.span.place, restore_id) not in self.job.watermarks:
                restore = f"restore {restore_id}" if found else "a restore whose watermark cannot be read"
                raise Refused(
                    f"{self.where} at offset {offset}: what follows was written by {restore}, and "
                    "this backup does not continue that one.",
                    hint="Nothing of it is visible. Run its command again to finish that restore; if it is "
                    "not in this catalog, or is given up, take a new full with --mode full.",
                )
