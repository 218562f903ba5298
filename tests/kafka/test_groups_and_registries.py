"""Backups and restores of consumer groups with their topic of offsets, and of a registry's schemas."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support import consumers
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record, contents, delete_topic, produce, settings
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Refused
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.admin.groups import OWN_GROUPS, Groups
from lakebackup_jobs.upkeep.rebuild import RebuildRequest
from lakebackup_jobs.upkeep.rebuild import run as rebuild

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def fill(bootstrap: str, topic: str, count: int, partitions: int = 1) -> None:
    records = [truth.Record(i % partitions, b"k%d" % i, b"v%d" % i, (), now_ms()) for i in range(count)]
    truth.produce(bootstrap, topic, records)


def commit_in_transaction(bootstrap: str, group: str, topic: str, position: int, *, abort: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{group}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    offsets = [TopicPartition(topic, 0, position)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    if abort:
        producer.abort_transaction(30)
    else:
        producer.commit_transaction(30)
    consumer.close()


def test_groups_of_both_protocols_are_read(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic("read", partitions=2)
    fill(broker.bootstrap, name, 20, 2)
    consumers.commit(broker.bootstrap, f"{name}-a", {(name, 0): 3, (name, 1): 4}, "nöte")
    consumers.commit(broker.bootstrap, f"{OWN_GROUPS}{name}", {(name, 0): 1})
    groups = Groups({"bootstrap.servers": broker.bootstrap})
    assert f"{name}-a" in groups.names()
    assert f"{OWN_GROUPS}{name}" not in groups.names()
    with (
        consumers.member(broker.bootstrap, f"{name}-b", name, **{"group.protocol": "classic"}),
        consumers.member(broker.bootstrap, f"{name}-c", name, **{"group.protocol": "consumer"}) as reader,
    ):
        reader.commit(offsets=[TopicPartition(name, 1, 7)], asynchronous=False)
        reading = groups.read([f"{name}-a", f"{name}-b", f"{name}-c", f"{name}-none"])
    assert reading.denied == {}
    group_a, group_b, group_c = reading.groups
    assert (group_a.protocol, group_a.state, group_a.active) == ("classic", "empty", False)
    assert [
        (offset.scope, offset.region, offset.position, offset.metadata) for offset in group_a.offsets
    ] == [
        (name, "0", 3, "nöte"),
        (name, "1", 4, "nöte"),
    ]
    assert (group_b.protocol, group_b.state, group_b.active, group_b.offsets) == (
        "classic",
        "stable",
        True,
        (),
    )
    assert (group_c.protocol, group_c.active, group_c.members) == ("consumer", True, 1)
    assert [(offset.region, offset.position, offset.metadata) for offset in group_c.offsets] == [
        ("1", 7, None)
    ]


@pytest.mark.long
def test_each_commit_is_a_row_and_a_deleted_topic_keeps_its_last_offsets(
    lab: Lab, broker: Broker, topic: Callable[..., str]
) -> None:
    name, other_topic = topic("gone", partitions=2), topic("other")
    fill(broker.bootstrap, name, 40, 2)
    fill(broker.bootstrap, other_topic, 10)
    old_group, new_group, tx_group = f"{name}-old", f"{name}-new", f"{name}-tx"
    consumers.commit(broker.bootstrap, old_group, {(name, 0): 2})
    consumers.commit(broker.bootstrap, old_group, {(name, 0): 5, (name, 1): 6}, "m")
    consumers.commit(broker.bootstrap, old_group, {(other_topic, 0): 9})
    with consumers.member(broker.bootstrap, new_group, name, **{"group.protocol": "consumer"}) as reader:
        reader.commit(offsets=[TopicPartition(name, 0, 11)], asynchronous=False)
    commit_in_transaction(broker.bootstrap, tx_group, name, 13, abort=False)
    commit_in_transaction(broker.bootstrap, tx_group, name, 17, abort=True)
    first_backup = lab.backup(name, groups="all")
    assert (first_backup["topics"], first_backup["groups"]) == (2, 3)
    with pytest.raises(Refused, match="the brokers' own"):
        lab.restore("__consumer_offsets", append=True)
    group_rows = lab.sql(
        f"SELECT group_id, protocol, scope, region, position, metadata, epoch FROM groups "
        f"WHERE group_id LIKE '{name}%' ORDER BY group_id, region",
    )
    (epoch,) = {row["epoch"] for row in group_rows}
    assert [
        (r["group_id"], r["protocol"], r["region"], r["position"], r["metadata"]) for r in group_rows
    ] == [
        (new_group, "consumer", "0", 11, None),
        (old_group, "classic", "0", 5, "m"),
        (old_group, "classic", "1", 6, "m"),
        (tx_group, "classic", "0", 13, None),
    ]

    commit_in_transaction(broker.bootstrap, tx_group, name, 19, abort=True)
    before_deletion = now_ms()
    truth.delete_topic(broker.bootstrap, name)
    truth.until(
        lambda: not [t for t, _ in consumers.committed(broker.bootstrap, old_group) if t == name],
        "it is erased",
    )
    second_backup = lab.backup(other_topic, groups="all", isolation="read_uncommitted")
    assert second_backup["kind"] == "differential"

    commit_rows = lab.sql(
        f"SELECT group_id, region, position, metadata, epoch FROM group_offsets "
        f"WHERE seen = 'log' AND scope = '{name}' ORDER BY group_id, region, log_position",
    )
    assert [(r["group_id"], r["region"], r["position"]) for r in commit_rows] == [
        (new_group, "0", 11), (new_group, "0", None),
        (old_group, "0", 2), (old_group, "0", 5), (old_group, "0", None),
        (old_group, "1", 6), (old_group, "1", None),
        (tx_group, "0", 13), (tx_group, "0", None),
    ]  # fmt: skip
    assert {r["epoch"] for r in commit_rows if r["group_id"] == old_group and r["position"] is not None} == {
        epoch
    }
    last_commits = lab.sql(
        f"SELECT group_id, region, max_by(position, log_position) AS position, max(time) AS committed "
        f"FROM group_offsets WHERE scope = '{name}' AND seen = 'log' AND position IS NOT NULL "
        f"GROUP BY group_id, region ORDER BY group_id, CAST(region AS INT)",
    )
    last_positions = [
        (new_group, "0", 11),
        (old_group, "0", 5),
        (old_group, "1", 6),
        (tx_group, "0", 13),
    ]
    assert [(r["group_id"], r["region"], r["position"]) for r in last_commits] == last_positions
    assert all(r["committed"] is not None for r in last_commits)
    kinds = lab.sql(
        f"SELECT DISTINCT kind, problem FROM group_commits WHERE group_id LIKE '{name}%' ORDER BY kind",
    )
    assert [(r["kind"], r["problem"]) for r in kinds] == [
        (kind, None)
        for kind in (
            "consumer_assignment", "consumer_group", "consumer_member", "consumer_target",
            "consumer_target_member", "offset",
        )
    ]  # fmt: skip
    assert lab.sql("SELECT * FROM group_commits WHERE problem IS NOT NULL") == []

    reader = CatalogReader(str(lab.folder))

    def positions_at(ts: int | None, *, ignore_erased: bool) -> list[tuple[str, str, int]]:
        rows = reader.rows("group_offsets_at", source="lab", ts=ts, ignore_erased=ignore_erased)
        return [(r["group_id"], r["region"], r["position"]) for r in rows if r["scope"] == name]

    assert positions_at(before_deletion, ignore_erased=False) == last_positions
    assert positions_at(None, ignore_erased=False) == []
    assert positions_at(None, ignore_erased=True) == last_positions

    assert_rebuilt_the_same(lab)


def assert_rebuilt_the_same(lab: Lab) -> None:
    """Rebuild the catalog, and require the same rows of group offsets as before."""
    query = "SELECT * FROM group_offsets ORDER BY ts, seen, group_id, scope, region, log_position"
    rows_before = lab.sql(query)
    (lab.folder / "catalog").rename(lab.folder.parent / "lost")
    result = rebuild(RebuildRequest(str(lab.folder)), spark=lab.spark, reporter=lab.reporter)
    assert result["left_out"] == []
    assert lab.sql(query) == rows_before


def schema(
    subject: str, version: int, schema_id: int, *, deleted: bool = False, text: str = '"string"'
) -> tuple[bytes, bytes]:
    """The key and the value of a record as a registry in Confluent's format writes it."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": schema_id, "schema": text, "deleted": deleted}
    return json.dumps(key).encode(), json.dumps(value).encode()


