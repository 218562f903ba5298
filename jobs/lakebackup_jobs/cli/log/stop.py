"""`lakebackup log stop`: end a log task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.log import shown
from lakebackup_jobs.cli.verb import Call, verb

if TYPE_CHECKING:
    from collections.abc import Mapping


@verb(options.FROM, options.KAFKA_CONFIG)
def stop(call: Call, name: str = shown.NAME) -> None:
    """End a task. What is not flushed by then is not in the log; how much that is, is said.

    `log start` goes on where it ended, as long as the feed still has what came in since.

    Examples:
        lakebackup log stop prod --from ./backups
    """
    from lakebackup_jobs.logs.control import verbs as control

    place = shown.place_of(call)
    shown.progress(f"Stopping task {name}...", call.json, lambda: control.stop(place, name), _ended)


def _ended(now: Mapping[str, Any]) -> str:
    lost = now["lost"]
    if lost is None:
        rest = "How many events are not flushed, Kafka does not say here."
    elif lost:
        each = ", ".join(f"{count} of {topic}" for topic, count in lost.items())
        rest = f"Not flushed, and lost unless it is started again while the feed has them: {each}."
    else:
        rest = "Every event was flushed."
    ts = now["checkpoint_ts"]
    at = "; no checkpoint is known yet" if ts is None else f" at --lastbackupts={ts}"
    return f"{rest}\nStopped{at}."
