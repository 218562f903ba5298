"""Encrypted backups of topics: a host with public keys alone makes them, and an identity reads them.

Layer: make test. The commands run without Spark, as for all little data; tests/spark/test_encrypted_spark.py
has the verbs that need it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import kafka_truth as truth
from tests.support.archives import read_archive
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair, leaks, opened_keys
from tests.support.kafka_truth import Record

from lakebackup.encryption.objects import MAGIC
from lakebackup.signing.keys import create
from lakebackup_jobs.demo.broker import Broker

pytestmark = pytest.mark.kafka

RECORDS = [
    Record(
        i % 2,
        b"secret-key-%03d" % (i % 20),
        b"secret-value-%d" % i,
        (("secret-header", b"x"),),
        1_600_000_000_000 + i,
    )
    for i in range(100)
]
LATER = [
    Record(i % 2, b"later-key-%03d" % (i % 20), b"secret-value-%d" % i, (), 1_600_000_001_000 + i)
    for i in range(100)
]


@pytest.fixture
def orders(broker: Broker, topic: Callable[..., str]) -> str:
    """A topic with RECORDS in its two partitions."""
    name = topic("orders", partitions=2)
    truth.produce(broker.bootstrap, name, RECORDS)
    return name


@pytest.fixture
def back_up(commands: Commands, broker: Broker, orders: str) -> Callable[..., dict[str, object]]:
    def run(*flags: str) -> dict[str, object]:
        flags = ("--bootstrap-server", broker.bootstrap, "--groups", "none", *flags)
        return commands.result("backup", "topics", orders, *flags)

    return run


def restore(commands: Commands, broker: Broker, topic: str, copy: str) -> None:
    """Restore a topic, and compare the copy with it."""
    target = ("--to", f"kafka://{broker.bootstrap}", "--map", f"{topic}={copy}")
    commands.output("restore", "topics", topic, *target)
    assert truth.contents(broker.bootstrap, copy) == truth.contents(broker.bootstrap, topic)


def data_files(repository: Path) -> list[Path]:
    return sorted(repository.rglob("*.data"))


def test_a_host_with_public_keys_makes_backups_that_an_identity_restores(
    commands: Commands,
    broker: Broker,
    orders: str,
    back_up: Callable[..., dict[str, object]],
    host: Host,
    keys: KeyPair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository = tmp_path / "backups"
    host.has(keys.recipient)
    create(tmp_path / "host.key", None)
    monkeypatch.setenv("LAKEBACKUP_SIGNING__KEY_FILE", str(tmp_path / "host.key"))
    back_up()
    truth.produce(broker.bootstrap, orders, LATER)
    assert back_up()["kind"] == "differential"
    assert all(file.read_bytes().startswith(MAGIC) for file in data_files(repository))
    checked = commands.result("verify")
    assert (checked["damaged"], checked["changed"], checked["missing"]) == (0, 0, 0)
    assert len(commands.rows("list")) == 2
    rows = commands.rows(
        "sql",
        "SELECT count(*) AS files, count(DISTINCT f.key_id) AS keys, count(start_key) AS bounds, "
        "min(recipient) AS recipient FROM files AS f JOIN data_keys AS k ON f.key_id = k.key_id",
    )
    assert rows == [{"files": 4, "keys": 2, "bounds": 0, "recipient": keys.recipient}]

    host.has(keys.recipient, identity_file=keys.file)
    assert commands.result("key", "test", keys.file)["opened"] == 2
    query = f"SELECT value FROM records('{orders}') WHERE key = 'later-key-003'"
    _, output, err = commands.run("sql", query, "--json")
    assert len(output.splitlines()) == 5
    assert "1 of 4 files opened" in err
    ids = [row["backup_id"] for row in commands.rows("sql", "SELECT backup_id FROM backups ORDER BY number")]
    changes = commands.rows("diff", *ids, "--records")
    assert {row["key"] for row in changes if "key" in row} == {f"later-key-{i:03d}" for i in range(20)}
    merged = commands.result("merge", "1")
    signed = commands.result("verify", "--signatures", "--public-key", tmp_path / "host.key.pub")
    assert (signed["links"], signed["backups"], signed["findings"]) == (3, 3, [])
    assert commands.rows(
        "sql", f"SELECT DISTINCT key_id IS NULL AS plain FROM files WHERE backup_id = '{merged['backup_id']}'"
    ) == [{"plain": False}]
    _, output, err = commands.run("sql", query, "--json")
    assert len(output.splitlines()) == 5
    host.has(identity_file=keys.file)
    restore(commands, broker, orders, f"{orders}-copy")
    commands.output("restore", "topics", orders, "--to", f"dir:{tmp_path / 'out'}")
    restored = [record for _, record in truth.records_below(tmp_path / "out")]
    assert sorted(record.value or b"" for record in restored) == sorted(
        r.value or b"" for r in [*RECORDS, *LATER]
    )
    commands.output("archive", "export", "--to", tmp_path / "archive")
    assert len(read_archive(tmp_path / "archive").docs[orders]) == 40  # a document for each key
    for mode in ("--decode", "--restore"):
        assert commands.result("verify", mode)["damaged"] == 0
    host.has(identity_file=host.key_pair("foreign.identity").file)
    assert "opens the data key" in commands.fails(7, "drill")
    assert commands.rows("sql", "SELECT * FROM drills") == []
    host.has(identity_file=keys.file)
    (drill,) = commands.result("drill")["drills"]
    assert drill["outcome"] == "ok"


def test_a_stolen_repository_shows_no_record_and_no_key(
    commands: Commands,
    broker: Broker,
    orders: str,
    back_up: Callable[..., dict[str, object]],
    host: Host,
    keys: KeyPair,
    tmp_path: Path,
) -> None:
    """The same thief finds the records of a plain backup."""
    texts = [b"secret-key", b"secret-value", b"secret-header"]
    host.has()
    back_up("--repo", str(tmp_path / "plain"))
    assert {secret for _, secret in leaks(tmp_path / "plain", texts)} == set(texts)
    host.has(keys.recipient)
    back_up("--codec", "null")
    truth.produce(broker.bootstrap, orders, LATER)
    back_up("--codec", "null")
    host.has(keys.recipient, identity_file=keys.file)
    commands.output("merge", "1")
    restore(commands, broker, orders, f"{orders}-copy")
    commands.output("verify", "--decode")
    data_keys = [key.data_key.key for key in opened_keys(tmp_path / "backups", keys.file).values()]
    assert len(data_keys) == 3
    secrets = [*texts, b"later-key", *data_keys, keys.file.read_bytes().split()[-1]]
    assert leaks(tmp_path / "backups", secrets) == []


def test_a_repository_of_plain_backups_goes_on_encrypted(
    commands: Commands,
    broker: Broker,
    orders: str,
    back_up: Callable[..., dict[str, object]],
    host: Host,
    keys: KeyPair,
    tmp_path: Path,
) -> None:
    host.has()
    back_up()
    truth.produce(broker.bootstrap, orders, LATER)
    host.has(keys.recipient)
    back_up()
    assert {file.read_bytes().startswith(MAGIC) for file in data_files(tmp_path / "backups")} == {True, False}
    host.has(identity_file=keys.file)
    restore(commands, broker, orders, f"{orders}-copy")
    assert "no recipient is set" in commands.fails(5, "merge", "1")
    host.has(keys.recipient, identity_file=keys.file)
    backup_id = commands.result("merge", "1")["backup_id"]
    query = f"SELECT count(key_id) AS encrypted, count(*) AS files FROM files WHERE backup_id = '{backup_id}'"
    assert commands.rows("sql", query) == [{"encrypted": 2, "files": 2}]


def test_keys_are_wrapped_for_other_recipients(
    commands: Commands,
    broker: Broker,
    orders: str,
    back_up: Callable[..., dict[str, object]],
    host: Host,
    keys: KeyPair,
    tmp_path: Path,
) -> None:
    host.has(keys.recipient)
    back_up()
    data = [file.read_bytes() for file in data_files(tmp_path / "backups")]
    new = host.key_pair("new.identity")
    host.has(new.recipient, identity_file=keys.file)
    assert commands.result("key", "rotate")["keys"] == 1
    assert [file.read_bytes() for file in data_files(tmp_path / "backups")] == data
    assert commands.rows("sql", "SELECT recipient FROM data_keys") == [{"recipient": new.recipient}]
    assert new.recipient in commands.fails(7, "key", "test")
    assert commands.result("verify")["changed"] == 0
    host.has(identity_file=new.file)
    restore(commands, broker, orders, f"{orders}-copy")


def test_a_host_with_public_keys_prunes_what_it_cannot_read(
    commands: Commands,
    broker: Broker,
    orders: str,
    back_up: Callable[..., dict[str, object]],
    host: Host,
    keys: KeyPair,
    tmp_path: Path,
) -> None:
    """Two fulls and the increments on them; one full is kept."""
    host.has(keys.recipient)
    for _ in range(2):
        back_up("--mode", "full")
        truth.produce(broker.bootstrap, orders, LATER)
        back_up()
    commands.output("policy", "set", str(commands.rows("list")[0]["source"]), "--redundancy", "1")
    assert commands.result("prune", "--delete")["deleted"]
    checked = commands.result("verify", "--decode")
    assert not any(checked[name] for name in ("damaged", "changed", "missing", "orphan"))
    states = [row["state"] for row in commands.rows("list")]
    assert states.count("complete") == 2
    assert len(commands.rows("sql", "SELECT key_id FROM data_keys")) == 2
    assert len(list((tmp_path / "backups").glob("*/backups/*/data-keys/*.json"))) == 2
    folder = f"dir:{tmp_path / 'out'}"
    assert keys.recipient in commands.fails(2, "restore", "topics", orders, "--to", folder)
    assert not (tmp_path / "out").exists()
    host.has(identity_file=keys.file)
    restore(commands, broker, orders, f"{orders}-copy")
