"""Finds the backup or restore that the next backup of an engine's queues continues.

It looks up the topic ids of the queues among those of backups and restores. So if an engine was restored to
an older backup, its next backup continues that one, not a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lakebackup.errors import NeedsFull, UsageProblem
from lakebackup.plan.partitions import Partition, PartitionKey, TopicState
from lakebackup.plan.topics.backup import Parent
from lakebackup.rows.base import pick
from lakebackup.rules.times import MAX_SKEW_MS
from lakebackup.store.reader import CatalogReader

Mode = Literal["auto", "full", "differential", "incremental"]
Decision = tuple[Literal["restore", "backup"], str]
TAKE_FULL = "Take a snapshot of the engine, then a full backup with --mode full."


@dataclass(frozen=True, slots=True)
class History:
    """The newest backup, full and restore of one epoch of a topic: a row of queue_histories. Times in us.

    `restored_id`: the backup that was restored; `restored_full_id`: its full; `whole`: the restore went up
    to its end; `restored_tid`: the last tid restored.
    """

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

    def continued_by(self, mode: Mode) -> Decision | None:
        """What the next backup of the topic continues: its newest backup (a differential: newest full), or
        the newest restore into it, if that is later."""
        differential = mode == "differential"
        started_at = self.full_started_at if differential else self.started_at
        backup_id = self.full_id if differential else self.backup_id
        if self.restore_id and self.restored_at is not None and self.restored_at >= (started_at or 0):
            return "restore", self.restore_id
        return ("backup", backup_id) if backup_id else None


@dataclass(frozen=True, slots=True)
class Start(Partition):
    """Where the next backup of a partition starts. The previous backup read the partition up to `own_from`.

    All messages of the transactions that were open then are at `open_from` or later. `last_tid`: the greatest
    tid up to `own_from`; `leader_epoch`: the epoch of the partition's leader at that time.
    """

    open_from: int
    own_from: int
    last_tid: int | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Watermark(Partition):
    """A restore reset a partition: it wrote its watermark message at offset `base` or later."""

    restore_id: str
    base: int


@dataclass(frozen=True, slots=True)
class Continuation:
    """What the next backup continues. `parent` None: the engine has no backup.

    `restored`: set when it continues a restore. `last_tid`: the engine's last tid at the start. `open_at`:
    the backup that lists the transactions open at the start; None: none are open. `watermarks`: of all
    restores into these queues.
    """

    parent: Parent | None = None
    restored: History | None = None
    starts: tuple[Start, ...] = ()
    last_tid: int | None = None
    open_at: str | None = None
    notes: tuple[str, ...] = ()
    watermarks: tuple[Watermark, ...] = ()

    @property
    def start_ts(self) -> int | None:
        """When the next backup's coverage starts, in ms."""
        if self.restored:
            return (self.restored.restored_at or 0) // 1000
        return self.parent.end_ts if self.parent else None

    def end_after(self, now_ms: int) -> int:
        """When the next backup ends, in ms: now, or just after its start if machines' clocks differ a little.

        If its start lies further in the future, a clock was wrong, and the backup ends now.
        """
        start_ts = self.start_ts or 0
        return now_ms if start_ts > now_ms + MAX_SKEW_MS else max(now_ms, start_ts + 1)

    @property
    def restore_id(self) -> str | None:
        """The restore that the next backup continues."""
        return self.restored.restore_id if self.restored else None

    def history_start(self, partition: PartitionKey, position: int) -> int:
        """Where the history of a position starts: at the last reset by a restore before it, or at 0.

        `partition`: the partition.
        """
        return max((w.base for w in self.watermarks if w.key == partition and w.base <= position), default=0)


def choose_history(histories: Iterable[History], topics: Sequence[TopicState], mode: Mode) -> History | None:
    """The history that the next backup of the topics continues; None when no topic has one.

    Raises NeedsFull when topics would continue different backups or restores.
    """
    histories_by_topic = {(h.scope, h.epoch): h for h in histories}
    decisions: dict[Decision, History] = {}
    for topic in topics:
        history = histories_by_topic.get((topic.scope, topic.epoch))
        if history and (decision := history.continued_by(mode)):
            decisions.setdefault(decision, history)
    if len(decisions) > 1:
        texts = [
            f"{history.scope} continues {kind} {decision_id}"
            for (kind, decision_id), history in decisions.items()
        ]
        raise NeedsFull(f"The queues have different histories: {', '.join(texts)}.", hint=TAKE_FULL)
    return next(iter(decisions.values()), None)


def read_histories(reader: CatalogReader, source: str, cluster: str) -> list[History]:
    """The histories of the queues of a source."""
    return [History(**row) for row in reader.rows("queue_histories", source=source, cluster=cluster)]


