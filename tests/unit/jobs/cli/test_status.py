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

NOW = time.time_ns() // 1_000_000


@pytest.fixture
def made(tmp_path: Path) -> MadeBackups:
    """A full of one source that verify has looked at."""
    made = MadeBackups(tmp_path / "backups")
    made.add(_check(made, _backup(made, 0, NOW - 4_000)))
    made.flush()
    return made


def _backup(made: MadeBackups, offset: int, end_ts: int) -> str:
    return made.backup([[Record(p, offset, end_ts - 1_000, b"k", b"v")] for p in range(8)], end_ts=end_ts)


def _check(made: MadeBackups, backup_id: str | None, outcome: str = "ok", path: str = "a") -> Check:
    return Check(
        check_id="c", at=1000 * NOW, backup_id=backup_id, destination=made.destination, path=path,
        mode="hash", outcome=outcome,
    )  # fmt: skip


def test_all_is_well(made: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = Commands(capsys).run("status", "--repo", made.folder)
    assert (code, err) == (0, "")
    assert re.search(r"^OK +prod ", out, re.MULTILINE)


def test_what_was_never_verified_is_not_ok(made: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    _backup(made, 1, NOW - 2_000)
    made.flush()
    said = Commands(capsys).fails(Incomplete.exit_code, "status", "--repo", made.folder)
    assert "prod is UNVERIFIED" in said


def test_what_is_late_is_judged_by_the_moment_asked_for(
    made: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    made.add(Policy(source="prod", at=1, actor="me", full_schedule="daily", full_every_ms=86_400_000))
    made.flush()
    day_after = datetime.fromtimestamp(NOW / 1000 + 1.5 * 86_400, UTC).isoformat()
    for more, state in (((), "OK"), (("--as-of", day_after), "LATE")):
        _, out, _ = Commands(capsys).run("status", "--repo", made.folder, "--json", *more)
        assert json.loads(out.splitlines()[0])["status"] == state


def test_damage_comes_first_and_has_its_own_code(
    made: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    _backup(made, 1, NOW - 2_000)
    made.add(Policy(source="nightly", at=1, actor="me", full_schedule="daily", full_every_ms=86_400_000))
    (first, *_) = made.reader().select("SELECT path FROM files").read_all().to_pylist()
    made.add(_check(made, None, "damaged", first["path"]))
    made.flush()
    commands = Commands(capsys)
    code, out, err = commands.run("status", "--repo", made.folder, "--json")
    rows = [json.loads(line) for line in out.splitlines() if '"status"' in line]
    assert [(row["source"], row["status"]) for row in rows] == [
        ("prod", "DAMAGED"),
        ("nightly", "UNPROTECTED"),
    ]
    assert code == Damaged.exit_code
    message = json.loads(err.splitlines()[-1])["message"]
    assert message.startswith("prod is DAMAGED: ")
    assert "\nnightly is UNPROTECTED: no backup can be restored. Fix: lakebackup backup topics" in message
    only = commands.fails(Incomplete.exit_code, "status", "--repo", made.folder, "--source", "nightly")
    assert "nightly is UNPROTECTED" in only
    assert "no source 'x'" in commands.fails(
        NotFound.exit_code, "status", "--repo", made.folder, "--source", "x"
    )


def test_a_run_is_due_when_due_says_so(made: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    every_minute, more = "* * * * *", {"at": 1000 * NOW, "actor": "me", "full_every_ms": 60_000}
    made.source = "late"
    made.backup([[Record(0, 1)]], full=True, end_ts=NOW - 300_000)
    made.add(Policy(source="late", full_schedule=every_minute, **more))
    made.add(Policy(source="new", command='["snapshot", "/x"]', full_schedule=every_minute, **more))
    made.flush()
    commands = Commands(capsys)
    lines = commands.run("status", "--repo", made.folder, "--json")[1].splitlines()
    shown = {row["source"]: row["due_ts"] for row in map(json.loads, lines) if row.get("due_ts")}
    (due,) = map(json.loads, commands.run("due", "--repo", made.folder, "--json")[1].splitlines())
    assert shown == {one["source"]: one["due_ts"] for one in due["due"]}
    assert shown == {"late": (NOW - 300_000) // 60_000 * 60_000 + 60_000, "new": NOW}


def test_the_setting_source_hides_no_source(
    made: MadeBackups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made.add(
        Policy(
            source="nightly",
            at=1,
            actor="me",
            command='["snapshot", "/x"]',
            full_schedule="daily",
            full_every_ms=86_400_000,
        )
    )
    made.flush()
    monkeypatch.setenv("LAKEBACKUP_SOURCE", "prod")
    commands, file = Commands(capsys), tmp_path / "lakebackup.prom"
    said = commands.fails(Incomplete.exit_code, "status", "--repo", made.folder, "--metrics", file)
    assert "nightly is UNPROTECTED" in said
    assert 'source="nightly"' in file.read_text("utf-8")
    assert "nightly" in commands.run("due", "--repo", made.folder)[1]
    assert "nightly" not in commands.run("due", "--repo", made.folder, "--source", "prod")[1]
    monkeypatch.setenv("LAKEBACKUP_SOURCE", "nightly")
    listed = commands.run("list", "--repo", made.folder, "--json")[1].splitlines()
    assert {json.loads(line)["source"] for line in listed} == {"prod"}


def test_topics_without_a_backup_are_named_and_a_policy_protects_them(
    made: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    commands, where = Commands(capsys), ("--repo", made.folder)
    made.add(*(TopicSeen(source="prod", at=NOW, scope=topic) for topic in ("orders-x", "payments")))
    made.flush()
    said = commands.fails(Incomplete.exit_code, "status", *where)
    lacking = "prod is UNPROTECTED: 2 topics have no backup (orders-x, payments). Fix: lakebackup"
    assert f"{lacking} backup topics --source prod --pattern '.*' --repo {made.folder}" in said
    commands.out("policy", "set", "prod", "--incr", "every 30d", *where)
    said = commands.fails(Incomplete.exit_code, "status", *where)
    assert f"{lacking} policy set prod --pattern '.*' --repo {made.folder}" in said
    commands.out("policy", "set", "prod", "--pattern", "orders.*", *where)
    said = commands.fails(Incomplete.exit_code, "status", *where)
    assert "prod is UNPROTECTED: 1 topic has no backup (payments)." in said
    commands.out("policy", "set", "prod", "--pattern", ".*", *where)
    assert re.search(r"^OK +prod ", commands.out("status", *where), re.MULTILINE)


def test_an_empty_source_is_refused(
    made: MadeBackups, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands(capsys)
    said = commands.fails(UsageProblem.exit_code, "status", "--repo", made.folder, "--source", "")
    assert "--source: it is empty" in said
    monkeypatch.setenv("LAKEBACKUP_SOURCE", "")
    said = commands.fails(UsageProblem.exit_code, "status", "--repo", made.folder)
    assert "LAKEBACKUP_SOURCE: it is empty" in said


def test_the_metrics_file(made: MadeBackups, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lakebackup.prom"
    made.add(filled(Drill, at=1000 * NOW, predicted_ms=2000, real_ms=2500))
    made.flush()
    assert Commands(capsys).run("status", "--repo", made.folder, "--metrics", file)[0] == 0
    families = {one.name: one for one in text_string_to_metric_families(file.read_text("utf-8"))}
    states = {sample.labels["status"]: sample.value for sample in families["lakebackup_status"].samples}
    assert states == {**dict.fromkeys(STATES, 0), "OK": 1}
    (lag,) = families["lakebackup_restorable_lag_seconds"].samples
    assert 4 <= lag.value < 4 + time.time() - NOW / 1000 + 1
    assert not families["lakebackup_due_timestamp_seconds"].samples
    figures = (
        "last_drill_timestamp_seconds",
        "drill_predicted_seconds",
        "drill_real_seconds",
        "drill_failures",
    )
    drilled = [families[f"lakebackup_{name}"].samples[0].value for name in figures]
    assert drilled == [pytest.approx(NOW / 1000), 2, 2.5, 0]
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == [file.name]
    gone = tmp_path / "gone" / "file"
    said = Commands(capsys).fails(
        EnvironmentProblem.exit_code, "status", "--repo", made.folder, "--metrics", gone
    )
    assert "--metrics" in said
