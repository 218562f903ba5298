"""`lakebackup status`: states, exit codes and the metrics file, on catalogs made without a JVM."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.support.command_line import Commands
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled

from lakebackup.errors import Damaged, EnvironmentProblem, Incomplete, NotFound, UsageProblem
from lakebackup.rows.topics import TopicSeen
from lakebackup.rows.upkeep import Check, Drill, Policy
from lakebackup_jobs.query.source_metrics import STATES

NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
def backups(tmp_path: Path) -> MadeBackups:
    """One source with a full that was verified."""
    backups = MadeBackups(tmp_path / "backups")
    backups.add(_check(backups, _backup(backups, 0, NOW_MS - 4_000)))
    backups.flush()
    return backups


def _backup(backups: MadeBackups, offset: int, end_ts: int) -> str:
    return backups.backup([[Record(p, offset, end_ts - 1_000, b"k", b"v")] for p in range(8)], end_ts=end_ts)


def _check(backups: MadeBackups, backup_id: str | None, outcome: str = "ok", path: str = "a") -> Check:
    return Check(
        check_id="c", at=1000 * NOW_MS, backup_id=backup_id, destination=backups.destination, path=path,
        mode="hash", outcome=outcome,
    )  # fmt: skip


def test_a_verified_backup_is_ok(backups: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    code, output, err = Commands(capsys).run("status", "--repo", backups.folder)
    assert (code, err) == (0, "")
    assert re.search(r"^OK +prod ", output, re.MULTILINE)


def test_an_unverified_backup_is_not_ok(backups: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    _backup(backups, 1, NOW_MS - 2_000)
    backups.flush()
    err = Commands(capsys).fails(Incomplete.exit_code, "status", "--repo", backups.folder)
    assert "prod is UNVERIFIED" in err


def test_a_source_is_late_as_of_the_requested_time(
    backups: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    backups.add(Policy(source="prod", at=1, actor="me", full_schedule="daily", full_every_ms=86_400_000))
    backups.flush()
    day_after = datetime.fromtimestamp(NOW_MS / 1000 + 1.5 * 86_400, UTC).isoformat()
    for flags, state in (((), "OK"), (("--as-of", day_after), "LATE")):
        _, output, _ = Commands(capsys).run("status", "--repo", backups.folder, "--json", *flags)
        assert json.loads(output.splitlines()[0])["status"] == state


def test_damage_comes_first_and_has_its_own_code(
    backups: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    _backup(backups, 1, NOW_MS - 2_000)
    backups.add(Policy(source="nightly", at=1, actor="me", full_schedule="daily", full_every_ms=86_400_000))
    (first, *_) = backups.reader().select("SELECT path FROM files").read_all().to_pylist()
    backups.add(_check(backups, None, "damaged", first["path"]))
    backups.flush()
    commands = Commands(capsys)
    code, output, err = commands.run("status", "--repo", backups.folder, "--json")
    rows = [json.loads(line) for line in output.splitlines() if '"status"' in line]
    assert [(row["source"], row["status"]) for row in rows] == [
        ("prod", "DAMAGED"),
        ("nightly", "UNPROTECTED"),
    ]
    assert code == Damaged.exit_code
    message = json.loads(err.splitlines()[-1])["message"]
    assert message.startswith("prod is DAMAGED: ")
    assert "\nnightly is UNPROTECTED: no backup can be restored. Fix: lakebackup backup topics" in message
    nightly_err = commands.fails(
        Incomplete.exit_code, "status", "--repo", backups.folder, "--source", "nightly"
    )
    assert "nightly is UNPROTECTED" in nightly_err
    assert "no source 'x'" in commands.fails(
        NotFound.exit_code, "status", "--repo", backups.folder, "--source", "x"
    )


def test_status_and_due_agree_on_when_a_run_is_due(
    backups: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    every_minute, columns = "* * * * *", {"at": 1000 * NOW_MS, "actor": "me", "full_every_ms": 60_000}
    backups.source = "late"
    backups.backup([[Record(0, 1)]], full=True, end_ts=NOW_MS - 300_000)
    backups.add(Policy(source="late", full_schedule=every_minute, **columns))
    backups.add(Policy(source="new", command='["snapshot", "/x"]', full_schedule=every_minute, **columns))
    backups.flush()
    commands = Commands(capsys)
    lines = commands.run("status", "--repo", backups.folder, "--json")[1].splitlines()
    due_ts_by_source = {row["source"]: row["due_ts"] for row in map(json.loads, lines) if row.get("due_ts")}
    (due,) = map(json.loads, commands.run("due", "--repo", backups.folder, "--json")[1].splitlines())
    assert due_ts_by_source == {run["source"]: run["due_ts"] for run in due["due"]}
    assert due_ts_by_source == {"late": (NOW_MS - 300_000) // 60_000 * 60_000 + 60_000, "new": NOW_MS}


def test_the_setting_source_hides_no_source(
    backups: MadeBackups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backups.add(
        Policy(
            source="nightly",
            at=1,
            actor="me",
            command='["snapshot", "/x"]',
            full_schedule="daily",
            full_every_ms=86_400_000,
        )
    )
    backups.flush()
    monkeypatch.setenv("LAKEBACKUP_SOURCE", "prod")
    commands, file = Commands(capsys), tmp_path / "lakebackup.prom"
    err = commands.fails(Incomplete.exit_code, "status", "--repo", backups.folder, "--metrics", file)
    assert "nightly is UNPROTECTED" in err
    assert 'source="nightly"' in file.read_text("utf-8")
    assert "nightly" in commands.run("due", "--repo", backups.folder)[1]
    assert "nightly" not in commands.run("due", "--repo", backups.folder, "--source", "prod")[1]
    monkeypatch.setenv("LAKEBACKUP_SOURCE", "nightly")
    listed = commands.run("list", "--repo", backups.folder, "--json")[1].splitlines()
    assert {json.loads(line)["source"] for line in listed} == {"prod"}


def test_topics_without_a_backup_are_named_and_a_policy_protects_them(
    backups: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    commands, repo = Commands(capsys), ("--repo", backups.folder)
    backups.add(*(TopicSeen(source="prod", at=NOW_MS, scope=topic) for topic in ("orders-x", "payments")))
    backups.flush()
    err = commands.fails(Incomplete.exit_code, "status", *repo)
    warning = "prod is UNPROTECTED: 2 topics have no backup (orders-x, payments). Fix: lakebackup"
    assert f"{warning} backup topics --source prod --pattern '.*' --repo {backups.folder}" in err
    commands.output("policy", "set", "prod", "--incr", "every 30d", *repo)
    err = commands.fails(Incomplete.exit_code, "status", *repo)
    assert f"{warning} policy set prod --pattern '.*' --repo {backups.folder}" in err
    commands.output("policy", "set", "prod", "--pattern", "orders.*", *repo)
    err = commands.fails(Incomplete.exit_code, "status", *repo)
    assert "prod is UNPROTECTED: 1 topic has no backup (payments)." in err
    commands.output("policy", "set", "prod", "--pattern", ".*", *repo)
    assert re.search(r"^OK +prod ", commands.output("status", *repo), re.MULTILINE)


def test_an_empty_source_is_refused(
    backups: MadeBackups, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands(capsys)
    err = commands.fails(UsageProblem.exit_code, "status", "--repo", backups.folder, "--source", "")
    assert "--source: it is empty" in err
    monkeypatch.setenv("LAKEBACKUP_SOURCE", "")
    err = commands.fails(UsageProblem.exit_code, "status", "--repo", backups.folder)
    assert "LAKEBACKUP_SOURCE: it is empty" in err


def test_status_writes_a_metrics_file(
    backups: MadeBackups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lakebackup.prom"
    backups.add(filled(Drill, at=1000 * NOW_MS, predicted_ms=2000, real_ms=2500))
    backups.flush()
    assert Commands(capsys).run("status", "--repo", backups.folder, "--metrics", file)[0] == 0
    families = {family.name: family for family in text_string_to_metric_families(file.read_text("utf-8"))}
    states = {sample.labels["status"]: sample.value for sample in families["lakebackup_status"].samples}
    assert states == {**dict.fromkeys(STATES, 0), "OK": 1}
    (lag,) = families["lakebackup_restorable_lag_seconds"].samples
    assert 4 <= lag.value < 4 + time.time() - NOW_MS / 1000 + 1
    assert not families["lakebackup_due_timestamp_seconds"].samples
    figures = (
        "last_drill_timestamp_seconds",
        "drill_predicted_seconds",
        "drill_real_seconds",
        "drill_failures",
    )
    drilled = [families[f"lakebackup_{name}"].samples[0].value for name in figures]
    assert drilled == [pytest.approx(NOW_MS / 1000), 2, 2.5, 0]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [file.name]
    missing = tmp_path / "gone" / "file"
    err = Commands(capsys).fails(
        EnvironmentProblem.exit_code, "status", "--repo", backups.folder, "--metrics", missing
    )
    assert "--metrics" in err
