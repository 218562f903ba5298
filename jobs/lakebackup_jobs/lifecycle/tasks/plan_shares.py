"""The recorded plan of a run: a copy of its plan file in the run's folder, and which rows each task works on.

A share is a range of rows. So a run that is resumed still works on what was planned, whatever newer backups
there are, and no process holds the list of files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged, NotFound
from lakebackup.storage import Storage, open_storage, working
from lakebackup.store.plan_file import Groups, PlanFile, PlanObject
from lakebackup_jobs.kafka.format.stored import StoredFile
from lakebackup_jobs.lifecycle.tasks.batched import batched
from lakebackup_jobs.lifecycle.tasks.old_plan import read_old_plan
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress

# A task takes one share; when there are more shares than this, a task takes several.
MOST_TASKS = 200
# It is written last, so a plan that has it is complete.
_PLAN = "plan/plan.json"
# The same of the plans that older versions recorded; see `old_plan`.
_OLD_PLAN = "plan/tasks.json"
T = TypeVar("T")


class Share(NamedTuple):
    """The rows `[first, end)` of a plan file. `partition`: the names of the partition that they are of."""

    first: int
    end: int
    partition: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareRows(Generic[T]):
    """The rows of a share, as objects of a dataclass with a field for each column that it needs.

    Each iteration reads them again. `cache` is that of `PlanFile.batches`.
    """

    file: PlanFile
    share: Share
    kind: type[T]
    cache: Groups = field(default_factory=dict, repr=False, compare=False)

    def __iter__(self) -> Iterator[T]:
        columns: tuple[str, ...] = self.kind.__match_args__  # type: ignore[attr-defined]
        for batch in self.file.batches(self.share.first, self.share.end, columns, self.cache):
            for row in batch.to_pylist():
                yield self.kind(**row)


def all_rows(file: PlanFile, kind: type[T]) -> ShareRows[T]:
    """All rows of a plan file, as objects of a dataclass."""
    return ShareRows(file, Share(0, file.rows), kind)


@dataclass(frozen=True, slots=True)
class PlanShares:
    """The shares of a run's plan file. `tasks[i]` has those that task i works on.

    `folder`: the folder of the run in the storage at `uri`.
    """

    uri: str
    folder: str
    file: PlanFile
    tasks: tuple[tuple[Share, ...], ...]

    @property
    def numbers(self) -> range:
        """The numbers of the tasks."""
        return range(len(self.tasks))

    def partition_files(self, number: int) -> Iterator[tuple[tuple[str, str], ShareRows[StoredFile]]]:
        """Yield each partition of a task, as its topic and number, with its files, which can be iterated
        repeatedly."""
        for files in self.rows(number, StoredFile):
            scope, _, region = files.share.partition
            yield (scope, region), files

    def rows(self, number: int, kind: type[T]) -> Iterator[ShareRows[T]]:
        """The rows of each share of a task, as objects of a dataclass."""
        cache: Groups = {}  # small shares have a row group in common
        for share in self.tasks[number]:
            yield ShareRows(self.file, share, kind, cache)

    def batches(self, number: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a task, with some columns or all."""
        for share in self.tasks[number]:
            yield from self.file.batches(share.first, share.end, columns)

    def task_progress(self) -> TaskProgress:
        """Where the tasks report their progress."""
        return TaskProgress(open_storage(self.uri), self.folder)

    def clear(self) -> None:
        """Delete the recorded plan, its mark first. Call it when the run is complete."""
        clear(open_storage(self.uri), self.folder)


def dealt(shares: Sequence[Share], most: int = MOST_TASKS) -> tuple[tuple[Share, ...], ...]:
    """Assign shares to at most `most` tasks in turn. Tasks start with the shares that come first."""
    count = min(len(shares), most)
    return tuple(tuple(shares[task::count]) for task in range(count))


def store_plan(
    storage: Storage,
    folder: str,
    file: PlanFile,
    shares: Sequence[Share],
    state: Mapping[str, Any] = MappingProxyType({}),
    *,
    most_tasks: int = MOST_TASKS,
) -> PlanShares:
    """Record a plan below the folder of a run; returns its shares, with a task for each, up to `most_tasks`.

    `state`: further values, for JSON, that a run needs which resumes this one. Raises EnvironmentProblem.
    """
    copy = file.copy_to(storage, f"{folder}plan/")
    content = {"objects": copy.objects, "shares": shares, "most_tasks": most_tasks, **state}
    storage.put(f"{folder}{_PLAN}", json.dumps(content).encode())
    return PlanShares(storage.uri, folder, copy, dealt(shares, most_tasks))


