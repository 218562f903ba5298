"""`lakebackup log stop`: stop a log task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.log import common
from lakebackup_jobs.cli.verb import Call, verb

if TYPE_CHECKING:
    from collections.abc import Mapping


@verb(options.REPO, options.KAFKA_CONFIG)
def stop(call: Call, name: str = common.NAME) -> None:
    """Stop a task, and show how many events were not stored in the log.

    `log start` resumes where the task stopped, as long as the feed still has the events since then.

    Examples:
        lakebackup log stop prod --repo ./backups
    """
    from lakebackup_jobs.logs.control import verbs as control

    place = common.place_of(call)
    common.progress(f"Stopping task {name}...", call.json, lambda: control.stop(place, name), _ended)


def _ended(status: Mapping[str, Any]) -> str:
    lost = status["lost"]
    if lost is None:
        rest = "The number of events that are not flushed is unknown: Kafka does not report it here."
    elif lost:
        each = ", ".join(f"{count} of {topic}" for topic, count in lost.items())
        rest = f"Not flushed, and lost unless the task resumes while the feed still has them: {each}."
    else:
        rest = "Every event was flushed."
    ts = status["checkpoint_ts"]
    at = "; no checkpoint is known yet" if ts is None else f" at --startts={ts}"
    return f"{rest}\nStopped{at}."
