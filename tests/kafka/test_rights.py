"""Backups and restores with exactly the rights of docs/topics.md, and the messages when one is missing."""

from __future__ import annotations

import io
import shutil
import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourcePatternType, ResourceType
from tests.support import consumers
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.command_line import quiet
from tests.support.log_tasks import approve, busy, captured, sent_records
from tests.support.made_changes import MadeChanges, put_change, table_name_row
from tests.support.runs import Lab
from tests.support.secured import CERTIFIED, SecuredBroker
from tests.support.social import Social, restore

from lakebackup.errors import EnvironmentProblem, Incomplete
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.rules.kafka_properties import translate
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.admin.cluster import Denied
from lakebackup_jobs.kafka.admin.rights import Rights
from lakebackup_jobs.logs.capture import job as capture
from lakebackup_jobs.logs.capture.flush import LogRequest
from lakebackup_jobs.logs.control.verbs import LogTasks, start
from lakebackup_jobs.logs.restore import job as restore_log
from lakebackup_jobs.logs.task import LastError, TaskSettings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

PASSWORD = "correct-horse-battery-staple"
BACKUP = ("DESCRIBE", "READ", "DESCRIBE_CONFIGS")
RESTORE = {
    ResourceType.TOPIC: ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "WRITE", "READ"),
    ResourceType.TRANSACTIONAL_ID: ("WRITE",),
    ResourceType.GROUP: ("READ", "DELETE"),
}
LOG_RESTORE = {**RESTORE, ResourceType.TOPIC: ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "WRITE", "READ")}
OWN_PREFIX, OWN_LOG_PREFIX = "lakebackup-restore-", "lakebackup-log-"
# Rights that brokers derive from another one of the same list.
IMPLIED = {"DESCRIBE", "DELETE"}

Right = tuple[ResourceType, str]


def allow_restore(
    secured: SecuredBroker,
    user: str,
    *topics: str,
    without: Right | None = None,
    rights: dict[ResourceType, tuple[str, ...]] = RESTORE,
    own_prefix: str = OWN_PREFIX,
) -> None:
    """Give a user the rights of a restore into topics, except `without`."""
    for kind, operations in rights.items():
        is_topic = kind == ResourceType.TOPIC
        pattern = ResourcePatternType.LITERAL if is_topic else ResourcePatternType.PREFIXED
        for name in topics if is_topic else (own_prefix,):
            for operation in operations:
                if (kind, operation) != without:
                    secured.allow(user, AclOperation[operation], name, kind, pattern)


def topics_of(secured: SecuredBroker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": secured.bootstrap}).list_topics(timeout=10).topics)


def test_the_documented_rights_suffice(plain: Lab, secured: SecuredBroker, orders: str) -> None:
    consumers.commit(secured.bootstrap, f"{orders}-group", {(orders, 0): 7})
    client, copy_topic = secured.add_user(orders, PASSWORD), f"{orders}-copy"
    for topic in (orders, "__consumer_offsets"):
        for operation in BACKUP:
            secured.allow(orders, AclOperation[operation], topic)
    secured.allow(orders, AclOperation.DESCRIBE, "*", ResourceType.GROUP)
    assert plain.backup(orders, kafka=client, groups="all")["kind"] == "full"

    restorer = secured.add_user(f"{orders}-restorer", PASSWORD)
    allow_restore(secured, f"{orders}-restorer", copy_topic)
    plain.restore(orders, maps={orders: copy_topic}, target=f"kafka://{secured.secured}", kafka=restorer)
    assert truth.contents(secured.bootstrap, copy_topic) == truth.contents(secured.bootstrap, orders)
    assert "stays" not in plain.warnings.getvalue()


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ((ResourceType.TOPIC, "CREATE"), "Create on topic {topic}"),
        ((ResourceType.TOPIC, "ALTER_CONFIGS"), "AlterConfigs on topic {topic}"),
        ((ResourceType.GROUP, "READ"), "Read on groups lakebackup-restore-*"),
        ((ResourceType.TRANSACTIONAL_ID, "WRITE"), "Write on transactional ids lakebackup-restore-*"),
    ],
)
def test_a_missing_right_is_reported_before_anything_is_written(
    plain: Lab, secured: SecuredBroker, orders: str, without: tuple[ResourceType, str], message: str
) -> None:
    plain.backup(orders)
    client, copy_topic = secured.add_user(orders, PASSWORD), f"{orders}-copy"
    allow_restore(secured, orders, copy_topic, without=without)
    request = {"maps": {orders: copy_topic}, "target": f"kafka://{secured.secured}", "kafka": client}
    reason = f"this user lacks the right {message.format(topic=copy_topic)}"
    assert reason in plain.restore(orders, **request, dry_run=True)["refused"]
    with pytest.raises(Denied, match="Nothing is written") as error:
        plain.restore(orders, **request)
    assert reason in error.value.message
    assert copy_topic not in topics_of(secured)


