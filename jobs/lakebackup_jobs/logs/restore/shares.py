"""Records the plan of a log's restore, and reads the records of its files in Spark tasks.

A share is the rows of the plan that one task reads, so no process holds the list of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.formats.logs.events import DEFAULT, DELETES, PUT_TYPE, TRUNCATES, WRITE
from lakebackup.formats.logs.logfile import read_log_file
from lakebackup.plan.logs.restore import LogRestorePlan
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import PerNumber, trim_worker
from lakebackup.storage import Storage, open_storage
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.roots import Roots
from lakebackup_jobs.lifecycle.tasks.plan_shares import Share, clear, weighed
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress

WRITES = (
    "table_id BIGINT, key BINARY, value BINARY, start_ts BIGINT, commit_ts BIGINT, type STRING, "
    "seq BIGINT, sub INT"
)
VALUES = "table_id BIGINT, key BINARY, value BINARY, start_ts BIGINT"
#: A row of a restored table, and of a full.
RESULT = (
    "table_id BIGINT, db STRING, name STRING, key BINARY, value BINARY, start_ts BIGINT, commit_ts BIGINT, "
    "seq BIGINT, sub INT"
)
#: A row that is written to a target of changes.
CHANGES = f"{RESULT}, type STRING"
KEY = ("table_id", "key")
#: The version of a change: the later of two changes of a key has the greater one.
LATER = ("commit_ts", "seq", "sub")
#: The error for a missing value, to be filled with key (hex), table id, start ts and commit ts.
LOST = (
    "The value of key %s of table %s, written by the transaction of start ts %s and committed at %s, "
    "is not in the log."
)
#: The kind of the files that may hold truncations of whole tables.
ENDS = "ends"
# Uncompressed bytes that a task reads. It reads more of a log that would need more than _MOST_SHARES tasks.
_SHARE = 64 << 20
_MOST_SHARES = 4_000
# Bytes that a task collects before it drops all but the latest changes, and rows that it returns at a time.
_MOST_BYTES = 256 << 20
_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class LogShares:
    """The recorded plan of a restore, below `folder` of the storage at `uri`.

    `shares`: the rows of `file` that each task of a kind (WRITE, DEFAULT, ENDS) reads. `roots`: those of its
    destinations, with the data keys of its files. Tasks drop records outside `(start_ts, end_ts]` and outside
    `[first_key, beyond_key)`. `begin_ts`: the least start ts of a value. `checksum`: whether the files are
    checked. `keys`: those of a key file. `full`: the URI of the table of the full on which the restore is
    based; None: there is none.
    """

    uri: str
    folder: str
    file: PlanFile
    shares: Mapping[str, Sequence[Share]]
    roots: Roots
    start_ts: int
    end_ts: int
    begin_ts: int | None
    first_key: str | None
    beyond_key: str | None
    checksum: bool
    keys: LogKeys | None
    full: str | None = None

    def frame(self, spark: SparkSession, kind: str) -> DataFrame:
        """The records of a kind (WRITE, DEFAULT, ENDS), read by tasks: columns WRITES or VALUES."""
        numbers = range(len(self.shares.get(kind, ())))
        return ReadJob(self, kind).over(spark, numbers, VALUES if kind == DEFAULT else WRITES)

    def task_progress(self) -> TaskProgress:
        """The progress that the tasks report."""
        return TaskProgress(open_storage(self.uri), self.folder)

    def clear(self) -> None:
        """Delete the recorded plan."""
        clear(open_storage(self.uri), self.folder)


def store_shares(
    storage: Storage,
    plan: LogRestorePlan,
    folder: str,
    *,
    roots: Roots,
    keys: LogKeys | None,
    checksum: bool,
) -> LogShares:
    """Record a plan below `folder`, and divide its files among tasks."""
    values, ends, files = plan.values.files, plan.whole_tables, plan.values.files + plan.writes.files
    size = max(_SHARE, plan.raw_bytes // _MOST_SHARES)
    copy = plan.file.copy_to(storage, f"{folder}plan/")
    return LogShares(
        uri=storage.uri,
        folder=folder,
        file=copy,
        # What may truncate tables is read as writes, and once more by itself.
        shares={
            DEFAULT: _shares(copy, 0, values, size),
            WRITE: _shares(copy, values, files, size),
            ENDS: _shares(copy, values, values + ends, size),
        },
        roots=roots,
        start_ts=plan.start_ts,
        end_ts=plan.end_ts,
        begin_ts=plan.begin_ts,
        first_key=plan.parameters["first_key"],
        beyond_key=plan.parameters["beyond_key"],
        checksum=checksum,
        keys=keys,
        full=_full_uri(plan, roots),
    )


def _full_uri(plan: LogRestorePlan, roots: Roots) -> str | None:
    """The URI of the full's table, without the slash at the end of a folder; None without a full."""
    if plan.full is None:
        return None
    folder = layout.full_folder(plan.source, plan.full.backup_id)
    return f"{roots.uri(plan.full.destination)}/{folder}".rstrip("/")


