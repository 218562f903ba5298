"""Backups whose catalog is a set of Delta tables. `connect` opens one: docs/ask.md#python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal

from lakebackup.errors import EnvironmentProblem

if TYPE_CHECKING:
    from datetime import datetime
    from os import PathLike

    from pyspark.sql import SparkSession

    from lakebackup_jobs.connection import Connection

__all__ = ["connect"]


def connect(
    destination: str | None = None,
    *,
    catalog: str | None = None,
    engine: Literal["duckdb"] | SparkSession = "duckdb",
    as_of: str | datetime | None = None,
    config: str | PathLike[str] | None = None,
) -> Connection:
    """Open the backups at a folder or an `s3://` URI, to ask them and to restore from them.

    What is not given here comes from the environment and lakebackup.toml, as on the command line. `catalog`:
    its URI if it is not in the destination. `engine`: DuckDB, or a Spark session that answers instead.
    `as_of`: see the catalog as it was then; a datetime without a zone is in UTC. `config`: another file than
    ./lakebackup.toml.

    Raises UsageProblem (no destination, bad settings), NotFound (no catalog there, none at that time).
    """
    try:
        # A library below the jobs never imports them by itself: they bring Kafka and Spark.
        jobs = import_module("lakebackup_jobs.connection")
    except ModuleNotFoundError as error:
        if error.name not in ("lakebackup_jobs", "lakebackup_jobs.connection"):
            raise
        raise EnvironmentProblem(
            "The package lakebackup_jobs is not installed.", hint="Run `pip install lakebackup`."
        ) from None
    opened: Connection = jobs.connect(destination, catalog=catalog, engine=engine, as_of=as_of, config=config)
    return opened
