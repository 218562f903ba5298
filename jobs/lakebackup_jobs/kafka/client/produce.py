"""Writes decoded blocks back to Kafka, in transactions that contain the restore's progress.

The progress of a restore is an offset commit of the restore's group on the target partition, made in the same
transaction as the records: its offset is the next source position. After a crash the next run fences the
old producer, reads the commit and continues there, so that no record is lost or written twice.

That needs brokers that end each decided transaction in all its partitions; `admin.committed` says when they
do not. So each commit waits until it can be read, and `resume` repairs partitions in which a transaction did
not end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

import numpy as np
from tenacity import RetryCallState, Retrying, retry_if_exception_type

from lakebackup.errors import EnvironmentProblem, LakebackupError, Refused
from lakebackup_jobs.kafka.admin.committed import Base, CommitNote, Ends, Partition, Progress, Target
from lakebackup_jobs.kafka.admin.problems import (
    Fenced,
    Unanswered,
)
from lakebackup_jobs.kafka.client.consume import reader
from lakebackup_jobs.kafka.client.engine import open_engine
from lakebackup_jobs.kafka.client.librdkafka import PATIENCE
from lakebackup_jobs.kafka.format.records import (
    KEY_LENGTH,
    OFFSET,
    TIMESTAMP,
    VALUE_LENGTH,
    Columns,
    decode_block,
    encode_record,
)
from lakebackup_jobs.kafka.memory import Longs

T = TypeVar("T")
# How long an abort after an error may take. The next producer of the transactional id aborts too.
_ABORT_S = 10.0
#: How many attempts in a row may fail because no broker answers. Each waits PATIENCE: 4 minutes in all.
ATTEMPTS = 4
#: The columns of a record by which a restore recognizes one that it wrote.
SHAPE = [TIMESTAMP, KEY_LENGTH, VALUE_LENGTH]


def outlasting(write: Callable[[Callable[[], None]], T]) -> T:
    """Call `write` until the brokers answer, at most ATTEMPTS times in a row; returns its result.

    `write` resumes after its last commit. It calls its argument after each commit, which resets the count.
    After a restart of its brokers a client may wait forever to commit; a new client does not. Raises
    Unanswered after the last attempt.
    """
    failures = 0

    def reset_failures() -> None:
        nonlocal failures
        failures = 0

    def is_last_attempt(_: RetryCallState) -> bool:
        nonlocal failures
        failures += 1
        return failures >= ATTEMPTS

    attempts = Retrying(retry=retry_if_exception_type(Unanswered), stop=is_last_attempt, reraise=True)
    return attempts(write, reset_failures)


class RestoreProducer:
    """A restore's producer, as a context manager. Leaving it with an open transaction aborts the transaction.

    Creating it fences every earlier producer with the same `transactional_id`, and ends their open
    transactions. `group`: the group whose committed offsets are the progress. `config`: librdkafka
    properties. `transaction_targets`: the partitions that received records since the last transaction began.
    `patience`: seconds without progress before EnvironmentProblem. `zero_as_one`: librdkafka replaces
    timestamp 0 (the start of 1970) by the present time; without this flag such records are refused, with it
    they get timestamp 1 ms. `wait` is called repeatedly while this waits for the brokers; it may raise.
    `label`: what errors say it was doing, by default with its id.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        transactional_id: str,
        group: str,
        *,
        patience: float = PATIENCE,
        zero_as_one: bool = False,
        wait: Callable[[], object] = lambda: None,
        label: str = "",
    ) -> None:
        self._config, self._group, self._patience = config, group, patience
        self._zero_as_one = zero_as_one
        self._open = False
        self._bases: dict[Partition, Base] = {}
        self._existing_shapes: dict[Partition, Longs] = {}
        self.transaction_targets: set[Partition] = set()
        self._engine = open_engine(
            config, transactional_id, patience, wait, label or f"restore {transactional_id}"
        )
        self._target = Target(config, group, patience)

    def __enter__(self) -> RestoreProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._open:
                self._open = False
                self._engine.abort(None if error is None else _ABORT_S)
        except LakebackupError:
            # The coordinator aborts the transaction by itself when its time is up, or when the next
            # producer of this id begins. The error that ended the block matters more.
            if error is None:
                raise
        finally:
            self._engine.close()
            self._target.close()

    @property
    def is_due(self) -> bool:
        """Whether the open transaction is so old that it should be committed now, before its timeout."""
        return self._engine.is_due

    def pieces(self, columns: Columns) -> Iterator[Columns]:
        """Return the records of a block in pieces, after each of which the transaction may be due."""
        return self._engine.pieces(columns)

    def begin(self) -> None:
        """Begin a transaction."""
        self._engine.begin()
        self._open = True
        self.transaction_targets = set()

    def produce_block(self, topic: str, partition: int, columns: Columns) -> int:
        """Produce the block's records in order; returns their number.

        Key, value (null or not), headers in order and timestamp (-1: none) are preserved. Raises Refused
        for a timestamp that cannot be preserved, Fenced, EnvironmentProblem.
        """
        rows = columns.rows
        if not len(rows):
            return 0
        zero_offsets = rows[rows[:, TIMESTAMP] == 0, OFFSET]
        if len(zero_offsets) and not self._zero_as_one:
            raise Refused(
                f"{topic}[{partition}]: the record of source offset {zero_offsets[0]} has timestamp 0, "
                "which the Kafka client would replace by the present time.",
                hint="Allow such records to be written with timestamp 1 (ms) instead.",
            )
        target = (topic, partition)
        missing = replace(columns, rows=rows[self._count_existing(target, rows) :])
        if len(missing.rows):
            self._engine.send(topic, partition, missing)
        self.transaction_targets.add(target)
        return len(rows)

    def commit(self, progress: Mapping[Partition, Progress]) -> Mapping[Partition, Ends]:
        """Commit the records together with `progress`, and wait until readers of committed records see them.

        Returns the ends of the partitions at that time.
        """
        try:
            self._commit_offsets(
                {target: CommitNote(entry, self._bases.get(target)) for target, entry in progress.items()}
            )
        except Fenced:
            self._open = False  # the newer producer ends the transaction
            raise
        self._open = False
        highs = {target: ends.high for target, ends in self._target.ends(progress).items()}
        visible_ends = self._target.wait(highs)
        for target, entry in progress.items():
            # While records from before a repair are unmatched, the next record is one of them, and lies
            # before the end. So the base stays.
            if not len(self._existing_shapes.get(target, ())):
                self._bases[target] = Base(entry, highs[target])
        return visible_ends

    def abort(self) -> None:
        """Abort the open transaction: no reader of committed records will see its records."""
        self._open = False
        self._engine.abort()

    def ends(self, targets: Collection[Partition]) -> Mapping[Partition, Ends]:
        """Return where readers of committed records stop in target partitions, and where these end."""
        return self._target.ends(targets)

    def base(self, target: Partition) -> int:
        """Return an offset of a resumed target partition. All records sent later lie there or behind it."""
        return self._bases[target].offset

    def filled(self, ends: Mapping[Partition, Ends]) -> set[Partition]:
        """Return the partitions in which readers of committed records find records before the base.

        `ends`: the partitions to look at, with their ends.
        """
        lows = self._target.begins(ends)
        highs = {target: min(self.base(target), target_ends.stable) for target, target_ends in ends.items()}
        return {t for t in ends if lows[t] < highs[t] and self._has_records(t, lows[t], highs[t])}

    def begins(self, target: Partition) -> int:
        """Return an offset of a resumed target partition. All records produced next lie there or behind it.

        That includes those that are in the partition already and are not sent again.
        """
        if len(self._existing_shapes.get(target, ())):
            return self._bases[target].offset
        return self._target.ends([target])[target].high

    def committed(self, topic: str, partition: int) -> Progress | None:
        """Return the progress that was committed last for this target partition; None when there was none.

        Raises EnvironmentProblem when the brokers lost the end of a transaction in the partition.
        """
        target = (topic, partition)
        if self._target.offsets_pending([target]):
            # Writing more would end that transaction too, whether it was to commit or to abort.
            raise EnvironmentProblem(f"{topic}[{partition}]: the brokers lost the end of a transaction here.")
        last = self._target.committed([target])[target]
        return last.progress if last else None

    def resume(self, targets: Collection[Partition]) -> Mapping[Partition, Progress | None]:
        """Return where to continue in each target partition, None at its beginning; ends open transactions.

        This producer's id has no transaction left that its coordinator would still end. So a transaction that
        is open here has lost its marker. Whether it was to commit or to abort is unknown, and its other
        partitions may have their markers. So it is aborted, and the restore of its partitions returns to the
        base of their last progress. Records after the base that are in a partition already are not sent
        again.

        `targets` are all partitions to which this producer's id ever wrote. An offset commit that waits for
        its marker concerns them all, since the next marker ends it for all of them.
        """
        last_notes, ends = self._target.committed(targets), self._target.ends(targets)
        pending = any(last_notes.values()) and self._target.offsets_pending(targets)
        bases: dict[Partition, Base] = {}
        for target in targets:
            last, high = last_notes[target], ends[target].high
            if last and not (last.repairing or ends[target].stable < high or pending):
                self._bases[target] = Base(last.progress, high)
            else:
                # A partition without a commit gets its first base here, which `_repair` commits too.
                bases[target] = (last and last.base) or Base(last.progress if last else Progress(0, ""), high)
        if bases:
            self._repair(bases, ends, [target for target in bases if last_notes[target]])
        return {
            target: self._bases[target].progress_before if last_notes[target] else None for target in targets
        }

    def _repair(
        self, bases: Mapping[Partition, Base], ends: Mapping[Partition, Ends], started: Collection[Partition]
    ) -> None:
        """Take partitions back to their bases, and commit the first base of new ones.

        `started`: those in which records may have been committed.
        """
        # The bases are committed first: after the abort the last progress may be too far.
        self._engine.begin()
        self._commit_offsets(
            {target: CommitNote(base.progress_before, base, repairing=True) for target, base in bases.items()}
        )
        self._target.wait(dict.fromkeys(bases, 0))
        if interrupted := [target for target in bases if ends[target].stable < ends[target].high]:
            self._abort_open(interrupted)
        highs = {target: target_ends.high for target, target_ends in self._target.ends(started).items()}
        self._target.wait(highs)
        for target, high in highs.items():
            self._existing_shapes[target] = self._read_shapes(target, bases[target].offset, high)
        self._bases.update(bases)

    def _has_records(self, target: Partition, start: int, end: int) -> bool:
        with closing(reader(self._config).blocks(*target, start, end, patience=self._patience)) as blocks:
            return next(blocks, None) is not None

    def _commit_offsets(self, notes: Mapping[Partition, CommitNote]) -> None:
        self._engine.commit(
            self._group,
            {target: Progress(entry.progress.position, entry.note()) for target, entry in notes.items()},
        )

    def _abort_open(self, targets: Collection[Partition]) -> None:
        """Abort open transactions in partitions: a marker ends all that its producer id began there."""
        self._engine.begin()
        for target in targets:
            record = encode_record(*target, 0, int(time.time() * 1000), 0, b"", b"", [])
            self._engine.send(*target, decode_block(record, 1))
        self._engine.flush()  # only partitions whose broker has a record get the marker
        self._engine.abort()

    def _read_shapes(self, target: Partition, start: int, end: int) -> Longs:
        """Return timestamp and lengths of key and value of the committed records in [start, end)."""
        shapes = [
            block.columns().rows[:, SHAPE]
            for block in reader(self._config).blocks(*target, start, end, patience=self._patience)
        ]
        return np.concatenate(shapes) if shapes else np.empty((0, len(SHAPE)), np.int64)

    def _count_existing(self, target: Partition, rows: Longs) -> int:
        """Return how many of the records to send are in the partition already.

        Raises Refused when other records are there instead.
        """
        shapes = self._existing_shapes.get(target)
        if shapes is None or not len(shapes):
            return 0
        count = min(len(shapes), len(rows))
        new_shapes = rows[:count, SHAPE]
        # Timestamps of records that have none (-1, 0) are not compared.
        new_shapes[:, 0] = np.where(new_shapes[:, 0] > 0, new_shapes[:, 0], shapes[:count, 0])
        if not np.array_equal(new_shapes, shapes[:count]):
            raise Refused(
                f"{target[0]}[{target[1]}]: brokers lost the end of a transaction, and other records were "
                "written among those of this restore.",
                hint="Restore into another topic.",
            )
        self._existing_shapes[target] = shapes[count:]
        return count
