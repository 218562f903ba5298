"""Encrypted change logs: a job with public keys alone captures them, and an identity reads them.

Layer: make test. Log tasks run on Spark.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.change_feed import ChangeFeed
from tests.support.command_line import Commands, quiet
from tests.support.encrypted import Host, KeyPair, leaks
from tests.support.encrypted_metadata import names_in_clear, new_key, use_catalog
from tests.support.faults import Killed, expire_leases, watched
from tests.support.kafka_truth import contents
from tests.support.log_tasks import LogTask, busy, restored
from tests.support.made_changes import MadeChanges, delete, put_change, table_name_row
from tests.support.private import private_file
from tests.support.runs import Lab

from lakebackup.config import SigningOptions
from lakebackup.encryption.objects import MAGIC
from lakebackup.errors import Refused, UsageProblem
from lakebackup.formats.logs.cipher import Cipher, LogKeys
from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
from lakebackup.signing.keys import create
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.logs.restore import job as restore
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
    into_topics = f"kafka://{broker.bootstrap}?prefix=copy-{feed_topic}-"
    cli.output("log", "restore", "secret-log", "--to", into_topics)
    assert "a Delta table" in cli.fails(2, "log", "snapshot", "secret-log", "--plain")
    assert names_in_clear(repository) == []
    assert leaks(repository, [b"secret-", feed_topic.encode()]) == []
    assert leaks(tmp_path / "out", [b"secret-orders"])


KEY_COUNT = 40


class LogIntoTopics:
    """A log of two flushes, encrypted or not, and restores of it into topics."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, **encryption: Any) -> None:
        self.spark, self.bootstrap, self.folder = spark, broker.bootstrap, folder / "backups"
        self.prefix = f"p{uuid.uuid4().hex[:8]}."
        # With a key file, the catalog shows the least and the greatest key of each file.
        self._secrets = [b"secret-value", *([] if "cipher" in encryption else [b"secret-key"])]
        self._steps_folders = (folder / f"steps{number}" for number in range(10))
        writer = CatalogWriter(spark, str(self.folder))
        changes = MadeChanges(self.folder, writer, domain="ms", **encryption)
        keys = [b"secret-key-%02d" % number for number in range(KEY_COUNT)]
        events = [put_change(1, key, n, b"secret-value-old") for n, key in enumerate(keys, 1)]
        changes.flush(events, 100, names=[table_name_row(1, "orders", 1)])
        events = [put_change(1, key, 101 + n, b"secret-value-%d" % n) for n, key in enumerate(keys)]
        changes.flush([*events, delete(1, b"secret-key-00", 190)], 200)
        assert not encryption or self.leaks() == []

    def restore(self, **options: Any) -> dict[str, Any]:
        target = f"kafka://{self.bootstrap}?prefix={self.prefix}"
        request = LogRestoreRequest(destination=str(self.folder), name="shop", target=target, **options)
        return restore.run(request, spark=self.spark, reporter=quiet())

    def kill_restore(self, step: str, **options: Any) -> list[Path]:
        """Run a restore that is killed before a step. Returns the staged files."""
        with watched(next(self._steps_folders), kill_at=step) as steps, pytest.raises(Killed):
            self.restore(**options)
        assert steps.dead
        expire_leases(self.folder)
        return self.staged_files()

    def staged_files(self) -> list[Path]:
        return [file for file in self.folder.glob("restores/log-*/changes/*") if file.is_file()]

    def leaks(self) -> list[tuple[str, bytes]]:
        return leaks(self.folder, self._secrets)

    def assert_restored(self) -> None:
        """Check that the topic has each key once, and that nothing is staged any more."""
        (records,) = contents(self.bootstrap, f"{self.prefix}shop.orders").values()
        values = {b"secret-key-%02d" % n: b"secret-value-%d" % n for n in range(1, KEY_COUNT)}
        assert len(records) == KEY_COUNT
        assert {record.key: record.value for record in records} == {b"secret-key-00": None, **values}
        assert self.staged_files() == []


