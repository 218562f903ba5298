"""Repositories whose names and metadata are encrypted: nothing in them shows what was backed up.

Layer: make test. Topics are backed up, restored and maintained without Spark, as for all little data.
tests/contract/test_encrypted_metadata.py has what needs no broker.
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

pytestmark = pytest.mark.kafka

RECORDS = [
    Record(i % 2, b"secret-key-%03d" % (i % 20), b"secret-value-%d" % i, (), 1_600_000_000_000 + i)
    for i in range(100)
]


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
