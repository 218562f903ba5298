"""The plan of a restore of Kafka topics: what it reads, and the obstacles to it.

A restore of a topic to time T brings back what a reader saw then: the records with a timestamp at or before
T, from the first backup that was taken at or after T and the chain that it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any

from lakebackup.errors import NotFound, Refused
from lakebackup.plan.partitions import Partition
from lakebackup.rules.times import format_ts
from lakebackup.rules.topic_settings import TopicSettings
from lakebackup.store.plan_file import PlanFile


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
    """One topic of a restore: its backup, its target, its settings, and its partitions' files."""

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
    """The positions of a partition that a restore covers, including those without a record."""

    start_position: int
    end_position: int


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a restore would not be correct, such as a gap in the history, or a missing or damaged file.

    `before_ts`, `after_ts` (ms): the nearest times that can be restored.
    """

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
        suffix = f" (nearest restorable time {', '.join(nearest)})" if nearest else ""
        partition = f", partition {self.region}" if self.region else ""
        prefix = f"topic {self.scope}{partition}: " if self.scope else ""
        return f"{prefix}{self.detail}{suffix}"


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A planned restore. `file`: the rows of its files, one partition after another, each in the order of its
    offsets. The SQL `selection` selects them with `parameters`. `backup_id`: the backup that the user named.

    `spans`: set when whole topics are restored. `until`: the position up to which earlier restores brought a
    (topic, partition); None: the restore continues no other. `reached`: the last time to which the files of a
    user's SELECT bring a (topic, partition); None where they hold no restore point completely. `at` (us): a
    time just before the catalog was read. `one_producer`: each task writes its partitions with one producer;
    otherwise each partition has its own, as in restores that an older version began.
    """

    source: str
    from_ts: int | None
    to_ts: int | None
    selection: str
    parameters: Mapping[str, object]
    file: PlanFile = field(compare=False)
    topics: tuple[TopicPart, ...]
    obstacles: tuple[Obstacle, ...] = ()
    spans: tuple[RegionSpan, ...] = ()
    until: Mapping[tuple[str, str], int] | None = None
    reached: Mapping[tuple[str, str], int | None] | None = None
    notes: tuple[str, ...] = ()
    at: int = field(default=0, compare=False)
    backup_id: str | None = None
    one_producer: bool = field(default=True, compare=False)

    @property
    def begins(self) -> dict[tuple[str, str], int]:
        """The position at which each (topic, partition) begins, where it is known by more than its files."""
        spans = self.spans if self.from_ts is None else ()
        return {(s.scope, s.region): s.start_position for s in spans} | dict(self.until or {})

    @property
    def ends(self) -> dict[tuple[str, str], int]:
        """The end position of each (topic, partition); empty if records after some time are left out."""
        spans = self.spans if self.to_ts is None else ()
        return {(s.scope, s.region): s.end_position for s in spans}

    @property
    def files(self) -> int:
        return sum(part.files for topic in self.topics for part in topic.parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for topic in self.topics for part in topic.parts)

    @property
    def entries(self) -> int:
        """Records in the chosen files; those outside the time bounds are skipped while restoring."""
        # The sum is None if rows of the catalog hold no number. The restore refuses their files later.
        return sum(part.entries or 0 for topic in self.topics for part in topic.parts)

    def partitions(self) -> list[tuple[RegionPart, int, int]]:
        """Each partition with files, and its rows `[first, end)` in the plan file; the largest first."""
        parts = sorted(
            (part for topic in self.topics for part in topic.parts),
            key=lambda part: (part.scope, part.epoch, part.region),
        )
        ends = list(accumulate(part.files for part in parts))
        rows = zip(parts, [0, *ends], ends, strict=False)
        return sorted(rows, key=lambda row: -row[0].bytes)

    def to_resume(self) -> dict[str, Any]:
        """The values, for JSON, from which a run that resumes this restore recreates the plan; see
        `resumed`."""
        until = None if self.until is None else [[*region, end] for region, end in self.until.items()]
        topics, spans = map(asdict, self.topics), map(asdict, self.spans)
        return {
            "at": self.at, "topics": list(topics), "spans": list(spans), "until": until,
            "one_producer": self.one_producer,
        }  # fmt: skip

    def resumed(self, file: PlanFile, state: Mapping[str, Any]) -> RestorePlan:
        """This plan with the values of an earlier one, whose files are restored. `state`: its `to_resume`.

        Empty: it stored nothing, so it is unknown where its files begin and end.
        """
        if not state:
            return replace(self, file=file, spans=(), one_producer=False)
        if "parts" in state:  # all that older versions recorded of a restore by SELECT of records
            parts = tuple(RegionPart(**part) for part in state["parts"])
            topics = tuple(replace(topic, parts=parts) for topic in self.topics)
            return replace(self, file=file, topics=topics, one_producer=False)
        topic_parts = [
            TopicPart(
                **{
                    **topic,
                    "settings": TopicSettings(**topic["settings"]),
                    "parts": tuple(RegionPart(**part) for part in topic["parts"]),
                }
            )
            for topic in state["topics"]
        ]
        until = state["until"]
        return replace(
            self,
            file=file,
            at=state["at"],
            topics=tuple(topic_parts),
            spans=tuple(RegionSpan(**span) for span in state["spans"]),
            one_producer=state.get("one_producer", False),
            until=None if until is None else {(scope, region): end for scope, region, end in until},
        )


