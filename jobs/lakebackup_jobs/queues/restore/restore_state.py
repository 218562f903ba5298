"""An engine's restore that is at work, put down before it writes: a run that goes on does the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from lakebackup.errors import Damaged, NotFound
from lakebackup.formats.queues.headers import HeaderNames  # noqa: TC001 - read by pydantic
from lakebackup.plan.queues.restore import ConfigFile, Queue  # noqa: TC001 - read by pydantic
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebackup.storage import Storage


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
    """Of each target partition, the offset that its watermark came at or behind, and where it ended when all
    messages were there; `others`: how many offsets between are not the restore's. `at` (us): since when the
    catalog was to tell of it, None: it was not yet."""

    bases: dict[str, list[int]]
    ends: dict[str, list[int]]
    others: dict[str, list[int]]
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """What a target topic was before the restore: its id and its settings; `epoch` None: it was not there."""

    epoch: str | None = None
    settings: dict[str, str] = field(default_factory=dict)


T = TypeVar("T")

_PREPARED = TypeAdapter(Prepared)
_DONE = TypeAdapter(Done)
_TOPICS = TypeAdapter(dict[str, dict[str, Before]])


def folder_of(restore_id: str) -> str:
    """The folder of what the restore keeps of itself."""
    return layout.restore_folder(restore_id)


def write(storage: Storage, restore_id: str, made: Prepared) -> None:
    """Put it down, last of all that is prepared."""
    _put(storage, _path(restore_id, "queue"), _PREPARED.dump_python(made, mode="json"))


def read(storage: Storage, restore_id: str) -> Prepared | None:
    """What was put down; None when it was not. Raises Damaged."""
    return _get(storage, _path(restore_id, "queue"), _PREPARED)


def write_done(storage: Storage, restore_id: str, done: Done) -> None:
    """Put down that all messages are there, before the catalog tells of it."""
    _put(storage, _path(restore_id, "done"), _DONE.dump_python(done, mode="json"))


def read_done(storage: Storage, restore_id: str) -> Done | None:
    """As `read`."""
    return _get(storage, _path(restore_id, "done"), _DONE)


def write_settings(storage: Storage, restore_id: str, topics: dict[str, Before]) -> None:
    """Put down what the target topics are, before some of their settings are suspended."""
    _put(storage, _path(restore_id, "settings"), _TOPICS.dump_python({"topics": topics}, mode="json"))


def read_settings(storage: Storage, restore_id: str) -> dict[str, Before]:
    """As `read`; empty when nothing was put down."""
    found = _get(storage, _path(restore_id, "settings"), _TOPICS)
    return found["topics"] if found else {}


def clear(storage: Storage, restore_id: str, *, anew: bool = False) -> None:
    """Take all away: the restore is done, or begins `anew`, with what the topics were before it. What the
    others are found by goes last."""
    last = [_path(restore_id, "done"), _path(restore_id, "queue")]
    spared = [*last, *([_path(restore_id, "settings")] if anew else [])]
    for found in list(storage.list(folder_of(restore_id))):
        if found.path not in spared:
            storage.delete(found.path)
    for path in last:
        storage.delete(path)


def _path(restore_id: str, name: str) -> str:
    return f"{folder_of(restore_id)}{name}.json"


def _put(storage: Storage, path: str, content: Mapping[str, object]) -> None:
    sidecar.put_sealed(storage, path, {"format": layout.FORMAT, **content})


def _get(storage: Storage, path: str, kind: TypeAdapter[T]) -> T | None:
    try:
        return kind.validate_python(sidecar.get_sealed(storage, path))
    except NotFound:
        return None
    except ValidationError as error:
        raise Damaged(
            f"{path} is not what a restore puts down: {error.errors()[0]['msg']}.",
            hint="Delete that object: the restore begins anew, into other topics and another folder.",
        ) from error
