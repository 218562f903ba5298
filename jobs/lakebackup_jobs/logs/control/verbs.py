"""Start, pause, resume and stop log tasks, on the command line and over HTTP. No Java.

A verb records what the task is to do, and waits until its job does it. It returns the task's status, as
`status.status_of` does, and more fields where documented.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from shlex import quote
from typing import Any

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from lakebackup.errors import EnvironmentProblem, NotFound, Refused
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup.rows.base import CHANGES
from lakebackup.rules.kinds import require_kind_of
from lakebackup.storage import open_storage
from lakebackup.store.audit_log import SKIP_MESSAGE
from lakebackup.store.reader import CatalogReader
from lakebackup.store.trust import Approvals
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.lifecycle.identity import audit_entry
from lakebackup_jobs.logs import skips, task
from lakebackup_jobs.logs.capture.flush import chosen_tables
from lakebackup_jobs.logs.control.detached import launch
from lakebackup_jobs.logs.control.status import statuses, waiting
from lakebackup_jobs.logs.feeds.registry import feed_of
from lakebackup_jobs.logs.skips import Message
from lakebackup_jobs.logs.task import State, Task, TaskSettings

#: How long a job may take to follow a verb, as it finishes its flush first.
PATIENCE_S = 120.0
_KILLED = "A job that was killed counts as running until its lease ends, --lease-ttl after it."
_LOOK_S = 0.3
# Reading from Kafka takes longer.
_ASK_S = 2.0


@dataclass(frozen=True, slots=True)
class LogTasks:
    """The tasks of a destination, and how this machine reads Kafka for them and starts their jobs.

    `kafka`: librdkafka properties; those with secrets are only for its own servers. `options`: flags of
    `log run` for a job that is started here, without secrets; None: no job is started here. `keys_file`: the
    keys of such a job. `has_recipients`: whether the settings name recipients, for whom the job encrypts.
    """

    destination: str
    catalog: str | None
    kafka: Mapping[str, str] = field(repr=False)
    options: Sequence[str] | None = None
    keys_file: str | None = None
    has_recipients: bool = False

    def reader(self) -> CatalogReader:
        """A reader of the catalog as it is now. Raises NotFound."""
        return CatalogReader.require(self.destination, self.catalog)

    def task(self, name: str) -> Task:
        """The task as of its last row. Raises NotFound."""
        return task.require(CatalogReader.open(self.destination, self.catalog), name)

    def status(self, name: str) -> dict[str, Any]:
        """The status of a task. Raises NotFound."""
        return statuses(self.reader(), open_storage(self.destination), name)[0]

    def client(self, log_task: Task) -> dict[str, str]:
        """See task.client_of. Raises Refused."""
        return task.client_of(self.reader().catalog_uri, log_task.name, log_task.settings, self.kafka)

    def lease(self, name: str) -> int | None:
        """See task.lease_of."""
        return task.lease_of(open_storage(self.destination), name)

    def at_work(self, name: str) -> bool:
        """Whether a job of the task runs."""
        return self.lease(name) is not None

    def record(self, name: str, state: State, settings: TaskSettings) -> Task:
        """Record what a task is to do; returns the task."""
        return task.record(self.destination, self.catalog, name, state, settings)


class Failed(Refused):
    """A verb that does not fit the task's state. `status`: the status of the task."""

    status: Mapping[str, Any]

    def __init__(self, message: str, status: Mapping[str, Any], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Failed, hint=self.hint), (self.message, self.status)


def start(tasks: LogTasks, name: str, settings: TaskSettings) -> dict[str, Any]:
    """Start a task, or resume a stopped one where it ended; returns its status.

    `log` of the status: path of the output of the job that was started here, None when none was.
    `topics_now`: the topics that the settings match.

    Raises Failed (it runs, is paused, or complete), Refused (its name is another source's, or its log cannot
    continue with these settings), NotFound (no such topic), UsageProblem (a wrong expression) and
    EnvironmentProblem (the job ended).
    """
    TableFilter(settings.filters)  # raises for a wrong rule
    if settings.encrypt and tasks.options is not None and not tasks.has_recipients:
        task.keys_of(name, tasks.keys_file)
    reader = tasks.reader()
    last_task = task.find(reader, name)
    require_kind_of(reader, name, CHANGES, hint="Choose another name for the task.")
    if last_task and not last_task.over and (last_task.state == "paused" or tasks.at_work(name)):
        state_text = "runs already" if last_task.state == "running" else "is paused"
        raise Failed(
            f"Failed to start the task: it {state_text}.",
            tasks.status(name),
            hint=_KILLED if last_task.state == "running" else f"See: lakebackup log resume {quote(name)}",
        )
    newest = reader.first_row("log_newest", source=name)
    if last_task and last_task.state == "complete":
        raise Failed(
            f"Failed to start the task: it is complete up to {last_task.settings.endts}.",
            tasks.status(name),
            hint="Its log ends there. Start a task with another name.",
        )
    # Messages that were skipped stay skipped, as the flags of a start do not name them.
    settings = replace(settings, skip=last_task.settings.skip if last_task else ())
    if newest:
        # An imported log may have no row with its first settings.
        last_settings = last_task.settings if last_task else replace(settings, lastbackupts=None)
        _check_continues(name, last_settings, settings, newest, reader.rows("log_names", source=name))
    client = {**tasks.kafka, "bootstrap.servers": settings.bootstrap}
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
    with suppress(EnvironmentProblem):  # No approval can be recorded: the settings have to name the servers.
        approved.approve([task.claim_of(name, settings, approved)])
    generation = tasks.lease(name)
    tasks.record(name, "running", settings)
    return _launched(tasks, name, generation) | {"topics_now": topics}


