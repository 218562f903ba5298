"""`lakebackup log stop`: stop a log task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.log import common
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.control import verbs as control


@verb(options.REPO, options.KAFKA_CONFIG)
def stop(call: Call, name: str = common.NAME) -> None:
    """Stop a task, and show how many events were not stored in the log.

    `log start` resumes where the task stopped, as long as the feed still has the events since then.

    Examples:
        lakebackup log stop prod --repo ./backups
    """
    environment = common.place_of(call)
    common.progress(f"Stopping task {name}...", call.json, lambda: control.stop(environment, name), _outcome)


def _outcome(status: Mapping[str, Any]) -> str:
    lost_by_topic = status["lost"]
    if lost_by_topic is None:
        flush_note = "The number of events that are not flushed is unknown: Kafka does not report it here."
    elif lost_by_topic:
        counts = ", ".join(f"{count} of {topic}" for topic, count in lost_by_topic.items())
        flush_note = f"Not flushed, and lost unless the task resumes while the feed still has them: {counts}."
    else:
        flush_note = "Every event was flushed."
    ts = status["checkpoint_ts"]
    suffix = "; no checkpoint is known yet" if ts is None else f" at --startts={ts}"
    return f"{flush_note}\nStopped{suffix}."
