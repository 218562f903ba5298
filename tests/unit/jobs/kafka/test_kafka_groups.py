"""Which committed offsets become rows of a backup."""

from __future__ import annotations

from lakebackup.plan.topics.backup import TopicState
from lakebackup_jobs.kafka.admin.groups import Committed, GroupsRead, GroupState, group_rows


def test_offsets_of_the_backup_s_topics_and_of_those_that_are_gone() -> None:
    offsets = (
        Committed("orders", "1", 5, 2, "m"),
        Committed("not-in-it", "0", 6),
        Committed("deleted", "0", 7),
    )
    state = GroupState("g", "consumer", "stable", 1, offsets)
    rows = group_rows(
        backup_id="b",
        source="prod",
        ts=9,
        read=GroupsRead((state, GroupState("idle", "classic", "empty", 0, ())), {}),
        topics=[TopicState("orders", "e1", 2, 1, {})],
        existing=["orders", "not-in-it"],
    )
    assert [(r.scope, r.epoch, r.region, r.position, r.leader_epoch, r.metadata) for r in rows] == [
        ("orders", "e1", "1", 5, 2, "m"),
        ("deleted", None, "0", 7, None, None),
    ]
    assert {(r.backup_id, r.source, r.group_id, r.protocol, r.state, r.ts) for r in rows} == {
        ("b", "prod", "g", "consumer", "stable", 9)
    }


def test_a_group_with_members_or_on_its_way_is_active() -> None:
    def active(state: str, members: int) -> bool:
        return GroupState("g", "classic", state, members, ()).active

    assert active("stable", 1)
    assert active("preparing_rebalancing", 0)
    assert not active("empty", 0)
    assert not active("dead", 0)
