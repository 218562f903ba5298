"""Prunes of sources that no restore point is left of, planned over real tables without Java."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.plan.upkeep.prune import plan_prune, window_of
from lakebackup.rows.backups import Backup, Scope
from lakebackup.rows.upkeep import Policy
from lakebackup.rules.topic_settings import TopicSettings
from lakebackup_jobs.upkeep.prune import PruneRequest, run


def made(root: Path, **changes: Any) -> list[str]:
    """Two fulls, of which a policy keeps one, with these fields changed in their rows."""
    backups = MadeBackups(root)
    now = time.time_ns() // 1_000_000
    names = [backups.backup([[Record(0, n)]], full=True, end_ts=now - 9 + n) for n in range(2)]
    rows = [row for row in backups._rows["backups"] if isinstance(row, Backup)]
    backups._rows["backups"] = [replace(row, **changes) for row in rows]
    if "source_kind" in changes:  # an archive has no topics
        backups._rows["scopes"] = [row for row in backups._rows["scopes"] if not isinstance(row, Scope)]
    backups.add(Policy(source="prod", at=1, actor="me", redundancy=1))
    backups.flush()
    return names


def planned(root: Path, **asked: Any) -> dict[str, Any]:
    return run(PruneRequest(destination=str(root), **asked), reporter=quiet())


def test_an_archive_lets_go_of_whole_backups(tmp_path: Path) -> None:
    first, _ = made(tmp_path, source_kind="couchbase")
    for asked in ({}, {"source": "prod"}):
        found = planned(tmp_path, **asked)
        assert [(b["backup_id"], b["files"]) for b in found["backups"]] == [(first, 1)]
        assert found["topics"] == []
    with pytest.raises(UsageProblem, match="prod was imported from an archive, which has no topics"):
        planned(tmp_path, topics=("orders",))


def test_sources_of_which_nothing_can_be_restored(tmp_path: Path) -> None:
    """What is out of sync can go; of what is deleted nothing is left to prune."""
    first, second = made(tmp_path / "lost", state="out_of_sync")
    found = planned(tmp_path / "lost")
    assert [(b["backup_id"], b["reason"]) for b in found["backups"]] == [
        (second, "out_of_sync"), (first, "out_of_sync"),
    ]  # fmt: skip
    made(tmp_path / "gone", state="deleted")
    with pytest.raises(NotFound, match="no restorable backup of prod"):
        planned(tmp_path / "gone", source="prod")


class Asked:
    """Rows of statements, as they were given."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        self.given = rows

    def rows(self, name: str, **_: Any) -> list[dict[str, Any]]:
        return self.given.get(name, [])

    def give(self, *_: Any) -> None:
        pass

    def query(self, *_: Any, **__: Any) -> None:
        pass


def test_a_topic_that_the_newest_backup_lacks_continuesly_when_it_is_named() -> None:
    gone = {
        "source": "prod", "scope": "orders", "epoch": "e", "base": "b1", "link": 1, "generation": 0,
        "settings": '{"retention.ms": "1000"}', "covers_to": 5000,
    }  # fmt: skip
    asked: dict[str, Any]
    for asked in ({}, {"expressions": ["ord.*"]}):
        plan = plan_prune(Asked(prune_topics=[gone]), "prod", now=9000, **asked)
        assert (plan.rules, [topic for topic, _ in plan.left_alone]) == ((), ["orders"])
    plan = plan_prune(Asked(prune_topics=[gone]), "prod", now=9000, names=["orders"])
    assert ([rule.cutoff_ts for rule in plan.rules], plan.left_alone) == ([4000], ())


def test_a_topic_that_overrides_nothing_is_kept_as_long_as_its_brokers_keep_it() -> None:
    known = {"default": {"cleanup.policy": "delete", "retention.bytes": "-1"}}
    row = {
        "source": "prod", "scope": "orders", "epoch": "e", "base": "b1", "link": 1, "generation": 0,
        "covers_to": 5000,
    }  # fmt: skip
    for inherited, cutoffs, why in (
        ({**known, "broker": {"retention.ms": "1000"}}, [4000], []),
        ({**known, "broker": {"retention.ms": "-1"}}, [], ["its settings keep everything"]),
        ({}, [], ["its backups do not say how long its brokers keep records; the next backup does"]),
    ):
        topic = {**row, "settings": TopicSettings({}, inherited).dump()}
        asked = Asked(prune_topics=[topic], newest_topics=[{"scope": "orders", "epoch": "e"}])
        plan = plan_prune(asked, "prod", now=9000)
        assert [rule.cutoff_ts for rule in plan.rules] == cutoffs
        assert [reason for _, reason in plan.left_alone] == why


def test_a_window_in_place_of_the_policys_leaves_its_other_rules_and_their_zone() -> None:
    rules = {"keep_monthly": 12, "min_redundancy": 2, "time_zone": "Asia/Kolkata"}
    policy = {"source": "prod", "window_days": 1, "window_from_ts": 1, "redundancy": 4, **rules}
    (row,) = window_of("prod", now=15 * 86_400_000, days=14, policy=policy).to_pylist()
    left = {name: value for name, value in row.items() if value is not None}
    assert left == {"source": "prod", "window_days": 14, "window_from_ts": 86_400_000, **rules}
