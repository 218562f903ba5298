"""Each command with exactly the rights of the table in docs/s3.md. The S3 server refuses everything else.

Commands that need a JVM or a broker are in tests/kafka/test_s3_rights.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_line import Commands
from tests.support.s3_commands import Lines, S3Commands, groups, s3_commands
from tests.support.s3_faults import FaultProxy
from tests.support.s3_roles import rights_by_command

pytestmark = [pytest.mark.s3, pytest.mark.usefixtures("quick")]

LINES: Lines = {
    "snapshots": {
        "list": ("list",),
        "sql": ("sql 'SELECT count(*) AS n FROM files'",),
        "show": ("show latest",),
        "files": ("files latest",),
        "diff": ("diff {oldest} {newest}",),
        "report": ("report",),
        "status": ("status",),
        "policy show": ("policy show",),
        "due": ("due",),
        "approve": ("approve --yes",),
        "prune": ("prune 1 --source store",),
        "key test": ("key test {identity}",),
        "catalog ddl": ("catalog ddl --for spark --out {out}.sql",),
        "catalog manifest": ("catalog manifest latest --out {out}.json",),
        "evidence prove": ("evidence prove {path} {out}.proof",),
        "restore snapshot": ("restore snapshot --source store --to {out}",),
        "verify": ("verify",),
        "drill": ("drill store",),
        "catalog export": ("catalog export {out}",),
        "backup snapshot": ("backup snapshot {tree} --source store --mode full",),
        "hold": ("hold latest --forever --reason audit", "hold latest --release --reason audited"),
        "policy set": ("policy set store --full 'daily 02:30' --window 14d --command 'snapshot {tree}'",),
        "policy remove": ("policy remove store",),
        "catalog break-lease": ("catalog break-lease source-gone{run} --reason 'it is gone'",),
        "catalog init": ("catalog init --catalog s3://{bucket}/catalog{run}",),
        "catalog import-manifest": ("catalog import-manifest {manifest} --source other{run}",),
        "catalog optimize": ("catalog optimize",),
        "key rotate": ("key rotate",),
    },
    "topics": {
        "restore topics": ("restore topics orders --to dir:{out}",),
        "merge": ("merge 1 --source prod",),
    },
    "log": {
        "restore point": ("restore point shop --to dir:{out}",),
        "log restore": ("log restore shop --to dir:{out}",),
        "log truncate": ("log truncate shop --endts 20 --yes",),
    },
    "metadata": {"key recover": ("key recover {out}.key",)},
    "queues": {"prune --delete": ("prune 1 --source social --delete",)},
    "archives": {
        "archive restore": ("archive restore shop --to {out}",),
        "archive export": ("archive export shop --to {out}",),
        "archive import": ("archive import {archive} --source shop{run}",),
    },
}
OFTEN = {"list", "sql", "restore snapshot"}


@pytest.fixture
def s3_repository(
    kind: str,
    bucket: str,
    proxy: FaultProxy,
    empty_catalog: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> S3Commands:
    """Commands on a repository of a kind in the bucket."""
    return s3_commands(kind, bucket, proxy, Commands(capsys), empty_catalog, tmp_path, monkeypatch)


@pytest.mark.parametrize(("kind", "commands"), list(groups(LINES, OFTEN)))
def test_the_documented_rights_suffice_and_each_is_used(
    kind: str, commands: tuple[str, ...], s3_repository: S3Commands
) -> None:
    s3_repository.check_rights({command: LINES[kind][command] for command in commands})


_WRITE_HINT = "Allow these credentials s3:PutObject there"


@pytest.mark.parametrize(
    ("kind", "command", "missing", "message", "hint"),
    [
        ("queues", "list", "s3:ListBucket", "Cannot list ", "Allow these credentials s3:ListBucket"),
        ("queues", "list", "s3:GetObject", "Cannot read ", "Allow these credentials s3:GetObject there"),
        ("queues", "backup snapshot", "s3:PutObject", "Cannot write leases/", _WRITE_HINT),
        ("queues", "policy set", "s3:PutObject", "Cannot write leases/", _WRITE_HINT),
        ("queues", "prune --delete", "s3:PutObject", "Cannot write leases/", _WRITE_HINT),
        ("queues", "prune --delete", "s3:DeleteObject", "Cannot delete social/", "s3:DeleteObject there"),
    ],
)  # fmt: skip
def test_a_missing_right_is_named(
    command: str, missing: str, message: str, hint: str, s3_repository: S3Commands, tmp_path: Path
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_bytes(b"content")
    s3_repository.fields["tree"] = tmp_path / "tree"
    (line,) = next(lines[command] for lines in LINES.values() if command in lines)
    code, stderr, _ = s3_repository.run(line, rights_by_command()[command].all_actions - {missing})
    assert code == 6
    assert message in stderr
    assert f" in {s3_repository.uri}" in stderr
    assert "AccessDenied" in stderr
    assert hint in stderr
