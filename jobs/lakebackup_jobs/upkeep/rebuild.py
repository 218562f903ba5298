"""Rebuild a lost catalog from the manifests beside the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Incomplete
from lakebackup.requests import Request
from lakebackup_jobs.kafka.format.registry import SCHEMAS_TOPIC
from lakebackup_jobs.lifecycle.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup_jobs.lifecycle.progress import Reporter


@dataclass(frozen=True, slots=True)
class RebuildRequest(Request):
    """What to rebuild; the catalog at `catalog` (or in the destination) must be empty or missing."""

    schema_topics: tuple[str, ...] = (SCHEMAS_TOPIC,)


def run(request: RebuildRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Rebuild, and return counts of the rebuilt rows.

    Raises Refused (the catalog holds backups), Incomplete when some manifests could not be used; the others
    have been rebuilt.
    """
    from lakebackup.recovery.rebuild import rebuild
    from lakebackup_jobs.topics.tasks.decode import decode_again

    def told(done: int, total: int) -> None:
        if not done:
            reporter.start(total, None, "rebuild", "backups")
        reporter.update(done, 0)

    work = Workspace(request, "", reporter, spark)
    derive = partial(decode_again, work.spark, schema_topics=request.schema_topics)
    rebuilt = rebuild(work.spark, request.destination, request.catalog, derive, told)
    for problem in rebuilt.problems:
        reporter.warning(problem)
    counts = {"backups": rebuilt.states, "files": rebuilt.files, "audit": rebuilt.audit}
    result = work.timed({**counts, "left_out": rebuilt.problems})
    if rebuilt.problems:
        reporter.result(result)
        raise Incomplete(
            f"{len(rebuilt.problems)} backups could not be rebuilt; the others were.",
            hint="Their files are still stored. Restore their manifests from a copy, then rebuild again.",
        )
    return result
