"""Start, pause, resume and stop log tasks: the same for the command line and over HTTP. No Java.

A verb puts down what the task is to do and waits until its job says that it does. It returns what
`status.status_of` does, and more where it says so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from lakebackup.errors import EnvironmentProblem, NotFound, Refused
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup.rows.base import CHANGES
from lakebackup.rules.kinds import require_kind_of
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.logs import task
from lakebackup_jobs.logs.capture.flush import keys_of
from lakebackup_jobs.logs.control.detached import launch
from lakebackup_jobs.logs.control.status import statuses, waiting
from lakebackup_jobs.logs.feeds import feed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakebackup_jobs.logs.task import State, Task, TaskSettings

#: So long a job may take until it does what it was told; a flush comes to its end first.
PATIENCE_S = 120.0
_KILLED = "A job that was killed counts as there until its lease ends, --lease-ttl after it."
_LOOK_S = 0.3
# Asking Kafka what waits takes longer.
_ASK_S = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where tasks are kept. `kafka`: librdkafka properties; those with secrets are for its servers alone.

    `options`: flags of `log run` that a job started here gets, no secrets; None: no job is started here.
    `keys_file`: what such a job encrypts with.
    """

    destination: str
    catalog: str | None
    kafka: Mapping[str, str] = field(repr=False)
    options: Sequence[str] | None = None
    keys_file: str | None = None

    def reader(self) -> CatalogReader:
        """The catalog as it is now. Raises NotFound."""
        return CatalogReader.require(self.destination, self.catalog)

    def task(self, name: str) -> Task:
        """Raises NotFound."""
        return task.require(CatalogReader.open(self.destination, self.catalog), name)

    def status(self, name: str) -> dict[str, Any]:
        """Raises NotFound."""
        return statuses(self.reader(), open_storage(self.destination), name)[0]

    def lease(self, name: str) -> int | None:
        """See task.lease_of."""
        return task.lease_of(open_storage(self.destination), name)

    def at_work(self, name: str) -> bool:
        """Whether a job of the task is there."""
        return self.lease(name) is not None

    def tell(self, name: str, state: State, settings: TaskSettings) -> Task:
        """Put down what a task is to do."""
        return task.tell(self.destination, self.catalog, name, state, settings)


