"""The log files that a restore reads, recorded in splits: tasks read them, no list of them is held."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.formats.logs.events import DEFAULT, DELETES, PUTS, TRUNCATES, WRITE
from lakebackup.formats.logs.logfile import read_log_file
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
#: What is written for a target that keeps changes.
CHANGES = f"{RESULT}, type STRING"
KEY = ("table_id", "key")
#: Of two changes of a key, the later one has the greater.
LATER = ("commit_ts", "seq", "sub")
#: Says which value is missing: key (hex), table id, start ts, commit ts.
LOST = (
    "The value of key %s of table %s, written by the transaction of start ts %s and committed at %s, "
    "is not in the log."
)
#: Files that may hold the end of a whole table.
ENDS = "ends"
# Uncompressed bytes that a task reads; more of a huge log.
_SHARE = 64 << 20
_MOST_SHARES = 4_000
# What a task holds before it drops what is not the latest, and how many rows it returns at a time.
_HELD = 256 << 20
_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class LogSplits:
    """Splits of a planned restore below `folder` of the storage at `uri`; `paths`: those of each kind.

    `roots`: destination id -> URI. Records outside `(start_ts, end_ts]` or the keys are left out.
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

    def frame(self, spark: SparkSession, kind: str) -> DataFrame:
        """The records of a kind (WRITE, DEFAULT, ENDS), read by tasks: columns WRITES or VALUES."""
        numbers = range(len(self.paths.get(kind, ())))
        return ReadJob(self, kind).over(spark, numbers, VALUES if kind == DEFAULT else WRITES)

    def task_progress(self) -> TaskProgress:
        """Where the tasks report how far they are."""
        return TaskProgress(open_storage(self.uri), self.folder)

    def clear(self) -> None:
        """Delete the splits."""
        clear(open_storage(self.uri), self.folder)


def write_splits(
    storage: Storage, plan: LogRestorePlan, folder: str, *, keys: LogKeys | None, checksum: bool
) -> LogSplits:
    """Write the splits of a planned restore below `folder`."""
    size = max(_SHARE, plan.raw_bytes // _MOST_SHARES)
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
        roots=plan.chosen.reader.destinations(),
        start_ts=plan.start_ts,
        end_ts=plan.end_ts,
        begin_ts=plan.begin_ts,
        first_key=plan.parameters["first_key"],
        beyond_key=plan.parameters["beyond_key"],
        checksum=checksum,
        keys=keys,
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
    """The records of each split that the restore is about."""

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
        """Of a file: a row of the query log_restore_order."""
        splits = self.splits
        storage, file = splits.roots.open(row["destination"]), SimpleNamespace(**row)
        names = [column.split()[0] for column in (VALUES if self.kind == DEFAULT else WRITES).split(", ")]
        held = []
        for batch in read_log_file(storage, file, splits.keys, checksum=splits.checksum):
            kept = batch.filter(self._wanted(batch))
            if len(kept):
                table = pa.repeat(pa.scalar(int(row["scope"]), pa.int64()), len(kept))
                columns = [table if name == "table_id" else kept[name] for name in names]
                held.append(pa.RecordBatch.from_arrays(columns, names))
        # Only now: the whole file has been checked.
        yield from latest_of(held) if self.kind == WRITE else held

    def _wanted(self, batch: pa.RecordBatch) -> pa.Array:
        splits = self.splits
        if self.kind == DEFAULT:
            ts, low = batch["start_ts"], (splits.begin_ts or 0) - 1
            kinds: tuple[str, ...] | None = None
        else:
            ts, low = batch["commit_ts"], splits.start_ts
            kinds = (TRUNCATES,) if self.kind == ENDS else (PUTS, DELETES)
        wanted = pc.and_(pc.greater(ts, low), pc.less_equal(ts, splits.end_ts))
        if kinds is not None:
            wanted = pc.and_(wanted, pc.is_in(batch["type"], pa.array(kinds)))
        if self.kind != ENDS and splits.first_key is not None:
            wanted = pc.and_(wanted, pc.greater_equal(batch["key"], bytes.fromhex(splits.first_key)))
        if self.kind != ENDS and splits.beyond_key is not None:
            wanted = pc.and_(wanted, pc.less(batch["key"], bytes.fromhex(splits.beyond_key)))
        return wanted


@dataclass(frozen=True, slots=True)
class Latest:
    """For `mapInArrow` over all writes of some keys (columns WRITES): the latest of each key."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        size, most = 0, _HELD
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size > most:
                held = latest_of(held)
                size = sum(one.nbytes for one in held)
                most = max(_HELD, 2 * size)
        yield from latest_of(held)
        settle()


def latest_of(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Of each key (table_id, key) the row with the greatest (commit_ts, seq, sub)."""
    if not batches:
        return []
    rows = pa.Table.from_batches(batches)
    keys = rows["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    tables, *later = (rows[name].to_numpy() for name in ("table_id", "commit_ts", "seq", "sub"))
    order = np.lexsort((*reversed(later), keys, tables))
    last = np.ones(len(order), bool)
    last[:-1] = np.diff(tables[order]).astype(bool) | np.diff(keys[order]).astype(bool)
    found: list[pa.RecordBatch] = rows.take(np.sort(order[last])).to_batches(max_chunksize=_ROWS)
    return found