def pause(tasks: LogTasks, name: str) -> dict[str, Any]:
    """Have a task flush what has arrived, then sleep; returns its status.

    Raises NotFound, Failed (it does not run) and EnvironmentProblem.
    """
    current_task = tasks.task(name)
    if current_task.state != "running":
        raise Failed(f"Failed to pause the task: it is {current_task.state}.", tasks.status(name))
    at_work = tasks.at_work(name)
    paused_task = tasks.record(name, "paused", current_task.settings)
    if at_work:
        # The job records the state again, after its last flush.
        _until(
            lambda: tasks.task(name).recorded_us > paused_task.recorded_us or not tasks.at_work(name),
            f"{name} sleeps",
        )
    return tasks.status(name)


def resume(tasks: LogTasks, name: str, skip: Sequence[str] = ()) -> dict[str, Any]:
    """Resume a task where it ended, with what has arrived since; returns its status, with `log` as `start`.

    `skip`: messages to skip from now on, as `skips.parse` reads them. Each is audited, and becomes a gap of
    the log once a flush passes it. Raises NotFound, Failed (it is not paused, or its job runs), UsageProblem,
    Refused (a message of no topic of the task, or one that was captured) and EnvironmentProblem.
    """
    current_task = tasks.task(name)
    if current_task.state != "paused" and not (current_task.state == "running" and not tasks.at_work(name)):
        hint = _KILLED if current_task.state == "running" else ""
        raise Failed(f"Failed to resume the task: it is {current_task.state}.", tasks.status(name), hint=hint)
    settings = current_task.settings
    client = tasks.client(current_task)
    if skip:
        settings = _add_skips(tasks, current_task, client, [skips.parse(text) for text in skip])
    generation = tasks.lease(name)
    tasks.record(name, "running", settings)
    return _launched(tasks, name, generation)


def _add_skips(
    tasks: LogTasks, last_task: Task, client: Mapping[str, str], messages: Sequence[Message]
) -> TaskSettings:
    """The settings of a task with more messages to skip; writes an audit entry for each new one."""
    settings = last_task.settings
    feed = feed_of(settings, client)
    end_positions = {
        (row["scope"], row["region"]): row["end_position"]
        for row in tasks.reader().rows("log_positions", source=last_task.name)
    }
    names = Cluster(client).topic_names()
    topics = {*feed.topics(names), *feed.own_topics(names)}
    for message in messages:
        if message.topic not in topics:
            raise Refused(
                f"Topic {message.topic} is none of the task {last_task.name}.",
                hint="`lakebackup log status` names the message that cannot be read.",
            )
        if message.offset < end_positions.get((message.topic, str(message.partition)), 0):
            raise Refused(
                f"Message {message.text} was captured already.",
                hint="A message is skipped before it is read: `lakebackup log status` names it.",
            )
    new_texts = [message.text for message in messages if message.text not in settings.skip]
    writer = CatalogWriter(None, tasks.destination, tasks.catalog)
    for text in new_texts:
        detail = {"message": text, "paused_by": last_task.detail}
        writer.append_audit(audit_entry(SKIP_MESSAGE, last_task.name, detail))
    return replace(settings, skip=(*settings.skip, *new_texts))


def stop(tasks: LogTasks, name: str) -> dict[str, Any]:
    """Stop a task; returns its status, in which the stores are as they were before.

    `lost` of the status: number of events of each topic that are not flushed (None: Kafka cannot be read).
    Raises NotFound, Failed (it has ended already) and EnvironmentProblem.
    """
    current_task = tasks.task(name)
    if current_task.over:
        raise Failed(
            "Failed to stop the task, maybe it is already stopped.",
            tasks.status(name),
            hint=f"See: lakebackup log status {quote(name)}",
        )
    status_before = tasks.status(name)  # A stopped task reports an error for each store.
    tasks.record(name, "stopped", current_task.settings)
    _until(lambda: not tasks.at_work(name), f"the job of {name} ends")
    lost = waiting(tasks.destination, tasks.catalog, current_task, tasks.kafka)
    status_after = tasks.status(name)
    stores = [
        {**store, "ok": previous["ok"], "error": previous["error"]}
        for previous, store in zip(status_before["stores"], status_after["stores"], strict=False)
    ]
    return status_after | {"stores": stores, "lost": lost}