class Failed(Refused):
    """A verb that makes no sense now; `found`: how the task is."""

    found: Mapping[str, Any]

    def __init__(self, message: str, found: Mapping[str, Any], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.found = found

    def __reduce__(self) -> tuple[object, ...]:
        return Failed, (self.message, self.found)


def start(place: Place, name: str, settings: TaskSettings) -> dict[str, Any]:
    """Begin a task, or go on with one that was stopped where it ended; `log`: where its job's output goes.

    Raises Failed (it runs, is paused, or complete), Refused (its source is another one; it cannot begin
    there), NotFound (no such topic), UsageProblem (an expression), EnvironmentProblem (the job ended).
    """
    TableFilter(settings.filters)  # a rule that is none is told here
    if settings.encrypt and place.options is not None:
        keys_of(name, place.keys_file)
    reader = place.reader()
    before = task.find(reader, name)
    require_kind_of(reader, name, CHANGES, hint="Choose another name for the task.")
    if before and not before.over and (before.state == "paused" or place.at_work(name)):
        how = "runs already" if before.state == "running" else "is paused"
        raise Failed(
            f"Failed to start the task: it {how}.",
            place.status(name),
            hint=_KILLED if before.state == "running" else f"See: lakebackup log resume {name}",
        )
    newest = reader.one("log_newest", source=name)
    if before and before.state == "complete":
        raise Failed(
            f"Failed to start the task: it is complete up to {before.settings.endts}.",
            place.status(name),
            hint="What came after that is not in its log: begin another task.",
        )
    if newest:
        # A log that was brought here may have no row that says what was asked first.
        was = before.settings if before else replace(settings, lastbackupts=None)
        names = [row for batch in reader.query("log_names", source=name) for row in batch.to_pylist()]
        _check_goes_on(name, was, settings, newest, names)
    client = {**place.kafka, "bootstrap.servers": settings.bootstrap}
    topics = feed_of(settings, client).topics(Cluster(client).topic_names())
    if not topics:
        raise NotFound(
            f"No topic of {settings.bootstrap} is meant by {', '.join(settings.topics)}.",
            hint="--topic takes a name, or a regular expression that matches the whole name.",
        )
    seen = place.lease(name)
    place.tell(name, "running", settings)
    return _launched(place, name, seen) | {"topics_now": topics}


def pause(place: Place, name: str) -> dict[str, Any]:
    """Flush what there is, then sleep. Raises NotFound, Failed (it does not run), EnvironmentProblem."""
    found = place.task(name)
    if found.state != "running":
        raise Failed(f"Failed to pause the task: it is {found.state}.", place.status(name))
    at_work = place.at_work(name)
    asked = place.tell(name, "paused", found.settings)
    if at_work:
        # Its job says so too, once the last flush is there.
        _until(lambda: place.task(name).at > asked.at or not place.at_work(name), f"{name} sleeps")
    return place.status(name)


def resume(place: Place, name: str) -> dict[str, Any]:
    """Go on where it ended, with what came in since. Raises as `pause` does."""
    found = place.task(name)
    if found.state != "paused" and not (found.state == "running" and not place.at_work(name)):
        hint = _KILLED if found.state == "running" else ""
        raise Failed(f"Failed to resume the task: it is {found.state}.", place.status(name), hint=hint)
    seen = place.lease(name)
    place.tell(name, "running", found.settings)
    return _launched(place, name, seen)


def stop(place: Place, name: str) -> dict[str, Any]:
    """End a task. `lost`: events of each topic that are not flushed (None: Kafka does not say).

    Raises NotFound, Failed (it is over already), EnvironmentProblem.
    """
    found = place.task(name)
    if found.over:
        raise Failed(
            "Failed to stop the task, maybe it is already stopped.",
            place.status(name),
            hint=f"See: lakebackup log status {name}",
        )
    before = place.status(name)  # its stores are all right until it is stopped
    place.tell(name, "stopped", found.settings)
    _until(lambda: not place.at_work(name), f"the job of {name} ends")
    lost = waiting(place.destination, place.catalog, found, place.kafka)
    after = place.status(name)
    stores = [
        {**one, "ok": was["ok"], "error": was["error"]}
        for was, one in zip(before["stores"], after["stores"], strict=False)
    ]
    return after | {"stores": stores, "lost": lost}


def _check_goes_on(
    name: str,
    was: TaskSettings,
    now: TaskSettings,
    newest: Mapping[str, Any],
    names: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse what makes the log of a task that goes on miss changes which it says it has.

    `newest`: a row of log_newest; `names`: rows of log_names.
    """
    if was.feed != now.feed:
        raise Refused(f"{name} is a task of the feed {was.feed}.", hint="Choose another name.")
    if set(was.topics) != set(now.topics):
        raise Refused(
            f"{name} is a task of the topics {', '.join(was.topics)}.",
            hint="Give these, or choose another name.",
        )
    if was.endts is not None and now.endts != was.endts:
        # Flushes have left out what they read of later changes.
        raise Refused(f"{name} is to end at {was.endts}.", hint=f"Give --endts {was.endts}.")
    if now.endts is not None and now.endts < newest["end_ts"]:
        raise Refused(
            f"The log of {name} reaches up to {newest['end_ts']} already; it cannot end at {now.endts}.",
            hint="Give a later --endts, or none.",
        )
    if now.lastbackupts is not None and now.lastbackupts not in (newest["end_ts"], was.lastbackupts):
        raise Refused(
            f"The log of {name} reaches up to {newest['end_ts']}; it cannot go on from {now.lastbackupts}.",
            hint="Leave --lastbackupts out, or choose another name.",
        )
    lost = _taken(was.filters, names) - _taken(now.filters, names)
    if lost:
        table = min(f"{row['db']}.{row['name']}" for row in names if row["table_id"] in lost)
        more = f" and {len(lost) - 1} more tables" if len(lost) > 1 else ""
        raise Refused(
            f"{name} captures {table}{more}, which these filters leave out: its log would not say "
            "that it ends there.",
            hint="Take them in, or choose another name.",
        )


def _taken(filters: Sequence[str], names: Sequence[Mapping[str, Any]]) -> set[int]:
    """Ids of the tables of which a name is in the filter."""
    meant = TableFilter(filters)
    return {row["table_id"] for row in names if meant.takes(row["db"], row["name"])}


def _launched(place: Place, name: str, seen: int | None) -> dict[str, Any]:
    """Have a job at work, started here if none is there and one is to be.

    `seen`: the lease before it was told: that of a job that was killed stays as it is, until it ends.
    """
    if place.options is not None and seen is not None:
        _until(lambda: place.lease(name) != seen, f"the job of {name} answers, or its lease ends")
    log = None
    if place.options is not None and not place.at_work(name):
        started = launch(place.destination, place.catalog, name, place.options)
        log = str(started.log)
        _until(lambda: place.at_work(name) or started.ended(), f"the job of {name} is at work")
        if not place.at_work(name):
            raise EnvironmentProblem(f"The job of {name} ended:\n{started.told()}", hint=f"Its log: {log}")
        flushed = time.monotonic() + PATIENCE_S
        _until(
            lambda: _heard(place, name) or started.ended() or time.monotonic() > flushed,
            "the first flush",
            look_s=_ASK_S,
        )
    return place.status(name) | {"log": log}


def _heard(place: Place, name: str) -> bool:
    """Whether the stores of a task are known, or there is nothing yet to know them by, or it paused."""
    found = place.status(name)
    if found["stores"] or found["state"] != "running":
        return True
    now = place.task(name)
    return not any((waiting(place.destination, place.catalog, now, place.kafka) or {}).values())


def _until(done: Callable[[], bool], what: str, look_s: float = _LOOK_S) -> None:
    waits = Retrying(
        retry=retry_if_result(lambda there: not there),
        wait=wait_fixed(look_s),
        stop=stop_after_delay(PATIENCE_S),
    )
    try:
        waits(done)
    except RetryError:
        raise EnvironmentProblem(
            f"Waited {PATIENCE_S:.0f} s in vain until {what}.",
            hint="It was told, and does it as soon as it can: see `lakebackup log status`.",
        ) from None
