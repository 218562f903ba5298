"""The topics that a compaction reads, leaves out or refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakebackup.errors import NotFound, Refused
from lakebackup.plan.topics.generations import CompactPlan, GenerationHistory, plan_compaction

EPOCH = "0" * 32


def point(scope: str, policy: str = "compact", **changes: Any) -> dict[str, Any]:
    settings = {"cleanup.policy": policy, "delete.retention.ms": "500"}
    return {
        "scope": scope, "epoch": EPOCH, "backup_id": "b5", "generation": 2, "regions": 1, "replication": 1,
        "settings": json.dumps(settings), "end_ts": 5_000, "files": 4, "bytes": 400, "entries": 40,
        "null_keys": 0, "compacted": False, **changes,
    }  # fmt: skip


def compaction(*points: dict[str, Any], longest_ms: int = 0, **changes: Any) -> CompactPlan:
    generations = [GenerationHistory(p["scope"], EPOCH, 6, 2, 1, 1, 5_000, longest_ms) for p in points]
    return plan_compaction(points, generations, **changes)


def topic_names(plan: CompactPlan) -> list[str]:
    return [topic.scope for topic in plan.topics]


def test_all_compacted_topics_but_internal_ones_are_chosen() -> None:
    plan = compaction(point("a"), point("b", "delete"), point("c", "compact,delete"), point("__x"))
    assert topic_names(plan) == ["a", "c"]
    assert plan.skipped_topics == {"b": "its cleanup.policy does not include compact"}
    assert topic_names(compaction(point("__x"), names=["__x"])) == ["__x"]


def test_the_generation_has_an_unused_number() -> None:
    (topic,) = compaction(point("a")).topics
    assert (topic.generation, topic.drop_before, topic.doubtful) == (7, 4_500, False)
    (late,) = compaction(point("a"), longest_ms=500).topics
    assert late.doubtful


def test_a_named_topic_that_is_not_compacted_needs_all_keyed() -> None:
    with pytest.raises(Refused, match="b cannot be compacted: its cleanup") as refused:
        compaction(point("b", "delete"), names=["b"])
    assert "--all-keyed" in refused.value.hint
    assert topic_names(compaction(point("b", "delete"), names=["b"], all_keyed=True)) == ["b"]


def test_records_without_a_key_are_refused() -> None:
    with pytest.raises(Refused, match="without a key"):
        compaction(point("b", null_keys=1), names=["b"], all_keyed=True)
    plan = compaction(point("a"), point("b", null_keys=1), expressions=[".*"])
    assert (topic_names(plan), list(plan.skipped_topics)) == (["a"], ["b"])


def test_an_unknown_topic_is_an_error_and_nothing_to_do_is_none() -> None:
    plan = compaction(point("a", compacted=True), point("b", files=0), names=["a", "b"])
    assert plan.batches == ()
    assert plan.skipped_topics == {
        "a": "it has no new records since its last compaction", "b": "its backups hold no records",
    }  # fmt: skip
    with pytest.raises(NotFound, match="orderz"):
        compaction(point("orders"), names=["orderz"])


def test_topics_whose_backups_end_at_different_times_become_several_backups() -> None:
    plan = compaction(point("a"), point("b", backup_id="b4", end_ts=4_000), point("c"))
    assert [batch.scopes for batch in plan.batches] == ["b", "a,c"]
    assert topic_names(plan) == ["a", "b", "c"]
