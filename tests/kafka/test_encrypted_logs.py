"""Encrypted change logs: a job with public keys alone captures them, and an identity reads them.

Layer: make test. Log tasks run on Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.change_feed import ChangeFeed
from tests.support.command_line import Commands
from tests.support.encrypted import Host, leaks
from tests.support.encrypted_metadata import names_in_clear, new_key, use_catalog
from tests.support.log_tasks import LogTask, busy, restored
from tests.support.runs import Lab

from lakebackup.config import SigningOptions
from lakebackup.encryption.objects import MAGIC
from lakebackup.errors import UsageProblem
from lakebackup.signing.keys import create
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.runtime import signing

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_log_is_captured_with_public_keys_and_restored_with_an_identity(
    lab: Lab, cli: Commands, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = Host(monkeypatch, tmp_path / "keys")
    keys = host.key_pair("identity")
    host.has(keys.recipient)
    monkeypatch.setenv("LAKEBACKUP_REPO", str(lab.folder))
    monkeypatch.setenv("LAKEBACKUP_SIGNING__KEY_FILE", str(tmp_path / "host.key"))
    create(tmp_path / "host.key", None)
    signing.use(SigningOptions(key_file=str(tmp_path / "host.key")))
    feed, feed_topic = ChangeFeed(partitions=2), topic("feed", partitions=2)
    task = LogTask(lab, feed_topic, recipients=(keys.recipient,))
    task.begin()
    with task.run():
        # Each flush reads the names of tables that earlier ones have stored, without an identity.
        tables = []
        for number, name in enumerate(("orders", "refunds")):
            tables.append(feed.create_table("shop", name))
            for table in tables:
                busy(feed, table, 5, begin=5 * number)
            feed.send(lab.bootstrap, feed_topic)
            task.until_captured(feed.last_ts)
    rows = feed.rows(feed.last_ts)
    assert leaks(lab.folder, [b"a longer value"]) == []
    for row in lab.sql("SELECT path, role, key_id, start_key FROM files WHERE format = 'log-arrow-1'"):
        is_encrypted = (lab.folder / row["path"]).read_bytes().startswith(MAGIC)
        assert is_encrypted == (row["role"] == "data") == (row["key_id"] is not None)
        assert row["role"] == "schema" or row["start_key"] is None
    assert cli.result("verify", "--decode")["damaged"] == 0
    with pytest.raises(UsageProblem, match="encrypted, and no identity is set"):
        restored(lab, tmp_path / "none")

    host.has(keys.recipient, identity_file=keys.file)
    assert cli.result("verify", "--decode")["damaged"] == 0  # and this process has the identity now
    assert restored(lab, tmp_path / "before") == rows
    host.has(identity_file=keys.file)
    assert "what replaces them would not be" in cli.fails(5, "log", "compact", "lab")
    host.has(keys.recipient, identity_file=keys.file)
    compaction = cli.result("log", "compact", "lab")
    condition = f"backup_id = '{compaction['backup_id']}' AND role = 'data'"
    paths = [lab.folder / row["path"] for row in lab.sql(f"SELECT path FROM files WHERE {condition}")]
    assert {path.read_bytes().startswith(MAGIC) for path in paths} == {True}
    assert restored(lab, tmp_path / "after") == rows
    signed = cli.result("verify", "--signatures", "--public-key", tmp_path / "host.key.pub")
    assert (signed["backups"], signed["unsigned"], signed["findings"]) == (signed["links"], 0, [])


def test_no_name_of_a_table_is_in_the_repository_of_a_log(
    cli: Commands, broker: Broker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The names and definitions of tables are metadata of a log, which flushes read without an identity."""
    repository = tmp_path / "backups"
    monkeypatch.setenv("LAKEBACKUP_REPO", str(repository))
    use_catalog(tmp_path / "catalog", monkeypatch)
    host = Host(monkeypatch, tmp_path / "keys")
    keys, file = host.key_pair("identity"), new_key(host)
    host.has(keys.recipient, metadata_key_file=file)
    feed, feed_topic = ChangeFeed(partitions=2), topic("feed", partitions=2)
    servers = ("--bootstrap-server", broker.bootstrap)
    for name in ("secret-orders", "secret-refunds"):
        busy(feed, feed.create_table("secret-shop", name), 5, begin=0)
        feed.send(broker.bootstrap, feed_topic)
    flags = ("--endts", str(feed.last_ts), "--flush-every", "1s", "--no-run")
    cli.output("log", "start", "secret-log", "--pattern", feed_topic, *flags, *servers)
    cli.output("log", "run", "secret-log")
    host.has(keys.recipient, identity_file=keys.file, metadata_key_file=file)
    cli.output("log", "compact", "secret-log")
    assert cli.result("verify", "--decode")["damaged"] == 0
    cli.output("log", "restore", "secret-log", "--to", f"dir:{tmp_path / 'out'}")
    assert names_in_clear(repository) == []
    assert leaks(repository, [b"secret-", feed_topic.encode()]) == []
    assert leaks(tmp_path / "out", [b"secret-orders"])
