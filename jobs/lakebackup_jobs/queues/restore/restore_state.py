"""The records that a restore of an engine keeps of itself.

What it is going to do is recorded before it writes, so that a resumed run does the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from lakebackup.errors import NotFound
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.plan.queues.restore import EngineState
from lakebackup.rules import layout
from lakebackup.storage import Storage, working
from lakebackup.store.manifest import read_record, write_record
from lakebackup_jobs.targets.topics import group_of

_HINT = "Delete that object: the restore starts again, into other topics and another folder."


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(EngineState):
    """What a restore is going to do.

    `stamp`: the time of its watermarks, in ms. `settings`: the final settings of each target topic.
    `epochs`: the topic id of each target topic. `bases`: for each target topic the end of each partition.
    `segments`, `leave_out`: see QueueReplayJob. `names`: the header names of the watermarks.
    `open_transactions`: how many transactions are open at the restored point and so left out; `open_ids`:
    some of their ids.
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
class CompletedRestore:
    """Where the messages of a completed restore are.

    For each target topic and partition: `bases`: the least offset that the watermark can have; `ends`: the
    end when all messages had been written; `others`: how many offsets between these are not the
    restore's. `at`: the time of the restore's rows in the catalog, in us; None: they are not published yet.
    """

    bases: dict[str, list[int]]
    ends: dict[str, list[int]]
    others: dict[str, list[int]]
    at: int | None = None


@dataclass(frozen=True, slots=True)
class FormerTopic:
    """A target topic before the restore: its topic id and its settings; `epoch` None: it did not exist."""

    epoch: str | None = None
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicsBefore:
    """The target topics before the restore, recorded before some of their settings are suspended."""

    topics: dict[str, FormerTopic] = field(default_factory=dict)


Record = TypeVar("Record", Prepared, CompletedRestore, TopicsBefore)
# `Prepared` is written when all else is prepared, `CompletedRestore` before the rows of the catalog.
_NAMES = {Prepared: "queue", CompletedRestore: "done", TopicsBefore: "settings"}


@dataclass(frozen=True, slots=True)
class RestoreState:
    """The records of one restore in `storage`."""

    storage: Storage
    restore_id: str

    @property
    def folder(self) -> str:
        return layout.restore_folder(self.restore_id)

    @property
    def group(self) -> str:
        """The consumer group whose committed offsets carry the restore's progress."""
        return group_of(self.restore_id)

    def write(self, record: Prepared | CompletedRestore | TopicsBefore) -> None:
        """Write a record."""
        write_record(self.storage, self._path(type(record)), record)

    def read(self, kind: type[Record]) -> Record | None:
        """Return the record of a kind; None when there is none. Raises Damaged."""
        try:
            return read_record(self.storage, self._path(kind), kind, _HINT)
        except NotFound:
            return None

    def clear(self, *, keep_settings: bool = False) -> None:
        """Delete all objects of the restore, when it is finished.

        `keep_settings`: it starts again, so the record of the topics before it stays. The records that lead
        to the other objects are deleted last.
        """
        last = [self._path(CompletedRestore), self._path(Prepared)]
        kept_paths = [*last, *([self._path(TopicsBefore)] if keep_settings else [])]
        paths = [entry.path for entry in self.storage.list(self.folder) if entry.path not in kept_paths]
        if not keep_settings:
            working.retire(self.storage, self._path(TopicsBefore))
        working.delete(self.storage, paths)
        for path in last:
            working.retire(self.storage, path)

    def _path(self, kind: type[Prepared | CompletedRestore | TopicsBefore]) -> str:
        return f"{self.folder}{_NAMES[kind]}.json"
