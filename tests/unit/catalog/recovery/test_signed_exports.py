"""Signed exports: a public key shows whether an export is the one that was written. No JVM."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.command_line import Commands
from tests.support.made_backups import MadeBackups, Record

from lakebackup.recovery.exchange import INDEX, SIGNATURE, read_index
from lakebackup.signing.keys import TrustedKeys, create, load_public
from lakebackup.storage import open_storage

Change = Callable[[Path], None]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a backup, whose host signs."""
    backups = MadeBackups(tmp_path / "backups")
    backups.backup([[Record(0, 1)]])
    backups.flush()
    for name in ("host.key", "other.key"):
        create(tmp_path / name, None)
    monkeypatch.setenv("LAKEBACKUP_SIGNING__KEY_FILE", str(tmp_path / "host.key"))
    return backups.folder


def trust(monkeypatch: pytest.MonkeyPatch, key: Path) -> None:
    monkeypatch.setenv("LAKEBACKUP_SIGNING__PUBLIC_KEYS", json.dumps([str(key)]))


def test_an_export_is_signed_and_read_with_the_public_key(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands, rows = Commands(capsys), tmp_path / "rows"
    result = commands.result("catalog", "export", rows, "--repo", repository)
    public_key = load_public(tmp_path / "host.key.pub")
    assert result["signed_by"] == public_key.key_id
    index = read_index(open_storage(str(rows)), TrustedKeys.of([public_key]))
    assert {file.table for file in index.files} >= {"backups", "files"}
    envelope = json.loads((rows / SIGNATURE).read_bytes())
    assert base64.b64decode(envelope["payload"]) == (rows / INDEX).read_bytes()


def resealed(rows: Path) -> None:
    """Another index with a right SHA-256 of itself, as anybody can write it."""
    text = (rows / INDEX).read_text().replace('"rows":1', '"rows":2', 1)
    body = text[: text.rindex(',"sha256":')].encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    (rows / INDEX).write_bytes(body + b',"sha256":"%s"}\n' % digest)


def unsigned(rows: Path) -> None:
    (rows / SIGNATURE).unlink()


def without_signatures(rows: Path) -> None:
    envelope = json.loads((rows / SIGNATURE).read_bytes())
    (rows / SIGNATURE).write_text(json.dumps({**envelope, "signatures": []}))


def with_other_rows(rows: Path) -> None:
    (rows / "files-0000.jsonl").write_text("{}\n")


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        (resealed, "host", "lakebackup-export.json is not what was signed"),
        (unsigned, "host", "is not signed, and public_keys are set"),
        (without_signatures, "host", "lakebackup-export.dsse.json: The file is not signed"),
        (with_other_rows, "host", "files-0000.jsonl was changed after the export"),
        (lambda _: None, "other", "which is not a trusted one"),
    ],
    ids=["another index", "no signature", "no key", "other rows", "another key"],
)
def test_an_export_that_nobody_vouches_for_is_not_imported(
    repository: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    key: str,
    text: str,
) -> None:
    commands, rows, target = Commands(capsys), tmp_path / "rows", tmp_path / "elsewhere"
    commands.output("catalog", "export", rows, "--repo", repository)
    trust(monkeypatch, tmp_path / f"{key}.key.pub")
    change(rows)
    assert text in commands.fails(7, "catalog", "import", rows, "--repo", target)
    assert not target.exists()
