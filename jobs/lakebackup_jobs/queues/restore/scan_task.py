"""What is looked up in stored messages before an engine is restored to a point between two backups' ends.

Which tid an instant comes to; and, for a tid, which transactions are open there. Only files that can matter
are read: those that hold messages of before and after the instant, those of the backups that the tid lies in.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from lakebackup.formats.queues.headers import HeaderNames, Kind
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.records import TIMESTAMP
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.lifecycle.tasks.rows import read_rows, write_rows
from lakebackup_jobs.lifecycle.tasks.task import Task, run_all
from lakebackup_jobs.queues.messages import read_messages
from lakebackup_jobs.queues.restore.splits import QueueFile, deal_scan
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.queues.transaction_scan import SCAN_COLUMNS, SCAN_SCHEMA, TransactionScan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.storage import Storage
    from lakebackup.store.roots import Roots
    from lakebackup.store.selection import Selection
    from lakebackup_jobs.kafka.format.records import Columns
    from lakebackup_jobs.queues.messages import Messages
    from lakebackup_jobs.queues.restore.splits import QueueShares

_BEYOND = 2**63 - 1


def tid_at(files: Selection, ts: int, names: HeaderNames) -> int:
    """The greatest tid such that no message in chosen files up to it is later than `ts` (ms); if none is, a
    huge one. Raises Damaged, Refused (a message that cannot be understood)."""
    (later,) = files.rows("queue_restore_later", to_ts=ts)
    least = _BEYOND if later["tid"] is None else int(later["tid"])
    if not later["straddling"]:
        return least - 1
    roots = files.reader.destinations()
    rows = _rows(files, least, ts)
    at_once = os.cpu_count() or 2
    with ThreadPoolExecutor(at_once) as pool:
        # They come by their least tid: behind the least that was found there is none.
        while some := list(islice(rows, at_once)):
            if (some[0].pop("min_tid") or 0) >= least:
                break
            batch = [QueueFile(**{k: v for k, v in row.items() if k != "min_tid"}) for row in some]
            least = min(least, *pool.map(partial(_least_after, roots, ts, names), batch))
    return least - 1


def _rows(files: Selection, tid: int, ts: int) -> Iterator[dict[str, Any]]:
    for batch in files.query("queue_restore_straddling", to_ts=ts, tid=tid):
        yield from batch.to_pylist()


def _least_after(roots: Roots, ts: int, names: HeaderNames, file: QueueFile) -> int:
    least = _BEYOND
    for columns, messages in _messages(roots, file, names):
        later = messages.tids[(columns.rows[:, TIMESTAMP] > ts) & (messages.kinds != Kind.WATERMARK)]
        least = min(least, int(later.min(initial=_BEYOND)))
    return least


def _messages(roots: Roots, file: QueueFile, names: HeaderNames) -> Iterator[tuple[Columns, Messages]]:
    where = f"{file.path}, {file.scope}[{file.region}]"
    reader = open_verified(roots, file)
    names = HeaderNames.read(reader.metadata) or names
    for columns in reader:
        yield columns, read_messages(columns, names, where)


@dataclass(frozen=True, slots=True)
class ScanJob(Task):
    """Scans a split for transactions with a message up to `upto_tid`, and writes them as an object."""

    COLUMNS = "task BIGINT, error STRING"

    roots: Roots
    shares: QueueShares
    names: HeaderNames
    upto_tid: int

    def run(self, number: int) -> dict[str, Any]:
        storage = open_storage(self.shares.uri)
        write_rows(storage, _scan_path(self.shares.folder, number), SCAN_SCHEMA, self._transactions(number))
        return {"task": number}

    def _transactions(self, number: int) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        scan: TransactionScan | None = None
        count = self.shares.board().counter(f"{number:06d}")
        for file in self.shares.files(number):
            scan = scan or TransactionScan(file.scope, file.epoch, file.region, held.append)
            for columns, messages in _messages(self.roots, file, self.names):
                wanted = (messages.tids <= self.upto_tid) & (messages.kinds != Kind.WATERMARK)
                scan.add(columns, messages, np.asarray(wanted))
                yield from held
                held.clear()
            count(file.entries, file.bytes)
        if scan is not None:
            scan.flush()
            yield from held


def _scan_path(folder: str, number: int) -> str:
    """The transactions that a task of a scan found, below the folder of its splits."""
    return f"{folder}seen/{number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class ScanRows(PerNumber):
    """The transactions in a split."""

    uri: str
    folder: str

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for rows in read_rows(open_storage(self.uri), _scan_path(self.folder, number)):
            yield rows.cast(SCAN_SCHEMA)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of transactions at the last backup whose end lies before a tid: `open_at` names the one
    whose open transactions are open then, None: none are; `link` and `last_tid` are its place in the chain
    and its end. `next_link`: of the backup behind it, in which the tid lies; None: there is none.
    """

    open_at: str | None
    link: int
    last_tid: int
    next_link: int | None


class OpenAt:
    """Finds the transactions that are open at a tid in `files`, which were chosen with `parameters`;
    `folder` is for what is needed meanwhile. `spark` None: all is done in this process."""

    def __init__(
        self,
        files: Selection,
        spark: SparkSession | None,
        uri: str,
        folder: str,
        names: HeaderNames,
        parameters: Mapping[str, Any],
    ) -> None:
        self._files, self._spark, self._uri, self._folder = files, spark, uri, folder
        self._names, self._parameters = names, parameters
        self._reader = files.reader if spark is None else files.reader.on(spark)

    def write(self, path: str, upto_tid: int, known: Known) -> int:
        """Put their ids as the object `path`; returns how many they are."""
        try:
            return self._write(path, upto_tid, known)
        finally:
            storage = open_storage(self._uri)
            for one in list(storage.list(self._folder)):
                storage.delete(one.path)

    def _write(self, path: str, upto_tid: int, known: Known) -> int:
        self._scan(self._files, "queue_seen", f"{self._folder}upto/", known.link, upto_tid)
        self._reader.define("queue_unended", "queue_open", parent=known.open_at)
        before = {"parent": known.open_at, "tid": known.last_tid}
        (suspects,) = self._reader.rows("queue_restore_suspects", **before)
        if suspects["transactions"] and known.next_link is not None:
            whole = {**self._parameters, "to_tid": None, "link": known.next_link}
            later = self._files.reader.choose("selected", "queue_restore_files", **whole)
            self._scan(later, "queue_later", f"{self._folder}later/", known.link, _BEYOND)
        else:
            self._reader.give("queue_later", SCAN_SCHEMA.empty_table())
        return write_ids(self._reader, self._uri, path, "queue_restore_unended", **before)

    def _scan(self, files: Selection, relation: str, folder: str, link: int, upto_tid: int) -> None:
        """Read the chosen files of backups behind a link; the transactions in them get a name."""
        shares = deal_scan(open_storage(self._uri), files, folder, link)
        numbers = shares.numbers
        run_all(ScanJob(self._reader.destinations(), shares, self._names, upto_tid), numbers, self._spark)
        found = ScanRows(self._uri, folder)
        if self._spark is None:
            import pyarrow as pa

            rows = chain.from_iterable(map(found.rows, numbers))
            self._reader.give(relation, pa.Table.from_batches(rows, SCAN_SCHEMA))
        else:
            found.over(self._spark, numbers, SCAN_COLUMNS).createOrReplaceTempView(relation)


def first_ids(storage: Storage, path: str, count: int) -> list[str]:
    """At most so many of the ids in such an object."""
    ids = (name for rows in read_rows(storage, path) for name in rows["transaction_id"].to_pylist())
    return list(islice(ids, count))
