"""The workspace of a run: its destination, its catalog, its leases, and Spark if it is needed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

from pyspark.sql import SparkSession

from lakebackup.errors import Damaged, NotFound
from lakebackup.requests import Request, RunRequest
from lakebackup.rows.backups import Runner
from lakebackup.rows.upkeep import FailedRun
from lakebackup.signing.chain import Kind
from lakebackup.signing.keys import SigningKey
from lakebackup.sql_engine.worker import Cluster, limit, session_on
from lakebackup.storage import open_storage, working
from lakebackup.store import signatures
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter, Session
from lakebackup_jobs.lifecycle.failures import recorded
from lakebackup_jobs.lifecycle.identity import holder
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.tasks import runner
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.runtime.background import later
from lakebackup_jobs.runtime.java import jvm
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.session import spark_session, warm_context
from lakebackup_jobs.runtime.settings import spark_settings
from lakebackup_jobs.runtime.signing import signing_key


class Workspace:
    """A destination, its catalog, and Spark, which starts when it is first needed.

    `source`: the source whose backups the run makes or deletes; "" if it only reads. `spark`: a session, or a
    function that creates one.
    """

    def __init__(
        self,
        request: Request,
        source: str,
        reporter: Reporter,
        spark: Session = None,
    ) -> None:
        self.request = request
        self._start = spark if callable(spark) else partial(_start_spark, request.remote)
        self._starts_jvm = spark is None and request.remote is None and not jvm.SUBMITTED
        self._spark = None if callable(spark) else spark
        self._starting_cluster: Future[Cluster] | None = None
        self._starting_sql: Future[SparkSession] | None = None
        self._runner: Runner | None = None
        self._started = time.monotonic()
        #: Whether the run has planned and recorded a backup. Its source exists then, so an error becomes a
        #: row of `failures`.
        self.has_begun = False
        self.source, self.reporter = source, reporter
        self.storage = open_storage(request.destination)
        limit(request.bandwidth)

    def start_jvm(self, *, sql: bool = False) -> None:
        """Begin to start the JVM of a run that will need Spark, while the run plans. With `sql`, load Spark's
        SQL too."""
        if self._starts_jvm and "pyspark" not in sys.modules:
            jvm.start(spark_settings(), sql=sql, workers=True)

    def start_spark(self) -> Future[Cluster]:
        """Begin to start the cluster for tasks, while the run does what comes before them."""
        if self._starting_cluster is None:
            self.start_jvm()  # PySpark is imported while the JVM starts
            # The import is in this thread: if two threads import PySpark at once, one sees half of it.
            import pyspark.sql  # noqa: F401

            self._starting_cluster = later(lambda: self._spark or self._start())
        return self._starting_cluster

    def start_sql(self) -> Future[SparkSession]:
        """Begin to start Spark's SQL too, whose classes take as long to load as all others."""
        if self._starting_sql is None:
            self.start_jvm(sql=True)
            cluster = self.start_spark()
            self._starting_sql = later(lambda: session_on(cluster.result()))
        return self._starting_sql

    @property
    def cluster(self) -> Cluster:
        """The cluster for tasks that need no SQL. Waits until it has started."""
        if self._spark:
            return self._spark
        starting_cluster = self.start_spark()
        if not starting_cluster.done():
            self.reporter.wait("starting Spark")
        return starting_cluster.result()

    @property
    def spark(self) -> SparkSession:
        """The session, which is created when it is first needed."""
        if self._spark is None:
            self.reporter.wait("starting Spark")
            self._spark = self.start_sql().result()
        return self._spark

    def require_java(self) -> None:
        """Raise EnvironmentProblem if Spark cannot be started, before anything is written."""
        if self._spark is None and not self.request.remote:
            java_home()

    @property
    def session(self) -> SparkSession | None:
        """The session, if there is one yet."""
        return self._spark

    @property
    def runner(self) -> Runner:
        """The runner of the tasks. Before it is chosen, "spark" if the run has a session or starts one, else
        "local"."""
        return self._runner or ("spark" if self._spark or self._starting_cluster else "local")

    def choose_runner(self, request: RunRequest, size: int | None, *, beside_spark: bool = False) -> None:
        """Choose the runner of the tasks, and begin to start it. `size` and `beside_spark` are those of
        `runner.choose`."""
        self._runner = runner.choose(request, size, session=self._spark, beside_spark=beside_spark)
        if self._runner == "spark":
            self.start_spark()

    def use_spark(self) -> None:
        """Choose Spark as the runner of a job that needs its SQL, and begin to start it."""
        self._runner = "spark"
        self.start_sql()

    @property
    def task_cluster(self) -> Cluster | None:
        """The cluster that runs the tasks; None if threads of this process do."""
        return None if self._runner == "local" else self.cluster

    @property
    def task_session(self) -> SparkSession | None:
        """The session for tasks whose results need SQL; None if threads of this process run the tasks."""
        return None if self.runner == "local" else self.spark

    @cached_property
    def destination(self) -> str:
        """The id of the destination."""
        return destination_id(self.storage)

    def existing_destination(self) -> str | None:
        """Return the id of the destination; None if it has none yet. Creates nothing."""
        if "destination" not in self.__dict__:
            try:
                self.destination = destination_id(self.storage, create=False)
            except NotFound:
                return None
        return self.destination

    def reader(self) -> CatalogReader:
        """Return a reader of the catalog as it is now. If there is no catalog, its queries raise NotFound."""
        return CatalogReader(self.request.destination, self.request.catalog)

    def current(self) -> CatalogReader:
        """Return a reader of the catalog as it is now. Raises NotFound if there is no catalog, and Refused if
        it lacks backups that are in the destination."""
        return current_catalog(self.request.destination, self.request.catalog)

    def existing(self) -> CatalogReader | None:
        """Return a reader of the catalog as it is now; None if there is no catalog."""
        return CatalogReader.open(self.request.destination, self.request.catalog)

    @property
    def has_catalog_elsewhere(self) -> bool:
        """Whether the catalog is not in the destination."""
        return self.request.catalog is not None

    def writer(self, *, in_process: bool = False) -> CatalogWriter:
        """Return a writer of the catalog. It starts Spark if so much is written that Spark helps, unless
        `in_process` is set or tasks run in this process."""
        spark = None if in_process or self._runner == "local" else self._spark or (lambda: self.cluster)
        return CatalogWriter(spark, self.request.destination, self.request.catalog)

    def lease(self, name: str | None = None, *, wait_s: float = 0.0) -> Lease:
        """Acquire a lease, by default that of the source. Raises Busy if another run holds it for longer than
        `wait_s`."""
        ttl_s = self.request.lease_ttl_s
        return Lease.acquire(
            self.storage, name or f"source-{self.source}", holder(), ttl_s=ttl_s, wait_s=wait_s
        )

    @contextmanager
    def running(
        self, run: FailedRun, source_kind: str | None = None, *, lease: str | None = None
    ) -> Iterator[Lease]:
        """Hold the lease of a run that writes, by default the source's. An error leaves a row in `failures`.

        The row has `source_kind`, by default the kind of the source's backups. Raises Busy, and an error of
        the signing key if it cannot be used, before anything is written.
        """
        with recorded(self, run, source_kind), self.lease(lease) as run_lease:
            _ = self.signing_key
            yield run_lease

    @cached_property
    def signing_key(self) -> SigningKey | None:
        """The key that signs what the run publishes; None if the settings name none. Raises as
        `load_private`."""
        return signing_key()

    def sign(self, kind: Kind, subject: str, path: str) -> None:
        """Sign an object that the run has published, if there is a key. Can be repeated.

        Warns if the chain is damaged: whoever damages it must not stop backups.
        """
        if self.signing_key is None:
            return
        try:
            signatures.append(self.storage, self.source, kind, subject, path, self.signing_key)
        except Damaged as fault:
            self.reporter.warning(f"{kind} {subject} is not signed: {fault.message}")

    def timed(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return a result with the seconds since the run started."""
        return {**result, "seconds": round(time.monotonic() - self._started, 3)}

    def task_progress(self, folder: str) -> TaskProgress:
        """Return the progress of the tasks whose folder is `folder`."""
        return TaskProgress(self.storage, folder)

    def empty(self, *folders: str) -> int:
        """Delete the working objects below some folders. Returns how many."""
        return sum(working.empty(self.storage, folder) for folder in folders)


def _start_spark(remote: str | None) -> Cluster:
    return spark_session(remote=remote) if remote else warm_context()
