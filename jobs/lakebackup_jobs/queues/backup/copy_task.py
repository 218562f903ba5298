"""A task of a backup of queues: read offset ranges, store their messages, record their transactions.

Like a topic backup's task, but for the look at each block's headers on its way: messages in front, the tids
of a file, and transactions. The part is the task's commit; the transactions are written before it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebackup.errors import Refused
from lakebackup.formats.queues.headers import NAMES
from lakebackup_jobs.kafka.client.consume import Progress, reader
from lakebackup_jobs.kafka.format.key_filter import KeyFilters, hashes_of
from lakebackup_jobs.kafka.format.records import OFFSET, Block
from lakebackup_jobs.queues.backup.skipped import by_partition
from lakebackup_jobs.queues.messages import chosen, read_messages, watermarks, without
from lakebackup_jobs.queues.transaction_ids import TransactionIds, read_ids
from lakebackup_jobs.queues.transaction_scan import RangeScan, ScanWriter, TransactionScan
from lakebackup_jobs.topics.tasks.copy import OffsetsTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebackup.formats.queues.headers import HeaderNames
    from lakebackup.plan.queues.backup import QueueRange
    from lakebackup.rows.backups import DataFile
    from lakebackup.storage import Storage
    from lakebackup_jobs.kafka.format.records import Columns
    from lakebackup_jobs.queues.backup.skipped import Place
    from lakebackup_jobs.queues.messages import Messages
    from lakebackup_jobs.queues.transaction_ids import Chosen


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
        front = _Front(storage, self.carried)
        skipped = by_partition(self.skipped)
        metadata = {NAMES: self.names.text}
        with (
            KeyFilters(storage, self.source, self.backup_id, task) as keys,
            ScanWriter(storage, self.source, self.backup_id, task) as writer,
        ):
            for span in self.tasks[task]:
                look = _Look(
                    span,
                    self.names,
                    front,
                    TransactionScan(span.scope, span.epoch, span.region, writer.sink),
                    self.watermarks if self.keep else None,
                    skipped.get((span.scope, span.epoch, span.region), ()),
                )
                if self.keep:
                    rows += self.copy(storage, span, keys, done, metadata=metadata, look=look)
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

    `watermarks`: as of QueueCopyJob; None: what is before one, whichever it is, is forgotten. `skipped`:
    offsets of messages that are left out.
    """

    def __init__(
        self,
        span: QueueRange,
        names: HeaderNames,
        front: _Front,
        scan: TransactionScan,
        watermarks: frozenset[tuple[str, str, str, str]] | None,
        skipped: Sequence[int],
    ) -> None:
        self._span, self._names, self._front, self._scan = span, names, front, scan
        self._watermarks, self._skipped = watermarks, skipped
        self._where = f"{span.scope}[{span.region}]"

    def __call__(self, block: Block) -> Block | None:
        span, where = self._span, self._where
        whole = block.columns(where)
        columns = without(whole, self._skipped)
        messages = read_messages(columns, self._names, where)
        in_front = block.stats.start_position < span.own_from
        kept = chosen(
            columns,
            messages,
            only=self._front.ids() if in_front else None,
            before=span.own_from if in_front else None,
        )
        self._mark(columns, messages, kept)
        self._scan.add(columns, messages, kept, span.own_from)
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
        """Check watermarks: behind one of a restore that the backup does not continue, messages are old
        ones that come a second time. Raises Refused."""
        for row, found in watermarks(columns, messages):
            offset = int(columns.rows[row, OFFSET])
            if self._watermarks is None:
                self._scan.forget(offset, found.restore if found else None, found.to_tid if found else None)
                kept[:row] = False
            elif offset >= self._span.own_from and not (found and self._known(found.restore)):
                restore = f"restore {found.restore}" if found else "a restore whose watermark cannot be read"
                raise Refused(
                    f"{self._where} at offset {offset}: what follows was written by {restore}, and "
                    "this backup does not continue that one.",
                    hint="Nothing of it is visible. Run its command again to finish that restore; if it is "
                    "not in this catalog, or is given up, take a new full with --mode full.",
                )

    def _known(self, restore_id: str) -> bool:
        span = self._span
        return (span.scope, span.epoch, span.region, restore_id) in (self._watermarks or ())

    def finish(self) -> RangeScan:
        """What the range held."""
        self._scan.flush()
        return self._scan.range(self._span.start, self._span.end)
