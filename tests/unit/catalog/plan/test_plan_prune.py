"""Plans of prunes over real tables, without Java: archives, sources without restore points, retention."""

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


def write_backups(root: Path, **changes: Any) -> list[str]:
    """Writes two fulls, of which a policy keeps one, with `changes` in their rows. Returns their ids."""
    backups = MadeBackups(root)
    now_ms = time.time_ns() // 1_000_000
    names = [backups.backup([[Record(0, n)]], full=True, end_ts=now_ms - 9 + n) for n in range(2)]
    rows = [row for row in backups._rows["backups"] if isinstance(row, Backup)]
    backups._rows["backups"] = [replace(row, **changes) for row in rows]
    if "source_kind" in changes:  # an archive has no topics
        backups._rows["scopes"] = [row for row in backups._rows["scopes"] if not isinstance(row, Scope)]
    backups.add(Policy(source="prod", at=1, actor="me", redundancy=1))
    backups.flush()
    return names


def dry_run(root: Path, **options: Any) -> dict[str, Any]:
    return run(PruneRequest(destination=str(root), **options), reporter=quiet())


def test_an_archive_is_pruned_by_whole_backups(tmp_path: Path) -> None:
    first, _ = write_backups(tmp_path, source_kind="couchbase")
    for options in ({}, {"source": "prod"}):
        summary = dry_run(tmp_path, **options)
        assert [(b["backup_id"], b["files"]) for b in summary["backups"]] == [(first, 1)]
        assert summary["topics"] == []
    with pytest.raises(UsageProblem, match="prod was imported from an archive, which has no topics"):
        dry_run(tmp_path, topics=("orders",))


def test_sources_without_restore_points(tmp_path: Path) -> None:
    """Backups that are out of sync are pruned. Of deleted backups nothing is left to prune."""
    first, second = write_backups(tmp_path / "lost", state="out_of_sync")
    summary = dry_run(tmp_path / "lost")
    assert [(b["backup_id"], b["reason"]) for b in summary["backups"]] == [
        (second, "out_of_sync"), (first, "out_of_sync"),
    ]  # fmt: skip
    write_backups(tmp_path / "gone", state="deleted")
    with pytest.raises(NotFound, match="no restorable backup of prod"):
        dry_run(tmp_path / "gone", source="prod")


class FakeReader:
    """A reader whose queries return the rows that it was created with."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        self.rows_by_query = rows

    def rows(self, name: str, **_: Any) -> list[dict[str, Any]]:
        return self.rows_by_query.get(name, [])

    def with_rows(self, *_: Any) -> FakeReader:
        return self


def test_a_topic_that_the_newest_backup_lacks_is_pruned_only_when_named() -> None:
    topic_row = {
        "source": "prod", "scope": "orders", "epoch": "e", "base": "b1", "link": 1, "generation": 0,
        "settings": '{"retention.ms": "1000"}', "covers_to": 5000,
    }  # fmt: skip
    options: dict[str, Any]
    for options in ({}, {"expressions": ["ord.*"]}):
        plan = plan_prune(FakeReader(prune_topics=[topic_row]), "prod", now_ms=9000, **options)
        assert (plan.rules, [topic for topic, _ in plan.skipped_topics]) == ((), ["orders"])
    plan = plan_prune(FakeReader(prune_topics=[topic_row]), "prod", now_ms=9000, names=["orders"])
    assert ([rule.cutoff_ts for rule in plan.rules], plan.skipped_topics) == ([4000], ())


def test_a_topic_without_settings_is_kept_as_long_as_its_brokers_keep_it() -> None:
    default_settings = {"default": {"cleanup.policy": "delete", "retention.bytes": "-1"}}
    row = {
        "source": "prod", "scope": "orders", "epoch": "e", "base": "b1", "link": 1, "generation": 0,
        "covers_to": 5000,
    }  # fmt: skip
    for inherited, cutoffs, reasons in (
        ({**default_settings, "broker": {"retention.ms": "1000"}}, [4000], []),
        ({**default_settings, "broker": {"retention.ms": "-1"}}, [], ["its settings keep everything"]),
        ({}, [], ["its backups do not say how long its brokers keep records; the next backup does"]),
    ):
        topic = {**row, "settings": TopicSettings({}, inherited).dump()}
        reader = FakeReader(prune_topics=[topic], newest_topics=[{"scope": "orders", "epoch": "e"}])
        plan = plan_prune(reader, "prod", now_ms=9000)
        assert [rule.cutoff_ts for rule in plan.rules] == cutoffs
        assert [reason for _, reason in plan.skipped_topics] == reasons


def test_a_requested_window_replaces_the_window_and_redundancy_of_the_policy() -> None:
    rules = {"keep_monthly": 12, "min_redundancy": 2, "time_zone": "Asia/Kolkata"}
    policy = {"source": "prod", "window_days": 1, "window_from_ts": 1, "redundancy": 4, **rules}
    (row,) = window_of("prod", now_ms=15 * 86_400_000, days=14, policy=policy).to_pylist()
    columns = {name: value for name, value in row.items() if value is not None}
    assert columns == {"source": "prod", "window_days": 14, "window_from_ts": 86_400_000, **rules}