def stored_plan(storage: Storage, folder: str) -> tuple[PlanShares, Mapping[str, Any]] | None:
    """The plan that an interrupted run recorded below its folder: its shares, and `state` of `store_plan`.

    None if it did not record all of it. A plan of an older version is recorded again, in this form.
    """
    plan = _read(storage, folder)
    if plan is None and (old := _read_old(storage, folder)):
        file, shares, state = old
        return store_plan(storage, folder, file, shares, state), state
    return plan


def require_plan(storage: Storage, folder: str) -> tuple[PlanShares, Mapping[str, Any]]:
    """Like `stored_plan`, but raises Damaged when there is none."""
    plan = stored_plan(storage, folder)
    if plan is None:
        raise Damaged(
            f"{folder}{_PLAN}, the plan of this run, is missing.", hint="Run the same command again."
        )
    return plan


def regions_of(storage: Storage, folder: str) -> list[tuple[str, str, str]] | None:
    """The partitions (topic, epoch, number) with a share below `folder`; None if there is no plan. A complete
    restore deletes its plan."""
    if plan := _read(storage, folder):
        shares = [share for task in plan[0].tasks for share in task]
    elif old := _read_old(storage, folder):
        shares = old[1]
    else:
        return None
    return [(share.partition[0], share.partition[1], share.partition[2]) for share in shares]


def _read(storage: Storage, folder: str) -> tuple[PlanShares, Mapping[str, Any]] | None:
    try:
        content = json.loads(working.read_latest(storage, f"{folder}{_PLAN}"))
    except NotFound:
        return None
    file = PlanFile(storage.uri, tuple(PlanObject(*fields) for fields in content.pop("objects")))
    shares = [Share(first, end, tuple(names)) for first, end, names in content.pop("shares")]
    most_tasks = content.pop("most_tasks", MOST_TASKS)  # plans of older versions do not have it
    return PlanShares(storage.uri, folder, file, dealt(shares, most_tasks)), content


def _read_old(storage: Storage, folder: str) -> tuple[PlanFile, list[Share], Mapping[str, Any]] | None:
    if (old := read_old_plan(storage, folder)) is None:
        return None
    return old.file, [Share(*share) for share in old.shares], old.state


def clear(storage: Storage, folder: str) -> None:
    """Delete what is recorded below `folder` as the plan of a run, the mark first."""
    marks = {f"{folder}{_PLAN}", f"{folder}{_OLD_PLAN}"}
    paths = [entry.path for entry in storage.list(f"{folder}plan/")]
    for mark in marks.intersection(paths):
        working.retire(storage, mark)
    working.delete(storage, [path for path in paths if path not in marks])


def runs_of(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> list[Share]:
    """A share for each run of rows that agree in some columns of strings, which name its partition."""
    shares: list[Share] = []
    end = 0
    for batch in batches:
        values = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
        for names, rows in groupby(values):
            first, end = end, end + sum(1 for _ in rows)
            if shares and shares[-1].partition == names:
                first = shares.pop().first
            shares.append(Share(first, end, names))
    return shares


def divided(
    rows: Iterable[T], partition_of: Callable[[T], tuple[str, ...]], *limits: tuple[Callable[[T], int], int]
) -> list[Share]:
    """Divide the rows of each partition into shares. `limits`: see `batched`."""
    shares, end = [], 0
    for names, partition_rows in groupby(rows, partition_of):
        for batch in batched(partition_rows, *limits):
            first, end = end, end + len(batch)
            shares.append(Share(first, end, names))
    return shares


def weighed(
    batches: Iterable[pa.RecordBatch],
    size: int,
    *,
    weight: str | None,
    each: int = 0,
    together: Sequence[str] = ("destination", "path"),
) -> list[Share]:
    """Divide rows into shares of about the weight `size`.

    A row weighs `each` plus its column `weight`. Rows that agree in the columns of strings `together`, by
    default those of one object, follow one another, and go into one share.
    """
    starts = [0]
    begin = total = number = 0
    previous_group = None
    for batch in filter(len, batches):
        groups = pc.binary_join_element_wise(*(batch.column(name) for name in together), "\0")
        is_start = np.ones(len(batch), bool)
        is_start[0] = groups[0].as_py() != previous_group
        is_start[1:] = pc.not_equal(groups[1:], groups[:-1])
        row_weights = np.full(len(batch), each)
        if weight:
            row_weights += batch.column(weight).fill_null(0).to_numpy()
        cumulative = total + np.cumsum(row_weights)
        # For each row, the row at which its group starts; -1: in the previous batch.
        group_rows = np.maximum.accumulate(np.where(is_start, np.arange(len(batch)), -1))
        numbers = np.where(group_rows < 0, number, ((cumulative - row_weights) // size)[group_rows])
        starts += (begin + np.flatnonzero(np.diff(numbers, prepend=number))).tolist()
        begin, total, number = begin + len(batch), int(cumulative[-1]), int(numbers[-1])
        previous_group = groups[-1].as_py()
    return [Share(first, end) for first, end in pairwise([*starts, begin]) if first < end]
