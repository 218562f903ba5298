"""What a restore of an engine is going to do, recorded before it writes: a resumed run does the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from lakebackup.errors import NotFound
from lakebackup.formats.queues.headers import HeaderNames  # noqa: TC001 - read by pydantic
from lakebackup.plan.queues.restore import ConfigFile, Queue  # noqa: TC001 - read by pydantic
from lakebackup.rules import layout
from lakebackup.store.manifest import read_record, write_record

if TYPE_CHECKING:
    from lakebackup.storage import Storage

T = TypeVar("T")
_HINT = "Delete that object: the restore starts again, into other topics and another folder."


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a restore does. `stamp` in ms: the time of its watermarks; `bases`: of each target topic and
    partition where it ended. `segments`, `leave_out`: as of QueueReplayJob;
    `open_transactions`: how many are left out at the end; `open_ids`: some of these. `settings`: those that
    each target topic gets in the end; `names`: the headers of its watermark. Others as of the plan.
    """

    source: str
    selection: str
    full_id: str
    snapshot_id: str
    backup_id: str
    whole: bool
    first_tid: int
    to_tid: int
    upto_tid: int | None
    to_ts: int | None
    stamp: int
    cluster: str
    queues: list[Queue]
    settings: dict[str, dict[str, str]]
    epochs: dict[str, str]
    bases: dict[str, list[int]]
    config: list[ConfigFile]
    segments: dict[int, int]
    names: HeaderNames
    leave_out: list[str | None]
    open_transactions: int
    open_ids: list[str]
    from_ts: None = None

    @property
    def bytes(self) -> int:
        return sum(queue.bytes for queue in self.queues)

    @property
    def entries(self) -> int:
        """Messages in the chosen files."""
        return sum(queue.entries for queue in self.queues)


@dataclass(frozen=True, slots=True)
class Done:
    """Of each target partition, the least offset of its watermark, and where it ended when all messages were
    there; `others`: how many offsets between are not the restore's. `at` (us): the time of the restore's rows
    in the catalog; None: not published yet."""

    bases: dict[str, list[int]]
    ends: dict[str, list[int]]
    others: dict[str, list[int]]
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """What a target topic was before the restore: its id and its settings; `epoch` None: it was not there."""

    epoch: str | None = None
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Topics:
    topics: dict[str, Before]


def folder_of(restore_id: str) -> str:
    """The folder of what the restore keeps of itself."""
    return layout.restore_folder(restore_id)


def write(storage: Storage, restore_id: str, state: Prepared) -> None:
    """Record what will be done, last of all that is prepared."""
    write_record(storage, _path(restore_id, "queue"), state)


def read(storage: Storage, restore_id: str) -> Prepared | None:
    """What was recorded; None when nothing was. Raises Damaged."""
    return _read(storage, _path(restore_id, "queue"), Prepared)


def write_done(storage: Storage, restore_id: str, done: Done) -> None:
    """Record that all messages are there, before the catalog's rows say so."""
    write_record(storage, _path(restore_id, "done"), done)


def read_done(storage: Storage, restore_id: str) -> Done | None:
    """As `read`."""
    return _read(storage, _path(restore_id, "done"), Done)


def write_settings(storage: Storage, restore_id: str, topics: dict[str, Before]) -> None:
    """Record what the target topics are, before some of their settings are suspended."""
    write_record(storage, _path(restore_id, "settings"), _Topics(topics))


def read_settings(storage: Storage, restore_id: str) -> dict[str, Before]:
    """As `read`; empty when nothing was recorded."""
    found = _read(storage, _path(restore_id, "settings"), _Topics)
    return found.topics if found else {}


def clear(storage: Storage, restore_id: str, *, keep_settings: bool = False) -> None:
    """Delete all of it when the restore is finished; `keep_settings`: it starts again, and what the topics
    were before it is still needed. What the other objects are found by goes last."""
    last = [_path(restore_id, "done"), _path(restore_id, "queue")]
    spared = [*last, *([_path(restore_id, "settings")] if keep_settings else [])]
    for found in list(storage.list(folder_of(restore_id))):
        if found.path not in spared:
            storage.delete(found.path)
    for path in last:
        storage.delete(path)


def _path(restore_id: str, name: str) -> str:
    return f"{folder_of(restore_id)}{name}.json"


def _read(storage: Storage, path: str, kind: type[T]) -> T | None:
    try:
        return read_record(storage, path, kind, _HINT)
    except NotFound:
        return None
