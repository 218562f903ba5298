"""`approve`, `status` and `due` on what nobody approved on this machine, over real tables. Fast layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import Commands
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled

from lakebackup.rows.backups import Scope
from lakebackup.rows.upkeep import Policy
from lakebackup.store.trust import Unapproved
from lakebackup_jobs.upkeep import policies

DAY_MS = 86_400_000


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeBackups:
    """A backup of long ago, and a machine where nothing was approved."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = MadeBackups(tmp_path / "backups")
    _backup(made, "orders")
    made.flush()
    return made


def _backup(made: MadeBackups, *topics: str) -> None:
    name = made.backup([[Record(0, made.number)]], full=True, end_ts=1000 + made.number)
    for topic in topics:
        made.add(filled(Scope, backup_id=name, source=made.source, scope=topic, epoch=topic.encode().hex()))


def _policy(made: MadeBackups, at: int, **more: Any) -> None:
    made.add(Policy(source="prod", at=at, actor="me", full_schedule="daily", full_every_ms=DAY_MS, **more))
    made.flush()


def _rows(out: str) -> Any:
    return json.loads(out.splitlines()[-1])


def test_a_policy_of_elsewhere_is_named_and_not_run(
    made: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    _policy(made, 1, command='["snapshot", "/etc"]')
    commands, repo = Commands(capsys), ("--repo", str(made.folder))
    assert "/etc" in commands.fails(Unapproved.exit_code, "due", "--run", *repo)
    _, _, warnings = commands.run("status", *repo)
    assert "Not approved on this machine, so not carried out: policy prod: command snapshot /etc" in warnings
    code, out, _ = commands.run("approve", "--dry-run", "--json", *repo)
    (claim,) = _rows(out)["unapproved"]
    assert (code, claim["kind"], claim["name"]) == (0, "policy", "prod")
    assert (claim["claim"]["command"], claim["approved"]) == (["snapshot", "/etc"], None)


def test_approve_shows_what_was_changed(made: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    _policy(made, 1, command='["snapshot", "/data"]')
    commands, repo = Commands(capsys), ("--repo", str(made.folder))
    assert "1 claims are not approved" in commands.fails(Unapproved.exit_code, "approve", *repo)
    assert commands.run("approve", "--yes", *repo)[0] == 0
    _, out, _ = commands.run("approve", "--dry-run", "--json", *repo)
    assert _rows(out)["unapproved"] == []
    _policy(made, 2, command='["snapshot", "/etc"]')
    _, out, _ = commands.run("approve", "--dry-run", "--json", *repo)
    (claim,) = _rows(out)["unapproved"]
    assert (claim["changed"], claim["approved"]["command"]) == (["command"], ["snapshot", "/data"])
    assert "changed since" in commands.fails(Unapproved.exit_code, "due", *repo)


def test_settings_approve_what_they_name(made: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    _policy(made, 1, command='["snapshot", "/data"]')
    settings = made.folder.parent / "settings.toml"
    settings.write_text('[approved.commands]\nprod = "snapshot /data"\n')
    commands, repo = Commands(capsys), ("--repo", str(made.folder))
    code, _, err = commands.run("due", "--config", str(settings), *repo)
    assert code == 0, err
    settings.write_text('[approved.commands]\nprod = "snapshot /dat"\n')
    commands.fails(Unapproved.exit_code, "due", "--config", str(settings), *repo)


def test_topics_that_were_backed_up_from_here_are_approved(made: MadeBackups) -> None:
    """A policy without patterns takes what its backups hold, which somebody else can add to."""
    _policy(made, 1)
    policies.approve(made.reader(), "prod")
    (due,) = policies.due(made.reader(), "prod", 3 * DAY_MS)
    assert due.unapproved is None
    _backup(made, "orders", "payments")
    made.flush()
    (due,) = policies.due(made.reader(), "prod", 3 * DAY_MS)
    assert "payments" in (due.unapproved or "")
    policies.approve_topics(made.reader(), "prod")
    (due,) = policies.due(made.reader(), "prod", 3 * DAY_MS)
    assert due.unapproved is None


@pytest.mark.parametrize("change", [{"command": '["snapshot", "/etc"]'}, {"drill_schedule": "daily"}])
def test_a_backup_approves_no_other_change(made: MadeBackups, change: dict[str, str]) -> None:
    _policy(made, 1)
    policies.approve(made.reader(), "prod")
    _policy(made, 2, **change)
    policies.approve_topics(made.reader(), "prod")
    (due, *_) = policies.due(made.reader(), "prod", 3 * DAY_MS)
    assert due.unapproved


def test_a_backup_approves_no_policy_that_nobody_approved(made: MadeBackups) -> None:
    _policy(made, 1)
    policies.approve_topics(made.reader(), "prod")
    (due,) = policies.due(made.reader(), "prod", 3 * DAY_MS)
    assert due.unapproved
