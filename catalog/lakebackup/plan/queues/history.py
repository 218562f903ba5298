"""Which backup or restore the next backup of an engine's queues continues.

The queues' topic ids are those of a backup, or of a later restore into them. So an engine that was restored
to an older backup continues that one, whatever came after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakebackup.errors import NeedsFull, UsageProblem
from lakebackup.plan.partitions import Partition
from lakebackup.plan.topics.backup import Parent
from lakebackup.rows.base import pick

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from lakebackup.plan.partitions import TopicState
    from lakebackup.store.reader import CatalogReader

Mode = Literal["auto", "full", "differential", "incremental"]
TAKE_FULL = "Take a snapshot of the engine and a new full of it with --mode full."


@dataclass(frozen=True, slots=True)
class History:
    """What the catalog knows of one epoch of a topic: a row of the query queue_histories. Instants in us."""

    scope: str
    epoch: str
    backup_id: str | None = None
    number: int | None = None
    started_at: int | None = None
    full_id: str | None = None
    full_number: int | None = None
    full_started_at: int | None = None
    restore_id: str | None = None
    restored_at: int | None = None
    restored_id: str | None = None
    restored_full_id: str | None = None
    whole: bool | None = None
    restored_tid: int | None = None

    def restored_since(self, started_at: int | None) -> bool:
        """Whether the newest restore into it came after a backup that began at that instant."""
        return self.restored_at is not None and (started_at is None or self.restored_at >= started_at)


@dataclass(frozen=True, slots=True)
class Restored:
    """A restore that a backup continues. `at` in us; `last_tid` is the engine's then."""

    restore_id: str
    at: int
    backup_id: str
    full_id: str
    whole: bool
    last_tid: int


@dataclass(frozen=True, slots=True)
class Start(Partition):
    """How far a partition is in what the next backup continues: it was read up to `own_from`, and from
    `open_from` on every transaction that was open then is seen whole. `last_tid`: the greatest seen by then.
    """

    open_from: int
    own_from: int
    last_tid: int | None = None


@dataclass(frozen=True, slots=True)
class Watermark(Partition):
    """Where a restore put a partition back: its watermark is at `base` or behind."""

    restore_id: str
    base: int


@dataclass(frozen=True, slots=True)
class Continuation:
    """What the next backup continues. `parent` None: there is no backup of the engine.

    `last_tid`: the engine's state at the start. `open_at`: the backup whose open transactions are open at the
    start; None: none is. `watermarks`: of all restores into these queues that the catalog knows.
    """

    parent: Parent | None = None
    restored: Restored | None = None
    starts: tuple[Start, ...] = ()
    last_tid: int | None = None
    open_at: str | None = None
    notes: tuple[str, ...] = ()
    watermarks: tuple[Watermark, ...] = ()

    @property
    def start_ts(self) -> int | None:
        """The instant its coverage begins at, in ms."""
        if self.restored:
            return self.restored.at // 1000
        return self.parent.end_ts if self.parent else None


Decision = tuple[Literal["restore", "backup"], str]


def decide(histories: Iterable[History], topics: Sequence[TopicState], mode: Mode) -> History | None:
    """The history of the topics that the next backup continues; None: there is none.

    Its restore counts if it came after its newest backup (for a differential: its newest full). Raises
    NeedsFull when topics are of different histories.
    """
    known = {(h.scope, h.epoch): h for h in histories}
    found: dict[Decision, tuple[History, str]] = {}
    for topic in topics:
        history = known.get((topic.scope, topic.epoch))
        decision = _decision(history, mode) if history else None
        if history and decision:
            found.setdefault(decision, (history, topic.scope))
    if len(found) > 1:
        of = [f"{scope} continues {what} {name}" for (what, name), (_, scope) in found.items()]
        raise NeedsFull(f"The queues are not of one history: {', '.join(of)}.", hint=TAKE_FULL)
    return next((history for history, _ in found.values()), None)


def _decision(history: History, mode: Mode) -> Decision | None:
    differential = mode == "differential"
    began = history.full_started_at if differential else history.started_at
    name = history.full_id if differential else history.backup_id
    if history.restore_id and history.restored_since(began):
        return "restore", history.restore_id
    return ("backup", name) if name else None


def behind(history: History, mode: Mode) -> bool:
    """Whether the next backup continues the newest restore into these queues."""
    return (_decision(history, mode) or ("", ""))[0] == "restore"


def read_histories(reader: CatalogReader, source: str, cluster: str) -> list[History]:
    """What the catalog knows of the queues of a source."""
    return [History(**row) for row in reader.rows("queue_histories", source=source, cluster=cluster)]


def read_watermarks(reader: CatalogReader, source: str, cluster: str) -> tuple[Watermark, ...]:
    """Of all restores of a source on a cluster."""
    return tuple(Watermark(**row) for row in reader.rows("queue_watermarks", source=source, cluster=cluster))


