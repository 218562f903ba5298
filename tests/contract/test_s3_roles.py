"""Verbs under the roles of docs/s3.md: an S3 server refuses what they do not have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.command_line import Commands
from tests.support.s3_roles import acting_as

from lakebackup.rules import layout
from lakebackup.storage import open_storage, working

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.s3_faults import FaultProxy

pytestmark = [pytest.mark.s3, pytest.mark.usefixtures("quick")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a").write_bytes(b"one")
    return folder


@pytest.fixture
def commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, proxy: FaultProxy
) -> Commands:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
    monkeypatch.setattr(working, "_warned", set())
    return Commands(capsys)


def test_a_role_that_adds_objects_and_deletes_none_backs_up_and_restores(
    bucket: str,
    proxy: FaultProxy,
    tree: Path,
    tmp_path: Path,
    commands: Commands,
    caplog: pytest.LogCaptureFixture,
) -> None:
    repository = f"s3://{bucket}/kept"
    flags = ("--source", "store", "--repo", repository)
    with acting_as("append-only", proxy):
        first = commands.told("backup", "snapshot", str(tree), *flags)
        (tree / "a").write_bytes(b"two!")
        second = commands.told("backup", "snapshot", str(tree), *flags)
        assert first["backup_id"] != second["backup_id"]
        assert commands.told("restore", "snapshot", *flags, "--to", str(tmp_path / "back"))["files"] == 1
        assert "DELETE" in proxy.methods()
    assert caplog.text.count("this account may not delete them") == 1
    assert [path.read_bytes() for path in (tmp_path / "back").rglob("a")] == [b"two!"]
    storage = open_storage(repository)
    assert storage.get(layout.in_progress_path("store")) == working.OVER
    # The next run of an account that may delete removes the note.
    (tree / "a").write_bytes(b"three")
    third = commands.told("backup", "snapshot", str(tree), *flags)
    listed = commands.rows("list", "--repo", repository)
    assert [row["backup_id"] for row in listed] == [
        third["backup_id"],
        second["backup_id"],
        first["backup_id"],
    ]
    assert not storage.exists(layout.in_progress_path("store"))


def test_a_role_that_only_reads_lists_verifies_and_restores(
    bucket: str, proxy: FaultProxy, tree: Path, tmp_path: Path, commands: Commands
) -> None:
    repository = f"s3://{bucket}/kept"
    flags = ("--source", "store", "--repo", repository)
    backup = commands.told("backup", "snapshot", str(tree), *flags)
    state = {(stored.path, stored.modified_ms) for stored in open_storage(repository).list()}
    with acting_as("read-only", proxy):
        assert [row["backup_id"] for row in commands.rows("list", "--repo", repository)] == [
            backup["backup_id"]
        ]
        code, stdout, stderr = commands.run(
            "restore", "snapshot", *flags, "--to", str(tmp_path / "back"), "--json"
        )
        assert (code, "this run is not recorded" in stdout + stderr) == (0, True), stderr
        code, stdout, stderr = commands.run("verify", "--repo", repository, "--json")
        assert (code, "findings are not recorded" in stdout + stderr) == (0, True), stderr
        refusal = commands.fails(6, "backup", "snapshot", str(tree), *flags, "--json")
        assert "AccessDenied" in json.loads(refusal)["message"]
    assert [path.read_bytes() for path in (tmp_path / "back").rglob("a")] == [b"one"]
    assert {(stored.path, stored.modified_ms) for stored in open_storage(repository).list()} == state
