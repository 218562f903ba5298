"""Commands under the roles of docs/s3.md. The S3 server refuses requests that a role has no right to."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.command_line import Commands
from tests.support.s3_commands import MAKERS
from tests.support.s3_roles import Role, acting_as

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
        first = commands.result("backup", "snapshot", str(tree), *flags)
        (tree / "a").write_bytes(b"two!")
        second = commands.result("backup", "snapshot", str(tree), *flags)
        assert first["backup_id"] != second["backup_id"]
        assert commands.result("restore", "snapshot", *flags, "--to", str(tmp_path / "back"))["files"] == 1
        assert "DELETE" in proxy.methods()
    assert caplog.text.count("this account may not delete them") == 1
    assert [path.read_bytes() for path in (tmp_path / "back").rglob("a")] == [b"two!"]
    storage = open_storage(repository)
    assert storage.get(layout.in_progress_path("store")) == working.OVER
    # The next run of an account that may delete removes the note.
    (tree / "a").write_bytes(b"three")
    third = commands.result("backup", "snapshot", str(tree), *flags)
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
    backup = commands.result("backup", "snapshot", str(tree), *flags)
    state = {(entry.path, entry.modified_ms) for entry in open_storage(repository).list()}
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
    assert {(entry.path, entry.modified_ms) for entry in open_storage(repository).list()} == state


# Kind of source -> a command that deletes some of its backups.
_DELETIONS = {
    "queues": ("prune", "1", "--source", "social", "--delete"),
    "log": ("log", "truncate", "shop", "--endts", "20", "--yes"),
}


@pytest.fixture(params=_DELETIONS)
def kind(request: pytest.FixtureRequest, bucket: str, tmp_path: Path, empty_catalog: Path) -> str:
    """The name of a kind of source whose backups are in the bucket."""
    name: str = request.param
    root = tmp_path / name
    shutil.copytree(empty_catalog, root / "catalog")
    MAKERS[name](root)
    storage = open_storage(f"s3://{bucket}/kept")
    for file in root.rglob("*"):
        if file.is_file() and ".tmp" not in file.parts and not file.name.endswith(".crc"):
            storage.put(str(file.relative_to(root)), file.read_bytes())
    return name


def _objects(bucket: str) -> dict[str, int]:
    """The paths of the objects that a backup needs, each with the time it was written."""
    return {
        entry.path: entry.modified_ms
        for entry in open_storage(f"s3://{bucket}/kept").list()
        if "leases/" not in entry.path
    }


@pytest.mark.parametrize("role", ["read-only", "append-only"])
def test_each_kind_is_listed_and_verified(
    kind: str, role: Role, bucket: str, proxy: FaultProxy, commands: Commands
) -> None:
    repository = f"s3://{bucket}/kept"
    first_objects = _objects(bucket)
    with acting_as(role, proxy):
        assert commands.rows("list", "--repo", repository)
        assert commands.rows("sql", "SELECT count(*) AS n FROM files", "--repo", repository)[0]["n"] > 0
        code, _, stderr = commands.run("verify", "--repo", repository)
        assert code == 0, stderr
    objects = _objects(bucket)
    assert {path: objects.get(path) for path in first_objects} == first_objects
    if role == "read-only":
        assert objects == first_objects


@pytest.mark.parametrize("role", ["read-only", "append-only"])
def test_a_deletion_is_refused_before_anything_is_lost(
    kind: str, role: Role, bucket: str, proxy: FaultProxy, commands: Commands
) -> None:
    repository = f"s3://{bucket}/kept"
    first_objects = _objects(bucket)
    backups = commands.rows("list", "--repo", repository)
    with acting_as(role, proxy):
        error = commands.fails(6, *_DELETIONS[kind], "--repo", repository)
    assert "AccessDenied" in error
    objects = _objects(bucket)  # an append-only role records that it failed
    assert {path: objects.get(path) for path in first_objects} == first_objects
    assert commands.rows("list", "--repo", repository) == backups
