"""Restore a log into a Delta table: the latest committed value of each key, a row each."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.sql_engine.delta_log import FOLDER
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup_jobs.logs.restore import apply
from lakebackup_jobs.logs.restore.targets import Held
from lakebackup_sql import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.logs.restore import LogRestorePlan
    from lakebackup_jobs.logs.restore.splits import LogShares

_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# Of a span without changes, too, a commit says that it was brought.
_SKIPS = "spark.databricks.delta.skipRecordingEmptyCommits"
# Commits that leave rows as they are.
_KEEPS = {
    "OPTIMIZE",
    "VACUUM START",
    "VACUUM END",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "UPGRADE PROTOCOL",
}


class DeltaTarget:
    """The table at a path. Each restore is one commit, which itself says what the table holds then."""

    def __init__(self, path: str) -> None:
        self._path = path if "://" in path else str(Path(path).absolute())
        self.place = f"delta:{self._path}"

    def held(self, *, others_as_of: tuple[str, int | None] = ("", None)) -> Held | None:
        """What the newest commit of a restore says. Refused for what no restore made, or was changed since.

        `others_as_of`: of which source and when a table is that no restore made, as a person says.
        """
        changed, found = "", False
        for commit in self._commits():
            found = True
            if held := Held.read(commit.get("userMetadata") or ""):
                if changed:
                    raise Refused(
                        f"The table at {self._path} was changed ({changed}) since a restore brought what "
                        f"{held.source} had up to {held.to_ts}.",
                        hint="Restore into a new path.",
                    )
                return held
            if commit.get("operation") not in _KEEPS:
                changed = str(commit.get("operation"))
        source, ts = others_as_of
        if found and ts is not None:
            return Held(source=source, from_ts=ts, to_ts=ts, start_ts=ts)
        if found:
            raise Refused(
                f"There is a table at {self._path}, and no restore of a log made it.",
                hint="Say with --startts as of when it is what the database held."
                if source
                else "Restore into a new path.",
            )
        self._refuse_others()
        return None

    def _refuse_others(self) -> None:
        """Where there is no table, nothing is but what restores left that were cut off."""
        for found in open_storage(self._path).list(""):
            if not found.path.startswith(("part-", ".", f"{FOLDER}/")):
                raise Refused(
                    f"{self._path} holds {found.path}, and is no table.", hint="Restore into a new path."
                )

    def _commits(self) -> Iterator[dict[str, Any]]:
        """What the commits of the table say of themselves, the newest first."""
        storage = open_storage(self._path, private=False)
        names = [found.path for found in storage.list(f"{FOLDER}/") if found.path.endswith(".json")]
        for name in sorted((name for name in names if Path(name).stem.isdigit()), reverse=True):
            for line in storage.get(name).splitlines():
                action = json.loads(line)
                if "commitInfo" in action:
                    yield action["commitInfo"]

    def write(
        self,
        spark: SparkSession,
        shares: LogShares,
        plan: LogRestorePlan,
        full: DataFrame | None,
        before: Held | None,
        after: Held,
    ) -> Mapping[str, Any]:
        """One commit: a new table, or a merge into it."""
        if before is None:
            with task_errors():
                (
                    apply.state(spark, shares, plan, full)
                    .write.format("delta")
                    .mode("errorifexists")
                    .option("userMetadata", after.text())
                    .save(self._path)
                )
        else:
            self._continue(spark, shares, plan, after)
        metrics = next(self._commits()).get("operationMetrics", {})
        counts = {
            "inserted": "numTargetRowsInserted",
            "updated": "numTargetRowsUpdated",
            "deleted": "numTargetRowsDeleted",
        }
        told = {name: int(metrics[metric]) for name, metric in counts.items() if metric in metrics}
        written = int(metrics.get("numOutputRows", 0)) if before is None else sum(told.values())
        return {"entries": written, **told}

    def _continue(self, spark: SparkSession, shares: LogShares, plan: LogRestorePlan, after: Held) -> None:
        with task_errors():
            rows = spark.read.format("delta").load(self._path)
            apply.onto(spark, shares, plan, rows).createOrReplaceTempView("log_changes")
            rows.createOrReplaceTempView("log_target")
            with _metadata(spark, after.text()):
                spark.sql(load("changes", "log_continue"))
            for view in ("log_changes", "log_target"):
                spark.catalog.dropTempView(view)


@contextmanager
def _metadata(spark: SparkSession, text: str) -> Iterator[None]:
    """What commits say of themselves while the block runs: a MERGE has no option for it."""
    spark.conf.set(_METADATA, text)
    spark.conf.set(_SKIPS, "false")
    try:
        yield
    finally:
        spark.conf.unset(_METADATA)
        spark.conf.unset(_SKIPS)
