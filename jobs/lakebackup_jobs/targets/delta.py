"""Restore into a Delta table: a row for each record, or for the latest committed value of each key."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy, Refused
from lakebackup.sql_engine.delta.log import FOLDER
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup_jobs.targets import Held, Target, full_path
from lakebackup_sql import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup_jobs.targets import Content, Written

_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# Of a span without changes, too, a commit records that it was brought.
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


class DeltaTarget(Target):
    """The table at a path. Each restore is one commit, which a repeated restore makes only once."""

    def __init__(self, path: str, *, append: bool = False) -> None:
        self._path, self._append = full_path(path), append
        self.place = f"delta:{self._path}"

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        return {"target_table": self._path, "refused_because": self._taken()}

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        taken = None if resumed else self._taken()
        if taken:
            raise Refused(f"{taken}.", hint="Restore into a new path, or add to the table with --append.")

    def _taken(self) -> str | None:
        if self._append or not next(open_storage(self._path).list(f"{FOLDER}/"), None):
            return None
        return f"there is a Delta table at {self._path} already"

    def held(self, *, others_as_of: tuple[str, int | None] = ("", None)) -> Held | None:
        """What the newest commit of a restore records. Refused for a table that no restore made, or that was
        changed since.

        `others_as_of`: of which source and when a table is that no restore made, as a person states it.
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
                hint="Give with --startts as of when it is what the database held."
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
        """What the commits of the table record of themselves, the newest first."""
        for _, action in self._actions():
            if "commitInfo" in action:
                yield action["commitInfo"]

    def _actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The path below the table of each commit with each of its actions, the newest commit first."""
        storage = open_storage(self._path, private=False)
        names = [found.path for found in storage.list(f"{FOLDER}/") if found.path.endswith(".json")]
        for name in sorted((name for name in names if Path(name).stem.isdigit()), reverse=True):
            for line in storage.get(name).splitlines():
                yield name, json.loads(line)

    def metrics(self) -> dict[str, str]:
        """What the newest commit counted."""
        found: dict[str, str] = next(self._commits()).get("operationMetrics", {})
        return found

    def read(self, spark: SparkSession) -> DataFrame:
        """Its rows."""
        return spark.read.format("delta").load(self._path)

    def added(self, spark: SparkSession, app_id: str) -> DataFrame | None:
        """The rows added by the commit whose `txnAppId` this is; None: there is no such commit."""
        from pyspark.sql import functions as sf

        actions = self._actions()
        name = next((name for name, action in actions if action.get("txn", {}).get("appId") == app_id), None)
        if name is None:
            return None
        then = spark.read.format("delta").option("versionAsOf", int(Path(name).stem)).load(self._path)
        files = spark.read.schema("add STRUCT<path: STRING>").json(f"{self._path}/{name}")
        names = files.where("add IS NOT NULL").select(sf.substring_index("add.path", "/", -1).alias("file"))
        return then.withColumn("file", sf.col("_metadata.file_name")).join(names, "file", "left_semi")

    def write(self, content: Content[Written]) -> Written:
        """One commit: a new table, more rows of it, or a merge into it."""
        if content.before is not None:
            self._merge(content)
        elif not content.create(self._path) and (rows := content.rows()) is not None:
            # A commit that records nothing else is known by the restore's id, and made once by that.
            mode = "append" if content.after is None else "errorifexists"
            with task_errors():
                rows.write.format("delta").mode(mode).options(**content.commit).save(self._path)
        return content.in_table(self)

    def _merge(self, content: Content[Any]) -> None:
        spark = content.spark
        with task_errors():
            rows = self.read(spark)
            content.onto(rows).createOrReplaceTempView("log_changes")
            rows.createOrReplaceTempView("log_target")
            if self.held() != content.before:  # this run stalled, and lost its lease
                raise Busy(
                    f"Another restore has written to the table at {self._path} meanwhile.",
                    hint="Nothing of this one is in it. Run it again: it begins where the table is by then.",
                )
            with _metadata(spark, content.commit["userMetadata"]):
                spark.sql(load("changes", "log_continue"))
            for view in ("log_changes", "log_target"):
                spark.catalog.dropTempView(view)


@contextmanager
def _metadata(spark: SparkSession, text: str) -> Iterator[None]:
    """What commits record of themselves while the block runs: a MERGE has no option for it."""
    spark.conf.set(_METADATA, text)
    spark.conf.set(_SKIPS, "false")
    try:
        yield
    finally:
        spark.conf.unset(_METADATA)
        spark.conf.unset(_SKIPS)
