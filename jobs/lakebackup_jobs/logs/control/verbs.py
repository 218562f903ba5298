"""Start, pause, resume and stop log tasks, on the command line and over HTTP. No Java.

A verb records what the task is to do and waits until its job does it. It returns what `status.status_of`
does, and more where documented.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from lakebackup.errors import EnvironmentProblem, NotFound, Refused
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup.rows.base import CHANGES
from lakebackup.rules.kinds import require_kind_of
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.trust import Approvals
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.lifecycle.identity import audit_entry
from lakebackup_jobs.logs import skips, task
from lakebackup_jobs.logs.capture.flush import chosen_tables
from lakebackup_jobs.logs.control.detached import launch
from lakebackup_jobs.logs.control.status import statuses, waiting
from lakebackup_jobs.logs.feeds import feed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakebackup_jobs.logs.skips import Message
    from lakebackup_jobs.logs.task import State, Task, TaskSettings

#: How long a job may take to follow a verb; it finishes its flush first.
PATIENCE_S = 120.0
_KILLED = "A job that was killed counts as running until its lease ends, --lease-ttl after it."
_LOOK_S = 0.3
# Reading from Kafka takes longer.
_ASK_S = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where tasks are kept. `kafka`: librdkafka properties; those with secrets are for its servers alone.

    `options`: flags of `log run` for a job started here, no secrets; None: no job is started here.
    `keys_file`: the keys of such a job.
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

    def client(self, found: Task) -> dict[str, str]:
        """See task.client_of. Raises Refused."""
        return task.client_of(self.reader().catalog_uri, found.name, found.settings, self.kafka)

    def lease(self, name: str) -> int | None:
        """See task.lease_of."""
        return task.lease_of(open_storage(self.destination), name)

    def at_work(self, name: str) -> bool:
        """Whether a job of the task runs."""
        return self.lease(name) is not None

    def record(self, name: str, state: State, settings: TaskSettings) -> Task:
        """Record what a task is to do."""
        return task.record(self.destination, self.catalog, name, state, settings)


class Failed(Refused):
    """A verb that does not fit the task's state; `found`: its status."""

    found: Mapping[str, Any]

    def __init__(self, message: str, found: Mapping[str, Any], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.found = found

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Failed, hint=self.hint), (self.message, self.found)


def start(place: Place, name: str, settings: TaskSettings) -> dict[str, Any]:
    """Start a task, or resume a stopped one where it ended; `log`: where its job's output goes.

    Raises Failed (it runs, is paused, or complete), Refused (its source is another one; it cannot start
    there), NotFound (no such topic), UsageProblem (an expression), EnvironmentProblem (the job ended).
    """
    TableFilter(settings.filters)  # raises for a wrong rule
    if settings.encrypt and place.options is not None:
        task.keys_of(name, place.keys_file)
    reader = place.reader()
    before = task.find(reader, name)
    require_kind_of(reader, name, CHANGES, hint="Choose another name for the task.")
    if before and not before.over and (before.state == "paused" or place.at_work(name)):
        how = "runs already" if before.state == "running" else "is paused"
        raise Failed(
            f"Failed to start the task: it {how}.",
            place.status(name),
            hint=_KILLED if before.state == "running" else f"See: lakebackup log resume {quote(name)}",
        )
    newest = reader.one("log_newest", source=name)
    if before and before.state == "complete":
        raise Failed(
            f"Failed to start the task: it is complete up to {before.settings.endts}.",
            place.status(name),
            hint="Its log ends there. Start a task with another name.",
        )
    # What was skipped stays so: flags do not name it.
    settings = replace(settings, skip=before.settings.skip if before else ())
    if newest:
        # An imported log may have no row with its first settings.
        was = before.settings if before else replace(settings, lastbackupts=None)
        _check_continues(name, was, settings, newest, reader.rows("log_names", source=name))
    client = {**place.kafka, "bootstrap.servers": settings.bootstrap}
    cluster = Cluster(client)
    topics = feed_of(settings, client).topics(cluster.topic_names())
    if not topics:
        raise NotFound(
            f"No topic of {settings.bootstrap} matches {', '.join(settings.topics)}.",
            hint="--pattern is a regular expression that matches the whole name. Brokers do not list topics "
            "that this user may not describe.",
        )
    cluster.require_readable(topics)
    approved = Approvals(reader.catalog_uri)
    with suppress(EnvironmentProblem):  # without a place to record it, the settings have to name the servers
        approved.approve([task.claim_of(name, settings, approved)])
    seen = place.lease(name)
    place.record(name, "running", settings)
    return _launched(place, name, seen) | {"topics_now": topics}


def pause(place: Place, name: str) -> dict[str, Any]:
    """Flush what has arrived, then sleep. Raises NotFound, Failed (it does not run), EnvironmentProblem."""
    found = place.task(name)
    if found.state != "running":
        raise Failed(f"Failed to pause the task: it is {found.state}.", place.status(name))
    at_work = place.at_work(name)
    asked = place.record(name, "paused", found.settings)
    if at_work:
        # Its job records the state too, after the last flush.
        _until(lambda: place.task(name).at > asked.at or not place.at_work(name), f"{name} sleeps")
    return place.status(name)


