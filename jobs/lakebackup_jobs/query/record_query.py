"""Runs a person's SELECT over the catalog and, with records('topic'), over the records inside the backups.

Nothing is restored. A query of the catalog selects the files that can hold matching records, key filters
rule out most of these, and the remaining files are read in place. A file is verified before any of its
records is used.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from lakebackup.encryption.objects import Keyring
from lakebackup.errors import LakebackupError
from lakebackup.plan.records import RecordsPlan, plan_records
from lakebackup.rules.schema_ids import schema_ids
from lakebackup.sql_engine.guard.check import Checked, check_select
from lakebackup.sql_engine.lazy_dataset import LazyDataset
from lakebackup.sql_engine.spark import SparkEngine, run_checked
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.format.read_records import ReadRecords, RecordFile, schema_of, spark_schema
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.kafka.format.values import Decoder
from lakebackup_jobs.lifecycle.keyring import has_keys, keyring
from lakebackup_jobs.lifecycle.tasks.plan_shares import MOST_TASKS
from lakebackup_jobs.lifecycle.tasks.progress import TaskCounters
from lakebackup_jobs.query.answer import Reading, Result

_THREADS = 4
# How many files have their key filters read ahead, and how many bytes of files are read ahead.
_FILTERS_AHEAD = 64
_BYTES_AHEAD = 128 << 20
_BYTES_A_TASK = 64 << 20
# Up to so many rows of `files`, the selected ones become part of Spark's plan.
_FEW_FILES = 10_000

T = TypeVar("T")
R = TypeVar("R")


def select(
    reader: CatalogReader,
    sql: str,
    *,
    paths: tuple[str | None, str | None] = (None, None),
    keys: Keyring | None = None,
    extra_relations: Mapping[str, pa.Table | ds.Dataset] = {},
) -> Result:
    """Run a SELECT over the catalog's views and records('topic') with DuckDB, and return its rows.

    `paths`: read only record files from the first path on and before the second one. `keys`: the data keys of
    encrypted files; None: they are opened here. `extra_relations`: relations beside those of the catalog.

    Raises UsageProblem (it is not such a SELECT), NotFound (topic, backup), Refused (a time that is not
    covered). Reading the rows raises Damaged (a file is not what was backed up).
    """
    names = {name: rows.schema.names for name, rows in extra_relations.items()}
    catalog_relations = reader.relations()  # with types, which a copy lacks
    checked = check_select(sql, {**catalog_relations, **names} if names else catalog_relations, records=True)
    relations = [Records(reader, replace(plan, paths=paths), keys) for plan in plans(reader, checked)]
    for name, rows in extra_relations.items():
        reader = reader.with_rows(name, rows)
    with own_errors(relations):
        result_rows = with_records(reader, *relations).run_checked(checked)

    def batches() -> Iterator[pa.RecordBatch]:
        with own_errors(relations):
            yield from result_rows

    readings = tuple(relation.reading for relation in relations)
    return Result(pa.RecordBatchReader.from_batches(result_rows.schema, batches()), readings)


def select_on_spark(
    spark: SparkSession,
    reader: CatalogReader,
    sql: str,
    *,
    as_of: int | None = None,
    exact: bool = False,
) -> DataFrame:
    """Like `select`, but with Spark, whose tasks read the files. `as_of` is that of `reader`.

    `exact`: for a restore, see ReadRecords; then one task reads the records of a partition, in order.
    """
    checked = check_select(sql, reader.relations(), records=True)
    engine = SparkEngine(spark, reader.catalog_uri, as_of=as_of)
    for plan in plans(reader, checked):
        files = _files_on_spark(engine, reader, plan)
        job = replace(_job(reader, plan), exact=exact)
        records = _on_spark(files, plan, job, *_stored_totals(reader, plan), in_order=exact)
        records.createOrReplaceTempView(plan.call.relation)
    engine.register(checked.relations)
    return run_checked(spark, checked)


def _files_on_spark(engine: SparkEngine, reader: CatalogReader, plan: RecordsPlan) -> DataFrame:
    """Return the files to read. In a small catalog DuckDB selects them: Spark plans that query for
    seconds."""
    if reader.count("files") > _FEW_FILES:
        return engine.query("record_files", **plan.parameters())
    return engine.frame_of(engine.keep_rows(reader.query("record_files", **plan.parameters()).read_all()))


def with_records(
    reader: CatalogReader, *relations: Records, counters: TaskCounters | None = None
) -> CatalogReader:
    """A reader in which the names of planned records stand for these, each as its plan names it.

    On Spark, tasks read them and count the files with `counters`.
    """
    for records in relations:
        rows: DataFrame | ds.Dataset
        if reader.engine == "spark":
            plan, read = records.plan, records.reading
            files = reader.frame("record_files", **plan.parameters())
            job = replace(records.job, counters=counters)
            rows = _on_spark(files, plan, job, read.stored_files, read.stored_bytes)
        else:
            rows = records.dataset()
        reader = reader.with_rows(records.plan.call.relation, rows)
    return reader


def _on_spark(
    files: DataFrame,
    plan: RecordsPlan,
    job: ReadRecords,
    file_count: int,
    size: int,
    *,
    in_order: bool = False,
) -> DataFrame:
    least = int(files.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    tasks = max(1, min(MOST_TASKS, file_count, max(least, size // _BYTES_A_TASK)))
    rows = _in_order(files, tasks) if in_order else files.repartition(tasks)
    return rows.mapInArrow(replace(job, zone="UTC"), spark_schema(plan.call.columns))


def _in_order(files: DataFrame, tasks: int) -> DataFrame:
    """Sort the files of a topic, those of a partition in one task, by the topic's histories."""
    first_backup = sf.min("backup_id").over(Window.partitionBy("epoch"))
    ordered = files.withColumn("began", first_backup).repartition(tasks, "region")
    return ordered.sortWithinPartitions("region", "began", "epoch", "start_position", "path").drop("began")


