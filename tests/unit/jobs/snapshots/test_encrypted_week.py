"""A week of a host with public keys alone: it backs up, prunes and verifies, and cannot read what it stored.

The tests need no JVM and no server.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.support.command_line import Commands
from tests.support.encrypted import Host

from lakebackup.encryption.recipients import new_identity

DAY_MS = 86_400_000


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def change(tree: Path, day: int) -> None:
    """What a day changes: a file grows, one is new, one is replaced, and one of the day before yesterday is
    deleted."""
    with (tree / "log").open("ab") as log:
        log.write(b"entry of day %d\n" % day * 1_000)
    (tree / f"day{day}").write_bytes(os.urandom(5_000))
    (tree / "replaced").write_bytes(b"value of day %d" % day)
    (tree / f"day{day - 2}").unlink(missing_ok=True)


@pytest.mark.long
def test_an_identity_on_another_host_restores_each_kept_day(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    commands, host = Commands(capsys), Host(monkeypatch, tmp_path / "host")
    identity, recipient = new_identity()
    tree = tmp_path / "db"
    tree.mkdir()
    (tree / "unchanged").write_bytes(os.urandom(20_000))
    host.has(recipient)
    now_ms = time.time_ns() // 1_000_000
    contents_by_id: dict[str, dict[str, bytes]] = {}
    for day in range(7):
        change(tree, day)
        taken_at = str(now_ms - (6 - day) * DAY_MS)
        backup_id = commands.result("backup", "snapshot", tree, "--taken-at", taken_at)["backup_id"]
        contents_by_id[backup_id] = contents(tree)
        commands.output("prune", "3", "--delete")
        checked = commands.result("verify", "--decode")
        assert not any(checked[name] for name in ("damaged", "changed", "missing", "orphan"))
    backup_ids = [row["backup_id"] for row in commands.rows("list") if row["state"] == "complete"]
    assert sorted(backup_ids) == list(contents_by_id)[-4:]
    for backup_id in backup_ids:
        words = ["restore", "snapshot", "--backup", backup_id, "--to", tmp_path / backup_id]
        assert f"no identity is set. Its recipients: {recipient}" in commands.fails(2, *words)
        assert not (tmp_path / backup_id).exists()

    host.has(identity_file=Host(monkeypatch, tmp_path / "other").write("identity", identity.encode()))
    for backup_id in backup_ids:
        words = ["restore", "snapshot", "--backup", backup_id, "--to", tmp_path / backup_id]
        commands.output(*words, "--layout", "flat")
        assert contents(tmp_path / backup_id) == contents_by_id[backup_id]
    checked = commands.result("verify", "--decode")
    assert not any(checked[name] for name in ("damaged", "changed", "missing", "orphan"))
