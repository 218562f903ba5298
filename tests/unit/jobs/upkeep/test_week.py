"""A week of three sources, in steps: a run that fails, damage, a drill, and all well again.

At each step status, metrics and the report tell the same story.

The backups are rows with times of the last seven days. The commands that read them are real, and use DuckDB
alone.
"""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.support.command_line import Commands
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled

from lakebackup.rows.upkeep import Check, Drill, Failure, Policy
from lakebackup_jobs.query.report.values import facts

HOUR, DAY = 3_600_000, 86_400_000
NOW_MS = time.time_ns() // 1_000_000
# An hour before the backups below, whatever the time is.
DAILY = datetime.fromtimestamp(NOW_MS / 1000 - 7200, UTC).strftime("daily %H:%M")
SOURCES = ("orders", "store", "shop")


class Week:
    """Daily fulls of each source in one destination; `backup_ids` has their ids by source and days ago."""

    def __init__(self, folder: Path, commands: Commands) -> None:
        self.folder, self.commands = folder, commands
        self.backup_ids: dict[tuple[str, int], str] = {}
        self.backups = MadeBackups(folder)

    def policies(self) -> None:
        for source in SOURCES:
            self.backups.add(
                Policy(
                    source=source,
                    at=1000 * (NOW_MS - 8 * DAY),
                    actor="me",
                    full_schedule=DAILY,
                    full_every_ms=DAY,
                )
            )

    def backup(self, source: str, days_ago: int) -> None:
        self.backups.source = source
        end = NOW_MS - days_ago * DAY - HOUR
        name = self.backups.backup([[Record(0, 7 - days_ago, end - 1000, b"k", b"v")]], full=True, end_ts=end)
        self.backup_ids[source, days_ago] = name

    def verify(self, source: str, days_ago: int, outcome: str = "ok", minutes: int = 0) -> None:
        """Record what verify finds in a backup."""
        name = self.backup_ids[source, days_ago]
        rows = (
            self.backups.reader()
            .select(f"SELECT path FROM files WHERE backup_id = '{name}'")
            .read_all()
            .to_pylist()
        )
        self.backups.add(
            Check(
                check_id=f"c{minutes}",
                at=1000 * (NOW_MS + minutes),
                backup_id=name,
                destination=self.backups.destination,
                path=rows[0]["path"],
                mode="hash",
                outcome=outcome,
            )
        )

    def fail(self, source: str, days_ago: int) -> None:
        """Record a run that ended in an error."""
        failed_at = 1000 * (NOW_MS - days_ago * DAY - HOUR)
        self.backups.add(
            Failure(
                source=source,
                source_kind="kafka",
                run="backup",
                started_at=failed_at - 5_000_000,
                at=failed_at,
                error="EnvironmentProblem",
                message=f"no space, {days_ago} days ago",
                exit_code=6,
                actor="me",
            )
        )

    def drill(self, outcome: Literal["ok", "different"], ms_ago: int) -> None:
        """Record a drill of the orders."""
        self.backups.add(
            filled(
                Drill,
                at=1000 * (NOW_MS - ms_ago),
                source="orders",
                backup_id=self.backup_ids["orders", 2],
                predicted_ms=900,
                real_ms=1000,
                outcome=outcome,
                detail=None if outcome == "ok" else "2 records differ",
            )
        )

    def runs(self, source: str) -> list[tuple[int, int]]:
        """The number of runs that succeeded and that failed, on each day of the report's calendar."""
        rows = facts(self.backups.reader(), NOW_MS)["runs"]
        return [
            (row["succeeded"], row["failed"])
            for row in rows
            if row["source"] == source and row["succeeded"] + row["failed"]
        ]

    def check_states(self) -> dict[str, str]:
        """The state of each source, after a check that status, metrics and the report agree."""
        self.backups.flush()
        repo_flags = ("--repo", self.folder)
        file = self.folder / "metrics.prom"
        code, output, _ = self.commands.run("status", *repo_flags, "--metrics", file, "--json")
        rows = {row["source"]: row for row in map(json.loads, output.splitlines()) if "status" in row}
        states = {source: row["status"] for source, row in rows.items()}
        assert code == (7 if "DAMAGED" in states.values() else 4 if set(states.values()) != {"OK"} else 0)
        families = {family.name: family for family in text_string_to_metric_families(file.read_text("utf-8"))}
        metric_states = {
            sample.labels["source"]: sample.labels["status"]
            for sample in families["lakebackup_status"].samples
            if sample.value == 1
        }
        assert metric_states == states
        page = self.folder.parent / "report.html"
        assert self.commands.run("report", *repo_flags, "--html", page)[0] == 0
        text = re.sub(r"<script.*?</script>|<style.*?</style>", "", page.read_text("utf-8"), flags=re.DOTALL)
        for source, state in states.items():
            words = re.sub(r"<[^>]+>|\s+", " ", text)
            assert re.search(rf"{source}\b.{{0,200}}?\b{state}\b|\b{state}\b.{{0,200}}?{source}\b", words), (
                source, state,
            )  # fmt: skip
        failed = {source: row["failed_runs"] for source, row in rows.items()}
        gauge = families["lakebackup_failed_runs"].samples
        assert {gauge_sample.labels["source"]: gauge_sample.value for gauge_sample in gauge} == failed
        for source, number in failed.items():
            assert (f"The last run of {source} failed: {rows[source]['failure']}." in words) == (number > 0)
        return states


@pytest.mark.long
def test_status_metrics_and_report_agree_for_a_week(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    week = Week(tmp_path / "backups", Commands(capsys))
    week.policies()
    for days_ago in range(7, 2, -1):
        for source in SOURCES:
            week.backup(source, days_ago)
    for source in ("orders", "shop"):
        for days_ago in (2, 1, 0):
            week.backup(source, days_ago)
    week.backups.flush()
    week.verify("orders", 0)
    week.verify("shop", 0)
    week.verify("store", 3)
    # For two days the backups of the store have failed.
    assert week.check_states() == {"orders": "OK", "shop": "OK", "store": "LATE"}
    # The failed runs left their errors.
    week.fail("store", 2)
    week.fail("store", 1)
    assert week.check_states() == {"orders": "OK", "shop": "OK", "store": "FAILED"}
    assert week.runs("store")[-3:] == [(1, 0), (0, 1), (0, 1)]
    # Verify finds a flipped bit in a backup of the shop.
    week.verify("shop", 1, "damaged", minutes=1)
    assert week.check_states() == {"orders": "OK", "shop": "DAMAGED", "store": "FAILED"}
    # The store is backed up again and verified. The shop's file is back from a copy.
    week.backup("store", 0)
    week.backups.flush()
    assert week.check_states()["store"] == "UNVERIFIED"
    week.verify("store", 0, minutes=2)
    week.verify("shop", 1, minutes=2)
    # A drill of the orders finds a difference, until a later one is good.
    week.drill("different", HOUR + 1)
    assert week.check_states() == {"orders": "DAMAGED", "shop": "OK", "store": "OK"}
    (finding,) = (row for row in facts(week.backups.reader(), NOW_MS)["findings"] if "drill" in row["text"])
    assert f"drill orders --backup {week.backup_ids['orders', 2]}" in finding["command"]
    week.drill("ok", HOUR)
    assert week.check_states() == dict.fromkeys(SOURCES, "OK")
    (row,) = (
        row for row in week.backups.reader().rows("list_status", source=None) if row["source"] == "orders"
    )
    assert row["last_drill"] is not None
    # In a long run, the module was imported hours before this test.
    assert HOUR <= row["drill_age_ms"] <= HOUR + time.time_ns() // 1_000_000 - NOW_MS
