"""What a restore of Kafka topics will read, and why it may not be done.

To restore a topic to time T is to bring back what a reader saw then: the records with a timestamp at or
before T, out of the first backup that was taken at or after T and the chain it depends on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from lakebackup.errors import NotFound, Refused
from lakebackup.plan.partitions import Partition
from lakebackup.rules.times import format_ts
from lakebackup.rules.topic_settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lakebackup.store.selection import Selection


@dataclass(frozen=True, slots=True)
class RegionPart(Partition):
    """The files of one partition in a restore: how many, how large (`raw_bytes`: before compression), and
    which offsets they hold."""

    files: int
    bytes: int
    raw_bytes: int
    entries: int
    start_position: int
    end_position: int
    min_ts: int
    max_ts: int


@dataclass(frozen=True, slots=True)
class BackupPart:
    """What a restore reads of one backup."""

    backup_id: str
    kind: str
    level: int
    end_ts: int
    files: int
    bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class TopicPart:
    """One topic of a restore: where it comes from, where it goes, and what it was like."""

    scope: str
    target: str
    epoch: str
    backup_id: str
    base: str
    number: int
    end_ts: int
    regions: int
    replication: int
    settings: TopicSettings
    parts: tuple[RegionPart, ...]


@dataclass(frozen=True, slots=True)
class RegionSpan(Partition):
    """The positions of a partition that a restore answers for: those without a record too."""

    start_position: int
    end_position: int


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a restore cannot be right: a gap in the history, or a file that is missing or damaged."""

    scope: str
    region: str
    reason: str
    detail: str
    before_ts: int | None = None
    after_ts: int | None = None

    def __str__(self) -> str:
        nearest = [
            f"{word} {format_ts(ts)}"
            for word, ts in (("before:", self.before_ts), ("after:", self.after_ts))
            if ts
        ]
        around = f" (nearest restorable time {', '.join(nearest)})" if nearest else ""
        partition = f", partition {self.region}" if self.region else ""
        where = f"topic {self.scope}{partition}: " if self.scope else ""
        return f"{where}{self.detail}{around}"


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A restore as a value: `chosen` are the files, which the SQL `selection` chose with `parameters`.

    `spans` are there when whole topics are restored. `until` says how far earlier restores brought a
    (topic, partition); None when the restore does not continue any. `reached`: the last time that the files
    of a person's SELECT bring a (topic, partition) to; None where they hold no restore point whole. `at`: us,
    before the catalog was read.
    """

    source: str
    from_ts: int | None
    to_ts: int | None
    selection: str
    parameters: Mapping[str, object]
    chosen: Selection = field(compare=False)
    topics: tuple[TopicPart, ...]
    obstacles: tuple[Obstacle, ...] = ()
    spans: tuple[RegionSpan, ...] = ()
    until: Mapping[tuple[str, str], int] | None = None
    reached: Mapping[tuple[str, str], int | None] | None = None
    notes: tuple[str, ...] = ()
    at: int = field(default=0, compare=False)

    @property
    def begins(self) -> dict[tuple[str, str], int]:
        """From which position on each (topic, partition) is brought, where more is known than its files."""
        whole = self.spans if self.from_ts is None else ()
        return {(s.scope, s.region): s.start_position for s in whole} | dict(self.until or {})

    @property
    def ends(self) -> dict[tuple[str, str], int]:
        """The end of what each (topic, partition) holds; empty when records after some time are left out."""
        whole = self.spans if self.to_ts is None else ()
        return {(s.scope, s.region): s.end_position for s in whole}

    @property
    def files(self) -> int:
        return sum(part.files for topic in self.topics for part in topic.parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for topic in self.topics for part in topic.parts)

    @property
    def entries(self) -> int:
        """Records in the chosen files; those outside the time bounds are skipped while restoring."""
        # None: rows of the catalog whose sum is no number. The files that they name are then refused.
        return sum(part.entries or 0 for topic in self.topics for part in topic.parts)

    def to_resume(self) -> str:
        """What a run that resumes the restore needs of it beside its files; see `resumed`."""
        until = None if self.until is None else [[*region, end] for region, end in self.until.items()]
        topics, spans = map(asdict, self.topics), map(asdict, self.spans)
        return json.dumps({"at": self.at, "topics": list(topics), "spans": list(spans), "until": until})

    def resumed(self, kept: str | None) -> RestorePlan:
        """This plan with what an earlier one kept, whose files are restored. None: it kept nothing, and where
        its files begin and end is not known."""
        if kept is None:
            return replace(self, spans=())
        found = json.loads(kept)
        topics = [
            TopicPart(
                **{
                    **topic,
                    "settings": TopicSettings(**topic["settings"]),
                    "parts": tuple(RegionPart(**part) for part in topic["parts"]),
                }
            )
            for topic in found["topics"]
        ]
        until = found["until"]
        return replace(
            self,
            at=found["at"],
            topics=tuple(topics),
            spans=tuple(RegionSpan(**span) for span in found["spans"]),
            until=None if until is None else {(scope, region): end for scope, region, end in until},
        )


@dataclass(frozen=True, slots=True)
class PartRead:
    """What a backup read of a partition that is restored to a time before the backup's end.

    A row of the query restore_between: offsets `[start, end)`, of which files hold `entries` records, None:
    there is no file. Times in ms.
    """

    scope: str
    region: str
    backup_id: str
    start_position: int
    end_position: int
    entries: int | None
    min_ts: int | None
    before_ts: int | None
    after_ts: int

    @property
    def lacking(self) -> int:
        """How many offsets it read over without finding a record."""
        return self.end_position - self.start_position - (self.entries or 0)


def between(
    read: Sequence[PartRead], compacted: Collection[str], to_ts: int
) -> tuple[list[Obstacle], list[str]]:
    """The obstacles to a restore to a time between two restore points, and notes on it.

    What the source dropped between that time and the backup's reading is in no backup. Offsets of a compacted
    topic without a record may have held values that counted then; so may those that transactions leave, since
    the two look the same. Before the first backup, a topic of which nothing as old is kept was empty
    only if that backup read it from its first offset on.
    """
    obstacles, notes = [], []
    for scope in sorted({part.scope for part in read}):
        parts = [part for part in read if part.scope == scope]
        lacking = [part for part in parts if part.lacking] if scope in compacted else []
        obstacles += [_overwritten(part) for part in lacking]
        oldest = min((part.min_ts for part in parts if part.min_ts is not None), default=None)
        if lacking or parts[0].before_ts is not None or (oldest is not None and oldest <= to_ts):
            continue
        if late := [part for part in parts if part.start_position]:
            obstacles += [_older(part, oldest) for part in late]
        else:
            if oldest is None:
                notes.append(f"topic {scope} was empty at {format_ts(to_ts)}: no record is restored")
            else:
                obstacles.append(_empty(scope, oldest))
    return obstacles, notes


def _overwritten(part: PartRead) -> Obstacle:
    return Obstacle(
        scope=part.scope,
        region=part.region,
        reason="compacted",
        detail=f"{part.lacking} offsets from {part.start_position} to {part.end_position} had no record any "
        f"more when backup {part.backup_id} read them, so what their keys held then is not known",
        before_ts=part.before_ts,
        after_ts=part.after_ts,
    )


def _older(part: PartRead, oldest: int | None) -> Obstacle:
    return Obstacle(
        scope=part.scope,
        region=part.region,
        reason="older",
        detail=f"the first backup, {part.backup_id}, began at offset {part.start_position} and has nothing "
        "as old: what the topic held then is not known",
        after_ts=part.after_ts if oldest is None else min(oldest, part.after_ts),
    )


def _empty(scope: str, oldest: int) -> Obstacle:
    return Obstacle(
        scope=scope,
        region="",
        reason="empty",
        detail=f"it held nothing then, its first record is of {format_ts(oldest)}",
        after_ts=oldest,
    )


# What to do about a plan whose obstacles have these reasons, and no others.
_HINTS = {
    frozenset({"gap"}): "Choose another --to-time, or accept the holes with --allow-gaps (it is recorded).",
    frozenset({"compacted"}): "Choose one of these times, or accept what is not known with --approximate (it "
    "is recorded).",
    frozenset({"older"}): "Give a later --to-time.",
    frozenset({"empty"}): "Give a later --to-time, or restore the empty topic with --allow-empty (it is "
    "recorded).",
    frozenset({"pruned"}): "Choose a later --to-time, or none: then each partition starts where it was "
    "pruned.",
    frozenset({"gap", "compacted"}): "Choose another --to-time, or accept what is missing with --allow-gaps "
    "and --approximate.",
}
_OTHER_HINT = "Choose another --to-time that does not need these files; `lakebackup verify` shows all damage."


def require_restorable(plan: RestorePlan, accepted: Collection[str] = ()) -> None:
    """Refused when the plan has obstacles that are not accepted, see `refusal`."""
    if refused := refusal(plan, accepted):
        raise refused


def refusal(plan: RestorePlan, accepted: Collection[str]) -> Refused | None:
    """Why the plan is not carried out. `accepted`: the reasons of obstacles that a person accepts, of `gap`,
    `compacted` and `empty`; missing or damaged files may not be."""
    standing = [o for o in plan.obstacles if o.reason not in accepted]
    if not standing:
        return None
    reasons = {o.reason for o in standing}
    shown = "\n".join(f"  {o}" for o in standing[:10])
    more = f"\n  and {len(standing) - 10} more" if len(standing) > 10 else ""
    return Refused(
        f"This restore would not be what the topics held:\n{shown}{more}",
        hint=_HINTS.get(frozenset(reasons), _OTHER_HINT),
    )


@dataclass(frozen=True, slots=True)
class Cover:
    """Until when (ms) backups cover something, and the `place` of the last of them among their source's."""

    end_ts: int
    place: int
    backup_id: str = ""


