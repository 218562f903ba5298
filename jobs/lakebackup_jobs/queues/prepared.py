"""An engine's restore that is at work, put down before it writes: a run that goes on does the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from lakebackup import layout, sidecar
from lakebackup.errors import Damaged, NotFound
from lakebackup.plan.restore_queue import ConfigFile, Queue  # noqa: TC001 - read by pydantic

if TYPE_CHECKING:
    from lakebackup.storage import Storage


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a restore does. `stamp` in ms: the time of its watermarks; `bases`: of each target topic and
    partition the offset that its watermark comes at or behind. `segments`, `leave_out`: as of QueueReplayJob;
    `open_transactions`: how many are left out at the end. Others as of the plan.
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
    epochs: dict[str, str]
    bases: dict[str, list[int]]
    config: list[ConfigFile]
    segments: dict[int, int]
    leave_out: list[str | None]
    open_transactions: int
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
    """When all messages were there (us), and where each target partition ended then."""

    at: int
    ends: dict[str, list[int]]


T = TypeVar("T")

_PREPARED = TypeAdapter(Prepared)
_DONE = TypeAdapter(Done)


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


def clear(storage: Storage, restore_id: str) -> None:
    """Take all away: the restore is done. What the others are found by goes last."""
    last = [_path(restore_id, "done"), _path(restore_id, "queue")]
    for found in list(storage.list(folder_of(restore_id))):
        if found.path not in last:
            storage.delete(found.path)
    for path in last:
        storage.delete(path)


def _path(restore_id: str, name: str) -> str:
    return f"{folder_of(restore_id)}{name}.json"


def _put(storage: Storage, path: str, content: dict[str, object]) -> None:
    sidecar.put_sealed(storage, path, {"format": sidecar.FORMAT, **content})


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
