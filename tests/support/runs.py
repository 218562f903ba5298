"""Shorthands for the jobs, as tests call them."""

from __future__ import annotations

import io
import shutil
import time
from typing import TYPE_CHECKING, Any

from tests.support.looks import seen

from lakebackup.plan.topics.request import RestoreRequest
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.topics import backup as backup_topics
from lakebackup_jobs.topics import compact, merge
from lakebackup_jobs.topics import groups as restore_groups
from lakebackup_jobs.topics import restore as restore_topics
from lakebackup_jobs.topics.request import BackupRequest
from lakebackup_jobs.upkeep import prune, verify

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Lab:
    """One destination, one broker, one Spark session."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, empty_catalog: Path) -> None:
        self.spark, self.bootstrap, self.folder = spark, bootstrap, folder
        self._empty_catalog = empty_catalog
        self.warnings = io.StringIO()
        self.reporter = Reporter(io.StringIO(), self.warnings)

    def make_catalog(self) -> None:
        """Have a catalog: tables made once for all tests, since making them takes Spark seconds."""
        if not (self.folder / "catalog").exists():
            shutil.copytree(self._empty_catalog, self.folder / "catalog")

    def sql(self, text: str) -> list[dict[str, Any]]:
        """What a SELECT gives."""
        return seen(self.folder, text)

    def backup(self, *topics: str, **changes: Any) -> dict[str, Any]:
        request = BackupRequest(
            **{
                "destination": str(self.folder),
                "topics": topics,
                "kafka": {"bootstrap.servers": self.bootstrap},
                "source": "lab",
                "groups": "none",  # other tests' groups live on the same broker
                **changes,
            }
        )
        if not request.dry_run:
            self.make_catalog()
        return backup_topics.run(request, spark=self.spark, reporter=self.reporter)

    def restore(self, *topics: str, **changes: Any) -> dict[str, Any]:
        request = RestoreRequest(
            **{
                "destination": str(self.folder),
                "topics": topics,
                "target": f"kafka://{self.bootstrap}",
                **changes,
            }
        )
        return restore_topics.run(request, spark=self.spark, reporter=self.reporter)

    def compact(self, *topics: str, **changes: Any) -> dict[str, Any]:
        request = compact.CompactRequest(
            **{"destination": str(self.folder), "topics": topics, "source": "lab", **changes}
        )
        return compact.run(request, spark=self.spark, reporter=self.reporter)

    def merge(self, level: int, **changes: Any) -> dict[str, Any]:
        request = merge.MergeRequest(
            **{"destination": str(self.folder), "level": level, "source": "lab", **changes}
        )
        return merge.run(request, spark=self.spark, reporter=self.reporter)

    def restore_groups(self, *groups: str, **changes: Any) -> dict[str, Any]:
        """Groups by name, all when none is named."""
        request = restore_groups.GroupsRequest(
            **{
                "destination": str(self.folder),
                "groups": groups,
                "patterns": () if groups else (".*",),
                "target": f"kafka://{self.bootstrap}",
                **changes,
            }
        )
        return restore_groups.run(request, reporter=self.reporter)

    def prune(self, *topics: str, **changes: Any) -> dict[str, Any]:
        request = prune.PruneRequest(
            **{"destination": str(self.folder), "topics": topics, "source": "lab", "delete": True, **changes}
        )
        return prune.run(request, spark=self.spark, reporter=self.reporter)

    def verify(self, **changes: Any) -> dict[str, Any]:
        request = verify.VerifyRequest(**{"destination": str(self.folder), "grace_ms": 0, **changes})
        return verify.run(request, spark=self.spark, reporter=self.reporter)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
