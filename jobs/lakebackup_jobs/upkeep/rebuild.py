"""Rebuild a lost catalog from the manifests beside the data."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Incomplete
from lakebackup.requests import Request
from lakebackup_jobs.kafka.format.registry import SCHEMAS_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup_jobs.lifecycle.progress import Reporter


@dataclass(frozen=True, slots=True)
class RebuildRequest(Request):
    """What to rebuild; the catalog at `catalog` (or in the destination) must be empty or missing."""

    schema_topics: tuple[str, ...] = (SCHEMAS_TOPIC,)


def run(request: RebuildRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Rebuild, and return what went in.

    Raises Refused (the catalog holds backups), Incomplete when some manifests could not be used; the others
    are in by then.
    """
    from lakebackup.recovery.rebuild import rebuild
    from lakebackup_jobs.runtime.session import spark_session
    from lakebackup_jobs.topics.tasks.decode import decode_again

    started = time.monotonic()
    session = spark or spark_session(remote=request.remote)
    derive = partial(decode_again, session, schema_topics=request.schema_topics)
    made = rebuild(session, request.destination, request.catalog, derive)
    for problem in made.problems:
        reporter.warning(problem)
    result = {
        "backups": made.states,
        "files": made.files,
        "audit": made.audit,
        "left_out": made.problems,
        "seconds": round(time.monotonic() - started, 3),
    }
    if made.problems:
        reporter.result(result)
        raise Incomplete(
            f"{len(made.problems)} backups could not be put in; the others are.",
            hint="Their files are still there. Bring their manifests back from a copy and rebuild once more.",
        )
    return result
