"""Which backups a merge makes into one, and which of their files become one file. Pure.

A backup of level N-1 replaces the last consecutive backups of level N, and has their parent. For level 1 it
is a full: it holds all that they depend on too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.partitions import StoredTopic
from lakebackup.plan.topics.generations import is_compacted, tombstones_stay_ms
from lakebackup.rules import topic_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakebackup.plan.topics.generations import Held
    from lakebackup_jobs.topics.tasks.merge import MergedFile

# The rows of a target's files are read at once by the task that writes it.
MOST_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Member:
    """A backup of the chain to merge on; the fields are those of its row."""

    backup_id: str
    number: int
    kind: str
    level: int
    base: str
    link: int
    chain_position: int
    place: int
    parent_place: int | None
    branch: int
    end_ts: int
    isolation: str
    codec: str


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What becomes one backup: `members` in order and their `parent` (None: it becomes a full).

    `without`: topics of some members that it does not have. `older`: files of generations or topics made
    again since, which no restore of the last member takes.
    """

    members: tuple[Member, ...]
    parent: Member | None
    level: int
    topics: tuple[StoredTopic, ...] = ()
    without: tuple[str, ...] = ()
    older: int = 0

    @property
    def last(self) -> Member:
        """The backup that it can be restored in place of."""
        return self.members[-1]

    @property
    def kind(self) -> Literal["full", "differential", "cumulative"]:
        """As the levels have it: since the latest backup of its own level, or of a lower one."""
        if self.parent is None:
            return "full"
        return "differential" if self.parent.level == self.level else "cumulative"


def choose(level: int, path: Sequence[Member], to_ts: int | None = None) -> MergePlan | None:
    """The newest consecutive backups of a level in `path`, the chain of one backup; None when there are not
    two.

    `to_ts`: of those that end by then (in the source's unit). Raises UsageProblem for a level below 1.
    """
    if level < 1:
        raise UsageProblem(
            f"Backups of level {level} cannot be merged: there is no lower level.",
            hint="Give the level of the incremental backups: 1 makes a full.",
        )
    within = [member for member in path if to_ts is None or member.end_ts <= to_ts]
    end = max((i for i, member in enumerate(within, 1) if member.level == level), default=0)
    start = end
    while start and within[start - 1].level == level:
        start -= 1
    if level == 1:
        members, parent = within[:end], None
    else:
        members, parent = within[start:end], within[start - 1] if start else None
    if len(members) < 2:
        return None
    return MergePlan(tuple(members), parent, level - 1)


def with_topics(
    plan: MergePlan,
    scopes: Iterable[Mapping[str, Any]],
    held: Iterable[Held],
    *,
    drop_gone: bool = False,
) -> MergePlan:
    """The plan with its topics, from rows of the queries merge_scopes and generations.

    Raises Refused: topics that the last backup does not have would be lost (`drop_gone` leaves them out), or
    tombstones of a compacted topic may be missing, which a merged backup could not show any more.
    """
    known = {(h.scope, h.epoch): h for h in held}
    topics, gone, older = [], set(), 0
    for row in scopes:
        if row["settings"] is None:
            older += row["files"]
            gone.add(row["scope"])
            continue
        topics.append(StoredTopic(**row))
        settings = topic_settings.in_force(row["settings"])
        found = known.get((row["scope"], row["epoch"]))
        if found and is_compacted(settings) and found.longest_ms >= tombstones_stay_ms(settings):
            raise Refused(
                f"Topic {row['scope']}: its backups may lack tombstones; the next reads it from its start.",
                hint="Take that backup, then merge.",
            )
    gone -= {topic.scope for topic in topics}
    if gone and not drop_gone:
        raise Refused(
            f"Backup {plan.last.backup_id}, the last to merge, does not have all topics of those before it: "
            f"{', '.join(sorted(gone))}.",
            hint="Merge --until a backup that has them; or leave them out of the merged backup with "
            "--drop-gone, and lose them when what was merged is pruned.",
        )
    return replace(plan, topics=tuple(topics), without=tuple(sorted(gone)), older=older)


def targets(
    files: Iterable[MergedFile], target_bytes: int, rolls: Mapping[str, int | None]
) -> Iterator[tuple[int, list[MergedFile]]]:
    """The files that become one, in the order of partitions and offsets, each with its number in the
    partition.

    A target has one format and codec, at most `target_bytes` (or is one file) and MOST_FILES, and its records
    span no more time than the topic's files do (`rolls`, ms), so that as much expires.
    """
    held: list[MergedFile] = []
    rank = size = 0
    low = high = -1
    for file in files:
        low, high = (
            (min(low, file.min_ts) if low >= 0 else file.min_ts, max(high, file.max_ts))
            if held
            else (file.min_ts, file.max_ts)
        )
        span = rolls.get(file.scope)
        if held and (
            _alike(held[0]) != _alike(file)
            or size + file.bytes > target_bytes
            or len(held) == MOST_FILES
            or (span is not None and low >= 0 and high - low > span)
        ):
            yield rank, held
            rank = rank + 1 if held[0].place == file.place else 0
            held, size, low, high = [], 0, file.min_ts, file.max_ts
        held.append(file)
        size += file.bytes
    if held:
        yield rank, held


def _alike(file: MergedFile) -> tuple[str, ...]:
    return *file.place, file.format, file.codec
