"""A week of three sources, in steps: a run that fails, damage, a drill, and all well again.

At each step status, metrics and the report tell the same story.

The backups are rows with times of the last seven days; who looks at them is real. Pure: DuckDB alone.
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
NOW = time.time_ns() // 1_000_000
# An hour before the backups below, whatever the time is.
DAILY = datetime.fromtimestamp(NOW / 1000 - 7200, UTC).strftime("daily %H:%M")
SOURCES = ("orders", "store", "shop")


class Week:
    """Daily fulls of each source in one destination; `taken` has the ids, by source and days ago."""

    def __init__(self, folder: Path, commands: Commands) -> None:
        self.folder, self.commands = folder, commands
        self.taken: dict[tuple[str, int], str] = {}
        self.made = MadeBackups(folder)

    def policies(self) -> None:
        for source in SOURCES:
            self.made.add(
                Policy(
                    source=source,
                    at=1000 * (NOW - 8 * DAY),
                    actor="me",
                    full_schedule=DAILY,
                    full_every_ms=DAY,
                )
            )

    def backup(self, source: str, days_ago: int) -> None:
        self.made.source = source
        end = NOW - days_ago * DAY - HOUR
        name = self.made.backup([[Record(0, 7 - days_ago, end - 1000, b"k", b"v")]], full=True, end_ts=end)
        self.taken[source, days_ago] = name

    def look(self, source: str, days_ago: int, outcome: str = "ok", minutes: int = 0) -> None:
        """What verify finds of a backup."""
        name = self.taken[source, days_ago]
        rows = (
            self.made.reader()
            .select(f"SELECT path FROM files WHERE backup_id = '{name}'")
            .read_all()
            .to_pylist()
        )
        self.made.add(
            Check(
                check_id=f"c{minutes}",
                at=1000 * (NOW + minutes),
                backup_id=name,
                destination=self.made.destination,
                path=rows[0]["path"],
                mode="hash",
                outcome=outcome,
            )
        )

    def fail(self, source: str, days_ago: int) -> None:
        """A run that ended in an error."""
        at = 1000 * (NOW - days_ago * DAY - HOUR)
        self.made.add(
            Failure(
                source=source,
                source_kind="kafka",
                run="backup",
                started_at=at - 5_000_000,
                at=at,
                error="EnvironmentProblem",
                message=f"no space, {days_ago} days ago",
                exit_code=6,
                actor="me",
            )
        )

    def drill(self, outcome: Literal["ok", "different"], ms_ago: int) -> None:
        """A drill of the orders."""
        self.made.add(
            filled(
                Drill,
                at=1000 * (NOW - ms_ago),
                source="orders",
                backup_id=self.taken["orders", 2],
                predicted_ms=900,
                real_ms=1000,
                outcome=outcome,
                detail=None if outcome == "ok" else "2 records differ",
            )
        )

    def runs(self, source: str) -> list[tuple[int, int]]:
        """Of each day of the report's calendar how many runs succeeded and failed."""
        rows = facts(self.made.reader(), NOW)["runs"]
        return [
            (row["succeeded"], row["failed"])
            for row in rows
            if row["source"] == source and row["succeeded"] + row["failed"]
        ]

    def told(self) -> dict[str, str]:
        """The state of each source, as all three say it; LATE and the like on the first that disagrees."""
        self.made.flush()
        where = ("--repo", self.folder)
        file = self.folder / "metrics.prom"
        code, out, _ = self.commands.run("status", *where, "--metrics", file, "--json")
        rows = {row["source"]: row for row in map(json.loads, out.splitlines()) if "status" in row}
        found = {source: row["status"] for source, row in rows.items()}
        assert code == (7 if "DAMAGED" in found.values() else 4 if set(found.values()) != {"OK"} else 0)
        families = {one.name: one for one in text_string_to_metric_families(file.read_text("utf-8"))}
        states = {
            sample.labels["source"]: sample.labels["status"]
            for sample in families["lakebackup_status"].samples
            if sample.value == 1
        }
        assert states == found
        page = self.folder.parent / "report.html"
        assert self.commands.run("report", *where, "--html", page)[0] == 0
        text = re.sub(r"<script.*?</script>|<style.*?</style>", "", page.read_text("utf-8"), flags=re.DOTALL)
        for source, state in found.items():
            shown = re.sub(r"<[^>]+>|\s+", " ", text)
            assert re.search(rf"{source}\b.{{0,200}}?\b{state}\b|\b{state}\b.{{0,200}}?{source}\b", shown), (
                source, state,
            )  # fmt: skip
        failed = {source: row["failed_runs"] for source, row in rows.items()}
        gauge = families["lakebackup_failed_runs"].samples
        assert {one.labels["source"]: one.value for one in gauge} == failed
        for source, number in failed.items():
            assert (f"The last run of {source} failed: {rows[source]['failure']}." in shown) == (number > 0)
        return found


@pytest.mark.long
def test_a_week(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    week = Week(tmp_path / "backups", Commands(capsys))
    week.policies()
    for days_ago in range(7, 2, -1):
        for source in SOURCES:
            week.backup(source, days_ago)
    for source in ("orders", "shop"):
        for days_ago in (2, 1, 0):
            week.backup(source, days_ago)
    week.made.flush()
    week.look("orders", 0)
    week.look("shop", 0)
    week.look("store", 3)
    # For two days the backups of the store have failed.
    assert week.told() == {"orders": "OK", "shop": "OK", "store": "LATE"}
    # They left what went wrong.
    week.fail("store", 2)
    week.fail("store", 1)
    assert week.told() == {"orders": "OK", "shop": "OK", "store": "FAILED"}
    assert week.runs("store")[-3:] == [(1, 0), (0, 1), (0, 1)]
    # Verify finds a flipped bit in a backup of the shop.
    week.look("shop", 1, "damaged", minutes=1)
    assert week.told() == {"orders": "OK", "shop": "DAMAGED", "store": "FAILED"}
    # The store is backed up again, and looked at; the shop's file is back from a copy.
    week.backup("store", 0)
    week.made.flush()
    assert week.told()["store"] == "UNVERIFIED"
    week.look("store", 0, minutes=2)
    week.look("shop", 1, minutes=2)
    # A drill of the orders is not what was backed up, until one is good.
    week.drill("different", HOUR + 1)
    assert week.told() == {"orders": "DAMAGED", "shop": "OK", "store": "OK"}
    (finding,) = (row for row in facts(week.made.reader(), NOW)["findings"] if "drill" in row["text"])
    assert f"drill orders --backup {week.taken['orders', 2]}" in finding["command"]
    week.drill("ok", HOUR)
    assert week.told() == dict.fromkeys(SOURCES, "OK")
    (row,) = (row for row in week.made.reader().rows("list_status", source=None) if row["source"] == "orders")
    assert row["last_drill"] is not None
    assert HOUR <= row["drill_age_ms"] < 2 * HOUR
