"""Runs the jobs in this process with the defaults of tests."""

from __future__ import annotations

import io
import shutil
import time
from typing import TYPE_CHECKING, Any

from tests.support.looks import select_rows

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
    """One destination, one broker and one Spark session."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, empty_catalog: Path) -> None:
        self.spark, self.bootstrap, self.folder = spark, bootstrap, folder
        self._empty_catalog = empty_catalog
        self.warnings = io.StringIO()
        self.reporter = Reporter(io.StringIO(), self.warnings)

    def make_catalog(self) -> None:
        """Copy the catalog that was made once for all tests, since making its tables takes Spark seconds."""
        if not (self.folder / "catalog").exists():
            shutil.copytree(self._empty_catalog, self.folder / "catalog")

    def sql(self, text: str) -> list[dict[str, Any]]:
        """The rows of a SELECT."""
        return select_rows(self.folder, text)

    def topics_request(self, topics: tuple[str, ...], **changes: Any) -> BackupRequest:
        """The request of a backup of topics."""
        defaults = {"destination": str(self.folder), "kafka": {"bootstrap.servers": self.bootstrap}}
        # The same broker has the groups of other tests.
        return BackupRequest(**{**defaults, "topics": topics, "source": "lab", "groups": "none", **changes})

    def backup(self, *topics: str, **changes: Any) -> dict[str, Any]:
        request = self.topics_request(topics, **changes)
        if not request.dry_run:
            self.make_catalog()
        return backup_topics.run(request, spark=self.spark, reporter=self.reporter)

    def _run(self, job: Any, kind: Any, changes: dict[str, Any], **defaults: Any) -> dict[str, Any]:
        request = kind(**{"destination": str(self.folder), **defaults, **changes})
        result: dict[str, Any] = job.run(request, spark=self.spark, reporter=self.reporter)
        return result

    def restore(self, *topics: str, **changes: Any) -> dict[str, Any]:
        defaults = {"topics": topics, "target": f"kafka://{self.bootstrap}"}
        return self._run(restore_topics, RestoreRequest, changes, **defaults)

    def compact(self, *topics: str, **changes: Any) -> dict[str, Any]:
        return self._run(compact, compact.CompactRequest, changes, topics=topics, source="lab")

    def merge(self, level: int, **changes: Any) -> dict[str, Any]:
        return self._run(merge, merge.MergeRequest, changes, level=level, source="lab")

    def restore_groups(self, *groups: str, **changes: Any) -> dict[str, Any]:
        """Restore the groups with these names, or all groups if none is named."""
        selection = {"groups": groups, "patterns": () if groups else (".*",)}
        defaults = {"destination": str(self.folder), "target": f"kafka://{self.bootstrap}"}
        request = restore_groups.GroupsRequest(**{**defaults, **selection, **changes})
        return restore_groups.run(request, reporter=self.reporter)

    def prune(self, *topics: str, **changes: Any) -> dict[str, Any]:
        defaults = {"topics": topics, "source": "lab", "delete": True}
        return self._run(prune, prune.PruneRequest, changes, **defaults)

    def verify(self, **changes: Any) -> dict[str, Any]:
        return self._run(verify, verify.VerifyRequest, changes, grace_ms=0)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