def read_watermarks(reader: CatalogReader, source: str, cluster: str) -> tuple[Watermark, ...]:
    """The watermarks of all restores of a source on a cluster."""
    return tuple(Watermark(**row) for row in reader.rows("queue_watermarks", source=source, cluster=cluster))


def resume_limit(histories: Iterable[History], topics: Sequence[TopicState]) -> int:
    """When (us) the newest full of these topics started or the newest restore into them ended; 0: never.

    Runs that were interrupted before cannot be resumed.
    """
    ids = {(topic.scope, topic.epoch) for topic in topics}
    own = (h for h in histories if (h.scope, h.epoch) in ids)
    return max((max(h.full_started_at or 0, h.restored_at or 0) for h in own), default=0)


def find_continuation(
    reader: CatalogReader, histories: Sequence[History], topics: Sequence[TopicState], mode: Mode
) -> Continuation:
    """What the next backup continues; for a full, what precedes it.

    If no topic id is known, the queues were recreated: they continue the history of topics with the same
    names, or else the newest backup, so that lost messages are found. Raises NeedsFull (topics of different
    histories, an unusable backup).
    """
    history = choose_history(histories, topics, mode)
    if history is None and mode != "full":  # a full need not find lost messages
        history = _namesake(histories, topics)
    if history and (history.continued_by(mode) or ("", ""))[0] == "restore":
        return _continue_restore(reader, history, mode)
    history = history or max(histories, key=lambda h: h.number or 0, default=None)
    backup_id = history and (history.full_id if mode == "differential" else history.backup_id)
    if backup_id is None:
        return Continuation()
    row = reader.first_row("queue_parent", backup_id=backup_id)
    if row is None or row["reason"]:
        raise NeedsFull(f"Backup {backup_id} cannot be continued{_reason(row)}.", hint=TAKE_FULL)
    return Continuation(
        parent=pick(Parent, row),
        starts=tuple(
            Start(
                r["scope"], r["epoch"], r["region"], r["no_transaction_position"], r["end_position"],
                r["last_tid"], r["leader_epoch"],
            )
            for r in reader.rows("queue_starts", backup_id=row["backup_id"])
        ),
        last_tid=row["last_tid"],
        open_at=row["backup_id"] if row["open_transactions"] else None,
    )  # fmt: skip


def _namesake(histories: Iterable[History], topics: Sequence[TopicState]) -> History | None:
    """The newest history of topics that had these names before they were recreated."""
    names = {topic.scope for topic in topics}
    own = (history for history in histories if history.scope in names)
    return max(own, key=lambda h: max(h.started_at or 0, h.restored_at or 0), default=None)


def _continue_restore(reader: CatalogReader, restored: History, mode: Mode) -> Continuation:
    full_id = restored.restored_full_id
    notes: tuple[str, ...] = ()
    row = None
    if restored.whole and mode != "differential":
        row = reader.first_row("queue_parent", backup_id=restored.restored_id)
    if row and (row["reason"] or (row["open_transactions"] and row["kind"] != "full")):
        # The restore left out the transactions that were open at the end of the backup. A backup that
        # continues it could not distinguish them from newer ones that reuse their ids.
        reason = _reason(row) or ", at the end of which transactions were open"
        notes = (f"this backup continues the full {full_id}, not {restored.restored_id}{reason}",)
        row = None
    row = row or reader.first_row("queue_parent", backup_id=full_id)
    if row is None or row["reason"]:
        raise NeedsFull(
            f"The queues were restored from the full {full_id}, which cannot be continued{_reason(row)}.",
            hint=TAKE_FULL,
        )
    position_column = "base_position" if row["kind"] == "full" else "end_position"
    return Continuation(
        parent=pick(Parent, row),
        restored=restored,
        starts=tuple(
            Start(r["scope"], r["epoch"], r["region"], r[position_column], r[position_column])
            for r in reader.rows("queue_restored", restore_id=restored.restore_id)
        ),
        last_tid=max(row["last_tid"], restored.restored_tid or 0),
        notes=notes,
    )


def require_parent_topics(
    starts: Iterable[Start], topics: Sequence[TopicState], existing: Iterable[str]
) -> None:
    """Raise UsageProblem when an existing topic of the parent is not in `topics`, those to back up."""
    omitted = {start.scope for start in starts} - {topic.scope for topic in topics}
    omitted_queues = sorted(omitted & set(existing))
    if omitted_queues:
        raise UsageProblem(
            f"Topic {omitted_queues[0]} is a queue of this engine, but not among those to back up.",
            hint="Add a --pattern for it, or take a new full without it with --mode full.",
        )


_REASON_TEXTS = {
    "chain": "a backup that it needs cannot be used",
    "damaged": "a file that it needs is missing or damaged",
    "aside": "another backup has replaced it",
}


def _reason(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ": it is not in the catalog"
    return f": {_REASON_TEXTS.get(row['reason'], 'it is ' + row['reason'])}" if row["reason"] else ""
