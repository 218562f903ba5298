"""Scans of stored messages, for restores of an engine to a point between the ends of two backups.

One scan finds the tid that an instant corresponds to; the other finds the transactions that are open at a
tid. They read only files that matter: those with messages from before and after the instant, and those of
the backup that the tid lies in and of the one after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lakebackup.formats.queues.headers import HeaderNames, Kind
from lakebackup.plan.partitions import Partition
from lakebackup.plan.queues.restore import QueueRestorePlan
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import Storage, open_storage
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.format.records import TIMESTAMP, Columns
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.lifecycle.keyring import keyring, open_roots
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares
from lakebackup_jobs.lifecycle.tasks.rows import read_rows, write_rows
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.queues.messages import Messages, read_messages
from lakebackup_jobs.queues.restore.shares import QueueFile, run_shares, store_scan
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.queues.transaction_scan import SCAN_SCHEMA, TransactionScan, with_scans

#: The greatest tid there can be: a scan up to it reads all messages.
ALL = 2**63 - 1


def tid_at(files: CatalogReader, ts: int, names: HeaderNames) -> int:
    """Return the greatest tid such that no message of the files up to it is later than `ts` (ms).

    `files`: a reader with the files as the relation `selected`.

    If no message is later than `ts`, it is ALL - 1. Raises Damaged, Refused (a message that cannot be read),
    and as `keyring`.
    """
    (counts,) = files.rows("queue_restore_later", to_ts=ts)
    least_tid = ALL if counts["tid"] is None else int(counts["tid"])
    if not counts["straddling"]:
        return least_tid - 1
    roots = files.destinations()
    roots = roots.with_keys(keyring(files, roots))
    rows = _straddling_files(files, least_tid, ts)
    threads = os.cpu_count() or 2
    with ThreadPoolExecutor(threads) as pool:
        # The files are in the order of their least tid, so the search ends at the first file whose least tid
        # is not below the result so far.
        while chunk := list(islice(rows, threads)):
            if (chunk[0].pop("min_tid") or 0) >= least_tid:
                break
            files_to_read = [QueueFile(**{k: v for k, v in row.items() if k != "min_tid"}) for row in chunk]
            least_tid = min(least_tid, *pool.map(partial(_least_after, roots, ts, names), files_to_read))
    return least_tid - 1


def _straddling_files(files: CatalogReader, tid: int, ts: int) -> Iterator[dict[str, Any]]:
    for batch in files.query("queue_restore_straddling", to_ts=ts, tid=tid):
        yield from batch.to_pylist()


def _least_after(roots: Roots, ts: int, names: HeaderNames, file: QueueFile) -> int:
    least_tid = ALL
    for columns, messages in _messages(roots, file, names):
        tids = messages.tids[(columns.rows[:, TIMESTAMP] > ts) & (messages.kinds != Kind.WATERMARK)]
        least_tid = min(least_tid, int(tids.min(initial=ALL)))
    return least_tid


def _messages(roots: Roots, file: QueueFile, names: HeaderNames) -> Iterator[tuple[Columns, Messages]]:
    location = f"{file.path}, {file.scope}[{file.region}]"
    reader = open_verified(roots, file)
    names = HeaderNames.read(reader.metadata) or names
    for columns in reader:
        yield columns, read_messages(columns, names, location)


@dataclass(frozen=True, slots=True)
class ScanJob(Task):
    """Scans a share for transactions with a message up to `upto_tid`, and writes these as an object."""

    COLUMNS = "task BIGINT, error STRING"

    roots: Roots
    shares: PlanShares
    names: HeaderNames
    upto_tid: int = ALL

    def run(self, number: int) -> dict[str, Any]:
        storage = open_storage(self.shares.uri)
        write_rows(storage, _scan_path(self.shares.folder, number), SCAN_SCHEMA, self._transactions(number))
        return {"task": number}

    def _transactions(self, number: int) -> Iterator[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        count = self.shares.task_progress().counter(f"{number:06d}")
        for partition, files in groupby(self._files(number), attrgetter("scope", "epoch", "region")):
            scan = TransactionScan(Partition(*partition), batches.append)
            for file in files:
                for columns, messages in _messages(self.roots, file, self.names):
                    selected = (messages.tids <= self.upto_tid) & (messages.kinds != Kind.WATERMARK)
                    scan.add(columns, messages, selected)
                    yield from batches
                    batches.clear()
                count(file.entries, file.bytes)
            scan.flush()
        yield from batches

    def _files(self, number: int) -> Iterator[QueueFile]:
        return chain.from_iterable(self.shares.rows(number, QueueFile))


def _scan_path(folder: str, number: int) -> str:
    """Return the path of the transactions that a scan task found, below the folder of its plan."""
    return f"{folder}seen/{number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class _Scanned(PerNumber):
    """The transactions that each task of a scan found."""

    uri: str
    folder: str

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for rows in read_rows(open_storage(self.uri), _scan_path(self.folder, number)):
            yield rows.cast(SCAN_SCHEMA)


def write_open(
    plan: QueueRestorePlan,
    reader: CatalogReader,
    spark: SparkSession | None,
    uri: str,
    folder: str,
    path: str,
    names: HeaderNames,
) -> int:
    """Write the ids of the transactions that are open at the plan's tid as the object `path`; return how
    many they are. Leaves temporary objects below `folder`. `spark` None: this process does all the work."""
    links, segments = plan.restore_path.links, plan.restore_path.segments()
    # The last backup that ends before the tid. No transaction stays open across a restore of the engine.
    position = max(plan.restore_path.last_index_by(plan.upto_tid), segments.index(segments[-1]) - 1)
    last_backup = links[position]
    parent = last_backup.backup_id if segments[position] == segments[-1] else None
    if spark is not None:
        reader = reader.with_spark(spark)

    def with_scanned(reader: CatalogReader, name: str, file: PlanFile, upto_tid: int) -> CatalogReader:
        """Scan the files of the backups after the last one; `name` stands for their transactions."""
        shares = store_scan(open_storage(uri), reader, file, f"{folder}{name}/", last_backup.link)
        run_shares(ScanJob(open_roots(reader, shares.file), shares, names, upto_tid), shares, spark)
        return with_scans(reader, spark, name, _Scanned(uri, shares.folder), len(shares.tasks))

    reader = with_scanned(reader, "queue_seen", plan.file, plan.to_tid)
    reader = reader.with_query("queue_unended", "queue_open", parent=parent)
    parent_end = {"parent": parent, "tid": last_backup.last_tid}
    (suspects,) = reader.rows("queue_restore_suspects", **parent_end)
    if suspects["transactions"] and position + 1 < len(links):
        # The next backup, in which the tid lies.
        parameters = {**plan.parameters, "to_tid": None, "link": links[position + 1].link}
        file = reader.plan_file("queue_restore_files", **parameters)
        reader = with_scanned(reader, "queue_later", file, ALL)
    else:
        reader = reader.with_rows("queue_later", SCAN_SCHEMA.empty_table())
    return write_ids(reader, uri, path, "queue_restore_unended", **parent_end)


def first_ids(storage: Storage, path: str, count: int) -> list[str]:
    """Return at most `count` of the ids in an object that `write_ids` wrote."""
    ids = (
        transaction_id
        for rows in read_rows(storage, path)
        for transaction_id in rows["transaction_id"].to_pylist()
    )
    return list(islice(ids, count))
