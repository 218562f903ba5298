"""Repositories whose names and metadata are encrypted: nothing in them shows what was backed up.

Layer: make test. Topics are backed up, restored and maintained without Spark, as for all little data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair, leaks
from tests.support.encrypted_metadata import names_in_clear, new_key, use_catalog
from tests.support.kafka_truth import Record

from lakebackup_jobs.demo.broker import Broker

RECORDS = [
    Record(i % 2, b"secret-key-%03d" % (i % 20), b"secret-value-%d" % i, (), 1_600_000_000_000 + i)
    for i in range(100)
]


@pytest.mark.kafka
def test_no_name_of_a_topic_is_in_the_repository(
    commands: Commands,
    broker: Broker,
    topic: Callable[..., str],
    host: Host,
    keys: KeyPair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two fulls with an increment each, a merge, a restore, checks, a drill and a prune."""
    repository, catalog = tmp_path / "backups", use_catalog(tmp_path / "catalog", monkeypatch)
    orders, file = topic("secret-orders", partitions=2), new_key(host)
    host.has(keys.recipient, metadata_key_file=file)
    for mode in ("full", "auto") * 2:
        truth.produce(broker.bootstrap, orders, RECORDS)
        flags = ("--source", "secret-source", "--codec", "null", "--mode", mode)
        commands.result("backup", "topics", orders, "--bootstrap-server", broker.bootstrap, *flags)
    commands.output("policy", "set", "secret-source", "--redundancy", "1")
    assert commands.result("verify")["damaged"] == 0
    host.has(keys.recipient, metadata_key_file=file, identity_file=keys.file)
    commands.output("merge", "1")
    to = ("--to", f"kafka://{broker.bootstrap}", "--map", f"{orders}={orders}-copy")
    commands.output("restore", "topics", orders, *to)
    assert truth.contents(broker.bootstrap, f"{orders}-copy") == truth.contents(broker.bootstrap, orders)
    for mode in ("--decode", "--restore"):
        assert commands.result("verify", mode)["damaged"] == 0
    (drill,) = commands.result("drill")["drills"]
    assert drill["outcome"] == "ok"
    assert commands.result("prune", "--delete")["deleted"]
    checked = commands.result("verify", "--decode")
    assert not any(checked[name] for name in ("damaged", "changed", "missing", "orphan"))
    assert names_in_clear(repository) == []
    secrets = [b"secret-orders", b"secret-source", b"secret-key", b"secret-value"]
    assert leaks(repository, secrets) == []
    # A thief of the catalog, which is stored elsewhere, finds the names.
    assert {secret for _, secret in leaks(catalog, secrets)} == set(secrets[:2])


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
