"""Backups that were taken while a clock was wrong, at the command line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from lakebackup.errors import Incomplete, Refused, UsageProblem
from lakebackup.rules.times import MAX_SKEW_MS
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli import main
from lakebackup_sql import load

HOUR_NS = 3_600_000_000_000
YEAR_NS = 8_760 * HOUR_NS


class Machine:
    """A folder and its repository, on a machine whose clock can be wrong."""

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self.repo = root / "files", str(root / "repo")
        self.folder.mkdir()
        self._monkeypatch, self._capsys, self._time_ns = monkeypatch, capsys, time.time_ns

    def command(self, *words: str, ahead_ns: int = 0) -> tuple[int, str]:
        """Run a command; returns its exit code and its output."""
        with self._monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: self._time_ns() + ahead_ns)
            code = main([*words, "--repo", self.repo])
        captured = self._capsys.readouterr()
        return code, captured.out + captured.err

    def backup(self, name: str, *flags: str, ahead_ns: int = 0) -> int:
        (self.folder / name).write_text(name)
        words = ("backup", "snapshot", str(self.folder), "--source", "files", "--runner", "local", *flags)
        return self.command(*words, ahead_ns=ahead_ns)[0]

    def rows(self, select: str) -> list[dict[str, Any]]:
        return list(CatalogReader(self.repo, None).select(select).read_all().to_pylist())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    return Machine(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("ahead_ns", [12 * HOUR_NS, YEAR_NS])
def test_a_backup_from_the_future_is_named_passed_over_and_pruned(machine: Machine, ahead_ns: int) -> None:
    assert machine.backup("a", ahead_ns=ahead_ns) == 0
    policy = ("policy", "set", "files", "--command", f"snapshot {machine.folder}", "--incr", "hourly")
    assert machine.command(*policy)[0] == 0
    code, output = machine.command("status")
    assert code == Incomplete.exit_code
    assert "from the future: 1" in output
    assert machine.rows("SELECT restorable_ts, lag_ms FROM rpo") == [{"restorable_ts": None, "lag_ms": None}]
    code, output = machine.command("prune", "--source", "files", "--future", "--delete")
    assert code == Refused.exit_code
    assert "take a full backup first" in output

    assert machine.backup("b") == 0
    code, output = machine.command("due")
    assert code == 0
    assert "is from the future" in output
    assert "prune --source files --future" in output
    (rpo,) = machine.rows("SELECT lag_ms FROM rpo")
    assert 0 <= rpo["lag_ms"] < HOUR_NS // 1_000_000
    assert machine.command("prune", "--source", "files", "--delete")[0] == 0
    assert len(machine.rows("SELECT * FROM backups WHERE state = 'complete'")) == 2
    assert machine.command("prune", "--source", "files", "--future", "--delete")[0] == 0
    assert machine.rows("SELECT * FROM future_backups") == []
    assert "FUTURE" not in machine.command("status")[1]
    target = machine.folder.parent / "restored"
    assert machine.command("restore", "snapshot", "--source", "files", "--to", str(target))[0] == 0
    assert sorted(path.name for path in target.rglob("?")) == ["a", "b"]


def test_the_next_backup_is_taken_when_the_clock_is_behind(machine: Machine) -> None:
    assert machine.backup("a") == 0
    assert machine.backup("b", ahead_ns=-12 * HOUR_NS) == 0
    (newest,) = machine.rows("SELECT backup_id FROM backups WHERE number = 2")
    assert CatalogReader(machine.repo, None).resolve_backup("latest", "files") == newest["backup_id"]
    assert machine.rows("SELECT * FROM future_backups") == []


def test_a_future_time_is_refused(machine: Machine) -> None:
    assert machine.backup("a", "--taken-at", "2999-01-01") == UsageProblem.exit_code


def test_python_and_sql_allow_clocks_the_same_difference() -> None:
    assert f"SELECT {MAX_SKEW_MS} AS skew_ms" in load("views", "horizon")
