"""Restore into a Delta table: one row a record, to be asked with SQL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.sql_engine.delta_log import FOLDER
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.arrow import RECORD, to_arrow
from lakebackup_jobs.kafka.format.records import within
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.lifecycle.region_outcome import RegionOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.plan.topics.request import RestoreRequest
    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.store.roots import Roots
    from lakebackup_jobs.lifecycle.splits import Shares


SPARK_COLUMNS = (
    "topic STRING, partition INT, offset BIGINT, timestamp BIGINT, timestamp_type STRING, "
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


class DeltaTarget:
    """The table at a path; all records appear in one commit, which a repeated restore makes only once."""

    def __init__(self, request: RestoreRequest, path: str) -> None:
        self._request = request
        self._path = path if "://" in path else str(Path(path).absolute())

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        return {"target_table": self._path, "refused_because": self._taken()}

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        taken = None if resumed else self._taken()
        if taken:
            raise Refused(f"{taken}.", hint="Restore into a new path, or add to the table with --append.")

    def _taken(self) -> str | None:
        if self._request.append or not next(open_storage(self._path).list(f"{FOLDER}/"), None):
            return None
        return f"there is a Delta table at {self._path} already"

    def replay(
        self,
        spark: SparkSession,
        shares: Shares,
        plan: RestorePlan,
        restore_id: str,
        roots: Roots,
    ) -> Sequence[RegionOutcome]:
        from pyspark.sql import functions as sf

        job = _DecodeJob(
            shares=shares,
            roots=roots,
            targets={t.scope: t.target for t in plan.topics},
            from_ts=plan.from_ts,
            to_ts=plan.to_ts,
        )
        if not plan.files:
            return []
        records = shares.frame(spark).mapInArrow(job, SPARK_COLUMNS)
        with task_errors():
            (
                records.write.format("delta")
                .mode("append")
                .option("txnAppId", f"lakebackup-restore-{restore_id}")
                .option("txnVersion", 1)
                .save(self._path)
            )
        scopes = {t.target: t.scope for t in plan.topics}
        counts = (
            spark.read.format("delta")
            .load(self._path)
            .where(sf.col("topic").isin(list(scopes)))
            .groupBy("topic", "partition")
            .agg(sf.count("*").alias("entries"), (sf.max("offset") + 1).alias("position"))
            .collect()  # one row a partition
        )
        return [RegionOutcome(scopes[r.topic], str(r.partition), r.entries, 0, r.position) for r in counts]

    def into(self, plan: RestorePlan) -> dict[str, Any]:
        return {}

    def finish(self, plan: RestorePlan) -> Sequence[str]:
        return []

    def forget(self) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, slots=True)
class _DecodeJob:
    shares: Shares
    roots: Roots
    targets: Mapping[str, str]
    from_ts: int | None
    to_ts: int | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, files in self.shares.partitions(batches):
            for file in files:
                for columns in open_verified(self.roots, file):
                    kept = within(columns, self.from_ts, self.to_ts)
                    if len(kept.rows):
                        yield _renamed(to_arrow(kept), self.targets[file.scope])


def _renamed(records: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    import pyarrow as pa

    names = pa.repeat(pa.scalar(topic), len(records))
    return records.set_column(0, RECORD.field("topic"), names)
