"""Records the log files that a restore reads in splits, and reads their records in Spark tasks.

A split lists the files that one task reads, so no process holds the whole list.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.formats.logs.events import DEFAULT, DELETES, PUTS, TRUNCATES, WRITE
from lakebackup.formats.logs.logfile import read_log_file
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import PerNumber, settle
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.arrow_splits import WRITTEN, ArrowSplitWriter
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.splits import clear

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.formats.logs.cipher import LogKeys
    from lakebackup.plan.logs.restore import LogRestorePlan
    from lakebackup.storage import Storage
    from lakebackup.store.roots import Roots

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
class LogSplits:
    """The splits of a planned restore, below `folder` of the storage at `uri`.

    `paths`: the splits of each kind (WRITE, DEFAULT, ENDS). `roots`: destination id -> URI. Tasks drop
    records outside `(start_ts, end_ts]` and outside `[first_key, beyond_key)`. `begin_ts`: the least start ts
    of a value. `checksum`: whether the files are checked. `keys`: of encrypted files. `full`: the URI of the
    table of the full on which the restore is based; None: there is none. `only`, `without`: see
    LogRestorePlan.
    """

    uri: str
    folder: str
    paths: Mapping[str, tuple[str, ...]]
    roots: Roots
    start_ts: int
    end_ts: int
    begin_ts: int | None
    first_key: str | None
    beyond_key: str | None
    checksum: bool
    keys: LogKeys | None
    full: str | None = None
    only: tuple[int, ...] | None = None
    without: tuple[int, ...] = ()

    def frame(self, spark: SparkSession, kind: str) -> DataFrame:
        """The records of a kind (WRITE, DEFAULT, ENDS), read by tasks: columns WRITES or VALUES."""
        numbers = range(len(self.paths.get(kind, ())))
        return ReadJob(self, kind).over(spark, numbers, VALUES if kind == DEFAULT else WRITES)

    def task_progress(self) -> TaskProgress:
        """The progress that the tasks report."""
        return TaskProgress(open_storage(self.uri), self.folder)

    def clear(self) -> None:
        """Delete the splits."""
        clear(open_storage(self.uri), self.folder)


def write_splits(
    storage: Storage, plan: LogRestorePlan, folder: str, *, keys: LogKeys | None, checksum: bool
) -> LogSplits:
    """Write the splits of a planned restore below `folder`; returns them."""
    size, roots = max(_SHARE, plan.raw_bytes // _MOST_SHARES), plan.chosen.reader.destinations()
    paths = {
        kind: _deal(storage, plan, f"{folder}plan/{kind}-", size, cf=cf, ends=kind == ENDS)
        for kind, cf, needed in (
            (WRITE, WRITE, plan.writes.files),
            (DEFAULT, DEFAULT, plan.values.files),
            (ENDS, WRITE, plan.whole_tables),
        )
        if needed
    }
    return LogSplits(
        uri=storage.uri,
        folder=folder,
        paths=paths,
        roots=roots,
        start_ts=plan.start_ts,
        end_ts=plan.end_ts,
        begin_ts=plan.begin_ts,
        first_key=plan.parameters["first_key"],
        beyond_key=plan.parameters["beyond_key"],
        checksum=checksum,
        keys=keys,
        full=f"{roots.uri(plan.full.destination)}/{layout.full_folder(plan.source, plan.full.backup_id)}"
        if plan.full
        else None,
        only=plan.only,
        without=plan.without,
    )


def _deal(
    storage: Storage, plan: LogRestorePlan, name: str, size: int, *, cf: str, ends: bool
) -> tuple[str, ...]:
    def spread(rows: DataFrame) -> DataFrame:
        tasks = rows.repartitionByRange(1 + plan.raw_bytes // size, "scope", "path")
        return tasks.sortWithinPartitions("scope", "path")

    writer = ArrowSplitWriter(storage.uri, name, size, weight="raw_bytes")
    rows = plan.chosen.map(writer, WRITTEN, "log_restore_order", spread=spread, cf=cf, ends=ends)
    return tuple(row["path"] for row in rows)


@dataclass(frozen=True, slots=True)
class ReadJob(PerNumber):
    """Reads the records of splits that belong to the restore."""

    splits: LogSplits
    kind: str

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        storage = open_storage(self.splits.uri)
        path = self.splits.paths[self.kind][number]
        count = TaskProgress(storage, self.splits.folder).counter(f"{self.kind}-{number}")
        with pa.ipc.open_stream(storage.get(path)) as stream:
            for row in (row for batch in stream for row in batch.to_pylist()):
                yield from self._read(row)
                if self.kind != ENDS:
                    count(row["entries"], row["bytes"])

    def _read(self, row: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """The records of a file, which is a row of the query log_restore_order."""
        splits = self.splits
        storage, file = splits.roots.open(row["destination"]), SimpleNamespace(**row)
        names = [column.split()[0] for column in (VALUES if self.kind == DEFAULT else WRITES).split(", ")]
        batches = []
        for batch in read_log_file(storage, file, splits.keys, checksum=splits.checksum):
            selected = batch.filter(self._wanted(batch))
            if len(selected):
                table = pa.repeat(pa.scalar(int(row["scope"]), pa.int64()), len(selected))
                columns = [table if name == "table_id" else selected[name] for name in names]
                batches.append(pa.RecordBatch.from_arrays(columns, names))
        # Only here, because the whole file has been checked now.
        yield from latest_of(batches) if self.kind == WRITE else batches

    def _wanted(self, batch: pa.RecordBatch) -> pa.Array:
        splits = self.splits
        if self.kind == DEFAULT:
            ts, low = batch["start_ts"], (splits.begin_ts or 0) - 1
            kinds: tuple[str, ...] | None = None
        else:
            ts, low = batch["commit_ts"], splits.start_ts
            kinds = (TRUNCATES,) if self.kind == ENDS else (PUTS, DELETES)
        mask = pc.and_(pc.greater(ts, low), pc.less_equal(ts, splits.end_ts))
        if kinds is not None:
            mask = pc.and_(mask, pc.is_in(batch["type"], pa.array(kinds)))
        if self.kind != ENDS and splits.first_key is not None:
            mask = pc.and_(mask, pc.greater_equal(batch["key"], bytes.fromhex(splits.first_key)))
        if self.kind != ENDS and splits.beyond_key is not None:
            mask = pc.and_(mask, pc.less(batch["key"], bytes.fromhex(splits.beyond_key)))
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
        settle()


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
