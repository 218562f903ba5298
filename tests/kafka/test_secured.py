"""Backups and restores on a secured cluster: TLS, passwords, and rights on only some topics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from tests.support import consumers
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.faults import catalog_rows, rows_of, stored_records
from tests.support.following import following, until_stored
from tests.support.processes import Run
from tests.support.runs import Lab
from tests.support.secured import SecuredBroker

from lakebackup.errors import EnvironmentProblem, Incomplete
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli import main

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

PASSWORD = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def operator(secured: SecuredBroker) -> dict[str, str]:
    """A user who may do everything."""
    client = secured.add_user("operator", PASSWORD)
    for kind, name in (
        (ResourceType.TOPIC, "*"),
        (ResourceType.GROUP, "*"),
        (ResourceType.TRANSACTIONAL_ID, "*"),
        (ResourceType.BROKER, "kafka-cluster"),
    ):
        secured.allow("operator", AclOperation.ALL, name, kind)
    return client


def file_of(client: dict[str, str], folder: Path) -> str:
    path = folder / "client.properties"
    path.touch(0o600)  # it holds a password
    path.write_text("".join(f"{k}={v}\n" for k, v in client.items()))
    return str(path)


def files_with(folder: Path, secret: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_backups_and_restores_use_tls_and_a_password(
    plain: Lab, operator: dict[str, str], secured: SecuredBroker, orders: str, tmp_path: Path
) -> None:
    assert plain.backup(orders, kafka=operator)["entries"] == 100
    truth.produce(secured.bootstrap, orders, rows_of(2, 50, 50))
    with following(plain, orders, kafka=operator) as run:
        until_stored(run, plain, orders)
    copy_topic = f"{orders}-copy"
    plain.restore(orders, maps={orders: copy_topic}, target=f"kafka://{secured.secured}", kafka=operator)
    assert truth.contents(secured.bootstrap, copy_topic) == truth.contents(secured.bootstrap, orders)
    assert files_with(plain.folder, PASSWORD) == []


def test_the_password_is_not_stored_logged_or_printed(
    plain: Lab, operator: dict[str, str], orders: str, tmp_path: Path
) -> None:
    """The password is neither in stored objects, nor in the output, nor in Spark's event log."""
    plain.make_catalog()
    events = tmp_path / "events"
    events.mkdir()
    (tmp_path / "home").mkdir()
    run = Run(
        plain, "backup", "topics", orders, "--repo", str(plain.folder), "--debug", "--json",
        "--kafka-config", file_of(operator, tmp_path / "home"), "--spark-conf", "spark.eventLog.enabled=true",
        "--spark-conf", f"spark.eventLog.dir=file://{events}",
        "--groups", "none",  # only the records are compared
    )  # fmt: skip
    assert run.process.wait(120) == 0, run.log.read_text()
    assert stored_records(plain) == truth.contents(plain.bootstrap, orders)
    assert any(path.stat().st_size for path in events.rglob("*"))
    assert files_with(tmp_path, PASSWORD) == [tmp_path / "home" / "client.properties"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl.password": "wrong-" + PASSWORD}, "did not let this client in"),
        ({"sasl.username": "nobody"}, "did not let this client in"),
        ({"ssl.ca.location": "probe"}, "certificate"),
        ({"security.protocol": "PLAINTEXT"}, "No broker answers"),
    ],
)
def test_rejected_clients_end_with_a_clear_error(
    plain: Lab,
    operator: dict[str, str],
    orders: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    changes: dict[str, str],
    message: str,
) -> None:
    client = file_of(operator | changes, tmp_path)
    start = time.monotonic()
    command = ["backup", "topics", orders, "--repo", str(plain.folder), "--kafka-config", client]
    exit_code, stdout, stderr = Commands(capfd, plain.spark).run(*command)
    assert (exit_code, message in stderr) == (6, True)
    assert time.monotonic() - start < 15
    assert PASSWORD not in stderr + stdout
    assert not plain.folder.exists() or files_with(plain.folder, PASSWORD) == []


def test_unreadable_topics_are_left_out_and_reported(plain: Lab, secured: SecuredBroker) -> None:
    """The other topics are backed up. A left-out topic is included once the user may read it."""
    prefix = f"shop-{uuid4().hex[:8]}"
    readable, unreadable, invisible = (f"{prefix}-{name}" for name in ("readable", "unreadable", "unseen"))
    for name in (readable, unreadable, invisible):
        truth.create_topic(secured.bootstrap, name, 2, retention_ms="-1")
        truth.produce(secured.bootstrap, name, rows_of(2, 20))
    client = secured.add_user(prefix, PASSWORD)
    for name in (readable, unreadable):
        secured.allow(prefix, AclOperation.DESCRIBE_CONFIGS, name)
        secured.allow(prefix, AclOperation.DESCRIBE, name)

    with pytest.raises(EnvironmentProblem, match="nothing that this user may back up"):
        plain.backup(readable, invisible, kafka=client)
    assert not plain.folder.exists() or not catalog_rows(plain)["backups"]

    secured.allow(prefix, AclOperation.READ, readable)
    with pytest.raises(Incomplete):
        plain.backup(invisible, patterns=(f"{prefix}.*",), kafka=client)
    warnings = plain.warnings.getvalue()
    assert f"topic {unreadable} is left out: this user lacks the right Read" in warnings
    assert f"topic {invisible} is left out: this user may not see it" in warnings
    assert [scope["scope"] for scope in catalog_rows(plain)["scopes"]] == [readable]
    assert stored_records(plain) == truth.contents(secured.bootstrap, readable)
    command = ["backup", "topics", readable, unreadable, "--repo", str(plain.folder), "--source", "lab"]
    config_flags = ["--kafka-config", file_of(client, plain.folder.parent)]
    assert main([*command, *config_flags], spark=plain.spark) == 4
    assert len(catalog_rows(plain)["backups"]) == 2

    secured.allow(prefix, AclOperation.READ, unreadable)
    backup = plain.backup(readable, unreadable, kafka=client)
    assert (backup["kind"], backup["topics"], backup["entries"]) == ("differential", 2, 40)


def test_groups_that_may_not_be_described_are_left_out_and_reported(
    plain: Lab, secured: SecuredBroker, orders: str
) -> None:
    """The other groups are saved with the records."""
    for group in (f"{orders}-open", f"{orders}-closed"):
        consumers.commit(secured.bootstrap, group, {(orders, 0): 7})
    client = secured.add_user(orders, PASSWORD)
    for operation in (AclOperation.DESCRIBE_CONFIGS, AclOperation.READ):
        secured.allow(orders, operation, orders)
    secured.allow(orders, AclOperation.DESCRIBE, "kafka-cluster", ResourceType.BROKER)  # to list every group
    secured.allow(orders, AclOperation.DESCRIBE, f"{orders}-open", ResourceType.GROUP)
    with pytest.raises(Incomplete):
        plain.backup(orders, kafka=client, groups="all")
    assert f"consumer group {orders}-closed is not saved" in plain.warnings.getvalue()
    rows = CatalogReader(str(plain.folder)).select("SELECT group_id, scope, position FROM groups")
    assert rows.read_all().to_pylist() == [{"group_id": f"{orders}-open", "scope": orders, "position": 7}]
    assert stored_records(plain) == truth.contents(secured.bootstrap, orders)
