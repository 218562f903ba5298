"""`approve`, `status` and `due` with claims that nobody approved on this machine, over real tables."""

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
def backups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeBackups:
    """A backup of long ago, on a machine where nothing was approved."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    backups = MadeBackups(tmp_path / "backups")
    _backup(backups, "orders")
    backups.flush()
    return backups


def _backup(backups: MadeBackups, *topics: str) -> None:
    name = backups.backup([[Record(0, backups.number)]], full=True, end_ts=1000 + backups.number)
    for topic in topics:
        backups.add(
            filled(Scope, backup_id=name, source=backups.source, scope=topic, epoch=topic.encode().hex())
        )


def _policy(backups: MadeBackups, set_at: int, **columns: Any) -> None:
    backups.add(
        Policy(source="prod", at=set_at, actor="me", full_schedule="daily", full_every_ms=DAY_MS, **columns)
    )
    backups.flush()


def _rows(output: str) -> Any:
    return json.loads(output.splitlines()[-1])


def test_an_unapproved_policy_is_named_and_not_run(
    backups: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    _policy(backups, 1, command='["snapshot", "/etc"]')
    commands, repo = Commands(capsys), ("--repo", str(backups.folder))
    assert "/etc" in commands.fails(Unapproved.exit_code, "due", "--run", *repo)
    _, _, warnings = commands.run("status", *repo)
    assert "Not approved on this machine, so not carried out: policy prod: command snapshot /etc" in warnings
    code, output, _ = commands.run("approve", "--dry-run", "--json", *repo)
    (claim,) = _rows(output)["unapproved"]
    assert (code, claim["kind"], claim["name"]) == (0, "policy", "prod")
    assert (claim["claim"]["command"], claim["approved"]) == (["snapshot", "/etc"], None)


def test_approve_shows_the_changed_fields(backups: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    _policy(backups, 1, command='["snapshot", "/data"]')
    commands, repo = Commands(capsys), ("--repo", str(backups.folder))
    assert "1 claims are not approved" in commands.fails(Unapproved.exit_code, "approve", *repo)
    assert commands.run("approve", "--yes", *repo)[0] == 0
    _, output, _ = commands.run("approve", "--dry-run", "--json", *repo)
    assert _rows(output)["unapproved"] == []
    _policy(backups, 2, command='["snapshot", "/etc"]')
    _, output, _ = commands.run("approve", "--dry-run", "--json", *repo)
    (claim,) = _rows(output)["unapproved"]
    assert (claim["changed"], claim["approved"]["command"]) == (["command"], ["snapshot", "/data"])
    assert "changed since" in commands.fails(Unapproved.exit_code, "due", *repo)


def test_settings_approve_the_commands_that_they_list(
    backups: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    _policy(backups, 1, command='["snapshot", "/data"]')
    settings = backups.folder.parent / "settings.toml"
    settings.write_text('[approved.commands]\nprod = "snapshot /data"\n')
    commands, repo = Commands(capsys), ("--repo", str(backups.folder))
    code, _, err = commands.run("due", "--config", str(settings), *repo)
    assert code == 0, err
    settings.write_text('[approved.commands]\nprod = "snapshot /dat"\n')
    commands.fails(Unapproved.exit_code, "due", "--config", str(settings), *repo)


def test_topics_that_were_backed_up_from_here_are_approved(backups: MadeBackups) -> None:
    """A policy without patterns takes the topics of its backups, to which somebody else can add."""
    _policy(backups, 1)
    policies.approve(backups.reader(), "prod")
    (due,) = policies.due(backups.reader(), "prod", 3 * DAY_MS)
    assert due.unapproved is None
    _backup(backups, "orders", "payments")
    backups.flush()
    (due,) = policies.due(backups.reader(), "prod", 3 * DAY_MS)
    assert "payments" in (due.unapproved or "")
    policies.approve_topics(backups.reader(), "prod")
    (due,) = policies.due(backups.reader(), "prod", 3 * DAY_MS)
    assert due.unapproved is None


@pytest.mark.parametrize("change", [{"command": '["snapshot", "/etc"]'}, {"drill_schedule": "daily"}])
def test_a_backup_approves_no_other_change(backups: MadeBackups, change: dict[str, str]) -> None:
    _policy(backups, 1)
    policies.approve(backups.reader(), "prod")
    _policy(backups, 2, **change)
    policies.approve_topics(backups.reader(), "prod")
    (due, *_) = policies.due(backups.reader(), "prod", 3 * DAY_MS)
    assert due.unapproved


def test_a_backup_approves_no_policy_that_nobody_approved(backups: MadeBackups) -> None:
    _policy(backups, 1)
    policies.approve_topics(backups.reader(), "prod")
    (due,) = policies.due(backups.reader(), "prod", 3 * DAY_MS)
    assert due.unapproved
