"""Plans a merge: which backups become one, and which of their files become one file. Pure.

A merge replaces the last consecutive backups of level N by one of level N-1 with the same parent. For level 1
the result is a full, which also includes the backups that they depend on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.partitions import StoredTopic
from lakebackup.plan.topics.generations import GenerationHistory, is_compacted, tombstones_stay_ms
from lakebackup.rules import topic_settings
from lakebackup.store.plan_file import EMPTY, PlanFile


class MergeFile(Protocol):
    """What is needed of a file to group it with others; the fields are those of its row."""

    @property
    def scope(self) -> str: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def format(self) -> str: ...
    @property
    def codec(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def min_ts(self) -> int: ...
    @property
    def max_ts(self) -> int: ...


F = TypeVar("F", bound=MergeFile)
# The task that writes a merged file reads the rows of all its source files into memory.
MOST_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Member:
    """A backup of the chain that is merged; the fields are those of its row."""

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
    """The backups to merge (`members`, in order) and the parent of the result (None: it is a full).

    `without`: topics of some members that the result leaves out. `older`: how many files it leaves out, of
    older generations and of recreated topics, which a restore of the last member does not need. `file`: the
    files to copy, as rows of merge_files.
    """

    members: tuple[Member, ...]
    parent: Member | None
    level: int
    topics: tuple[StoredTopic, ...] = ()
    without: tuple[str, ...] = ()
    older: int = 0
    file: PlanFile = field(default=EMPTY, compare=False)

    @property
    def last(self) -> Member:
        """The last member: a restore of the result gives the same as a restore of it."""
        return self.members[-1]

    @property
    def kind(self) -> Literal["full", "differential", "cumulative"]:
        """Differential since a backup of its own level, cumulative since one of a lower level."""
        if self.parent is None:
            return "full"
        return "differential" if self.parent.level == self.level else "cumulative"


def choose(level: int, path: Sequence[Member], to_ts: int | None = None) -> MergePlan | None:
    """Plan a merge of the newest consecutive backups of a level in `path`, the chain of one backup.

    None when there are fewer than two. `to_ts`: only backups that end by then (in the source's unit).
    Raises UsageProblem for a level below 1.
    """
    if level < 1:
        raise UsageProblem(
            f"Backups of level {level} cannot be merged: there is no lower level.",
            hint="Give the level of the incremental backups: 1 makes a full.",
        )
    candidates = [member for member in path if to_ts is None or member.end_ts <= to_ts]
    end = max((i for i, member in enumerate(candidates, 1) if member.level == level), default=0)
    start = end
    while start and candidates[start - 1].level == level:
        start -= 1
    if level == 1:
        members, parent = candidates[:end], None
    else:
        members, parent = candidates[start:end], candidates[start - 1] if start else None
    if len(members) < 2:
        return None
    return MergePlan(tuple(members), parent, level - 1)


def add_topics(
    plan: MergePlan,
    scopes: Iterable[Mapping[str, Any]],
    history_rows: Iterable[GenerationHistory],
    *,
    drop_gone: bool = False,
) -> MergePlan:
    """The plan with its topics, from rows of the queries merge_scopes and generations.

    Raises Refused when the last backup lacks topics of others (`drop_gone` leaves them out), or when a
    compacted topic may lack tombstones, which the merged backup would no longer show.
    """
    histories = {(h.scope, h.epoch): h for h in history_rows}
    topics, missing_scopes, older = [], set(), 0
    for row in scopes:
        if row["settings"] is None:
            older += row["files"]
            missing_scopes.add(row["scope"])
            continue
        topics.append(StoredTopic(**row))
        settings = topic_settings.in_force(row["settings"])
        history = histories.get((row["scope"], row["epoch"]))
        if history and is_compacted(settings) and history.longest_ms >= tombstones_stay_ms(settings):
            raise Refused(
                f"Topic {row['scope']}: its backups may lack tombstones.",
                hint="Take a backup, which reads the topic from its start, then merge.",
            )
    missing_scopes -= {topic.scope for topic in topics}
    if missing_scopes and not drop_gone:
        raise Refused(
            f"Backup {plan.last.backup_id}, the last to merge, does not have all topics of those before it: "
            f"{', '.join(sorted(missing_scopes))}.",
            hint="Merge up to a --backup that has them. Or give --drop-gone to leave them out; then "
            "they are lost when the original backups are pruned.",
        )
    return replace(plan, topics=tuple(topics), without=tuple(sorted(missing_scopes)), older=older)


def group_files(
    files: Iterable[F], target_bytes: int, rolls: Mapping[str, int | None], *, rank: int = 0
) -> Iterator[tuple[int, list[F]]]:
    """Group the files that become one file. Yields each group with its number in the partition.

    `files` are in the order of partitions and offsets. A group has one format and codec, at most
    `target_bytes` (unless it is one file) and MOST_FILES files. Its records span at most the topic's
    `rolls` (ms), so that retention deletes them as early as before. `rank`: the number of the first group.
    """
    group: list[F] = []
    size = 0
    low = high = -1
    for file in files:
        low, high = (
            (min(low, file.min_ts) if low >= 0 else file.min_ts, max(high, file.max_ts))
            if group
            else (file.min_ts, file.max_ts)
        )
        span = rolls.get(file.scope)
        if group and (
            _group_key(group[0]) != _group_key(file)
            or size + file.bytes > target_bytes
            or len(group) == MOST_FILES
            or (span is not None and low >= 0 and high - low > span)
        ):
            yield rank, group
            rank = rank + 1 if group[0].key == file.key else 0
            group, size, low, high = [], 0, file.min_ts, file.max_ts
        group.append(file)
        size += file.bytes
    if group:
        yield rank, group


def _group_key(file: MergeFile) -> tuple[str, ...]:
    return *file.key, file.format, file.codec
