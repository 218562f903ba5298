"""What a restore of an engine is going to do, recorded before it writes: a resumed run does the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from lakebackup.errors import NotFound
from lakebackup.formats.queues.headers import HeaderNames  # noqa: TC001 - read by pydantic
from lakebackup.plan.queues.restore import EngineState
from lakebackup.rules import layout
from lakebackup.storage import working
from lakebackup.store.manifest import read_record, write_record
from lakebackup_jobs.targets.topics import group_of

if TYPE_CHECKING:
    from lakebackup.storage import Storage

_HINT = "Delete that object: the restore starts again, into other topics and another folder."


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(EngineState):
    """What a restore does. `stamp` in ms: the time of its watermarks; `bases`: of each target topic and
    partition where it ended. `segments`, `leave_out`: as of QueueReplayJob;
    `open_transactions`: how many are left out at the end; `open_ids`: some of these. `settings`: those that
    each target topic gets in the end; `names`: the headers of its watermark.
    """

    stamp: int
    cluster: str
    settings: dict[str, dict[str, str]]
    epochs: dict[str, str]
    bases: dict[str, list[int]]
    segments: dict[int, int]
    names: HeaderNames
    leave_out: list[str | None]
    open_transactions: int
    open_ids: list[str]


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
class TopicsBefore:
    """What the target topics were, recorded before some of their settings are suspended."""

    topics: dict[str, Before] = field(default_factory=dict)


Record = TypeVar("Record", Prepared, Done, TopicsBefore)
# `Prepared` is written last of all that is prepared, `Done` before the catalog's rows say so.
_NAMES = {Prepared: "queue", Done: "done", TopicsBefore: "settings"}


@dataclass(frozen=True, slots=True)
class RestoreState:
    """What one restore keeps of itself in `storage`."""

    storage: Storage
    restore_id: str

    @property
    def folder(self) -> str:
        return layout.restore_folder(self.restore_id)

    @property
    def group(self) -> str:
        """The consumer group whose offsets carry its progress."""
        return group_of(self.restore_id)

    def write(self, record: Prepared | Done | TopicsBefore) -> None:
        """Record it."""
        write_record(self.storage, self._path(type(record)), record)

    def read(self, kind: type[Record]) -> Record | None:
        """What was recorded; None when nothing was. Raises Damaged."""
        try:
            return read_record(self.storage, self._path(kind), kind, _HINT)
        except NotFound:
            return None

    def clear(self, *, keep_settings: bool = False) -> None:
        """Delete all of it when the restore is finished; `keep_settings`: it starts again, and what the
        topics were before it is still needed. What the other objects are found by goes last."""
        last = [self._path(Done), self._path(Prepared)]
        spared = [*last, *([self._path(TopicsBefore)] if keep_settings else [])]
        paths = [item.path for item in self.storage.list(self.folder) if item.path not in spared]
        if not keep_settings:
            working.retire(self.storage, self._path(TopicsBefore))
        working.delete(self.storage, paths)
        for path in last:
            working.retire(self.storage, path)

    def _path(self, kind: type[Prepared | Done | TopicsBefore]) -> str:
        return f"{self.folder}{_NAMES[kind]}.json"
