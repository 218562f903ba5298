"""Encrypted archives: a host with public keys alone imports them, and an identity restores and exports them.

Layer: make test, without Java. It is worth its seconds: nothing else reads an archive's files through a key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.archives import Doc, read_archive, write_backup
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair, leaks
from tests.support.encrypted_metadata import names_in_clear, new_key, use_catalog

from lakebackup.encryption.objects import MAGIC
from lakebackup_jobs.archives import import_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FULL, MONDAY, TUESDAY = (f"2014-02-0{day}T020000Z" for day in (2, 3, 4))
SECRETS = [b"hush-key", b"hush-value", b"hush-design"]


@dataclass(frozen=True)
class Lab:
    """An archive, and a repository on a machine that has public keys alone at first."""

    commands: Commands
    host: Host
    keys: KeyPair
    folder: Path

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    @property
    def repository(self) -> Path:
        return self.folder / "backups"

    def import_archive(self) -> dict[str, object]:
        return self.commands.result("archive", "import", self.archive, "--source", "shop")

    def objects(self) -> list[Path]:
        return sorted(path for path in (self.repository / "shop/archive").rglob("*") if path.is_file())

    def documents(self, name: str) -> dict[str, object]:
        """Restore the archive into a new folder; return its documents."""
        target = self.folder / name
        self.commands.output("archive", "restore", "shop", "--to", target)
        lines = [line for path in target.rglob("docs-*") for line in path.read_text().splitlines()]
        assert (target / "bucket-default/design.json").read_text() == '"hush-design"'
        return {row["key"]: row["value"] for row in map(json.loads, lines)}


@pytest.fixture
def lab(commands: Commands, host: Host, keys: KeyPair, tmp_path: Path) -> Lab:
    lab = Lab(commands, host, keys, tmp_path)
    docs = [Doc(b"hush-key-%d" % number, b'{"a": "hush-value"}', number) for number in (1, 2)]
    write_backup(lab.archive, FULL, "full", docs, design='"hush-design"')
    write_backup(lab.archive, MONDAY, "diff", [Doc(b"hush-key-1", None, 3)], chain=FULL)
    host.has(keys.recipient)
    return lab


def test_an_archive_is_imported_with_public_keys_and_restored_with_an_identity(lab: Lab) -> None:
    assert lab.import_archive()["imported"] == 2
    assert leaks(lab.repository, SECRETS) == []
    assert all(path.read_bytes().startswith(MAGIC) for path in lab.objects())
    checked = lab.commands.result("verify", "--decode")
    assert (checked["damaged"], checked["changed"], checked["missing"], checked["orphan"]) == (0, 0, 0, 0)
    words = ("archive", "restore", "shop", "--to", lab.folder / "none")
    assert lab.keys.recipient in lab.commands.fails(2, *words)

    lab.host.has(identity_file=lab.keys.file)
    assert lab.documents("documents") == {"hush-key-2": {"a": "hush-value"}}
    lab.commands.output("archive", "export", "shop", "--to", lab.folder / "copy")
    copy, archive = read_archive(lab.folder / "copy"), read_archive(lab.archive)
    assert (copy.rows, copy.modes) == (archive.rows, archive.modes)
    assert copy.designs == {"bucket-default": '"hush-design"'}


def test_no_name_of_a_bucket_is_in_the_repository(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    use_catalog(lab.folder / "catalog", monkeypatch)
    key_file = new_key(lab.host)
    lab.host.has(lab.keys.recipient, metadata_key_file=key_file)
    lab.import_archive()
    lab.host.has(identity_file=lab.keys.file, metadata_key_file=key_file)
    assert lab.documents("documents") == {"hush-key-2": {"a": "hush-value"}}
    assert lab.commands.result("verify", "--decode")["damaged"] == 0
    assert names_in_clear(lab.repository) == []
    assert leaks(lab.repository, [*SECRETS, b"bucket-default", b"shop"]) == []


def test_a_grown_archive_is_imported_again_and_a_changed_one_is_refused(lab: Lab) -> None:
    lab.import_archive()
    write_backup(lab.archive, TUESDAY, "diff", [Doc(b"hush-key-3", b"1", 4)], chain=FULL)
    assert (lab.import_archive()["imported"], lab.import_archive()["known"]) == (1, 3)
    (changed,) = lab.archive.glob(f"*/{MONDAY}*/*/*/seqno.json")
    changed.write_text('{"0": 3 }')
    words = ("archive", "import", lab.archive, "--source", "shop")
    assert "with other contents" in lab.commands.fails(5, *words)


def test_an_interrupted_import_leaves_no_object_that_nobody_can_read(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(import_archive, "publish", _stopped)
        lab.commands.fails(130, "archive", "import", lab.archive, "--source", "shop")
    (interrupted,) = {path.name.split(".")[-2] for path in lab.objects()}
    lab.import_archive()
    assert interrupted not in {path.name.split(".")[-2] for path in lab.objects()}
    lab.host.has(identity_file=lab.keys.file)
    assert lab.documents("documents") == {"hush-key-2": {"a": "hush-value"}}


def _stopped(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_exchanged_objects_are_damaged(lab: Lab) -> None:
    lab.import_archive()
    first, second = sorted(path for path in lab.objects() if ".cbb." in path.name)
    first.write_bytes(second.read_bytes())
    lab.host.has(identity_file=lab.keys.file)
    lab.commands.fails(7, "archive", "restore", "shop", "--to", lab.folder / "documents")
    lab.commands.fails(7, "archive", "export", "shop", "--to", lab.folder / "copy")


@pytest.mark.spark
def test_spark_reads_what_a_rebuilt_catalog_knows(lab: Lab, spark: SparkSession) -> None:
    lab.import_archive()
    (lab.repository / "catalog").rename(lab.folder / "lost")
    on_spark = replace(lab, commands=replace(lab.commands, spark=spark))
    on_spark.commands.output("catalog", "rebuild")
    assert on_spark.import_archive()["known"] == 2
    lab.host.has(identity_file=lab.keys.file)
    assert on_spark.documents("documents") == {"hush-key-2": {"a": "hush-value"}}
