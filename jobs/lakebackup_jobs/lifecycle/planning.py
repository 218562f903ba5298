"""Decides which engine makes a plan. No other module decides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from pyspark.sql import SparkSession

from lakebackup.errors import TooLarge
from lakebackup.sql_engine import EngineChoice
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.runtime.session import spark_session

T = TypeVar("T")


class EngineOptions(Protocol):
    """The options of a request that choose the engine. `remote` is the Spark Connect server to use."""

    @property
    def engine(self) -> EngineChoice: ...
    @property
    def remote(self) -> str | None: ...


def plan_on_engine(
    reader: CatalogReader,
    request: EngineOptions,
    spark: SparkSession | None,
    reporter: Reporter,
    plan: Callable[[CatalogReader], T],
) -> T:
    """Call `plan` with a reader on the engine that the request names, and return its plan.

    `auto` is DuckDB, then Spark if DuckDB runs out of memory. For up to 100 million files, DuckDB is faster
    than even a warm session (docs/benchmarks.md).
    """

    def on_spark() -> T:
        if spark is None:
            reporter.wait("starting Spark")
        session = spark or spark_session(remote=request.remote)
        reporter.wait("planning")
        return plan(reader.with_spark(session))

    if request.engine == "spark":
        return on_spark()
    try:
        return plan(reader)
    except TooLarge as full:
        if request.engine == "duckdb":
            raise
        reporter.note(f"planning on Spark: {full.message}")
        return on_spark()
