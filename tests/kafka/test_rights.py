"""Backups and restores with exactly the rights of docs/topics.md, and what is said without one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourcePatternType, ResourceType
from tests.support import consumers
from tests.support import kafka_truth as truth
from tests.support.runs import Lab
from tests.support.secured import CERTIFIED, SecuredBroker

from lakebackup.errors import EnvironmentProblem, Incomplete
from lakebackup.rules.kafka_properties import translate
from lakebackup_jobs.kafka.admin.cluster import Denied

if TYPE_CHECKING:
    pass

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

PASSWORD = "correct-horse-battery-staple"
BACKUP = ("DESCRIBE", "READ", "DESCRIBE_CONFIGS")
RESTORE = {
    ResourceType.TOPIC: ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "WRITE", "READ"),
    ResourceType.TRANSACTIONAL_ID: ("WRITE",),
    ResourceType.GROUP: ("READ", "DELETE"),
}
OWN = "lakebackup-restore-"


def allow_restore(
    secured: SecuredBroker, user: str, topic: str, without: tuple[ResourceType, str] | None = None
) -> None:
    """Give a user the rights of a restore into a topic, but one."""
    for kind, operations in RESTORE.items():
        is_topic = kind == ResourceType.TOPIC
        name, pattern = (
            (topic, ResourcePatternType.LITERAL) if is_topic else (OWN, ResourcePatternType.PREFIXED)
        )
        for operation in operations:
            if (kind, operation) != without:
                secured.allow(user, AclOperation[operation], name, kind, pattern)


def topics_of(secured: SecuredBroker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": secured.bootstrap}).list_topics(timeout=10).topics)


def test_the_documented_rights_suffice(plain: Lab, secured: SecuredBroker, orders: str) -> None:
    consumers.commit(secured.bootstrap, f"{orders}-group", {(orders, 0): 7})
    client, copy = secured.add_user(orders, PASSWORD), f"{orders}-copy"
    for topic in (orders, "__consumer_offsets"):
        for operation in BACKUP:
            secured.allow(orders, AclOperation[operation], topic)
    secured.allow(orders, AclOperation.DESCRIBE, "*", ResourceType.GROUP)
    assert plain.backup(orders, kafka=client, groups="all")["kind"] == "full"

    restorer = secured.add_user(f"{orders}-restorer", PASSWORD)
    allow_restore(secured, f"{orders}-restorer", copy)
    plain.restore(orders, maps={orders: copy}, target=f"kafka://{secured.secured}", kafka=restorer)
    assert truth.contents(secured.bootstrap, copy) == truth.contents(secured.bootstrap, orders)
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
def test_a_missing_right_is_named_before_anything_is_written(
    plain: Lab, secured: SecuredBroker, orders: str, without: tuple[ResourceType, str], message: str
) -> None:
    plain.backup(orders)
    client, copy = secured.add_user(orders, PASSWORD), f"{orders}-copy"
    allow_restore(secured, orders, copy, without)
    request = {"maps": {orders: copy}, "target": f"kafka://{secured.secured}", "kafka": client}
    reason = f"this user lacks the right {message.format(topic=copy)}"
    assert reason in plain.restore(orders, **request, dry_run=True)["refused"]
    with pytest.raises(Denied, match="Nothing is written") as caught:
        plain.restore(orders, **request)
    assert reason in caught.value.message
    assert copy not in topics_of(secured)


@pytest.mark.parametrize("right", ["WRITE", "READ"])
def test_who_may_not_write_into_a_topic_writes_no_record(
    plain: Lab, secured: SecuredBroker, orders: str, right: str
) -> None:
    plain.backup(orders)
    client, copy = secured.add_user(orders, PASSWORD), f"{orders}-copy"
    allow_restore(secured, orders, copy, (ResourceType.TOPIC, right))
    request = {"maps": {orders: copy}, "target": f"kafka://{secured.secured}", "kafka": client}
    with pytest.raises(Denied, match=f"lacks the right {right.capitalize()} on topic {copy}"):
        plain.restore(orders, **request)
    assert not [record for records in truth.contents(secured.bootstrap, copy).values() for record in records]
    # The topic is there by now, so a dry run sees it too.
    assert (
        f"{right.capitalize()} on topic {copy}" in plain.restore(orders, **request, dry_run=True)["refused"]
    )


def test_a_group_that_may_not_be_deleted_is_a_warning(
    plain: Lab, secured: SecuredBroker, orders: str
) -> None:
    plain.backup(orders)
    client, copy = secured.add_user(orders, PASSWORD), f"{orders}-copy"
    allow_restore(secured, orders, copy, (ResourceType.GROUP, "DELETE"))
    request = {"maps": {orders: copy}, "target": f"kafka://{secured.secured}", "kafka": client}
    assert plain.restore(orders, **request)["entries"] == 100
    assert "Delete on groups lakebackup-restore-*" in plain.warnings.getvalue()
    assert plain.restore(orders, **request, continued=True)["entries"] == 0


def test_a_restore_says_why_no_group_is_restored(plain: Lab, secured: SecuredBroker, orders: str) -> None:
    plain.backup(orders, groups="none")
    copy = f"{orders}-copy"
    with pytest.raises(Incomplete, match="backups hold no position of a consumer group"):
        plain.restore(orders, maps={orders: copy}, groups=(".*",))
    assert truth.contents(secured.bootstrap, copy) == truth.contents(secured.bootstrap, orders)


def test_what_rights_hide_since_the_last_backup_is_named(
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


def test_a_certificate_is_enough_to_be_known(plain: Lab, secured: SecuredBroker, orders: str) -> None:
    """Mutual TLS, with the properties of Java's clients."""
    client = translate(secured.certified())
    with pytest.raises(EnvironmentProblem, match="nothing that this user may back up"):
        plain.backup(orders, kafka=client)
    for operation in BACKUP:
        secured.allow(f"CN={CERTIFIED}", AclOperation[operation], orders)
    assert plain.backup(orders, kafka=client)["entries"] == 100
