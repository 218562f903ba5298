"""Restore into a Delta table: one row for each record, or for the latest committed value of each key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from lakebackup.errors import Busy, Refused
from lakebackup.plan.topics.restore import RestorePlan
from lakebackup.sql_engine.delta.log import FOLDER
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup_jobs.targets import RestoredSpan, Target, full_path
from lakebackup_sql import load

_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# A restored span without changes needs a commit too, since the commit records that the table holds the span.
_SKIP_EMPTY_COMMITS = "spark.databricks.delta.skipRecordingEmptyCommits"
# The operations of commits that do not change rows.
_ROW_PRESERVING_OPERATIONS = {
    "OPTIMIZE",
    "VACUUM START",
    "VACUUM END",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "UPGRADE PROTOCOL",
}

Summary = TypeVar("Summary", covariant=True)


class Content(Protocol[Summary]):
    """What a restore brings. `Summary` is the type of its summary, which is the same for every target.

    `spark`: the session to use. `old_contents`: what the target holds and the restore continues from; None:
    nothing. `new_contents`: what the target then records that it holds; None: only the catalog records it.
    `commit`: Spark's options for the commit to a table. `dropped_ids`: ids of tables that are dropped at the
    end.
    """

    @property
    def spark(self) -> SparkSession: ...
    @property
    def old_contents(self) -> RestoredSpan | None: ...
    @property
    def new_contents(self) -> RestoredSpan | None: ...
    @property
    def commit(self) -> Mapping[str, Any]: ...
    @property
    def dropped_ids(self) -> Sequence[int]: ...

    def rows(self) -> DataFrame | None:
        """All of the content, as the rows of a table; None: there is none."""
        ...

    def create(self, path: str) -> bool:
        """Create the table at a path without SQL, if the content is small enough; returns whether it did."""
        ...

    def changes_to(self, rows: DataFrame) -> DataFrame:
        """The changes that turn the rows of the target (`rows`) into those after the restore; see the
        statement log_continue."""
        ...

    def in_table(self, table: DeltaTarget) -> Summary:
        """The summary, once the table has been written."""
        ...

    def write_files(self, path: str) -> Summary:
        """Write the content as files below a folder; replaces the files of an interrupted attempt."""
        ...


class DeltaTarget(Target):
    """The table at a path. Each restore is one commit; a repeated restore does not commit again."""

    def __init__(self, path: str, *, append: bool = False) -> None:
        self._path, self._append = full_path(path), append
        self.name = f"delta:{self._path}"

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        return {"target_table": self._path, "refused_because": self._existing_table()}

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        reason = None if resumed else self._existing_table()
        if reason:
            raise Refused(f"{reason}.", hint="Restore into a new path, or add to the table with --append.")

    def _existing_table(self) -> str | None:
        if self._append or not next(open_storage(self._path).list(f"{FOLDER}/"), None):
            return None
        return f"there is a Delta table at {self._path} already"

    def restored_span(self, *, others_as_of: tuple[str, int | None] = ("", None)) -> RestoredSpan | None:
        """What the newest commit of a restore records. Raises Refused for a table that no restore made, or
        that was changed since.

        `others_as_of`: the source and ts that a table of no restore is said to hold.
        """
        changed, has_commits = "", False
        for commit in self._commits():
            has_commits = True
            if restored := RestoredSpan.read(commit.get("userMetadata") or ""):
                if changed:
                    raise Refused(
                        f"The table at {self._path} was changed ({changed}) since a restore brought what "
                        f"{restored.source} had up to {restored.to_ts}.",
                        hint="Restore into a new path.",
                    )
                return restored
            if commit.get("operation") not in _ROW_PRESERVING_OPERATIONS:
                changed = str(commit.get("operation"))
        source, ts = others_as_of
        if has_commits and ts is not None:
            return RestoredSpan(source=source, from_ts=ts, to_ts=ts, start_ts=ts)
        if has_commits:
            raise Refused(
                f"There is a table at {self._path}, and no restore of a log made it.",
                hint="Give with --startts as of when it is what the database held."
                if source
                else "Restore into a new path.",
            )
        self._refuse_foreign_objects()
        return None

    def _refuse_foreign_objects(self) -> None:
        """Raise Refused if a path without a table holds anything but the files of interrupted restores."""
        for entry in open_storage(self._path).list(""):
            if not entry.path.startswith(("part-", ".", f"{FOLDER}/")):
                raise Refused(
                    f"{self._path} holds {entry.path}, and is no table.", hint="Restore into a new path."
                )

    def _commits(self) -> Iterator[dict[str, Any]]:
        """The `commitInfo` of the table's commits, the newest first."""
        for _, action in self._actions():
            if "commitInfo" in action:
                yield action["commitInfo"]

    def _actions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each action of the table's commits, with the commit's path below the table, the newest commit
        first."""
        storage = open_storage(self._path, private=False)
        names = [entry.path for entry in storage.list(f"{FOLDER}/") if entry.path.endswith(".json")]
        for name in sorted((name for name in names if Path(name).stem.isdigit()), reverse=True):
            for line in storage.get(name).splitlines():
                yield name, json.loads(line)

    def metrics(self) -> dict[str, str]:
        """The operation metrics of the newest commit."""
        metrics: dict[str, str] = next(self._commits()).get("operationMetrics", {})
        return metrics

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows of the table."""
        return spark.read.format("delta").load(self._path)

    def added(self, spark: SparkSession, app_id: str) -> DataFrame | None:
        """The rows that the commit with `app_id` as its `txnAppId` added; None: there is no such commit."""
        actions = self._actions()
        name = next((name for name, action in actions if action.get("txn", {}).get("appId") == app_id), None)
        if name is None:
            return None
        snapshot = spark.read.format("delta").option("versionAsOf", int(Path(name).stem)).load(self._path)
        files = spark.read.schema("add STRUCT<path: STRING>").json(f"{self._path}/{name}")
        names = files.where("add IS NOT NULL").select(sf.substring_index("add.path", "/", -1).alias("file"))
        return snapshot.withColumn("file", sf.col("_metadata.file_name")).join(names, "file", "left_semi")

    def write(self, content: Content[Summary]) -> Summary:
        """Write the content in one commit: create the table, append rows, or merge into it."""
        if content.old_contents is not None:
            self._merge(content)
        elif not content.create(self._path) and (rows := content.rows()) is not None:
            # A commit that records no span is identified by the restore's id, so Delta makes it only once.
            mode = "append" if content.new_contents is None else "errorifexists"
            with task_errors():
                rows.write.format("delta").mode(mode).options(**content.commit).save(self._path)
        return content.in_table(self)

    def _merge(self, content: Content[Any]) -> None:
        spark = content.spark
        with task_errors():
            rows = self.read(spark)
            content.changes_to(rows).createOrReplaceTempView("log_changes")
            rows.createOrReplaceTempView("log_target")
            if self.restored_span() != content.old_contents:  # this run stalled and lost its lease
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
    """Set the user metadata of commits while the block runs: MERGE has no option for it."""
    spark.conf.set(_METADATA, text)
    spark.conf.set(_SKIP_EMPTY_COMMITS, "false")
    try:
        yield
    finally:
        spark.conf.unset(_METADATA)
        spark.conf.unset(_SKIP_EMPTY_COMMITS)
