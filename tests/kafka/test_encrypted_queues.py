"""Encrypted backups of an engine: a host with public keys alone makes them, and an identity restores them.

Layer: make test. All but one test run without Spark, as for all little data.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair, leaks
from tests.support.encrypted_metadata import names_in_clear, new_key, use_catalog
from tests.support.kafka_truth import Record
from tests.support.runs import now_ms
from tests.support.social import Social, cut_off

from lakebackup.encryption.objects import MAGIC
from lakebackup.rules.times import format_ts
from lakebackup.signing.keys import create
from lakebackup_jobs.queues.backup.execute import QueueBackup
from lakebackup_jobs.queues.backup.listing import Listing

pytestmark = pytest.mark.kafka

CONFIG, SNAPSHOT = "password: hush-config\n", b"hush-snapshot" * 100


@pytest.fixture
def engine(social: Social) -> Social:
    """An engine whose files and first messages a thief would like."""
    social.config.write_text(CONFIG)
    (social.snapshot / "000001.sst").write_bytes(SNAPSHOT)
    social.send(social.delta, 0, value=b"hush-before")
    social.send(social.delta, 1, "t1", value=b"hush-open")
    return social


@pytest.fixture
def new_copies(engine: Social, topic: Callable[..., str]) -> Callable[[], dict[str, str]]:
    """Makes a new topic for each queue of the engine, to restore into."""
    return lambda: {engine.delta: topic("copy", 2), engine.journal: topic("copy", 1)}


def back_up(commands: Commands, engine: Social, mode: str, *runner: str) -> dict[str, object]:
    flags = ("--pattern", engine.delta, "--pattern", engine.journal, "--mode", mode)
    files = ("--engine-config", engine.config, "--engine-schema", engine.schema)
    snapshot = ("--snapshot-folder", engine.snapshot) if mode == "full" else ()
    servers = ("--bootstrap-server", engine.bootstrap)
    return commands.result("backup", "queue", "social", *flags, *files, *snapshot, *servers, *runner)


def restore_flags(engine: Social, folder: Path, copies: dict[str, str]) -> list[str | Path]:
    maps = [part for topic, copy in copies.items() for part in ("--map", f"{topic}={copy}")]
    return ["restore", "queue", "social", "--to", f"kafka://{engine.bootstrap}", "--into", folder, *maps]


def values(engine: Social, topic: str) -> list[bytes | None]:
    records: list[Record] = [record for _, record in truth.read(engine.bootstrap, topic)]
    return sorted(record.value for record in records if "lakebackup-watermark" not in dict(record.headers))


def test_an_engine_is_backed_up_with_public_keys_and_restored_with_an_identity(
    commands: Commands,
    engine: Social,
    host: Host,
    keys: KeyPair,
    new_copies: Callable[[], dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host.has(keys.recipient)
    create(tmp_path / "host.key", None)
    monkeypatch.setenv("LAKEBACKUP_SIGNING__KEY_FILE", str(tmp_path / "host.key"))
    full = back_up(commands, engine, "full")
    engine.send(engine.delta, 0, value=b"hush-between")
    between = now_ms()
    later_values = [b"hush-later-%d" % number for number in range(3)]
    for value in later_values:
        engine.send(engine.delta, 0, value=value)
    assert back_up(commands, engine, "differential")["parent"] == full["backup_id"]
    assert leaks(engine.repo, [b"hush-"]) == []
    assert all(path.read_bytes().startswith(MAGIC) for path in engine.repo.rglob("*.data"))
    assert commands.result("verify", "--decode")["damaged"] == 0

    copies = new_copies()
    code, _, error = commands.run(*restore_flags(engine, tmp_path / "out", copies))
    assert (code, keys.recipient in error) == (2, True), error

    host.has(identity_file=keys.file)
    assert commands.result("verify", "--decode")["damaged"] == 0
    host.has(identity_file=host.key_pair("foreign.identity").file)
    assert "opens the data key" in commands.fails(7, "drill", "social")
    assert commands.rows("sql", "SELECT * FROM drills") == []
    host.has(identity_file=keys.file)
    (drill,) = commands.result("drill", "social")["drills"]
    assert drill["outcome"] == "ok"
    commands.output(*restore_flags(engine, tmp_path / "out", copies))
    assert (tmp_path / "out/config.yaml").read_text() == CONFIG
    assert (tmp_path / "out/delta_schema_history.yaml").read_text() == engine.schema.read_text()
    assert (tmp_path / "out/snapshot/000001.sst").read_bytes() == SNAPSHOT
    assert values(engine, copies[engine.delta]) == sorted([b"hush-between", *later_values])

    # A moment inside a stored file: the search for it reads encrypted files too.
    copies = new_copies()
    commands.output(*restore_flags(engine, tmp_path / "moment", copies), "--to-time", format_ts(between))
    expected = [
        record.value
        for _, record in truth.read(engine.bootstrap, engine.delta)
        if record.value in {b"hush-between", *later_values} and record.timestamp <= between
    ]
    assert values(engine, copies[engine.delta]) == sorted(expected)
    signed = commands.result("verify", "--signatures", "--public-key", tmp_path / "host.key.pub")
    assert (signed["backups"], signed["unsigned"], signed["findings"]) == (3, 0, [])


def test_no_name_of_an_engine_is_in_the_repository(
    commands: Commands,
    engine: Social,
    host: Host,
    keys: KeyPair,
    new_copies: Callable[[], dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository, key_file = tmp_path / "encrypted", new_key(host)
    monkeypatch.setenv("LAKEBACKUP_REPO", str(repository))
    use_catalog(tmp_path / "catalog", monkeypatch)
    host.has(keys.recipient, metadata_key_file=key_file)
    back_up(commands, engine, "full")
    engine.send(engine.delta, 0, value=b"hush-later")
    back_up(commands, engine, "differential")
    host.has(identity_file=keys.file, metadata_key_file=key_file)
    copies = new_copies()
    commands.output(*restore_flags(engine, tmp_path / "out", copies))
    assert (tmp_path / "out/snapshot/000001.sst").read_bytes() == SNAPSHOT
    assert values(engine, copies[engine.delta]) == [b"hush-later"]
    assert commands.result("verify", "--decode")["damaged"] == 0
    assert names_in_clear(repository) == []
    assert leaks(repository, [b"hush-", b"social", engine.delta.encode()]) == []


@pytest.mark.spark
def test_spark_copies_and_restores_what_a_rebuilt_catalog_knows(
    cli: Commands,
    engine: Social,
    host: Host,
    keys: KeyPair,
    new_copies: Callable[[], dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_spark = ("--runner", "spark")
    monkeypatch.setenv("LAKEBACKUP_REPO", str(engine.repo))
    host.has(keys.recipient)
    back_up(cli, engine, "full", *on_spark)
    engine.send(engine.delta, 1, "t1", value=b"hush-more")
    _, _, tid = engine.send(engine.delta, 0, value=b"hush-later")
    engine.send(engine.delta, 1, "t1", "commit", value=b"hush-end")
    back_up(cli, engine, "differential", *on_spark)
    shutil.move(engine.repo / "catalog", tmp_path / "lost")
    host.has()
    cli.output("catalog", "rebuild")
    host.has(identity_file=keys.file)
    copies = new_copies()
    flags = restore_flags(engine, tmp_path / "out", copies)
    cli.output(*flags, "--to-tid", str(tid), *on_spark)
    assert values(engine, copies[engine.delta]) == [b"hush-later"]  # t1 is open at the tid
    assert (tmp_path / "out/config.yaml").read_text() == CONFIG


def test_an_interrupted_backup_is_completed_with_another_key(
    commands: Commands,
    engine: Social,
    host: Host,
    keys: KeyPair,
    new_copies: Callable[[], dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run that completes a backup cannot open the key of the first run. Both keys open their objects."""
    engine.full(recipients=(keys.recipient,))
    engine.send(engine.delta, 0, value=b"hush-later")
    with cut_off(monkeypatch, Listing, "write_rows"):
        engine.backup("differential", recipients=(keys.recipient,))
    completed = engine.backup("differential", recipients=(keys.recipient,))["ended"]
    condition = f"backup_id = '{completed['backup_id']}' AND role <> 'meta'"
    files = engine.rows(f"SELECT role, path, key_id FROM files WHERE {condition}")
    assert {row["role"] for row in files} == {"data", "config", "schema"}
    assert len({row["key_id"] for row in files}) == 2
    folder = f"queues/{completed['backup_id']}/"
    assert {path for path in engine.tree() if folder in path} == {
        row["path"] for row in files if row["role"] != "data"
    }
    host.has(identity_file=keys.file)
    copies = new_copies()
    commands.output(*restore_flags(engine, tmp_path / "out", copies))
    assert values(engine, copies[engine.delta]) == [b"hush-later"]
    assert (tmp_path / "out/config.yaml").read_text() == CONFIG


def test_a_backup_that_is_given_up_leaves_no_encrypted_object(
    engine: Social, keys: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipients = (keys.recipient,)
    engine.full(recipients=recipients)
    data_paths = {path for path in engine.tree() if path.endswith(".data")}
    engine.send(engine.delta, 0)
    with cut_off(monkeypatch, Listing, "write_rows"):
        engine.backup("differential", recipients=recipients)
    with cut_off(monkeypatch, QueueBackup, "copy"):
        engine.backup("incremental", recipients=recipients)
    assert {path for path in engine.tree() if path.endswith(".data")} == data_paths
    config_paths = {row["path"] for row in engine.rows("SELECT path FROM files WHERE role = 'config'")}
    assert {path for path in engine.tree() if "/config.yaml" in path} == config_paths
    assert all(path.endswith(".enc") for path in config_paths)
