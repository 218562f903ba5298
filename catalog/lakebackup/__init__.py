"""Query and restore backups whose catalog is a set of Delta tables.

    import lakebackup

    con = lakebackup.connect("s3://backups/prod")
    print(con.sql("SELECT scope, restorable_time FROM rpo ORDER BY lag_ms DESC"))
    plan = con.plan_restore("orders", to="delta:./orders", to_time="-2h")
    print(plan)
    con.restore("orders", to="delta:./orders", to_time="-2h")

`connect` opens the backups at a folder or an `s3://` URI. All errors are subclasses of `LakebackupError`. In
a notebook, `%load_ext lakebackup` adds `%sql` and `%%sql`. docs/ask.md describes the whole interface.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from lakebackup import lazy
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

lazy.install()

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
# Names from lakebackup_jobs. They are imported only on demand, because the jobs import Kafka and Spark.
_JOBS_MODULES = {
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

    Other settings come from the environment and lakebackup.toml, as on the command line; LAKEBACKUP_REPO
    names the repository. `catalog`: the catalog's URI, if it is not in the repository. `engine`: DuckDB, or a
    Spark session that runs the queries instead. `as_of`: read the catalog as it was at this time; a datetime
    without a zone is in UTC. `config`: a file to read instead of ./lakebackup.toml.

    Raises UsageProblem without a repository and for bad settings, NotFound without a catalog, now or at
    `as_of`.
    """
    connection: Connection = _import_jobs("lakebackup_jobs.connection").connect(
        repo, catalog=catalog, engine=engine, as_of=as_of, config=config
    )
    return connection


def load_ipython_extension(shell: Any) -> None:
    """Add `%sql` and `%%sql` to IPython. `%load_ext lakebackup` calls this."""
    _import_jobs("lakebackup_jobs.query.magic").register(shell)


def _import_jobs(module: str) -> Any:
    """Import a module of lakebackup_jobs. Raises EnvironmentProblem if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("lakebackup_jobs"):
            raise
        raise EnvironmentProblem(
            "The package lakebackup_jobs is not installed.", hint="Run `pip install lakebackup`."
        ) from None


def __getattr__(name: str) -> Any:
    if name in _JOBS_MODULES:
        return getattr(_import_jobs(_JOBS_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_JOBS_MODULES})
