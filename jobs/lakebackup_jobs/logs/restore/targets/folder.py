"""Restore a log into a folder: the latest change of each key in the span, as Parquet, a folder a span."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.formats.logs.events import PUTS, TRUNCATES
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup_jobs.logs.restore import apply
from lakebackup_jobs.logs.restore.targets import Held

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.logs.restore import LogRestorePlan
    from lakebackup_jobs.logs.restore.splits import LogShares

_SPAN = re.compile(r"\d+-\d+/")
#: Says that a folder is whole, and what is in it; written last.
RANGE = "_range.json"


class FolderTarget:
    """A folder of folders `<from>-<to>`, one behind the other; one that was cut off is written anew."""

    def __init__(self, path: str) -> None:
        self._path = path if "://" in path else str(Path(path).absolute())
        self.place = f"dir:{self._path}"

    def held(self) -> Held | None:
        """What the newest span says. Refused when other things are there."""
        storage = open_storage(self._path, private=False)
        newest: Held | None = None
        for found in storage.list(""):
            if not _SPAN.match(found.path):
                raise Refused(
                    f"{self._path} holds {found.path}, which no restore of a log wrote.",
                    hint="Restore into another folder.",
                )
            if found.path.endswith(f"/{RANGE}"):
                held = Held.read(json.dumps(json.loads(storage.get(found.path))["held"]))
                if held and (newest is None or held.to_ts > newest.to_ts):
                    newest = held
        return newest

    def write(
        self,
        spark: SparkSession,
        shares: LogShares,
        plan: LogRestorePlan,
        full: DataFrame | None,
        before: Held | None,  # noqa: ARG002 (a span's folder stands on nothing)
        after: Held,
    ) -> Mapping[str, Any]:
        """The span's folder; the object that makes it count comes last."""
        name = f"{after.start_ts}-{after.to_ts}"
        entries = put_changes(spark, shares, plan, full, f"{self._path}/{name}")
        told = {
            "held": json.loads(after.text()),
            "gone": [table for table in plan.without if table in plan.changed],
            "entries": entries,
        }
        open_storage(self._path, private=False).put(f"{name}/{RANGE}", json.dumps(told).encode())
        return {"entries": entries}


def put_changes(
    spark: SparkSession,
    shares: LogShares,
    plan: LogRestorePlan,
    full: DataFrame | None,
    path: str,
    *,
    whole: bool = True,
) -> int:
    """Write the latest change of each key as Parquet into a folder, in the place of what is there; how many.

    Columns: apply.COLUMNS and type: P, D (the value is null), or T: nothing was left of the whole table then
    (its key is empty), and keys of it that are not among the changes have no value any more; those are left
    out unless `whole`.
    """
    from pyspark.sql import functions as sf

    if full is not None:
        rows = apply.state(spark, shares, plan, full).withColumn("type", sf.lit(PUTS))
    else:
        rows = apply.named(apply.changes(spark, shares), plan)
        emptied = apply.ends(spark, shares) if whole else None
        if emptied is not None:
            last = emptied.select(
                "table_id",
                sf.lit(b"").alias("key"),
                sf.lit(None).cast("binary").alias("value"),
                sf.col("emptied.commit_ts").alias("start_ts"),
                "emptied.*",
                sf.lit(TRUNCATES).alias("type"),
            )
            rows = rows.unionByName(apply.named(last, plan))
    with task_errors():
        rows.sortWithinPartitions("db", "name", "key").write.mode("overwrite").parquet(path)
        return spark.read.schema(f"{apply.RESULT}, type STRING").parquet(path).count()
