"""Which engine makes a plan: the one place that decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from lakebackup.errors import TooLarge
from lakebackup_jobs.lifecycle.tasks.runner import has_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from lakebackup.sql_engine import EngineChoice
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.progress import Reporter

#: Rows of the tables of files above which Spark plans where Spark runs the job. Below, DuckDB is done sooner
#: than a session that is warm (docs/benchmarks.md).
LARGE = 10_000_000
_OF_FILES = ("files", "snapshot_files")

T = TypeVar("T")


class Asked(Protocol):
    """What a request says of engines. `remote`: the Spark Connect server to be used."""

    @property
    def engine(self) -> EngineChoice: ...
    @property
    def remote(self) -> str | None: ...


def has_more(reader: CatalogReader, rows: int) -> bool:
    """Whether a catalog has more rows of files than that."""
    return reader.count(*_OF_FILES) > rows


def planned(
    reader: CatalogReader,
    asked: Asked,
    spark: SparkSession | None,
    reporter: Reporter,
    plan: Callable[[CatalogReader], T],
    *,
    of_files: bool = True,
) -> T:
    """The plan that `plan` makes of a catalog, by the engine that was asked for. `of_files`: whether it reads
    rows of files.

    `auto` is Spark where Spark runs the job (`spark` is there, a Spark Connect server is named, or it is run
    by spark-submit) and the plan is of files, of which the catalog has more than LARGE rows; else DuckDB, and
    Spark when DuckDB's memory does not suffice.
    """

    def on_spark() -> T:
        from lakebackup_jobs.runtime.session import spark_session

        if spark is None:
            reporter.wait("starting Spark")
        session = spark or spark_session(remote=asked.remote)
        reporter.wait("planning")
        return plan(reader.on(session))

    automatic = asked.engine == "auto"
    large = of_files and automatic and has_spark(asked.remote, spark) and has_more(reader, LARGE)
    if large or asked.engine == "spark":
        return on_spark()
    try:
        return plan(reader)
    except TooLarge as full:
        if not automatic:
            raise
        reporter.note(f"planning on Spark: {full.message}")
        return on_spark()
