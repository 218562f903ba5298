"""The content of a restore of topics, for a target: tasks verify the planned files and deliver their records.

The tasks import compiled code, which the driver does not need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from lakebackup.plan.topics.restore import RestorePlan
from lakebackup.rules.layout import data_name, topic_folder
from lakebackup.sql_engine.worker import Cluster, PerNumber, session_on
from lakebackup.storage import open_storage
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.format.arrow import RECORD, to_arrow
from lakebackup_jobs.kafka.format.container import FileWriter
from lakebackup_jobs.kafka.format.records import select_records
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.tasks.errors import RESTORED
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares
from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome
from lakebackup_jobs.lifecycle.tasks.task import Task, Work, run_all
from lakebackup_jobs.targets.delta import DeltaTarget

SPARK_COLUMNS = (
    "topic STRING, partition INT, offset BIGINT, timestamp BIGINT, timestamp_type STRING, "
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a planned restore: a Content whose summary is one outcome for each partition.

    `shares` list the files to read. `cluster`: None for a local target. `roots` maps a destination's id to
    the URI of its root.
    """

    old_contents: ClassVar[None] = None
    new_contents: ClassVar[None] = None
    dropped_ids: ClassVar[tuple[int, ...]] = ()

    cluster: Cluster | None
    shares: PlanShares
    plan: RestorePlan
    restore_id: str
    roots: Roots

    @property
    def spark(self) -> SparkSession:
        if self.cluster is None:
            raise RuntimeError("A local target uses no Spark.")
        return session_on(self.cluster)

    @property
    def commit(self) -> Mapping[str, Any]:
        """Options with which Delta commits the rows of this restore only once."""
        return {"txnAppId": f"lakebackup-restore-{self.restore_id}", "txnVersion": 1}

    def rows(self) -> DataFrame | None:
        """The records as rows of SPARK_COLUMNS; None when the plan has no file."""
        if not self.plan.files:
            return None
        return _DecodeJob(**self.to_read).over(self.spark, self.shares.numbers, SPARK_COLUMNS)

    def create(self, path: str) -> bool:
        return False

    def changes_to(self, rows: DataFrame) -> DataFrame:
        raise NotImplementedError  # a restore of records is not continued by another

    def in_table(self, table: DeltaTarget) -> list[RegionOutcome]:
        """The outcomes, counted in the rows that the restore added to the table."""
        added = table.added(self.spark, self.commit["txnAppId"]) if self.plan.files else None
        if added is None:
            return []
        scopes = {t.target: t.scope for t in self.plan.topics}
        counts = (
            added.groupBy("topic", "partition")
            .agg(sf.count("*").alias("entries"), (sf.max("offset") + 1).alias("position"))
            .collect()  # one row for each partition
        )
        return [RegionOutcome(scopes[r.topic], str(r.partition), r.entries, 0, r.position) for r in counts]

    def write_files(self, path: str) -> list[RegionOutcome]:
        """Write data files that hold only the records of the requested time span."""
        return self.run(_RewriteJob(**self.to_read, folder=open_storage(path, private=False).uri))

    def run(self, job: Task, threads: int | None = None) -> list[RegionOutcome]:
        """Run the job on the cluster, or in so many threads of this process (None: one for each processor).

        Returns the outcome of each partition.
        """
        rows = run_all(job, self.shares.numbers, self.cluster, None if self.cluster else threads)
        return [RegionOutcome(r.scope, r.region, r.entries, r.bytes, r.position) for r in rows]

    @property
    def to_read(self) -> dict[str, Any]:
        """The values for the fields of a ReadJob."""
        targets = {t.scope: t.target for t in self.plan.topics}
        times = {"from_ts": self.plan.from_ts, "to_ts": self.plan.to_ts}
        return {"shares": self.shares, "roots": self.roots, "targets": targets, **times}


@dataclass(frozen=True, slots=True)
class ReadJob:
    """The input of each task of a restore. `targets` maps a source topic to its target topic."""

    shares: PlanShares
    roots: Roots
    targets: Mapping[str, str]
    from_ts: int | None
    to_ts: int | None


class _DecodeJob(ReadJob, PerNumber):
    """Returns the records as rows of SPARK_COLUMNS."""

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for _, files in self.shares.partition_files(number):
            for file in files:
                for columns in open_verified(self.roots, file):
                    in_time = select_records(columns, self.from_ts, self.to_ts)
                    if len(in_time.rows):
                        yield _renamed(to_arrow(in_time), self.targets[file.scope])


def _renamed(records: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    names = pa.repeat(pa.scalar(topic), len(records))
    return records.set_column(0, RECORD.field("topic"), names)


@dataclass(frozen=True, slots=True)
class _RewriteJob(ReadJob, Task):
    """Writes the records as data files below `folder`, one partition after another."""

    COLUMNS = RESTORED

    folder: str

    def works(self, number: int) -> Iterator[Work]:
        for (scope, region), files in self.shares.partition_files(number):
            yield partial(self._restore, scope, region, files)

    def _restore(self, scope: str, region: str, files: Iterable[StoredFile]) -> list[dict[str, Any]]:
        count = self.shares.task_progress().counter(f"{scope}-{region}")
        entries = size = position = seq = 0
        for file in files:
            file_entries = self._rewrite(file, seq)
            entries += file_entries
            size += file.bytes
            seq += file_entries > 0
            position = file.end_position
            count(file.entries, file.bytes)
        return [asdict(RegionOutcome(scope, region, entries, size, position))]

    def _rewrite(self, file: StoredFile, seq: int) -> int:
        reader = open_verified(self.roots, file)
        with open_storage(self.folder, private=False).writer() as sink:
            writer = FileWriter(sink, codec=reader.codec, fmt=reader.fmt)
            entries = 0
            for columns in reader:
                block = select_records(columns, self.from_ts, self.to_ts).packed()
                if block is not None:
                    writer.write_block(block)
                    entries += block.stats.entries
            if entries:
                writer.finish()
                target = self.targets[file.scope]
                # The file's name has its number in the partition, so a resumed restore writes the same names.
                sink.commit(
                    f"{topic_folder(target)}partition={file.region}/"
                    f"{data_name(target, int(file.region), seq)}",
                    if_absent=False,
                )
        return entries
