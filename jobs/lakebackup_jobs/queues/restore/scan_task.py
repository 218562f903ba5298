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

from lakebackup.formats.queues.headers import HeaderNames, Kind
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.records import TIMESTAMP
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.lifecycle.tasks.errors import guarded, raise_first
from lakebackup_jobs.lifecycle.tasks.rows import read_rows, write_rows
from lakebackup_jobs.queues.messages import read_messages
from lakebackup_jobs.queues.restore.splits import QueueFile, deal_scan
from lakebackup_jobs.queues.transaction_scan import SEEN_COLUMNS, SEEN_SCHEMA, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.roots import Roots
    from lakebackup.store.selection import Selection
    from lakebackup_jobs.kafka.format.records import Columns
    from lakebackup_jobs.queues.messages import Messages
    from lakebackup_jobs.queues.restore.splits import QueueShares

SCANNED = "task BIGINT, error STRING"
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
class ScanJob:
    """The same for every task of one scan: tells of the transactions with a message up to `upto_tid`."""

    roots: Roots
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
            self._reader.give("queue_later", SEEN_SCHEMA.empty_table())
        return write_ids(self._reader, self._uri, path, "queue_restore_unended", **before)

    def _scan(self, files: Selection, relation: str, folder: str, link: int, upto_tid: int) -> None:
        """Read the chosen files of backups behind a link; what is seen of transactions gets a name."""
        shares = deal_scan(open_storage(self._uri), files, folder, link)
        count = len(shares.tasks)
        job = ScanJob(self._reader.destinations(), shares, self._names, upto_tid)
        if self._spark is None:
            import pyarrow as pa

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(job.run, range(count)))
            numbers = pa.RecordBatch.from_pydict({"id": list(range(count))})
            seen = SeenRows(self._uri, folder)([numbers])
            self._reader.give(relation, pa.Table.from_batches(seen, SEEN_SCHEMA))
            return
        numbers = self._spark.range(0, count, 1, max(count, 1))
        with task_errors():
            told = numbers.mapInArrow(job, SCANNED).collect()  # one row a share
        raise_first(row.error for row in told)
        numbers.mapInArrow(SeenRows(self._uri, folder), SEEN_COLUMNS).createOrReplaceTempView(relation)


def write_ids(reader: CatalogReader, uri: str, path: str, query: str, **parameters: Any) -> int:
    """Put the ids that a query gives as an object; returns how many they are."""
    rows = reader.map(
        IdsWriter(uri, path),
        "transactions BIGINT",
        query,
        spread=lambda rows: rows.coalesce(1),
        **parameters,
    )
    # Spark leaves a task out that it knows to have no row.
    return int(rows[0]["transactions"]) if rows else 0


def first_ids(storage: Storage, path: str, count: int) -> list[str]:
    """At most so many of the ids in such an object."""
    ids = (name for rows in read_rows(storage, path) for name in rows["transaction_id"].to_pylist())
    return list(islice(ids, count))


def _as_ids(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["transaction_id"]).cast(_ids_schema())


def _ids_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("transaction_id", pa.string())])
