"""A cluster that wants to know who asks: TLS, passwords, and rights on some topics only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from tests.support import consumers
from tests.support import kafka_truth as truth
from tests.support.command_line import Commands
from tests.support.faults import rows_of, shown, stored
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


def holding(folder: Path, secret: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_there_and_back(
    plain: Lab, operator: dict[str, str], secured: SecuredBroker, orders: str, tmp_path: Path
) -> None:
    assert plain.backup(orders, kafka=operator)["entries"] == 100
    truth.produce(secured.bootstrap, orders, rows_of(2, 50, 50))
    with following(plain, orders, kafka=operator) as run:
        until_stored(run, plain, orders)
    copy = f"{orders}-copy"
    plain.restore(orders, maps={orders: copy}, target=f"kafka://{secured.secured}", kafka=operator)
    assert truth.contents(secured.bootstrap, copy) == truth.contents(secured.bootstrap, orders)
    assert holding(plain.folder, PASSWORD) == []


def test_the_password_is_nowhere(plain: Lab, operator: dict[str, str], orders: str, tmp_path: Path) -> None:
    """Neither in what is stored, nor in what is said, nor in what Spark writes down of its jobs."""
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
    assert stored(plain) == truth.contents(plain.bootstrap, orders)
    assert any(path.stat().st_size for path in events.rglob("*"))
    assert holding(tmp_path, PASSWORD) == [tmp_path / "home" / "client.properties"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl.password": "wrong-" + PASSWORD}, "did not let this client in"),
        ({"sasl.username": "nobody"}, "did not let this client in"),
        ({"ssl.ca.location": "probe"}, "certificate"),
        ({"security.protocol": "PLAINTEXT"}, "No broker answers"),
    ],
)
def test_not_let_in(
    plain: Lab,
    operator: dict[str, str],
    orders: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    changed: dict[str, str],
    said: str,
) -> None:
    client = file_of(operator | changed, tmp_path)
    started = time.monotonic()
    command = ["backup", "topics", orders, "--repo", str(plain.folder), "--kafka-config", client]
    code, out, err = Commands(capfd, plain.spark).run(*command)
    assert (code, said in err) == (6, True)
    assert time.monotonic() - started < 15
    assert PASSWORD not in err + out
    assert not plain.folder.exists() or holding(plain.folder, PASSWORD) == []


def test_topics_that_may_not_be_read(plain: Lab, secured: SecuredBroker) -> None:
    """They are left out and named; the rest is backed up, and they come along as soon as they may."""
    prefix = f"shop-{uuid4().hex[:8]}"
    readable, unreadable, unseen = (f"{prefix}-{name}" for name in ("readable", "unreadable", "unseen"))
    for name in (readable, unreadable, unseen):
        truth.create_topic(secured.bootstrap, name, 2, retention_ms="-1")
        truth.produce(secured.bootstrap, name, rows_of(2, 20))
    client = secured.add_user(prefix, PASSWORD)
    for name in (readable, unreadable):
        secured.allow(prefix, AclOperation.DESCRIBE_CONFIGS, name)
        secured.allow(prefix, AclOperation.DESCRIBE, name)

    with pytest.raises(EnvironmentProblem, match="nothing that this user may back up"):
        plain.backup(readable, unseen, kafka=client)
    assert not plain.folder.exists() or not shown(plain)["backups"]

    secured.allow(prefix, AclOperation.READ, readable)
    with pytest.raises(Incomplete):
        plain.backup(unseen, patterns=(f"{prefix}.*",), kafka=client)
    warnings = plain.warnings.getvalue()
    assert f"topic {unreadable} is left out: this user lacks the right Read" in warnings
    assert f"topic {unseen} is left out: this user may not see it" in warnings
    assert [scope["scope"] for scope in shown(plain)["scopes"]] == [readable]
    assert stored(plain) == truth.contents(secured.bootstrap, readable)
    command = ["backup", "topics", readable, unreadable, "--repo", str(plain.folder), "--source", "lab"]
    where = ["--kafka-config", file_of(client, plain.folder.parent)]
    assert main([*command, *where], spark=plain.spark) == 4
    assert len(shown(plain)["backups"]) == 2

    secured.allow(prefix, AclOperation.READ, unreadable)
    done = plain.backup(readable, unreadable, kafka=client)
    assert (done["kind"], done["topics"], done["entries"]) == ("differential", 2, 40)


def test_groups_that_may_not_be_described(plain: Lab, secured: SecuredBroker, orders: str) -> None:
    """They are left out and named; the others are saved with the records."""
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
    assert stored(plain) == truth.contents(secured.bootstrap, orders)
