"""What is looked up in stored messages before an engine is restored to a point between two backups' ends.

Which tid an instant comes to; and, for a tid, which transactions are open there. Only files that can matter
are read: those that hold messages of before and after the instant, those of the backups that the tid lies in.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from lakebackup.formats.queues.headers import HeaderNames, Kind
from lakebackup.plan.partitions import Partition
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import open_storage, working
from lakebackup_jobs.kafka.format.records import TIMESTAMP
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.lifecycle.tasks.rows import read_rows, write_rows
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.queues.messages import read_messages
from lakebackup_jobs.queues.restore.splits import QueueFile, run_splits, write_scan_splits
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.queues.transaction_scan import SCAN_SCHEMA, TransactionScan, give_scans

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.plan.queues.restore import QueueRestorePlan
    from lakebackup.storage import Storage
    from lakebackup.store.roots import Roots
    from lakebackup.store.selection import Selection
    from lakebackup_jobs.kafka.format.records import Columns
    from lakebackup_jobs.queues.messages import Messages
    from lakebackup_jobs.queues.restore.splits import QueueSplits

#: A tid that is beyond all.
ALL = 2**63 - 1


def tid_at(files: Selection, ts: int, names: HeaderNames) -> int:
    """The greatest tid such that no message in chosen files up to it is later than `ts` (ms); if none is, a
    huge one. Raises Damaged, Refused (a message that cannot be understood)."""
    (later,) = files.rows("queue_restore_later", to_ts=ts)
    least = ALL if later["tid"] is None else int(later["tid"])
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
    least = ALL
    for columns, messages in _messages(roots, file, names):
        later = messages.tids[(columns.rows[:, TIMESTAMP] > ts) & (messages.kinds != Kind.WATERMARK)]
        least = min(least, int(later.min(initial=ALL)))
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
    splits: QueueSplits
    names: HeaderNames
    upto_tid: int = ALL

    def run(self, number: int) -> dict[str, Any]:
        storage = open_storage(self.splits.uri)
        write_rows(storage, _scan_path(self.splits.folder, number), SCAN_SCHEMA, self._transactions(number))
        return {"task": number}

    def _transactions(self, number: int) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        count = self.splits.task_progress().counter(f"{number:06d}")
        for place, files in groupby(self.splits.scanned(number), attrgetter("scope", "epoch", "region")):
            scan = TransactionScan(Partition(*place), held.append)
            for file in files:
                for columns, messages in _messages(self.roots, file, self.names):
                    wanted = (messages.tids <= self.upto_tid) & (messages.kinds != Kind.WATERMARK)
                    scan.add(columns, messages, wanted)
                    yield from held
                    held.clear()
                count(file.entries, file.bytes)
            scan.flush()
        yield from held


def _scan_path(folder: str, number: int) -> str:
    """The transactions that a task of a scan found, below the folder of its splits."""
    return f"{folder}seen/{number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class _Scanned(PerNumber):
    """By a task's number, the transactions that it found."""

    uri: str
    folder: str

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for rows in read_rows(open_storage(self.uri), _scan_path(self.folder, number)):
            yield rows.cast(SCAN_SCHEMA)


def write_open(
    plan: QueueRestorePlan, spark: SparkSession | None, uri: str, folder: str, path: str, names: HeaderNames
) -> int:
    """Write the ids of the transactions that are open at the plan's tid as the object `path`; returns how
    many they are. What is needed meanwhile is below `folder`. `spark` None: all is done in this process."""
    try:
        return _write_open(plan, spark, uri, folder, path, names)
    finally:
        working.empty(open_storage(uri), folder)


def _write_open(
    plan: QueueRestorePlan, spark: SparkSession | None, uri: str, folder: str, path: str, names: HeaderNames
) -> int:
    links, segments = plan.restore_path.links, plan.restore_path.segments()
    # The last backup whose end lies before the tid. Behind a restore of the engine nothing is open.
    place = max(plan.restore_path.done_by(plan.upto_tid), segments.index(segments[-1]) - 1)
    last = links[place]
    parent = last.backup_id if segments[place] == segments[-1] else None
    reader = plan.chosen.reader if spark is None else plan.chosen.reader.on(spark)

    def scan(files: Selection, relation: str, upto_tid: int) -> None:
        """Read the files of backups behind the last; their transactions are called `relation`."""
        splits = write_scan_splits(open_storage(uri), files, f"{folder}{relation}/", last.link)
        run_splits(ScanJob(reader.destinations(), splits, names, upto_tid), splits, spark)
        give_scans(reader, spark, relation, _Scanned(uri, splits.folder), len(splits.tasks))

    scan(plan.chosen, "queue_seen", plan.to_tid)
    reader.define("queue_unended", "queue_open", parent=parent)
    before = {"parent": parent, "tid": last.last_tid}
    (suspects,) = reader.rows("queue_restore_suspects", **before)
    if suspects["transactions"] and place + 1 < len(links):
        # The backup behind it, in which the tid lies.
        whole = {**plan.parameters, "to_tid": None, "link": links[place + 1].link}
        scan(plan.chosen.reader.choose("selected", "queue_restore_files", **whole), "queue_later", ALL)
    else:
        reader.give("queue_later", SCAN_SCHEMA.empty_table())
    return write_ids(reader, uri, path, "queue_restore_unended", **before)


def first_ids(storage: Storage, path: str, count: int) -> list[str]:
    """At most so many of the ids in such an object."""
    ids = (name for rows in read_rows(storage, path) for name in rows["transaction_id"].to_pylist())
    return list(islice(ids, count))
