"""Which topics a compaction takes, and which it leaves or refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakebackup.errors import NotFound, Refused
from lakebackup.plan.topics.generations import CompactPlan, Held, plan_compaction

EPOCH = "0" * 32


def point(scope: str, policy: str = "compact", **changes: Any) -> dict[str, Any]:
    settings = {"cleanup.policy": policy, "delete.retention.ms": "500"}
    return {
        "scope": scope, "epoch": EPOCH, "backup_id": "b5", "generation": 2, "regions": 1, "replication": 1,
        "settings": json.dumps(settings), "end_ts": 5_000, "files": 4, "bytes": 400, "entries": 40,
        "null_keys": 0, "compacted": False, **changes,
    }  # fmt: skip


def made(*points: dict[str, Any], longest_ms: int = 0, **changes: Any) -> CompactPlan:
    held = [Held(p["scope"], EPOCH, 6, 2, 1, 1, 5_000, longest_ms) for p in points]
    return plan_compaction(points, held, **changes)


def taken(plan: CompactPlan) -> list[str]:
    return [topic.scope for topic in plan.topics]


def test_all_compacted_topics_but_internal_ones() -> None:
    plan = made(point("a"), point("b", "delete"), point("c", "compact,delete"), point("__x"))
    assert taken(plan) == ["a", "c"]
    assert plan.left_out == {"b": "its cleanup.policy does not include compact"}
    assert taken(made(point("__x"), names=["__x"])) == ["__x"]


def test_the_generation_is_one_that_was_never_given() -> None:
    (topic,) = made(point("a")).topics
    assert (topic.generation, topic.drop_before, topic.doubtful) == (7, 4_500, False)
    (late,) = made(point("a"), longest_ms=500).topics
    assert late.doubtful


def test_a_named_topic_that_is_not_compacted_is_refused_until_all_keyed() -> None:
    with pytest.raises(Refused, match="b cannot be compacted: its cleanup") as refused:
        made(point("b", "delete"), names=["b"])
    assert "--all-keyed" in refused.value.hint
    assert taken(made(point("b", "delete"), names=["b"], all_keyed=True)) == ["b"]


def test_records_without_a_key_are_refused() -> None:
    with pytest.raises(Refused, match="without a key"):
        made(point("b", null_keys=1), names=["b"], all_keyed=True)
    plan = made(point("a"), point("b", null_keys=1), expressions=[".*"])
    assert (taken(plan), list(plan.left_out)) == (["a"], ["b"])


def test_nothing_to_do_is_no_error_and_an_unknown_topic_is_one() -> None:
    plan = made(point("a", compacted=True), point("b", files=0), names=["a", "b"])
    assert plan.topics == ()
    assert plan.left_out == {
        "a": "it has no new records since its last compaction", "b": "its backups hold no records",
    }  # fmt: skip
    with pytest.raises(NotFound, match="orderz"):
        made(point("orders"), names=["orderz"])


def test_topics_whose_backups_end_at_other_instants_become_other_backups() -> None:
    plan = made(point("a"), point("b", backup_id="b4", end_ts=4_000), point("c"))
    assert [[topic.scope for topic in batch] for batch in plan.batches] == [["b"], ["a", "c"]]