def write(bootstrap: str, topic: str, records: list[tuple[bytes, bytes | None]]) -> None:
    produce(bootstrap, topic, [Record(0, key, value, (), -1) for key, value in records])


def records_of(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in contents(bootstrap, topic).get(0, [])]


def subjects(lab: Lab) -> list[tuple[Any, ...]]:
    rows = lab.sql(
        "SELECT subject, version, schema_id, deleted FROM subjects ORDER BY scope, subject, version"
    )
    return [tuple(row.values()) for row in rows]


@pytest.fixture
def registry(topic: Callable[..., str]) -> str:
    return topic("schemas", **{"cleanup.policy": "compact"})


NOOP = (b'{"keytype":"NOOP","magic":0}', b"{}")
LEVEL = (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}')


def test_schemas_are_rows_and_are_restored_in_order(lab: Lab, broker: Broker, registry: str) -> None:
    records = [
        NOOP,
        schema("orders-value", 1, 7),
        LEVEL,
        schema("orders-value", 2, 8, text='"long"'),
        (schema("broken", 1, 9)[0], b"<schema/>"),
        schema("gone", 1, 10),
        (schema("gone", 1, 10)[0], None),
    ]
    write(broker.bootstrap, registry, records)
    backup = lab.backup(registry, schema_topics=(registry,))
    assert backup["entries"] == len(records)
    assert "1 records are kept but could not be decoded" in lab.warnings.getvalue()
    assert "partition 0, offset 4: value: it is not JSON" in lab.warnings.getvalue()
    assert subjects(lab) == [("orders-value", 1, 7, False), ("orders-value", 2, 8, False)]

    later_records = [schema("orders-value", 2, 8, text='"long"', deleted=True), schema("new", 1, 11)]
    write(broker.bootstrap, registry, later_records)
    lab.backup(registry, schema_topics=(registry,))
    assert subjects(lab) == [
        ("new", 1, 11, False),
        ("orders-value", 1, 7, False),
        ("orders-value", 2, 8, True),
    ]
    problems = lab.sql("SELECT * FROM schemas WHERE problem IS NOT NULL")
    assert [(r["kind"], r["subject"], r["log_position"]) for r in problems] == [("schema", "broken", 4)]

    copy_topic = f"{registry}-copy"
    lab.restore(registry, maps={registry: copy_topic})
    try:
        assert records_of(broker.bootstrap, copy_topic) == records + later_records
        (topic_state,) = Cluster({"bootstrap.servers": broker.bootstrap}).describe([copy_topic])
        assert (topic_state.regions, topic_state.settings["cleanup.policy"]) == (1, "compact")
    finally:
        delete_topic(broker.bootstrap, copy_topic)