def _check_continues(
    name: str,
    old: TaskSettings,
    new: TaskSettings,
    newest: Mapping[str, Any],
    names: Sequence[Mapping[str, Any]],
) -> None:
    """Raise Refused for settings with which the log of a continued task would miss changes it claims to hold.

    `newest`: a row of log_newest; `names`: rows of log_names.
    """
    if old.feed != new.feed:
        raise Refused(f"{name} is a task of the feed {old.feed}.", hint="Choose another name.")
    old_topics, new_topics = set(old.topics), set(new.topics)
    added = new_topics - old_topics
    if old_topics - new_topics or any(not text.startswith("!") for text in added):
        raise Refused(
            f"{name} is a task of the topics {', '.join(old.topics)}.",
            hint="Give these, or choose another name. Topics may be left out too: --pattern '!REGEX'.",
        )
    if old.endts is not None and new.endts != old.endts:
        # Flushes have dropped the later changes that they read.
        raise Refused(f"{name} is to end at {old.endts}.", hint=f"Give --endts {old.endts}.")
    if new.endts is not None and new.endts < newest["end_ts"]:
        raise Refused(
            f"The log of {name} reaches up to {newest['end_ts']} already; it cannot end at {new.endts}.",
            hint="Give a later --endts, or none.",
        )
    if new.lastbackupts is not None and new.lastbackupts not in (newest["end_ts"], old.lastbackupts):
        raise Refused(
            f"The log of {name} reaches up to {newest['end_ts']}; "
            f"it cannot continue from {new.lastbackupts}.",
            hint="Leave --startts out, or choose another name.",
        )
    lost_table_ids = chosen_tables(old, names) - chosen_tables(new, names)
    if lost_table_ids:
        table = min(f"{row['db']}.{row['name']}" for row in names if row["table_id"] in lost_table_ids)
        extra = f" and {len(lost_table_ids) - 1} more tables" if len(lost_table_ids) > 1 else ""
        raise Refused(
            f"{name} captures {table}{extra}, which these filters leave out: nothing in its log would show "
            "that it ends there.",
            hint="Include them, or choose another name.",
        )


def _launched(tasks: LogTasks, name: str, old_generation: int | None) -> dict[str, Any]:
    """Wait until a job runs; returns the status. Starts a job here if none runs and `tasks` starts jobs.

    `old_generation`: the lease's before the task was changed. A killed job's lease keeps it until it ends.
    """
    if tasks.options is not None and old_generation is not None:
        _until(lambda: tasks.lease(name) != old_generation, f"the job of {name} answers, or its lease ends")
    log = None
    if tasks.options is not None and not tasks.at_work(name):
        job = launch(tasks.destination, tasks.catalog, name, tasks.options)
        log = str(job.log)
        _until(lambda: tasks.at_work(name) or job.has_ended(), f"the job of {name} is at work")
        if not tasks.at_work(name):
            raise EnvironmentProblem(f"The job of {name} ended:\n{job.output()}", hint=f"Its log: {log}")
        deadline = time.monotonic() + PATIENCE_S
        _until(
            lambda: _first_flush_is_over(tasks, name) or job.has_ended() or time.monotonic() > deadline,
            "the first flush",
            look_s=_ASK_S,
        )
    return tasks.status(name) | {"log": log}


def _first_flush_is_over(tasks: LogTasks, name: str) -> bool:
    """Whether a task has stores from its first flush, has no events to flush yet, or is not running."""
    status = tasks.status(name)
    if status["stores"] or status["state"] != "running":
        return True
    running_task = tasks.task(name)
    return not any((waiting(tasks.destination, tasks.catalog, running_task, tasks.kafka) or {}).values())


def _until(condition: Callable[[], bool], description: str, look_s: float = _LOOK_S) -> None:
    retrying = Retrying(
        retry=retry_if_result(lambda is_met: not is_met),
        wait=wait_fixed(look_s),
        stop=stop_after_delay(PATIENCE_S),
    )
    try:
        retrying(condition)
    except RetryError:
        raise EnvironmentProblem(
            f"Waited {PATIENCE_S:.0f} s in vain until {description}.",
            hint="It is recorded, and the job follows as soon as it can: see `lakebackup log status`.",
        ) from None