def explain(reader: CatalogReader, sql: str) -> list[Reading]:
    """Select the files of a SELECT and read their key filters, but open no file; raises as `select`."""
    checked = check_select(sql, reader.relations(), records=True)
    relations = [Records(reader, plan) for plan in plans(reader, checked)]
    for relation in relations:
        relation.reading.possible = relation.possible()
        columns = schema_of(relation.plan.call.columns)
        reader = reader.with_rows(relation.plan.call.relation, columns.empty_table())
    reader.run_checked(checked)
    return [relation.reading for relation in relations]


def plans(reader: CatalogReader, checked: Checked) -> list[RecordsPlan]:
    """Return a plan for each records(…) of a checked SELECT. Raises as `plan_records`."""
    now_ms = time.time_ns() // 1_000_000
    return [plan_records(reader, checked.spark, call, now_ms=now_ms) for call in checked.records]


def record_keys(reader: CatalogReader, plan: RecordsPlan, identity_file: str | None = None) -> Keyring:
    """Open the data keys of the files that hold the records of a plan. Raises as `keyring`."""
    if not has_keys(reader):
        return Keyring()
    files = reader.with_query("selected", "record_files", **plan.parameters())
    return keyring(files, reader.destinations(), identity_file=identity_file)


def _job(reader: CatalogReader, plan: RecordsPlan, keys: Keyring | None = None) -> ReadRecords:
    decoder_columns = {"key_json", "value_json", "problem"} & set(plan.call.columns)
    schemas = reader.rows("value_schemas", source=plan.source) if decoder_columns else []
    decoder = Decoder(schema_ids(schemas)) if decoder_columns else None
    roots = reader.destinations().with_keys(record_keys(reader, plan) if keys is None else keys)
    return ReadRecords(plan.call.columns, plan.record_filter, plan.to_ts, roots, decoder, None)


def _stored_totals(reader: CatalogReader, plan: RecordsPlan) -> tuple[int, int]:
    """Return how many files of the topic the backups hold, and their bytes."""
    row = reader.first_row("record_held", source=plan.source, scope=plan.scope) or {"files": 0, "bytes": 0}
    return int(row["files"]), int(row["bytes"])