@pytest.mark.parametrize("right", ["WRITE", "READ"])
def test_a_user_without_write_or_read_on_a_topic_writes_no_record(
    plain: Lab, secured: SecuredBroker, orders: str, right: str
) -> None:
    plain.backup(orders)
    client, copy_topic = secured.add_user(orders, PASSWORD), f"{orders}-copy"
    allow_restore(secured, orders, copy_topic, without=(ResourceType.TOPIC, right))
    request = {"maps": {orders: copy_topic}, "target": f"kafka://{secured.secured}", "kafka": client}
    with pytest.raises(Denied, match=f"lacks the right {right.capitalize()} on topic {copy_topic}"):
        plain.restore(orders, **request)
    assert not [
        record for records in truth.contents(secured.bootstrap, copy_topic).values() for record in records
    ]
    # The topic exists now, so a dry run reports the missing right too.
    assert (
        f"{right.capitalize()} on topic {copy_topic}"
        in plain.restore(orders, **request, dry_run=True)["refused"]
    )


def test_a_group_that_may_not_be_deleted_is_a_warning(
    plain: Lab, secured: SecuredBroker, orders: str
) -> None:
    plain.backup(orders)
    client, copy_topic = secured.add_user(orders, PASSWORD), f"{orders}-copy"
    allow_restore(secured, orders, copy_topic, without=(ResourceType.GROUP, "DELETE"))
    request = {"maps": {orders: copy_topic}, "target": f"kafka://{secured.secured}", "kafka": client}
    assert plain.restore(orders, **request)["entries"] == 100
    assert "Delete on groups lakebackup-restore-*" in plain.warnings.getvalue()
    assert plain.restore(orders, **request, continued=True)["entries"] == 0


def test_a_restore_reports_why_no_group_is_restored(plain: Lab, secured: SecuredBroker, orders: str) -> None:
    plain.backup(orders, groups="none")
    copy_topic = f"{orders}-copy"
    with pytest.raises(Incomplete, match="backups hold no position of a consumer group"):
        plain.restore(orders, maps={orders: copy_topic}, groups=(".*",))
    assert truth.contents(secured.bootstrap, copy_topic) == truth.contents(secured.bootstrap, orders)


def test_topics_and_groups_hidden_since_the_last_backup_are_reported(
    plain: Lab, secured: SecuredBroker, orders: str
) -> None:
    bills, groups = f"{orders}-bills", (f"{orders}-a", f"{orders}-b")
    truth.create_topic(secured.bootstrap, bills, 1)
    for group in groups:
        consumers.commit(secured.bootstrap, group, {(orders, 0): 7})
    client = secured.add_user(orders, PASSWORD)
    for operation in BACKUP:
        for topic in (orders, bills, "__consumer_offsets"):
            secured.allow(orders, AclOperation[operation], topic)
    for group in groups:
        secured.allow(orders, AclOperation.DESCRIBE, group, ResourceType.GROUP)
    secured.allow(
        orders, AclOperation.DESCRIBE, "lakebackup-probe-", ResourceType.GROUP, ResourcePatternType.PREFIXED
    )
    request = {"patterns": (f"{orders}.*",), "kafka": client, "groups": "all"}
    plain.backup(**request)

    secured.revoke(orders, AclOperation.DESCRIBE, groups[1], ResourceType.GROUP)
    for operation in BACKUP:
        secured.revoke(orders, AclOperation[operation], bills, ResourceType.TOPIC)
    with pytest.raises(Incomplete):
        plain.backup(**request)
    warnings = plain.warnings.getvalue()
    assert f"topic {bills} is left out: an earlier backup has it" in warnings
    assert f"consumer group {groups[1]} is not saved" in warnings
    assert groups[0] not in warnings