@dataclass(frozen=True, slots=True)
class PartRead:
    """What a backup read of a partition that is restored to a time before the backup's end.

    A row of the query restore_between. It read offsets `[start, end)`; its files hold `entries` records of
    them; None: there is no file. Times are in ms.
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
        """How many of the offsets that it read had no record."""
        return self.end_position - self.start_position - (self.entries or 0)


def between(
    read: Sequence[PartRead], compacted: Collection[str], to_ts: int
) -> tuple[list[Obstacle], list[str]]:
    """The obstacles to a restore to a time between two restore points, and notes on it.

    Records that the source deleted between that time and the backup's read are in no backup. In a compacted
    topic, offsets without a record may have held values that were current then. Offsets of transaction
    markers look the same, so they count too. Before the first backup, a topic without a record that old was
    empty only if that backup read it from offset 0 on.
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


# The hints for plans whose obstacles have exactly these reasons.
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
    """Raise Refused when the plan has obstacles that are not accepted; see `refusal`."""
    if refused := refusal(plan, accepted):
        raise refused


def refusal(plan: RestorePlan, accepted: Collection[str]) -> Refused | None:
    """Why the plan is refused; None: it is not. `accepted`: the reasons of obstacles that the user accepts:
    `gap`, `compacted` or `empty`. Missing and damaged files cannot be accepted."""
    obstacles = [o for o in plan.obstacles if o.reason not in accepted]
    if not obstacles:
        return None
    reasons = {o.reason for o in obstacles}
    lines = "\n".join(f"  {o}" for o in obstacles[:10])
    suffix = f"\n  and {len(obstacles) - 10} more" if len(obstacles) > 10 else ""
    return Refused(
        f"This restore would not be what the topics held:\n{lines}{suffix}",
        hint=_HINTS.get(frozenset(reasons), _OTHER_HINT),
    )


@dataclass(frozen=True, slots=True)
class Cover:
    """Until when (ms) backups cover a topic or a source, and the last of these backups with its
    `sequence`."""

    end_ts: int
    sequence: int
    backup_id: str = ""


def refuse_outside(
    source: str,
    topics: Sequence[str],
    to_ts: int | None,
    newest: Mapping[str, Cover],
    latest: Callable[[], Cover | None],
) -> None:
    """Raise NotFound for topics without a backup, Refused for a time after the last backup of a topic.

    `newest`: the cover of each topic; `latest`: reads the source's last backup, which may no longer hold a
    topic.
    """
    unknown = sorted(set(topics) - set(newest))
    if unknown:
        raise NotFound(
            f"No backup of source {source} holds {', '.join(unknown)}.",
            hint="`lakebackup sql 'SELECT DISTINCT source, scope FROM restore_points'` lists what can be.",
        )
    if to_ts is None or all(newest[scope].end_ts >= to_ts for scope in topics):
        return
    last = latest()
    late, hint = [], "Take a backup first, or choose an earlier --to-time."
    for scope in topics:
        cover = newest[scope]
        if cover.end_ts >= to_ts:
            continue
        sentence = f"{scope} is covered until {format_ts(cover.end_ts)}"
        if last and last.sequence > cover.sequence:
            hint = "Choose an earlier --to-time."
            sentence += (
                f", and the backup of {format_ts(last.end_ts)}, {last.backup_id}, does not hold it any more: "
                "it was deleted, or is not backed up"
            )
        late.append(sentence)
    raise Refused(f"{format_ts(to_ts)} is after the last backup: {'; '.join(late)}.", hint=hint)
