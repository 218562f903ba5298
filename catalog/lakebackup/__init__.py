"""Backups whose catalog is a set of Delta tables: query them, and restore from them.

    import lakebackup

    con = lakebackup.connect("s3://backups/prod")
    print(con.sql("SELECT scope, restorable_time FROM rpo ORDER BY lag_ms DESC"))
    plan = con.plan_restore("orders", to="delta:./orders", to_time="-2h")
    print(plan)
    con.restore("orders", to="delta:./orders", to_time="-2h")

`connect` opens the backups at a folder or an `s3://` URI. All errors are types of `LakebackupError`. In a
notebook, `%load_ext lakebackup` gives `%sql` and `%%sql` cells. docs/ask.md has all of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import (
    Busy,
    Damaged,
    EnvironmentProblem,
    LakebackupError,
    NotFound,
    Refused,
    TimedOut,
    TooLarge,
    UsageProblem,
)

if TYPE_CHECKING:
    from datetime import datetime
    from os import PathLike

    from pyspark.sql import SparkSession

    from lakebackup_jobs.connection import Connection
    from lakebackup_jobs.query.answer import Answer
    from lakebackup_jobs.query.chart import Chart
    from lakebackup_jobs.query.plan import Plan

__all__ = [
    "Answer",
    "Busy",
    "Chart",
    "Connection",
    "Damaged",
    "EnvironmentProblem",
    "LakebackupError",
    "NotFound",
    "Plan",
    "Refused",
    "TimedOut",
    "TooLarge",
    "UsageProblem",
    "connect",
]
# A library below the jobs never imports them by itself: they bring Kafka and Spark.
_JOBS = {
    "Answer": "lakebackup_jobs.query.answer",
    "Chart": "lakebackup_jobs.query.chart",
    "Connection": "lakebackup_jobs.connection",
    "Plan": "lakebackup_jobs.query.plan",
}


def connect(
    repo: str | PathLike[str] | None = None,
    *,
    catalog: str | None = None,
    engine: Literal["duckdb"] | SparkSession = "duckdb",
    as_of: str | datetime | None = None,
    config: str | PathLike[str] | None = None,
) -> Connection:
    """Open the backups at a folder or an `s3://` URI, to query them and to restore from them.

        con = lakebackup.connect("s3://backups/prod")
        con.sql("SELECT scope, restorable_time FROM rpo").df()

    Settings that are no argument come from the environment and lakebackup.toml, as on the command line;
    LAKEBACKUP_REPO names the repository. `catalog`: its URI if it is not in the repository. `engine`: DuckDB,
    or a Spark session that answers instead. `as_of`: see the catalog as it was then; a datetime without a
    zone is in UTC. `config`: another file than ./lakebackup.toml.

    Raises UsageProblem (no repository, bad settings), NotFound (no catalog there, none at that time).
    """
    connection: Connection = _jobs("lakebackup_jobs.connection").connect(
        repo, catalog=catalog, engine=engine, as_of=as_of, config=config
    )
    return connection


def load_ipython_extension(shell: Any) -> None:
    """Add `%sql` and `%%sql` to IPython: what `%load_ext lakebackup` calls."""
    _jobs("lakebackup_jobs.query.magic").register(shell)


def _jobs(module: str) -> Any:
    """A module of lakebackup_jobs. Raises EnvironmentProblem where it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("lakebackup_jobs"):
            raise
        raise EnvironmentProblem(
            "The package lakebackup_jobs is not installed.", hint="Run `pip install lakebackup`."
        ) from None


def __getattr__(name: str) -> Any:
    if name in _JOBS:
        return getattr(_jobs(_JOBS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_JOBS})