def refuse_outside(
    source: str,
    wanted: Sequence[str],
    to_ts: int | None,
    newest: Mapping[str, Cover],
    latest: Callable[[], Cover | None],
) -> None:
    """NotFound for topics without any backup, Refused for a time after the last backup of a topic.

    `newest`: of each topic; `latest`: asks for the last backup of the source, which may hold a topic no more.
    """
    unknown = sorted(set(wanted) - set(newest))
    if unknown:
        raise NotFound(
            f"No backup of source {source} holds {', '.join(unknown)}.",
            hint="`lakebackup sql 'SELECT DISTINCT source, scope FROM restore_points'` lists what can be.",
        )
    if to_ts is None or all(newest[scope].end_ts >= to_ts for scope in wanted):
        return
    last = latest()
    late, hint = [], "Take a backup first, or choose an earlier --to-time."
    for scope in wanted:
        cover = newest[scope]
        if cover.end_ts >= to_ts:
            continue
        sentence = f"{scope} is covered until {format_ts(cover.end_ts)}"
        if last and last.place > cover.place:
            hint = "Choose an earlier --to-time."
            sentence += (
                f", and the backup of {format_ts(last.end_ts)}, {last.backup_id}, does not hold it any more: "
                "it was deleted, or is not backed up"
            )
        late.append(sentence)
    raise Refused(f"{format_ts(to_ts)} is after the last backup: {'; '.join(late)}.", hint=hint)