def test_a_client_certificate_identifies_the_user(plain: Lab, secured: SecuredBroker, orders: str) -> None:
    """The client uses mutual TLS, configured with the properties of Java's clients."""
    client = translate(secured.certified())
    with pytest.raises(EnvironmentProblem, match="nothing that this user may back up"):
        plain.backup(orders, kafka=client)
    for operation in BACKUP:
        secured.allow(f"CN={CERTIFIED}", AclOperation[operation], orders)
    assert plain.backup(orders, kafka=client)["entries"] == 100


@pytest.mark.parametrize("own_prefix", [OWN_PREFIX, OWN_LOG_PREFIX])
def test_each_documented_right_is_reported_when_it_is_missing(
    secured: SecuredBroker, orders: str, own_prefix: str
) -> None:
    """The test removes one right after the other on an existing topic."""
    rights, alters = (RESTORE, True) if own_prefix == OWN_PREFIX else (LOG_RESTORE, False)
    client = secured.add_user(orders, PASSWORD)
    allow_restore(secured, orders, orders, rights=rights, own_prefix=own_prefix)
    options = Rights(client, own_prefix, alters=alters)
    assert options.missing([orders], [orders]) == []
    implied = IMPLIED | ({"DESCRIBE_CONFIGS"} if alters else set())
    for kind, operations in rights.items():
        for operation in operations:
            name = orders if kind == ResourceType.TOPIC else own_prefix
            secured.revoke(orders, AclOperation[operation], name, kind)
            missing = options.missing([orders], [orders])
            assert len(missing) == (operation not in implied and operation != "CREATE"), operation
            allow_restore(secured, orders, orders, rights=rights, own_prefix=own_prefix)


def test_a_dry_run_registers_no_transactional_id(plain: Lab, secured: SecuredBroker, orders: str) -> None:
    plain.backup(orders)
    client, copy_topic = secured.add_user(orders, PASSWORD), f"{orders}-copy"
    allow_restore(secured, orders, copy_topic)
    request = {"maps": {orders: copy_topic}, "target": f"kafka://{secured.secured}", "kafka": client}
    assert "refused" not in plain.restore(orders, **request, dry_run=True)
    plain.restore(orders, **request)
    registered = b"".join(
        record.key or b""
        for records in truth.contents(secured.bootstrap, "__transaction_state").values()
        for record in records
    )
    assert f"{OWN_PREFIX}".encode() in registered
    assert f"{OWN_PREFIX}rights".encode() not in registered


@pytest.fixture
def secured_social(secured: SecuredBroker, empty_catalog: Path, tmp_path: Path, orders: str) -> Social:
    """An engine's queues on the secured broker, with a full."""
    queues = f"{orders}-delta", f"{orders}-journal"
    for name in queues:
        truth.create_topic(secured.bootstrap, name, 1, retention_ms="-1")
    social = Social(secured.bootstrap, tmp_path, empty_catalog, *queues)
    social.send(social.delta)
    social.full()
    social.send(social.journal)
    return social


def test_the_documented_rights_suffice_for_queues(
    secured: SecuredBroker, secured_social: Social, orders: str
) -> None:
    social, client = secured_social, secured.add_user(orders, PASSWORD)
    names = (social.delta, social.journal)
    for name in names:
        for operation in BACKUP:
            if (name, operation) != (social.journal, "READ"):
                secured.allow(orders, AclOperation[operation], name)
    with pytest.raises(Denied, match=f"topic {social.journal}: this user lacks the right Read"):
        social.backup(kafka=client)
    secured.allow(orders, AclOperation.READ, social.journal)
    assert social.backup(kafka=client)["entries"] == 1

    restorer, copies = f"{orders}-restorer", {name: f"{name}-copy" for name in names}
    options: dict[str, Any] = {
        "kafka": secured.add_user(restorer, PASSWORD),
        "target": f"kafka://{secured.secured}",
        "maps": copies,
    }
    without = (ResourceType.TRANSACTIONAL_ID, "WRITE")
    allow_restore(secured, restorer, *copies.values(), without=without)
    reason = f"this user lacks the right Write on transactional ids {OWN_PREFIX}*"
    assert restore(social, "into", **options, dry_run=True)["refused_because"] == reason
    with pytest.raises(Denied, match="Nothing is written") as error:
        restore(social, "into", **options)
    assert reason in error.value.message
    assert not topics_of(secured) & set(copies.values())
    assert not (social.folder / "into").exists()
    allow_restore(secured, restorer, *copies.values())
    assert restore(social, "into", **options)["entries"] == 1
    assert "stays" not in social.warnings.getvalue()


