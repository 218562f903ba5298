"""Back up Kafka topics without an end: one `backups` row a batch, of kind `log`, on the one before it.

Spark's Structured Streaming runs the batches. What counts is the catalog: a batch begins where the catalog
ends, is published under the source's lease by the same steps as any backup, and gives way when another
backup came in between. So batches and single backups continue each other in any order.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Incomplete, LakebackupError, UsageProblem
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.lifecycle.identity import holder
from lakebackup_jobs.lifecycle.numbers import latest_number
from lakebackup_jobs.lifecycle.task_errors import raise_first
from lakebackup_jobs.lifecycle.task_totals import Totals
from lakebackup_jobs.topics import backup as backup_topics
from lakebackup_jobs.topics import forks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from lakebackup.plan.topics.backup import Prepared
    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.topics.backup import BackupRequest

# As long as another job on the source may take before following gives up.
LEASE_WAIT_S = 900.0
# So many backups lie between two times that small files of the catalog's tables are brought together.
SMALL_FILES = 100
_LOOK_S = 0.2
_TOLD = re.compile(r"^RuntimeError: (\{.*\})$", re.MULTILINE)


def follow(
    request: BackupRequest,
    *,
    every_s: float,
    stop: threading.Event,
    spark: SparkSession | None = None,
    reporter: Reporter,
) -> dict[str, Any]:
    """Take a backup of what is new every `every_s` seconds until `stop` is set; returns the totals.

    A batch that runs when `stop` is set is finished first. Raises what a backup raises; Busy when another
    process follows the source; Incomplete at the end when the last batch had to leave something out.
    """
    if request.mode in ("full", "incr-accu") or request.new_generation or request.parent:
        raise UsageProblem(
            "Following takes what is new since the newest backup; it cannot begin elsewhere with each batch.",
            hint="Take one backup with --mode full, --parent or --new-generation first, then follow.",
        )
    if request.remote:
        raise UsageProblem(
            "Following runs its batches in this process; a Spark Connect server cannot do that.",
            hint="Leave --remote out, or name a cluster with --master.",
        )
    from lakebackup_jobs.runtime.session import spark_session

    storage = open_storage(request.destination)
    source = layout.check_source(request.source or f"kafka-{Cluster(request.kafka).cluster_id()}")
    request = replace(request, log=True, source=source)
    with Lease.acquire(storage, f"follow-{source}", holder(), ttl_s=request.lease_ttl_s) as lease:
        spark = spark or spark_session()
        writer = CatalogWriter.open(spark, request.destination, request.catalog)
        writer.prepare()
        destination_id(storage)
        return _Follower(request, storage, source, writer, reporter).run(spark, every_s, stop, lease)


class _Follower:
    """The driver's side of following one source."""

    def __init__(
        self, request: BackupRequest, storage: Storage, source: str, writer: CatalogWriter, reporter: Reporter
    ) -> None:
        self.request, self.storage, self.source = request, storage, source
        self.writer, self.reporter = writer, reporter
        self.totals = {"backups": 0, "files": 0, "bytes": 0, "entries": 0}
        self.last: str | None = None
        self.left_out: set[str] = set()
        self.failed: LakebackupError | None = None
        self.error: BaseException | None = None
        self.at_work = threading.Lock()

    def run(self, spark: SparkSession, every_s: float, stop: threading.Event, lease: Lease) -> dict[str, Any]:
        """Batches until `stop`."""
        from lakebackup_jobs.topics.follow_source import NAME, source_of

        started = time.monotonic()
        self.reporter.start(None, None, "follow")
        spark.dataSource.register(source_of(self.request, self.source))
        query = (
            spark.readStream.format(NAME)
            .load()
            .writeStream.foreachBatch(self.batch)
            .option("checkpointLocation", f"{self.storage.uri}/{layout.follow_folder(self.source)}")
            .trigger(processingTime=f"{max(1, round(every_s * 1000))} milliseconds")
            .start()
        )
        try:
            while query.isActive and not stop.wait(_LOOK_S):
                lease.check()
            if query.isActive:
                self.at_work.acquire()  # a batch at work comes to its end, and none begins after it
        finally:
            query.stop()
        self.explain(query, stop)
        result = {
            "source": self.source,
            **self.totals,
            "last_backup": self.last,
            "seconds": round(time.monotonic() - started, 3),
        }
        if self.left_out:
            self.reporter.result(result)
            raise Incomplete(
                f"The last batch was taken without what could not be read: {len(self.left_out)} in all.",
                hint="Give this user the rights that the warnings name.",
            )
        return result

    def batch(self, rows: DataFrame, number: int) -> None:  # noqa: ARG002 (Spark's signature)
        """One batch, called by Spark on a thread of its own."""
        if not self.at_work.acquire(blocking=False):
            raise InterruptedError("it stops here; the batch runs when following begins again")
        try:
            with Lease.acquire(
                self.storage,
                f"source-{self.source}",
                holder(),
                ttl_s=self.request.lease_ttl_s,
                wait_s=LEASE_WAIT_S,
            ) as lease:
                self.take(rows, lease)
        except BaseException as error:
            self.error = error
            if isinstance(error, LakebackupError):
                error.__traceback__ = None  # Py4J keeps the error for good: not all that its traceback holds
            raise
        finally:
            self.at_work.release()

    def take(self, rows: DataFrame, lease: Lease) -> None:
        """Run the tasks and publish what they wrote."""
        from lakebackup_jobs.topics.follow_source import read_prepared

        with task_errors():
            found = rows.collect()  # one row a task
        text = next((row.prepared for row in found if row.prepared), None)
        if text is None:
            return
        prepared = read_prepared(text)
        reader = CatalogReader(self.request.destination, self.request.catalog)
        if latest_number(reader, self.source) + 1 != prepared.number:
            self.overtaken(reader, prepared)
            return
        totals = Totals()
        try:
            totals.add([row for row in found if row.prepared is None])
        except LakebackupError as error:
            # Records that were purged, a topic deleted meanwhile: the next batch is planned without them.
            if self.failed:
                raise
            self.failed = error
            self.reporter.warning(f"{error.message} The batch is given up; the next one begins where it did.")
            return
        self.failed = None
        for left in set(prepared.plan.left_out) - self.left_out:
            self.reporter.warning(left)
        self.left_out = set(prepared.plan.left_out)
        backup_topics.tell(prepared.plan, self.reporter)
        if prepared.plan.fork:
            forks.record(self.writer, prepared.plan.fork)
        done = backup_topics.publish(
            self.request, self.storage, self.source, prepared, totals, self.writer, lease, self.reporter
        )
        self.last = done["backup_id"]
        self.totals["backups"] += 1
        for name in ("files", "bytes", "entries"):
            self.totals[name] += done[name]
        if prepared.number % SMALL_FILES == 0:
            self.writer.tidy(SMALL_FILES)
        self.reporter.update(self.totals["entries"], self.totals["bytes"])
        self.reporter.note(f"backup {self.last}, {done['kind']}: {done['entries']} records")

    def overtaken(self, reader: CatalogReader, prepared: Prepared) -> None:
        """The batch is in the catalog already, or another backup is, behind which the next batch goes on."""
        if reader.rows("find_backups", prefix=prepared.backup_id):
            marker = layout.marker_path(self.source, prepared.backup_id, "complete")
            sidecar.mark(self.storage, marker)

    def explain(self, query: StreamingQuery, stop: threading.Event) -> None:
        """Raise what ended the query, if it was not told to stop."""
        if self.error is not None:
            raise self.error
        failure = query.exception()
        if failure is None or stop.is_set():
            return
        said = _TOLD.search(str(failure))
        if said:
            raise_first([said[1]])
        raise failure