def resume(place: Place, name: str, skip: Sequence[str] = ()) -> dict[str, Any]:
    """Continue where it ended, with what arrived since.

    `skip`: messages that are left out from now on, as `skips.parse` reads them; each is audited, and a gap of
    the log once it is passed. Raises as `pause` does, UsageProblem and Refused (no message that waits).
    """
    found = place.task(name)
    if found.state != "paused" and not (found.state == "running" and not place.at_work(name)):
        hint = _KILLED if found.state == "running" else ""
        raise Failed(f"Failed to resume the task: it is {found.state}.", place.status(name), hint=hint)
    settings = found.settings
    client = place.client(found)
    if skip:
        settings = _skipping(place, found, client, [skips.parse(text) for text in skip])
    seen = place.lease(name)
    place.record(name, "running", settings)
    return _launched(place, name, seen)


def _skipping(
    place: Place, last: Task, client: Mapping[str, str], messages: Sequence[Message]
) -> TaskSettings:
    """The settings of a task that leaves messages out; audits it."""
    settings = last.settings
    feed = feed_of(settings, client)
    read = {
        (row["scope"], row["region"]): row["end_position"]
        for row in place.reader().rows("log_positions", source=last.name)
    }
    names = Cluster(client).topic_names()
    topics = {*feed.topics(names), *feed.own_topics(names)}
    for message in messages:
        if message.topic not in topics:
            raise Refused(
                f"Topic {message.topic} is none of the task {last.name}.",
                hint="`lakebackup log status` names the message that cannot be read.",
            )
        if message.offset < read.get((message.topic, str(message.partition)), 0):
            raise Refused(
                f"Message {message.text} was captured already.",
                hint="A message is skipped before it is read: `lakebackup log status` names it.",
            )
    new = [message.text for message in messages if message.text not in settings.skip]
    writer = CatalogWriter(None, place.destination, place.catalog)
    for text in new:
        detail = {"message": text, "paused_by": last.detail}
        writer.append_audit(audit_entry("skip message", last.name, detail))
    return replace(settings, skip=(*settings.skip, *new))


def stop(place: Place, name: str) -> dict[str, Any]:
    """Stop a task. `lost`: events of each topic that are not flushed (None: Kafka cannot be read).

    Raises NotFound, Failed (it has ended already), EnvironmentProblem.
    """
    found = place.task(name)
    if found.over:
        raise Failed(
            "Failed to stop the task, maybe it is already stopped.",
            place.status(name),
            hint=f"See: lakebackup log status {quote(name)}",
        )
    before = place.status(name)  # its stores are all right until it is stopped
    place.record(name, "stopped", found.settings)
    _until(lambda: not place.at_work(name), f"the job of {name} ends")
    lost = waiting(place.destination, place.catalog, found, place.kafka)
    after = place.status(name)
    stores = [
        {**one, "ok": was["ok"], "error": was["error"]}
        for was, one in zip(before["stores"], after["stores"], strict=False)
    ]
    return after | {"stores": stores, "lost": lost}


def _check_continues(
    name: str,
    was: TaskSettings,
    now: TaskSettings,
    newest: Mapping[str, Any],
    names: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse settings with which the log of a continued task would miss changes that it claims to hold.

    `newest`: a row of log_newest; `names`: rows of log_names.
    """
    if was.feed != now.feed:
        raise Refused(f"{name} is a task of the feed {was.feed}.", hint="Choose another name.")
    old_topics, new_topics = set(was.topics), set(now.topics)
    added = new_topics - old_topics
    if old_topics - new_topics or any(not text.startswith("!") for text in added):
        raise Refused(
            f"{name} is a task of the topics {', '.join(was.topics)}.",
            hint="Give these, or choose another name. Topics may be left out too: --pattern '!REGEX'.",
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
            f"The log of {name} reaches up to {newest['end_ts']}; "
            f"it cannot continue from {now.lastbackupts}.",
            hint="Leave --startts out, or choose another name.",
        )
    lost = chosen_tables(was.filters, names) - chosen_tables(now.filters, names)
    if lost:
        table = min(f"{row['db']}.{row['name']}" for row in names if row["table_id"] in lost)
        more = f" and {len(lost) - 1} more tables" if len(lost) > 1 else ""
        raise Refused(
            f"{name} captures {table}{more}, which these filters leave out: nothing in its log would show "
            "that it ends there.",
            hint="Include them, or choose another name.",
        )


def _launched(place: Place, name: str, seen: int | None) -> dict[str, Any]:
    """Wait until a job runs, and start one here if none does and `place` starts jobs.

    `seen`: the lease before the task was changed: a killed job's stays the same until it ends.
    """
    if place.options is not None and seen is not None:
        _until(lambda: place.lease(name) != seen, f"the job of {name} answers, or its lease ends")
    log = None
    if place.options is not None and not place.at_work(name):
        started = launch(place.destination, place.catalog, name, place.options)
        log = str(started.log)
        _until(lambda: place.at_work(name) or started.ended(), f"the job of {name} is at work")
        if not place.at_work(name):
            raise EnvironmentProblem(f"The job of {name} ended:\n{started.output()}", hint=f"Its log: {log}")
        flushed = time.monotonic() + PATIENCE_S
        _until(
            lambda: _has_begun(place, name) or started.ended() or time.monotonic() > flushed,
            "the first flush",
            look_s=_ASK_S,
        )
    return place.status(name) | {"log": log}


def _has_begun(place: Place, name: str) -> bool:
    """Whether the stores of a task are known, or there are no events yet to know them from, or it paused."""
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
            hint="It is recorded, and the job follows as soon as it can: see `lakebackup log status`.",
        ) from None