class ChangeLog:
    """A change log of a table, and restores of it into topics."""

    def __init__(self, spark: SparkSession, secured: SecuredBroker, folder: Path, topic: str) -> None:
        self.spark, self.secured, self.folder, self.topic = spark, secured, folder, topic
        changes = MadeChanges(folder, CatalogWriter(spark, str(folder)), domain="ms")
        changes.flush(
            [put_change(1, b"a", 10, b"1"), put_change(1, b"b", 11, b"2")],
            20,
            names=[table_name_row(1, "orders", 5)],
        )

    def restore(self, client: dict[str, str], warnings: io.StringIO, **changes: Any) -> dict[str, Any]:
        target = f"kafka://{self.secured.secured}?prefix={self.topic.removesuffix('shop.orders')}"
        request = LogRestoreRequest(str(self.folder), "shop", target=target, kafka=client, **changes)
        return restore_log.run(request, spark=self.spark, reporter=quiet(warnings))


@pytest.fixture
def change_log(
    spark: SparkSession, secured: SecuredBroker, empty_catalog: Path, tmp_path: Path, orders: str
) -> ChangeLog:
    shutil.copytree(empty_catalog, tmp_path / "log" / "catalog")
    return ChangeLog(spark, secured, tmp_path / "log", f"{orders}.shop.orders")


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ((ResourceType.TOPIC, "CREATE"), "Create on topic {topic}"),
        ((ResourceType.TOPIC, "DESCRIBE_CONFIGS"), "DescribeConfigs on topic {topic}"),
        ((ResourceType.GROUP, "READ"), f"Read on groups {OWN_LOG_PREFIX}*"),
        ((ResourceType.TRANSACTIONAL_ID, "WRITE"), f"Write on transactional ids {OWN_LOG_PREFIX}*"),
    ],
)
def test_a_right_missing_for_a_log_is_reported_before_anything_is_written(
    change_log: ChangeLog, secured: SecuredBroker, orders: str, without: Right, message: str
) -> None:
    client, warnings_text = secured.add_user(orders, PASSWORD), io.StringIO()
    allow_restore(
        secured, orders, change_log.topic, without=without, rights=LOG_RESTORE, own_prefix=OWN_LOG_PREFIX
    )
    reason = f"this user lacks the right {message.format(topic=change_log.topic)}"
    assert change_log.restore(client, warnings_text, dry_run=True)["refused_because"] == reason
    with pytest.raises(Denied, match="Nothing is written") as error:
        change_log.restore(client, warnings_text)
    assert reason in error.value.message
    assert change_log.topic not in topics_of(secured)


@pytest.mark.parametrize("without", [None, (ResourceType.GROUP, "DELETE")])
def test_the_documented_rights_suffice_for_a_log(
    change_log: ChangeLog, secured: SecuredBroker, orders: str, without: Right | None
) -> None:
    client, warnings_text = secured.add_user(orders, PASSWORD), io.StringIO()
    allow_restore(
        secured, orders, change_log.topic, without=without, rights=LOG_RESTORE, own_prefix=OWN_LOG_PREFIX
    )
    assert change_log.restore(client, warnings_text)["entries"] == 2
    contents = truth.contents(secured.bootstrap, change_log.topic)
    assert [record.value for records in contents.values() for record in records] == [b"1", b"2"]
    assert (f"Delete on groups {OWN_LOG_PREFIX}*" in warnings_text.getvalue()) == bool(without)
    assert change_log.restore(client, warnings_text)["done_before"]


