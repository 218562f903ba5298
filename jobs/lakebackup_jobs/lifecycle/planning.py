"""Which engine makes a plan, and whether little is read without Spark: the one place that decides it."""

from __future__ import annotations

from os import environ
from typing import TYPE_CHECKING, Protocol, TypeVar

from lakebackup.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from lakebackup.sql_engine import EngineChoice
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.progress import Reporter

#: Rows of the tables of files above which Spark plans where Spark runs the job. Below, DuckDB is done before
#: Spark has started.
LARGE = 100_000
#: So many bytes threads of this process read before Spark has started.
SMALL = 16 << 20
_OF_FILES = ("files", "snapshot_files")

T = TypeVar("T")


class Placed(Protocol):
    """What a request says of Spark. `remote`: the Spark Connect server to be used."""

    @property
    def remote(self) -> str | None: ...


class Asked(Placed, Protocol):
    """What a request says of engines."""

    @property
    def engine(self) -> EngineChoice: ...


def is_small(size: int, asked: Placed, spark: SparkSession | None) -> bool:
    """Whether this process reads `size` bytes itself: Spark is not there, and would take longer to start."""
    return size <= SMALL and not _has_spark(asked, spark)


def planned(
    reader: CatalogReader,
    asked: Asked,
    spark: SparkSession | None,
    reporter: Reporter,
    plan: Callable[[CatalogReader], T],
) -> T:
    """The plan that `plan` makes of a catalog, by the engine that was asked for.

    `auto` is Spark where Spark runs the job (`spark` is there, a Spark Connect server is named, or it is run
    by spark-submit) and the catalog has more than LARGE rows of files; else DuckDB, and Spark when DuckDB's
    memory does not suffice.
    """

    def on_spark() -> T:
        from lakebackup_jobs.runtime.session import spark_session

        return plan(reader.on(spark or spark_session(remote=asked.remote)))

    automatic = asked.engine == "auto"
    if asked.engine == "spark" or (
        automatic and _has_spark(asked, spark) and reader.count(*_OF_FILES) > LARGE
    ):
        return on_spark()
    try:
        return plan(reader)
    except TooLarge as full:
        if not automatic:
            raise
        reporter.note(f"planning on Spark: {full.message}")
        return on_spark()


def _has_spark(asked: Placed, spark: SparkSession | None) -> bool:
    return spark is not None or asked.remote is not None or "PYSPARK_GATEWAY_PORT" in environ
