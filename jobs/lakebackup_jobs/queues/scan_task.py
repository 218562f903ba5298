"""What is looked up in stored messages before an engine is put back to a point between two backups' ends.

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

from lakebackup.engine.failures import task_errors
from lakebackup.queues.headers import HeaderNames, Kind
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.records import TIMESTAMP
from lakebackup_jobs.kafka.stored import Counted, open_verified
from lakebackup_jobs.outcome import guarded, raise_first
from lakebackup_jobs.queues.messages import read_messages
from lakebackup_jobs.queues.restore_shares import QueueFile, deal_scan
from lakebackup_jobs.queues.seen import SEEN_SCHEMA, Seen
from lakebackup_jobs.snapshot.rows import read_rows, write_rows
from lakebackup_sql import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.store import CatalogReader
    from lakebackup_jobs.kafka.records import Columns
    from lakebackup_jobs.queues.messages import Messages
    from lakebackup_jobs.queues.restore_shares import QueueShares

SCANNED = "task BIGINT, error STRING"
_SEEN = (
    "transaction_id STRING, scope STRING, epoch STRING, region STRING, first_position BIGINT, "
    "first_tid BIGINT, entries BIGINT, ended BOOLEAN"
)
_IDS = "transaction_id STRING"
_BEYOND = 2**63 - 1


def tid_at(reader: CatalogReader, ts: int, names: HeaderNames) -> int:
    """The greatest tid such that no message up to it is later than `ts` (ms); of none is, a huge one.

    `reader` has the relation `selected`. Raises Damaged, Refused (a message that cannot be understood).
    """
    (later,) = reader.rows("queue_restore_later", to_ts=ts)
    least = _BEYOND if later["tid"] is None else int(later["tid"])
    if not later["straddling"]:
        return least - 1
    roots = dict(reader.destinations())
    rows = _rows(reader, least, ts)
    at_once = os.cpu_count() or 2
    with ThreadPoolExecutor(at_once) as pool:
        # They come by their least tid: behind the least that was found there is none.
        while some := list(islice(rows, at_once)):
            if (some[0].pop("min_tid") or 0) >= least:
                break
            files = [QueueFile(**{k: v for k, v in row.items() if k != "min_tid"}) for row in some]
            least = min(least, *pool.map(partial(_least_after, roots, ts, names), files))
    return least - 1


def _rows(reader: CatalogReader, tid: int, ts: int) -> Iterator[dict[str, Any]]:
    for batch in reader.query("queue_restore_straddling", to_ts=ts, tid=tid):
        yield from batch.to_pylist()


def _least_after(roots: Mapping[str, str], ts: int, names: HeaderNames, file: QueueFile) -> int:
    least = _BEYOND
    for columns, messages in _messages(roots, file, names):
        later = messages.tids[(columns.rows[:, TIMESTAMP] > ts) & (messages.kinds != Kind.WATERMARK)]
        least = min(least, int(later.min(initial=_BEYOND)))
    return least


def _messages(
    roots: Mapping[str, str], file: QueueFile, names: HeaderNames
) -> Iterator[tuple[Columns, Messages]]:
    counted, where = Counted(file), f"{file.path}, {file.scope}[{file.region}]"
    reader = open_verified(roots, file)
    names = HeaderNames.read(reader.metadata) or names
    for columns in reader:
        counted.add(len(columns.rows))
        yield columns, read_messages(columns, names, where)
    counted.check()


@dataclass(frozen=True, slots=True)
class ScanJob:
    """The same for every task of one scan: tells of the transactions with a message up to `upto_tid`."""

    roots: Mapping[str, str]
    shares: QueueShares
    names: HeaderNames
    upto_tid: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` over the numbers of shares: one row a share, columns as in SCANNED."""
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            yield guarded(SCANNED, partial(self.run, number), task=number)

    def run(self, number: int) -> dict[str, Any]:
        """Do one share, in any process: put what was seen of it as an object."""
        storage = open_storage(self.shares.uri)
        write_rows(storage, seen_path(self.shares.folder, number), SEEN_SCHEMA, self._seen(number))
        return {"task": number}

    def _seen(self, number: int) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        seen: Seen | None = None
        tell = self.shares.board().counter(f"{number:06d}")
        for file in self.shares.files(number):
            seen = seen or Seen(file.scope, file.epoch, file.region, held.append)
            for columns, messages in _messages(self.roots, file, self.names):
                wanted = (messages.tids <= self.upto_tid) & (messages.kinds != Kind.WATERMARK)
                seen.add(columns, messages, np.asarray(wanted))
                yield from held
                held.clear()
            tell(file.entries, file.bytes)
        if seen is not None:
            seen.flush()
            yield from held


