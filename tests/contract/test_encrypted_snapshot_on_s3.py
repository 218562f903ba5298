"""Encrypted snapshots on S3: objects in several parts, and ranges of packs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.command_line import Commands
from tests.support.encrypted import Host
from tests.support.s3 import S3Proxy

pytestmark = pytest.mark.s3


def test_large_files_and_packs_are_restored_from_s3(
    s3: S3Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKEBACKUP_REPO", f"s3://{s3.bucket()}/backups")
    monkeypatch.setenv("LAKEBACKUP_RUNNER", "local")
    host, commands, tree = Host(monkeypatch, tmp_path / "keys"), Commands(capsys), tmp_path / "db"
    keys = host.key_pair("identity")
    host.has(keys.recipient)
    tree.mkdir()
    files = {f"small{number}": os.urandom(20_000) for number in range(80)} | {"large": os.urandom(30 << 20)}
    for name, data in files.items():
        (tree / name).write_bytes(data)
    commands.output("backup", "snapshot", tree)
    assert commands.result("verify")["changed"] == 0
    host.has(identity_file=keys.file)
    assert commands.result("verify", "--decode")["damaged"] == 0
    commands.output("restore", "snapshot", "--to", tmp_path / "all", "--layout", "flat")
    assert {file.name: file.read_bytes() for file in (tmp_path / "all").iterdir()} == files
    select = "SELECT * FROM snapshot_files WHERE name = 'small40'"
    commands.output("restore", "snapshot", "--to", tmp_path / "one", "--layout", "flat", "--select", select)
    assert (tmp_path / "one" / "small40").read_bytes() == files["small40"]
