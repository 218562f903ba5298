"""Rebuild a lost catalog from the manifests beside the data."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from lakebackup.errors import EnvironmentProblem, Incomplete
from lakebackup.recovery.rebuild import rebuild, sources
from lakebackup.requests import Request
from lakebackup.store.lease import Lease
from lakebackup_jobs.kafka.format.registry import SCHEMAS_TOPIC
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.runtime.signing import in_use, trusted_keys
from lakebackup_jobs.topics.tasks.decode import decode_again

# How long to wait for the lease of a source. The lease of a killed run expires in a little less time, and
# most batches of a stream end in less.
_LEASE_WAIT_S = 90.0


@dataclass(frozen=True, slots=True)
class RebuildRequest(Request):
    """What to rebuild: the catalog at `catalog`, or in the destination, which must be empty or missing."""

    schema_topics: tuple[str, ...] = (SCHEMAS_TOPIC,)


def run(request: RebuildRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Rebuild the catalog. Return the numbers of rebuilt rows, and a message for each backup that was left
    out.

    If the settings name public keys, only what one of them signed is taken. Raises Refused (the catalog holds
    backups), Busy (a run works on a source), Incomplete (some manifests could not be used; all other backups
    were rebuilt).
    """

    def report_progress(count: int, total: int) -> None:
        if not count:
            reporter.start(total, None, "rebuild", "backups")
        reporter.update(count, 0)

    work = Workspace(request, "", reporter, spark)
    with ExitStack() as stack:
        leases = _leases(work, stack)

        def renew_leases() -> None:
            for lease in leases:
                lease.renew()

        derive = partial(decode_again, work.spark, schema_topics=request.schema_topics)
        rebuilt = rebuild(
            work.spark,
            request.destination,
            request.catalog,
            derive,
            report_progress,
            renew_leases,
            keys=trusted_keys(in_use()),
        )
    for problem in rebuilt.problems:
        reporter.warning(problem)
    counts = {"backups": rebuilt.states, "files": rebuilt.files, "audit": rebuilt.audit}
    result = work.timed({**counts, "left_out": rebuilt.problems})
    if rebuilt.problems:
        raise Incomplete(
            f"{len(rebuilt.problems)} backups could not be rebuilt; the others were.",
            hint="Their files are still stored. Restore their manifests from a copy, then rebuild again.",
        ).with_result(result)
    return result


def _leases(work: Workspace, stack: ExitStack) -> list[Lease]:
    """Take the leases of all sources. If that is impossible, warn and return none.

    The leases keep other runs away. A run that commits during the rebuild would take the number of its backup
    from a catalog that lacks other backups, and the rows of its backup would be added twice.
    """
    try:
        return [
            stack.enter_context(work.lease(f"source-{source}", wait_s=_LEASE_WAIT_S))
            for source in sources(work.storage)
        ]
    except EnvironmentProblem as error:  # the destination may be read-only, with the catalog elsewhere
        work.reporter.warning(f"no lease could be taken, so no other run may be at work: {error.message}")
        return []