@pytest.fixture
def folder(empty_catalog: Path, tmp_path: Path) -> Path:
    shutil.copytree(empty_catalog, tmp_path / "backups" / "catalog")
    return tmp_path


@pytest.fixture
def several_files(spark: SparkSession) -> Iterator[None]:
    """Spark does not combine small partitions, so a restore stages several files."""
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    yield
    spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")


@pytest.mark.usefixtures("several_files")
def test_a_killed_restore_into_topics_leaves_nothing_in_clear(
    spark: SparkSession, broker: Broker, cli: Commands, host: Host, keys: KeyPair, folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By SQL, as of a large log. The log is compacted before the restore is resumed, so the resumed run reads
    files with another data key."""
    log = LogIntoTopics(spark, broker, folder, encryption=RunEncryption((keys.recipient,)))
    host.has(keys.recipient, identity_file=keys.file)
    monkeypatch.setattr(restore, "is_small", lambda _: False)
    for step in ("put staged.json", "commit transaction #2"):
        staged = log.kill_restore(step)
        assert len(staged) > 1
        assert [file for file in staged if not file.read_bytes().startswith(MAGIC)] == []
        assert log.leaks() == []
    assert cli.result("log", "compact", "shop", "--repo", log.folder)["backup_id"]
    log.restore()
    log.assert_restored()
    assert log.leaks() == []


@pytest.mark.usefixtures("several_files")
def test_a_killed_restore_of_a_plain_log_into_topics_is_resumed(
    spark: SparkSession, broker: Broker, host: Host, keys: KeyPair, folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By SQL. What is staged of a log that is not encrypted is plain, also with recipients."""
    log = LogIntoTopics(spark, broker, folder)
    host.has(keys.recipient)
    monkeypatch.setattr(restore, "is_small", lambda _: False)
    staged = log.kill_restore("commit transaction #2")
    assert {file.read_bytes()[:4] for file in staged if file.suffix == ".parquet"} == {b"PAR1"}
    log.restore()
    log.assert_restored()


def test_a_restore_of_a_log_with_a_key_file_stages_nothing_in_clear(
    spark: SparkSession, broker: Broker, folder: Path, tmp_path: Path
) -> None:
    """The restore is resumed although the key file has a new current key."""
    key_texts = {"k1": "A" * 43 + "="}
    keys_file = private_file(tmp_path / "keys.json", json.dumps({"keys": key_texts}).encode())
    cipher: Cipher = LogKeys.load(str(keys_file)).cipher
    log = LogIntoTopics(spark, broker, folder, cipher=cipher)
    staged = log.kill_restore("commit transaction", keys_file=str(keys_file))
    assert [file.read_bytes().startswith(MAGIC) for file in staged] == [True]
    assert log.leaks() == []
    other_text = json.dumps({"current": "k2", "keys": {"k2": "B" * 42 + "A="}})
    other_file = private_file(tmp_path / "other.json", other_text.encode())
    with pytest.raises(Refused, match="follows from a key of a key file"):
        log.restore(keys_file=str(other_file))
    new_text = json.dumps({"current": "k2", "keys": {**key_texts, "k2": "B" * 42 + "A="}})
    private_file(keys_file, new_text.encode())
    log.restore(keys_file=str(keys_file))
    log.assert_restored()


def test_a_restore_that_an_older_version_staged_in_clear_is_resumed(
    spark: SparkSession, broker: Broker, host: Host, keys: KeyPair, folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    log = LogIntoTopics(spark, broker, folder, encryption=RunEncryption((keys.recipient,)))
    host.has(identity_file=keys.file)
    plan_restore = restore.plan_restore

    def plan_plain_restore(*arguments: Any, **options: Any) -> LogRestorePlan:
        return replace(plan_restore(*arguments, **options), encrypted=0)

    with monkeypatch.context() as patch:
        patch.setattr(restore, "plan_restore", plan_plain_restore)
        log.kill_restore("commit transaction")
    assert log.leaks() != []
    log.restore()
    log.assert_restored()
    assert log.leaks() == []