def last_ended(histories: Iterable[History], topics: Sequence[TopicState]) -> int:
    """When (us) the newest full of these topics began, or the newest restore into them was done: runs that
    were interrupted before that are obsolete. 0: never."""
    ids = {(topic.scope, topic.epoch) for topic in topics}
    own = (h for h in histories if (h.scope, h.epoch) in ids)
    return max((max(h.full_started_at or 0, h.restored_at or 0) for h in own), default=0)


def find_continuation(
    reader: CatalogReader, histories: Sequence[History], topics: Sequence[TopicState], mode: Mode
) -> Continuation:
    """What the next backup continues; for a full, what it comes after.

    Queues of which none is known continue what others of their names did, or the newest backup: what they
    lack of it is what was lost. Raises NeedsFull (topics of different histories, an unusable backup).
    """
    history = decide(histories, topics, mode)
    if history is None and mode != "full":  # after a restore that was reset a full has lost nothing
        history = _namesake(histories, topics)
    if history and behind(history, mode):
        return _behind_restore(reader, history, mode)
    history = history or max(histories, key=lambda h: h.number or 0, default=None)
    if history is None:
        return Continuation()
    backup_id = history.full_id if mode == "differential" else history.backup_id
    if backup_id is None:
        return Continuation()
    row = reader.one("queue_parent", backup_id=backup_id)
    if row is None or row["reason"]:
        raise NeedsFull(f"Backup {backup_id} cannot be continued{_why(row)}.", hint=TAKE_FULL)
    return Continuation(
        parent=pick(Parent, row),
        starts=tuple(
            Start(
                r["scope"], r["epoch"], r["region"], r["no_transaction_position"], r["end_position"],
                r["last_tid"],
            )
            for r in reader.rows("queue_starts", backup_id=row["backup_id"])
        ),
        last_tid=row["last_tid"],
        open_at=row["backup_id"] if row["open_transactions"] else None,
    )  # fmt: skip


def _namesake(histories: Iterable[History], topics: Sequence[TopicState]) -> History | None:
    """Of the topics that had these names before they were recreated, the newest history."""
    names = {topic.scope for topic in topics}
    own = (history for history in histories if history.scope in names)
    return max(own, key=lambda h: max(h.started_at or 0, h.restored_at or 0), default=None)


def _behind_restore(reader: CatalogReader, history: History, mode: Mode) -> Continuation:
    restored = Restored(
        restore_id=str(history.restore_id),
        at=int(history.restored_at or 0),
        backup_id=str(history.restored_id),
        full_id=str(history.restored_full_id),
        whole=bool(history.whole),
        last_tid=int(history.restored_tid or 0),
    )
    notes = []
    row = None
    if restored.whole and mode != "differential":
        row = reader.one("queue_parent", backup_id=restored.backup_id)
    if row and (row["reason"] or (row["open_transactions"] and row["kind"] != "full")):
        # What a backup holds of transactions that were open at its end, the restore has left out: a backup
        # that continues it could not distinguish them from others that have their ids by now.
        why = _why(row) or ", at whose end transactions were open"
        notes = [f"this one continues the full {restored.full_id}, not {restored.backup_id}{why}"]
        row = None
    row = row or reader.one("queue_parent", backup_id=restored.full_id)
    if row is None or row["reason"]:
        raise NeedsFull(
            f"The queues were restored from the full {restored.full_id}, which cannot be continued"
            f"{_why(row)}.",
            hint=TAKE_FULL,
        )
    starts = []
    for r in reader.rows("queue_restored", restore_id=restored.restore_id):
        start = r["base_position"] if row["kind"] == "full" else r["end_position"]
        starts.append(Start(r["scope"], r["epoch"], r["region"], start, start))
    return Continuation(
        parent=pick(Parent, row),
        restored=restored,
        starts=tuple(starts),
        last_tid=max(row["last_tid"], restored.last_tid),
        notes=tuple(notes),
    )


def require_all(starts: Iterable[Start], topics: Sequence[TopicState], existing: Iterable[str]) -> None:
    """UsageProblem when a topic of the parent exists but is not among those to back up."""
    left = {start.scope for start in starts} - {topic.scope for topic in topics}
    there = sorted(left & set(existing))
    if there:
        raise UsageProblem(
            f"Topic {there[0]} is a queue of this engine, but not among those to back up.",
            hint="Name it with --topics too, or take a new full without it with --mode full.",
        )


_WHY = {"chain": "a backup that it needs cannot be used", "aside": "another backup has come in its place"}


def _why(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ": it is not in the catalog"
    return f": {_WHY.get(row['reason'], 'it is ' + row['reason'])}" if row["reason"] else ""
