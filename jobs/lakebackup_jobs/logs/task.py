"""Log tasks: their settings, their rows in the catalog, and what this machine approved of them. No Java."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from lakebackup.errors import Damaged, LakebackupError, NotFound, UsageProblem
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup.rows.logs import LogTask
from lakebackup.rules import layout
from lakebackup.rules.suggestions import did_you_mean
from lakebackup.storage import Storage
from lakebackup.store import trust
from lakebackup.store.lease import held_generation
from lakebackup.store.reader import CatalogReader
from lakebackup.store.trust import Approvals, Claim
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder

State = Literal["running", "paused", "stopped", "complete"]
FeedName = Literal["br", "debezium"]
Codec = Literal["zstd", "lz4", "none"]


@with_config(ConfigDict(extra="ignore"))
@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The settings of a task, as a person chose them. The catalog stores them, so they hold no secrets.

    `topics`: names, or regular expressions that match whole names. `filters`: rules of a TableFilter, such as
    `shop.*` and `!mysql.*`. `lastbackupts`, `endts`: in the feed's domain. `skip`: messages that the task
    skips, as `skips.parse` reads them. `unavailable_value`: the placeholder that Debezium's connector writes
    for values that the database left out; None: the connector's default.
    """

    feed: FeedName
    bootstrap: str
    topics: tuple[str, ...]
    filters: tuple[str, ...] = ()
    lastbackupts: Annotated[int, Field(ge=0)] | None = None
    endts: Annotated[int, Field(ge=0)] | None = None
    flush_every_s: Annotated[float, Field(gt=0)] = 300.0
    flush_bytes: Annotated[int, Field(gt=0)] = 128 << 20
    codec: Codec = "zstd"
    encrypt: bool = False
    allow_gaps: bool = False
    skip: tuple[str, ...] = ()
    unavailable_value: str | None = None

    @property
    def table_filter(self) -> TableFilter:
        """The tables that `filters` select. Raises UsageProblem for an invalid rule."""
        return TableFilter(self.filters, has_schemas=self.feed == "debezium")


@dataclass(frozen=True, slots=True)
class Task:
    """A task as of its last row in the catalog. `recorded_us`: when the row was recorded, in us since 1970
    UTC."""

    name: str
    state: State
    recorded_us: int
    actor: str
    settings: TaskSettings
    detail: str | None

    @property
    def over(self) -> bool:
        """Whether the task has ended. It can be started again."""
        return self.state in ("stopped", "complete")


@dataclass
class LastError:
    """The error that stops a job's progress, held in memory because the catalog may not be writable.

    `paused`: called with the error when the task pauses itself.
    """

    text: str | None = None
    paused: Callable[[LakebackupError], object] = lambda _error: None


_SETTINGS = TypeAdapter(TaskSettings)


def settings_text(settings: TaskSettings) -> str:
    """Settings as JSON text."""
    return _SETTINGS.dump_json(settings).decode()


def settings_of(text: str) -> TaskSettings:
    """The settings in a JSON text of `settings_text`. Raises Damaged for any other text."""
    try:
        return _SETTINGS.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Damaged(
            f"The settings of a log task cannot be read: {'.'.join(map(str, first['loc']))} {first['msg']}.",
            hint="Start the task again with its flags: lakebackup log start NAME …",
        ) from None


def lease_name(name: str) -> str:
    """The name of the lease that the job of a task holds while it runs."""
    return f"log-{name}"


def lease_of(storage: Storage, name: str) -> int | None:
    """The generation of the lease that the task's job holds; None when no job runs.

    A killed job counts as running until its lease ends. A live job takes the next generation when its task is
    changed.
    """
    return held_generation(storage, lease_name(name))


def keys_of(name: str, keys_file: str | None) -> LogKeys:
    """The keys of a task that encrypts. Raises UsageProblem (no key file, or a wrong one) and NotFound."""
    if keys_file is None:
        raise UsageProblem(
            f"The log of task {name} is encrypted, and no key file is set.",
            hint="Name it by LAKEBACKUP_LOG__KEYS_FILE, or keys_file under [log] in lakebackup.toml.",
        )
    return LogKeys.load(keys_file)


def claim_of(name: str, settings: TaskSettings, approved: Approvals) -> Claim:
    """What the row of a task would have its job do, as a claim.

    The settings of this machine name the claim if they name its servers, unless a person approved another
    claim under this name or the task would capture in clear although this machine has keys.
    """
    value = {
        "servers": settings.bootstrap,
        "feed": settings.feed,
        "topics": list(settings.topics),
        "encrypt": settings.encrypt,
    }
    reason = "Its events would be captured, and the passwords of [kafka] sent to these servers."
    is_in_clear = trust.local().encrypts and not settings.encrypt
    if is_in_clear:
        reason = "This machine has keys (keys_file under [log]), and events would be captured in clear."
    claim = Claim("log task", name, value, reason)
    is_known = settings.bootstrap in trust.local().servers and not is_in_clear
    return replace(claim, is_named=is_known and approved.value(claim) is None)


def client_of(
    catalog_uri: str, name: str, settings: TaskSettings, kafka: Mapping[str, str]
) -> dict[str, str]:
    """librdkafka properties for the servers of a task; `kafka`: those of this machine's settings.

    Raises Unapproved as `require_approved` does.
    """
    require_approved(catalog_uri, name, settings)
    return {**kafka, "bootstrap.servers": settings.bootstrap}


def require_approved(catalog_uri: str, name: str, settings: TaskSettings) -> None:
    """Raise Unapproved unless this machine's settings name the task's claim or a person approved it here."""
    approved = Approvals(catalog_uri)
    approved.require(claim_of(name, settings, approved))


def task_of(row: dict[str, Any]) -> Task:
    """The task of a row of log_task. Raises Damaged for settings that cannot be read."""
    settings = settings_of(row["settings"])
    return Task(row["source"], row["state"], row["at"], row["actor"], settings, row["detail"])


def find(reader: CatalogReader | None, name: str) -> Task | None:
    """The task of that name, or None."""
    row = reader.first_row("log_task", source=layout.check_source(name)) if reader else None
    return task_of(row) if row else None


def require(reader: CatalogReader | None, name: str) -> Task:
    """The task of that name. Raises NotFound."""
    task = find(reader, name)
    if task is None:
        raise NotFound(
            f"There is no log task {name!r}.",
            hint=did_you_mean(
                name,
                (str(row["source"]) for row in reader.rows("log_status", source=None)) if reader else (),
                "`lakebackup log status` lists the tasks; `lakebackup log start` creates one.",
            ),
        )
    return task


def record(
    destination: str,
    catalog: str | None,
    name: str,
    state: State,
    settings: TaskSettings,
    detail: str | None = None,
    *,
    expected: Task | None = None,
) -> Task:
    """Record what a task is to do from now on; returns the task.

    The row becomes the task's last one, even if the clock that gave the previous row its time is ahead.
    `expected`: the task as the caller read it. If the task has changed since, nothing is recorded, and the
    current task is returned.
    """
    tasks: list[Task] = []

    def build_row() -> LogTask | None:
        last = find(CatalogReader.open(destination, catalog), name)
        if expected and last and last.recorded_us != expected.recorded_us:
            tasks.append(last)
            return None
        microseconds, actor = max(time.time_ns() // 1000, last.recorded_us + 1 if last else 0), holder()
        tasks.append(Task(name, state, microseconds, actor, settings, detail))
        text = settings_text(settings)
        return LogTask(source=name, at=microseconds, actor=actor, state=state, settings=text, detail=detail)

    CatalogWriter(None, destination, catalog).record_next(build_row)
    return tasks[0]