@pytest.mark.long
def test_a_registry_with_other_schemas_is_refused_and_stays_unchanged(
    lab: Lab, broker: Broker, registry: str, topic: Callable[..., str]
) -> None:
    write(broker.bootstrap, registry, [schema("a", 1, 7), schema("b", 1, 8, text='"long"')])
    lab.backup(registry, schema_topics=(registry,))
    other_topic = topic("schemas-other", **{"cleanup.policy": "compact"})
    other_records = [schema("a", 1, 9), schema("c", 5, 8, text='"int"')]
    write(broker.bootstrap, other_topic, other_records)
    for append in (False, True):
        with pytest.raises(Refused) as refused:
            lab.restore(registry, maps={registry: other_topic}, append=append)
        assert "subject a, version 1: id 7 in the backup, 9 at the target" in refused.value.message
        assert "id 8: b, version 1 in the backup, c, version 5, another schema" in refused.value.message
    plan = lab.restore(registry, maps={registry: other_topic}, dry_run=True)["target_topics"][0]
    assert "holds other schemas" in plan["refused_because"]
    assert records_of(broker.bootstrap, other_topic) == other_records
    assert settings(broker.bootstrap, other_topic)["cleanup.policy"] == "compact"

    wide_topic = topic("schemas-wide", partitions=2)
    with pytest.raises(Refused, match="one partition"):
        lab.restore(registry, maps={registry: wide_topic}, repartition=True)


@pytest.mark.long
def test_a_restore_adds_missing_schemas_to_a_registry_once(
    lab: Lab, broker: Broker, registry: str, topic: Callable[..., str]
) -> None:
    deletion = (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b'{"subject":"a","version":1}')
    records = [NOOP, schema("a", 1, 7), deletion, schema("b", 1, 8, text='"long"'), schema("b", 2, 7)]
    write(broker.bootstrap, registry, records)
    lab.backup(registry, schema_topics=(registry,))
    other_topic = topic("schemas-half", **{"cleanup.policy": "compact"})
    other_records = [schema("a", 1, 7), NOOP, schema("z", 1, 3, text='"int"')]
    write(broker.bootstrap, other_topic, other_records)
    for _ in range(2):  # the second restore finds nothing missing
        lab.restore(registry, maps={registry: other_topic})
        assert records_of(broker.bootstrap, other_topic) == [*other_records, *records[3:]]
    assert settings(broker.bootstrap, other_topic)["cleanup.policy"] == "compact"