class Records:
    """The records of one `records(…)`: their files, as DuckDB selected them, and what was read of these."""

    def __init__(self, reader: CatalogReader, plan: RecordsPlan, keys: Keyring | None = None) -> None:
        #: Called with the number of files that were read or ruled out so far, and their bytes.
        self.on_progress: Callable[[int, int], None] | None = None
        self._read_files = self._read_bytes = 0
        self.plan = plan  # not the reader: its DuckDB refers to this object
        self.error: LakebackupError | None = None
        self.job = _job(reader, plan, keys)
        self.files = _Files(reader.query("record_files", **plan.parameters()))
        self.reading = Reading(plan.call.topic, *_stored_totals(reader, plan), self.files.count)

    def dataset(self) -> ds.Dataset:
        """Return a dataset for DuckDB, which asks it for a scanner with some columns and conditions."""
        return LazyDataset(schema_of(self.plan.call.columns).empty_table(), self.scan)

    def scan(self, _columns: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the records that the plan asks for. An error is kept, since DuckDB turns it into a text."""
        try:
            with ThreadPoolExecutor(_THREADS, thread_name_prefix="records") as pool:
                verified = partial(open_verified, self.job.roots)
                for file, reader in _ahead(
                    pool, verified, self._possible_files(pool), lambda file: file.bytes, _BYTES_AHEAD
                ):
                    self.reading.opened += 1
                    self.reading.opened_bytes += file.bytes
                    yield from self.job.read(file, reader)
                    self._count_file(file)
        except LakebackupError as error:
            self.error = error
            raise

    def possible(self) -> int:
        """Return how many files their key filters do not rule out."""
        with ThreadPoolExecutor(_THREADS) as pool:
            return sum(1 for _ in self._possible_files(pool))

    def _possible_files(self, pool: ThreadPoolExecutor) -> Iterator[RecordFile]:
        for file, may_hold in _ahead(pool, self.job.may_hold, self.files, lambda _: 1, _FILTERS_AHEAD):
            if may_hold:
                yield file
            else:
                self._count_file(file)

    def _count_file(self, file: RecordFile) -> None:
        self._read_files += 1
        self._read_bytes += file.bytes
        if self.on_progress:
            self.on_progress(self._read_files, self._read_bytes)


class _Files:
    """Rows of record_files, in a temporary file that is deleted while open, since there may be millions."""

    def __init__(self, rows: pa.RecordBatchReader) -> None:
        self._kind = RecordFile
        self.count = self.bytes = self.entries = self.null_keys = 0
        handle, path = tempfile.mkstemp(prefix="lakebackup-")
        os.close(handle)
        try:
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                for batch in rows:
                    writer.write_batch(batch)
                    self.count += batch.num_rows
                    self.bytes += pc.sum(batch["bytes"]).as_py() or 0
                    self.entries += pc.sum(batch["entries"]).as_py() or 0
                    self.null_keys += pc.sum(batch["null_keys"]).as_py() or 0
            self._file = pa.ipc.open_file(pa.memory_map(path))
        finally:
            Path(path).unlink()

    def __iter__(self) -> Iterator[RecordFile]:
        for number in range(self._file.num_record_batches):
            for row in self._file.get_batch(number).to_pylist():
                yield self._kind(**row)


def _ahead(
    pool: ThreadPoolExecutor,
    work: Callable[[T], R],
    items: Iterable[T],
    weight: Callable[[T], int],
    most: int,
) -> Iterator[tuple[T, R]]:
    """Yield each item with the result of `work`, in order; work on items that weigh up to `most` ahead."""
    waiting: deque[tuple[T, Future[R]]] = deque()
    waiting_weight = 0
    for item in items:
        while waiting and waiting_weight + weight(item) > most:
            head, future = waiting.popleft()
            waiting_weight -= weight(head)
            yield head, future.result()
        waiting.append((item, pool.submit(work, item)))
        waiting_weight += weight(item)
    while waiting:
        head, future = waiting.popleft()
        yield head, future.result()


@contextmanager
def own_errors(relations: Iterable[Records]) -> Iterator[None]:
    """Raise the error of reading records instead of the one that DuckDB made of it."""
    try:
        yield
    except LakebackupError:
        for relation in relations:
            # DuckDB refers to the relation. An error that it kept would keep DuckDB alive by its traceback.
            error, relation.error = relation.error, None
            if error is not None:
                raise error from None
        raise