def test_the_documented_rights_suffice_for_groups(plain: Lab, secured: SecuredBroker, orders: str) -> None:
    group, copy_topic = f"{orders}-group", f"{orders}-copy"
    consumers.commit(secured.bootstrap, group, {(orders, 0): 7})
    plain.backup(orders, groups="all")
    plain.restore(orders, maps={orders: copy_topic})
    options: dict[str, Any] = {
        "kafka": secured.add_user(orders, PASSWORD),
        "target": f"kafka://{secured.secured}",
    }
    for operation in ("DESCRIBE", "DESCRIBE_CONFIGS", "READ"):
        secured.allow(orders, AclOperation[operation], copy_topic)
    reason = f"this user lacks the right Read on group {group}"
    assert plain.restore_groups(group, **options, dry_run=True)["refused_because"] == reason
    with pytest.raises(Denied, match=reason):
        plain.restore_groups(group, **options)
    assert not consumers.committed(secured.bootstrap, group).get((copy_topic, 0))
    secured.allow(orders, AclOperation.READ, group, ResourceType.GROUP)
    secured.revoke(orders, AclOperation.READ, copy_topic, ResourceType.TOPIC)
    with pytest.raises(Denied, match=f"lacks the right Read on topic {copy_topic}"):
        plain.restore_groups(group, **options)
    secured.allow(orders, AclOperation.READ, copy_topic)
    assert plain.restore_groups(group, **options)["outcomes"] == {"moved": 1}


def test_a_restore_with_groups_checks_their_rights_first(
    plain: Lab, secured: SecuredBroker, orders: str
) -> None:
    group, copy_topic = f"{orders}-group", f"{orders}-copy"
    consumers.commit(secured.bootstrap, group, {(orders, 0): 7})
    plain.backup(orders, groups="all")
    allow_restore(secured, orders, copy_topic)
    client = secured.add_user(orders, PASSWORD)
    request = {"maps": {orders: copy_topic}, "target": f"kafka://{secured.secured}", "kafka": client}
    with pytest.raises(Denied, match=f"lacks the right Read on group {group}"):
        plain.restore(orders, **request, groups=(f"{orders}-.*",))
    assert copy_topic not in topics_of(secured)


def test_a_log_task_does_not_start_on_a_topic_that_it_may_not_read(
    plain: Lab, secured: SecuredBroker, orders: str
) -> None:
    plain.make_catalog()
    client = secured.add_user(orders, PASSWORD)
    secured.allow(orders, AclOperation.DESCRIBE, orders)
    settings = TaskSettings(feed="br", bootstrap=secured.secured, topics=(orders,))
    with pytest.raises(Denied, match=f"topic {orders}: this user lacks the right Read and DescribeConfigs"):
        start(LogTasks(str(plain.folder), None, client), "shop", settings)
    assert plain.sql("SELECT * FROM log_tasks") == []


def test_the_documented_rights_suffice_for_a_change_feed(plain: Lab, secured: SecuredBroker) -> None:
    feed, topic = ChangeFeed(partitions=2), f"feed-{uuid4().hex[:8]}"
    truth.create_topic(secured.bootstrap, topic, 2, retention_ms="-1")
    busy(feed, feed.create_table("shop", "orders"), 20)
    feed.send(secured.bootstrap, topic)
    client = secured.add_user(topic, PASSWORD)
    for operation in BACKUP:
        secured.allow(topic, AclOperation[operation], topic)
    plain.make_catalog()
    settings = TaskSettings(
        feed="br", bootstrap=secured.secured, topics=(topic,), endts=feed.last_ts, flush_every_s=0.2
    )
    start(LogTasks(str(plain.folder), None, client), "shop", settings)
    approve(str(plain.folder), "shop", settings)
    request = LogRequest(str(plain.folder), name="shop", settings=settings, kafka=client, tries=1)
    capture.run(
        request, stop=threading.Event(), spark=plain.spark, reporter=plain.reporter, last_error=LastError()
    )
    assert captured(str(plain.folder), "shop") == sent_records(feed)