def seen_path(folder: str, number: int) -> str:
    """What a task of a scan saw, below the folder of its shares."""
    return f"{folder}seen/{number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class SeenRows:
    """For `mapInArrow` over the numbers of shares: what was seen of them."""

    uri: str
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = open_storage(self.uri)
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            for rows in read_rows(storage, seen_path(self.folder, number)):
                yield rows.cast(SEEN_SCHEMA)


@dataclass(frozen=True, slots=True)
class IdsWriter:
    """For `mapInArrow` over ids of transactions, in one task: puts them as an object, tells their count."""

    uri: str
    path: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        _, count, _ = write_rows(open_storage(self.uri), self.path, _ids_schema(), _as_ids(batches))
        yield pa.RecordBatch.from_pydict({"transactions": pa.array([count], pa.int64())})


def open_at(
    reader: CatalogReader,
    spark: SparkSession | None,
    folder: str,
    path: str,
    *,
    uri: str,
    link: int,
    parent: str | None,
    upto_tid: int,
    names: HeaderNames,
) -> int:
    """Put the ids of the transactions that are open at a tid as the object `path`; returns how many they are.

    `parent`: the last backup whose end lies before, whose open transactions are known; None: none were open.
    `link`: its place in the chain; the chosen files behind it are read. `reader` has the relation `selected`.
    `spark` None: all of it is done in this process.
    """
    storage = open_storage(uri)
    shares = deal_scan(storage, reader, folder, link)
    count = len(shares.tasks)
    job = ScanJob(dict(reader.destinations()), shares, names, upto_tid)
    try:
        if spark is None:
            import pyarrow as pa

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(job.run, range(count)))
            numbers = pa.RecordBatch.from_pydict({"id": list(range(count))})
            seen = SeenRows(uri, folder)([numbers])
            reader.give("queue_seen", pa.Table.from_batches(seen, SEEN_SCHEMA))
            reader.define("queue_unended", "queue_open", parent=parent)
            return write_ids(reader, uri, path, "queue_restore_unended")
        from lakebackup.engine.spark import SparkEngine

        engine = SparkEngine(spark, reader.catalog_uri)
        with task_errors():
            told = spark.range(0, count, 1, max(count, 1)).mapInArrow(job, SCANNED).collect()
        raise_first(row.error for row in told)
        rows = spark.range(0, count, 1, max(count, 1)).mapInArrow(SeenRows(uri, folder), _SEEN)
        rows.createOrReplaceTempView("queue_seen")
        engine.define("queue_unended", load("queries", "queue_open"), parent=parent)
        found = engine.query("queue_restore_unended").coalesce(1)
        with task_errors():
            (made,) = found.mapInArrow(IdsWriter(uri, path), "transactions BIGINT").collect()
        return int(made.transactions)
    finally:
        for one in list(storage.list(folder)):
            storage.delete(one.path)


def write_ids(reader: CatalogReader, uri: str, path: str, query: str, **parameters: Any) -> int:
    """Put the ids that a query gives as an object; returns how many they are."""
    rows = reader.query(query, **parameters)
    _, count, _ = write_rows(open_storage(uri), path, _ids_schema(), _as_ids(rows))
    return count


def _as_ids(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["transaction_id"]).cast(_ids_schema())


def _ids_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("transaction_id", pa.string())])