def _shares(file: PlanFile, first: int, end: int, size: int) -> list[Share]:
    """The rows `[first, end)` in shares of about `size` uncompressed bytes."""
    batches = file.batches(first, end, ["destination", "path", "raw_bytes"])
    shares = weighed(batches, size, weight="raw_bytes")
    return [Share(first + share.first, first + share.end) for share in shares]


@dataclass(frozen=True, slots=True)
class ReadJob(PerNumber):
    """Reads the records of shares that belong to the restore."""

    shares: LogShares
    kind: str

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        share = self.shares.shares[self.kind][number]
        count = self.shares.task_progress().counter(f"{self.kind}-{number}")
        for batch in self.shares.file.batches(share.first, share.end):
            for row in batch.to_pylist():
                yield from self._read(row)
                if self.kind != ENDS:
                    count(row["entries"], row["bytes"])

    def _read(self, row: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """The records of a file, which is a row of the plan."""
        shares = self.shares
        storage, file = shares.roots.open(row["destination"]), SimpleNamespace(**row)
        names = [column.split()[0] for column in (VALUES if self.kind == DEFAULT else WRITES).split(", ")]
        batches = []
        for batch in read_log_file(storage, file, shares.keys, shares.roots.keys, checksum=shares.checksum):
            selected = batch.filter(self._mask(batch))
            if len(selected):
                table = pa.repeat(pa.scalar(int(row["scope"]), pa.int64()), len(selected))
                columns = [table if name == "table_id" else selected[name] for name in names]
                batches.append(pa.RecordBatch.from_arrays(columns, names))
        # Only here, because the whole file has been checked now.
        yield from latest_of(batches) if self.kind == WRITE else batches

    def _mask(self, batch: pa.RecordBatch) -> pa.Array:
        shares = self.shares
        if self.kind == DEFAULT:
            ts, low = batch["start_ts"], (shares.begin_ts or 0) - 1
            kinds: tuple[str, ...] | None = None
        else:
            ts, low = batch["commit_ts"], shares.start_ts
            kinds = (TRUNCATES,) if self.kind == ENDS else (PUT_TYPE, DELETES)
        mask = pc.and_(pc.greater(ts, low), pc.less_equal(ts, shares.end_ts))
        if kinds is not None:
            mask = pc.and_(mask, pc.is_in(batch["type"], pa.array(kinds)))
        if self.kind != ENDS and shares.first_key is not None:
            mask = pc.and_(mask, pc.greater_equal(batch["key"], bytes.fromhex(shares.first_key)))
        if self.kind != ENDS and shares.beyond_key is not None:
            mask = pc.and_(mask, pc.less(batch["key"], bytes.fromhex(shares.beyond_key)))
        return mask


@dataclass(frozen=True, slots=True)
class Latest:
    """For `mapInArrow` over all writes (WRITES) of some keys: yields the latest write of each key."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pending: list[pa.RecordBatch] = []
        size, limit = 0, _MOST_BYTES
        for batch in batches:
            pending.append(batch)
            size += batch.nbytes
            if size > limit:
                pending = latest_of(pending)
                size = sum(b.nbytes for b in pending)
                limit = max(_MOST_BYTES, 2 * size)
        yield from latest_of(pending)
        trim_worker()


def latest_of(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The row with the greatest (commit_ts, seq, sub) of each key (table_id, key)."""
    if not batches:
        return []
    rows = pa.Table.from_batches(batches)
    keys = rows["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    tables, *versions = (rows[name].to_numpy() for name in ("table_id", "commit_ts", "seq", "sub"))
    order = np.lexsort((*reversed(versions), keys, tables))
    is_last = np.ones(len(order), bool)
    is_last[:-1] = np.diff(tables[order]).astype(bool) | np.diff(keys[order]).astype(bool)
    latest: list[pa.RecordBatch] = rows.take(np.sort(order[is_last])).to_batches(max_chunksize=_ROWS)
    return latest
