"""Decides which engine makes a plan. No other module decides it.

`auto` is DuckDB on one machine: there it plans faster than even a warm session of Spark (docs/benchmarks.md).
On a cluster, `auto` is Spark for large catalogs: tasks share the work that DuckDB does in one process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakebackup.errors import Damaged, EnvironmentProblem, LakebackupError, TooLarge
from lakebackup.sql_engine import EngineChoice, EngineName
from lakebackup.sql_engine.failures import cause_in, text_of
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.runtime.java import jvm
from lakebackup_jobs.runtime.session import spark_session

T = TypeVar("T")
#: A session, a function that starts one, or none.
Session: TypeAlias = "SparkSession | Callable[[], SparkSession] | None"

# Spark needs a second or two for each plan. DuckDB reads so many rows of files in that time.
_SPARK_FILES = 5_000_000
# How Spark says that its session, or a worker, cannot read the catalog's tables.
_NO_ACCESS = re.compile(
    r"INSUFFICIENT_PERMISSIONS|PERMISSION_DENIED|UNAUTHORIZED|Access ?Denied|AccessControlException|Forbidden"
    r"|Permission denied|PATH_NOT_FOUND|PATH_DOES_NOT_EXIST|DELTA_TABLE_NOT_FOUND|FileNotFoundException"
)


class EngineOptions(Protocol):
    """The options of a request that choose the engine. `remote` is the Spark Connect server to use."""

    @property
    def engine(self) -> EngineChoice: ...
    @property
    def remote(self) -> str | None: ...


class EngineDecision(NamedTuple):
    """The engine that makes a plan, and the reason."""

    engine: EngineName
    reason: str


def decide(engine: EngineChoice, *, cluster: str | None, files: int) -> EngineDecision:
    """Decide which engine plans for a catalog with so many rows of files.

    `engine`: what the request says. `cluster`: see `cluster_of`; None also if there is no session.
    """
    if engine != "auto":
        return EngineDecision(engine, f"--engine {engine}")
    if cluster is None:
        return EngineDecision("duckdb", "no cluster")
    if files <= _SPARK_FILES:
        return EngineDecision("duckdb", f"the catalog has only {files:,} files")
    return EngineDecision("spark", f"the catalog has {files:,} files, and tasks run on {cluster}")


def cluster_of(session: SparkSession) -> str | None:
    """Return what runs the tasks of a session: the master of a cluster, or Spark Connect; None for this
    machine."""
    if not isinstance(session, SparkSession):
        return "Spark Connect"
    master = str(session.sparkContext.master)
    return None if master.startswith("local") else master


def plan_on_engine(
    reader: CatalogReader,
    request: EngineOptions,
    spark: Session,
    reporter: Reporter,
    plan: Callable[[CatalogReader], T],
) -> T:
    """Call `plan` with a reader on the engine that `decide` names, and return its plan.

    `auto` plans on DuckDB if the session cannot read the tables, and on Spark if DuckDB runs out of memory. A
    note of the reporter says so, and why `auto` chose Spark.
    """

    def session() -> SparkSession:
        if callable(spark):
            return spark()
        if spark is None:
            reporter.wait("starting Spark")
        return spark or spark_session(remote=request.remote)

    def on_spark() -> T:
        running_session = session()
        reporter.wait("planning")
        return plan(reader.with_spark(running_session))

    files = 0
    if request.engine == "auto" and _is_running(spark, request.remote):
        files = reader.count("files", "snapshot_files")
    # A session that is not needed is not started.
    cluster = cluster_of(session()) if files > _SPARK_FILES else None
    engine, reason = decide(request.engine, cluster=cluster, files=files)
    if engine == "spark" and request.engine == "spark":
        return on_spark()
    if engine == "spark":
        reporter.note(f"planning on Spark: {reason}")
        try:
            return on_spark()
        except (Damaged, EnvironmentProblem, PySparkException, Py4JJavaError) as error:
            if not isinstance(error, LakebackupError) and not _NO_ACCESS.search(text_of(error)):
                raise
            cause = error.message if isinstance(error, LakebackupError) else cause_in(error).splitlines()[0]
            reporter.note(f"planning on DuckDB: the Spark session cannot read the catalog: {cause}")
    try:
        return plan(reader)
    except TooLarge as full:
        if request.engine == "duckdb":
            raise
        reporter.note(f"planning on Spark: {full.message}")
        return on_spark()


def _is_running(spark: Session, remote: str | None) -> bool:
    """Return whether there is a session, or one of a cluster that runs already can be had."""
    return remote is not None or jvm.SUBMITTED or (spark is not None and not callable(spark))
