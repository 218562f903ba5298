"""Repositories whose metadata is encrypted, in folders and buckets: keys, settings, and what a thief sees.

Layer: make test. Snapshots of files show it, without Spark and without a broker.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair, leaks
from tests.support.encrypted_metadata import names_in_clear, new_key, use_catalog

from lakebackup.storage import open_storage


def test_an_identity_recovers_the_key(
    commands: Commands, host: Host, keys: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that restores needs an identity alone. Snapshots of files show it."""
    use_catalog(tmp_path / "catalog", monkeypatch)
    tree, file, recovered_file = tmp_path / "db", new_key(host), host.folder / "recovered.key"
    tree.mkdir()
    (tree / "data").write_bytes(b"content")
    host.has(keys.recipient, metadata_key_file=file)
    commands.output("backup", "snapshot", tree)
    host.has(identity_file=keys.file)
    restore = ("restore", "snapshot", "--to", tmp_path / "out", "--layout", "flat")
    assert "no such key is set" in commands.fails(2, *restore)
    # Whoever may only read the catalog asks it.
    assert len(commands.rows("list")) == 1
    assert commands.rows("sql", "SELECT name FROM snapshot_files") == [{"name": "data"}]
    assert "UNVERIFIED" in commands.fails(4, "status")
    other = host.key_pair("other.identity")
    host.has(identity_file=other.file)
    assert "Its recipients: " + keys.recipient in commands.fails(7, "key", "recover", recovered_file)
    host.has(identity_file=keys.file, metadata_key_file=recovered_file)
    assert "does not exist" in commands.fails(3, *restore)
    commands.output("key", "recover", recovered_file)
    assert recovered_file.read_bytes() == file.read_bytes()
    commands.output(*restore)
    assert (tmp_path / "out" / "data").read_bytes() == b"content"
    # A rotation wraps the key of the metadata too.
    host.has(other.recipient, identity_file=keys.file, metadata_key_file=file)
    commands.output("key", "rotate")
    host.has(identity_file=keys.file)
    assert "Its recipients: " + other.recipient in commands.fails(7, "key", "recover", tmp_path / "again.key")
    host.has(identity_file=other.file)
    commands.output("key", "recover", tmp_path / "again.key")


def test_without_the_key_nothing_is_written(
    commands: Commands, host: Host, keys: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object in clear would show a name, and whoever has the key would not see it."""
    use_catalog(tmp_path / "catalog", monkeypatch)
    repository, tree = tmp_path / "backups", tmp_path / "db"
    tree.mkdir()
    (tree / "data").write_bytes(b"content")
    host.has(keys.recipient, metadata_key_file=new_key(host))
    backup_id = str(commands.result("backup", "snapshot", tree)["backup_id"])
    objects = sorted(path for path in repository.rglob("*") if path.is_file())
    host.has(keys.recipient)
    for words in (
        ("backup", "snapshot", tree),
        ("backup", "snapshot", tree, "--source", "other"),
        ("policy", "set", "db", "--redundancy", "1"),
        ("hold", backup_id, "--forever", "--reason", "audit"),
        ("prune", "--source", "db", "--delete"),
        ("merge", "1", "--source", "db"),
    ):
        assert "no such key is set" in commands.fails(2, *words), words
        assert sorted(path for path in repository.rglob("*") if path.is_file()) == objects, words


@pytest.mark.s3
def test_a_bucket_shows_no_name_of_a_file(
    commands: Commands,
    host: Host,
    keys: KeyPair,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri, tree = f"s3://{bucket}/backups", tmp_path / "secret-db"
    monkeypatch.setenv("LAKEBACKUP_REPO", uri)
    use_catalog(tmp_path / "catalog", monkeypatch)
    host.has(keys.recipient, identity_file=keys.file, metadata_key_file=new_key(host))
    (tree / "secret-folder").mkdir(parents=True)
    for number in range(3):
        (tree / "secret-folder" / "secret-file").write_bytes(b"secret-content %d" % number)
        commands.output("backup", "snapshot", tree, "--mode", "full")
    commands.output("policy", "set", "secret-db", "--redundancy", "1")
    assert commands.result("prune", "--delete")["deleted"]
    checked = commands.result("verify", "--decode")
    assert not any(checked[name] for name in ("damaged", "changed", "missing", "orphan"))
    commands.output("restore", "snapshot", "--to", tmp_path / "out", "--layout", "flat")
    (restored,) = (file for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert restored.read_bytes() == b"secret-content 2"
    copy, storage = tmp_path / "stolen", open_storage(uri, decrypts=False)
    for entry in storage.list():
        (copy / entry.path).parent.mkdir(parents=True, exist_ok=True)
        (copy / entry.path).write_bytes(storage.get(entry.path))
    assert names_in_clear(copy) == []
    assert leaks(copy, [b"secret"]) == []


def test_wrong_keys_and_settings_are_named(
    commands: Commands, host: Host, keys: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, tree, file = tmp_path / "backups", tmp_path / "db", new_key(host)
    tree.mkdir()
    (tree / "data").write_bytes(b"content")
    back_up = ("backup", "snapshot", tree)
    host.has(keys.recipient, metadata_key_file=file)
    assert "the catalog would be stored in clear" in commands.fails(2, *back_up)
    monkeypatch.setenv("LAKEBACKUP_CATALOG", str(repository / "elsewhere"))
    assert "the catalog would be stored in clear" in commands.fails(2, *back_up)
    use_catalog(tmp_path / "catalog", monkeypatch)
    host.has(metadata_key_file=file)
    assert "nobody could open the backup" in commands.fails(2, *back_up)
    assert not (repository / "lakebackup.json").exists()
    host.has(keys.recipient, metadata_key_file=file)
    commands.output(*back_up)
    host.has(metadata_key_file=file)
    (tree / "later").write_bytes(b"more")
    assert "nobody could open the backup" in commands.fails(2, *back_up)
    host.has(keys.recipient, metadata_key_file=new_key(host, "another.key"))
    assert "another.key is the key" in commands.fails(7, "verify")
    host.has(keys.recipient)
    assert "no such key is set" in commands.fails(2, "verify")
    damaged_file = host.write("damaged.key", file.read_bytes()[:-9])
    for wrong_file, text in ((damaged_file, "is not a metadata key"), (keys.file, "is not a metadata key")):
        host.has(keys.recipient, metadata_key_file=wrong_file)
        assert text in commands.fails(2, "verify")
    file.chmod(0o644)
    host.has(keys.recipient, metadata_key_file=file)
    assert "Others may read the metadata key" in commands.fails(5, "verify")
    file.chmod(0o600)
    assert commands.result("verify")["damaged"] == 0
    assert names_in_clear(repository) == []
    # A repository whose metadata is in clear stays so.
    host.has(keys.recipient)
    plain = ("--repo", tmp_path / "plain", "--catalog", tmp_path / "plain-catalog")
    commands.output(*back_up, *plain)
    host.has(keys.recipient, metadata_key_file=file)
    assert "is stored in clear, and metadata_key_file is set" in commands.fails(2, "verify", *plain)
