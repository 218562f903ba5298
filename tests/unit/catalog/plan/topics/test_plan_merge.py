"""The backups that a merge joins, its refusals, and the files that become one file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.topics.generations import GenerationHistory
from lakebackup.plan.topics.merge import Member, MergePlan, add_topics, choose, group_files


def path(*levels: int) -> list[Member]:
    """A chain of backups with these levels. Backup i ends at 1000 i ms."""
    return [
        Member(
            f"b{i}", i, "full" if level == 0 else "differential", level, "b1", i, i - 1, i,
            i - 1 if level else None, 0, 1000 * i, "read_committed", "zstandard",
        )
        for i, level in enumerate(levels, 1)
    ]  # fmt: skip


def summary(plan: MergePlan | None) -> tuple[str, str | None, str, int] | None:
    if plan is None:
        return None
    parent = plan.parent.backup_id if plan.parent else None
    return ",".join(m.backup_id for m in plan.members), parent, plan.kind, plan.level


@pytest.mark.parametrize(
    ("level", "levels", "expected"),
    [
        (2, [0, 1, 2, 2, 2], ("b3,b4,b5", "b2", "differential", 1)),
        (2, [0, 2, 2], ("b2,b3", "b1", "cumulative", 1)),
        (3, [0, 1, 3, 3], ("b3,b4", "b2", "cumulative", 2)),
        (2, [0, 1, 2], None),
        (2, [0, 1, 1], None),
        (2, [], None),
        (1, [0, 1, 1], ("b1,b2,b3", None, "full", 0)),
        (1, [0, 1, 1, 2, 2], ("b1,b2,b3", None, "full", 0)),
        (1, [0], None),
        (1, [0, 2, 2], None),
        # Chains with a compaction, which has level 1 and depends on a backup of level 2.
        (2, [0, 1, 2, 2, 1], ("b3,b4", "b2", "differential", 1)),
        (2, [0, 2, 2, 1, 2, 2], ("b5,b6", "b4", "differential", 1)),
        (1, [0, 1, 2, 1], ("b1,b2,b3,b4", None, "full", 0)),
    ],
)
def test_consecutive_backups_of_a_level_become_one(
    level: int, levels: list[int], expected: tuple[str, str, str, int] | None
) -> None:
    assert summary(choose(level, path(*levels))) == expected


def test_only_backups_up_to_a_time_and_above_level_0_are_merged() -> None:
    assert summary(choose(2, path(0, 1, 2, 2, 2), to_ts=4_999)) == ("b3,b4", "b2", "differential", 1)
    assert choose(2, path(0, 1, 2, 2, 2), to_ts=3_000) is None
    for level in (0, -1):
        with pytest.raises(UsageProblem, match="no lower level"):
            choose(level, path(0, 1))


def scope(name: str = "t", **changes: Any) -> dict[str, Any]:
    return {
        "scope": name, "epoch": "e", "generation": 0, "regions": 1, "replication": 1, "settings": "{}",
        "files": 2, "bytes": 10, "entries": 5, **changes,
    }  # fmt: skip


def merge_plan() -> MergePlan:
    plan = choose(2, path(0, 1, 2, 2))
    assert plan
    return plan


def test_topics_are_those_of_the_last_backup_and_none_is_dropped_unasked() -> None:
    rows = [scope(), scope("anew", settings=None, files=3), scope("anew", generation=1)]
    plan = add_topics(merge_plan(), rows, [])
    assert [(t.scope, t.generation) for t in plan.topics] == [("t", 0), ("anew", 1)]
    assert (plan.older, plan.without) == (3, ())
    rows = [scope(), scope("gone", settings=None)]
    with pytest.raises(Refused, match=r"b4, the last to merge, .*: gone\."):
        add_topics(merge_plan(), rows, [])
    assert add_topics(merge_plan(), rows, [], drop_gone=True).without == ("gone",)


def test_a_topic_that_lacks_tombstones_is_refused() -> None:
    compacted = json.dumps({"cleanup.policy": "compact", "delete.retention.ms": "500"})
    incomplete = GenerationHistory("t", "e", 0, 0, 1, 1, 4_000, 500)
    with pytest.raises(Refused, match="tombstones"):
        add_topics(merge_plan(), [scope(settings=compacted)], [incomplete])
    assert add_topics(merge_plan(), [scope()], [incomplete]).topics
    complete = GenerationHistory("t", "e", 0, 0, 1, 1, 4_000, 499)
    assert add_topics(merge_plan(), [scope(settings=compacted)], [complete]).topics


@dataclass(frozen=True)
class File:
    bytes: int = 10
    region: str = "0"
    codec: str = "null"
    format: str = "2"
    min_ts: int = 0
    max_ts: int = 0
    scope: str = "t"
    epoch: str = "e"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scope, self.epoch, self.region


def sizes(files: list[File], target: int = 100, rolls: dict[str, int | None] | None = None) -> Any:
    return [(rank, [f.bytes for f in group]) for rank, group in group_files(files, target, rolls or {})]


def test_files_of_one_partition_format_and_codec_become_one() -> None:
    files = [
        File(1),
        File(2),
        File(3, codec="x"),
        File(4, codec="x", format="1"),
        File(5, region="1"),
        File(6),
    ]
    assert sizes(files) == [(0, [1, 2]), (1, [3]), (2, [4]), (0, [5]), (0, [6])]


def test_files_are_grouped_up_to_a_size_and_a_span_of_time() -> None:
    assert sizes([File(60), File(40), File(1), File(200), File(1)]) == [
        (0, [60, 40]), (1, [1]), (2, [200]), (3, [1]),
    ]  # fmt: skip
    timed = [File(1, min_ts=10, max_ts=20), File(2, min_ts=5, max_ts=12), File(3, min_ts=15, max_ts=21)]
    assert sizes(timed, rolls={"t": 15}) == [(0, [1, 2]), (1, [3])]
    assert sizes(timed, rolls={"t": None}) == [(0, [1, 2, 3])]
    assert sizes([File(1, min_ts=-1, max_ts=90), File(2, max_ts=80)], rolls={"t": 1}) == [
        (0, [1]), (1, [2]),
    ]  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(1, 120), st.sampled_from("01"), st.sampled_from(["a", "b"]))),
    st.integers(1, 200),
)
def test_every_file_is_in_one_group_and_in_order(drawn: list[tuple[int, str, str]], target: int) -> None:
    files = [File(size, region, codec) for size, region, codec in sorted(drawn, key=lambda d: d[1])]
    groups = list(group_files(files, target, {}))
    assert [f for _, group in groups for f in group] == files
    for region in "01":
        ranks = [rank for rank, group in groups if group[0].region == region]
        assert ranks == list(range(len(ranks)))
    for _, group in groups:
        assert len(group) == 1 or sum(f.bytes for f in group) <= target
        assert len({(f.region, f.codec) for f in group}) == 1
