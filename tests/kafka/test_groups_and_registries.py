"""What a cluster keeps beside records: groups with their own topic of offsets, and a registry's schemas."""

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
    rows = [truth.Record(i % partitions, b"k%d" % i, b"v%d" % i, (), now_ms()) for i in range(count)]
    truth.produce(bootstrap, topic, rows)


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
        found = groups.read([f"{name}-a", f"{name}-b", f"{name}-c", f"{name}-none"])
    assert found.denied == {}
    a, b, c = found.groups
    assert (a.protocol, a.state, a.active) == ("classic", "empty", False)
    assert [(o.scope, o.region, o.position, o.metadata) for o in a.offsets] == [
        (name, "0", 3, "nöte"),
        (name, "1", 4, "nöte"),
    ]
    assert (b.protocol, b.state, b.active, b.offsets) == ("classic", "stable", True, ())
    assert (c.protocol, c.active, c.members) == ("consumer", True, 1)
    assert [(o.region, o.position, o.metadata) for o in c.offsets] == [("1", 7, None)]


@pytest.mark.long
def test_every_commit_is_a_row_and_a_deleted_topic_leaves_its_last_offsets(
    lab: Lab, broker: Broker, topic: Callable[..., str]
) -> None:
    name, other = topic("gone", partitions=2), topic("other")
    fill(broker.bootstrap, name, 40, 2)
    fill(broker.bootstrap, other, 10)
    old, new, tx = f"{name}-old", f"{name}-new", f"{name}-tx"
    consumers.commit(broker.bootstrap, old, {(name, 0): 2})
    consumers.commit(broker.bootstrap, old, {(name, 0): 5, (name, 1): 6}, "m")
    consumers.commit(broker.bootstrap, old, {(other, 0): 9})
    with consumers.member(broker.bootstrap, new, name, **{"group.protocol": "consumer"}) as reader:
        reader.commit(offsets=[TopicPartition(name, 0, 11)], asynchronous=False)
    commit_in_transaction(broker.bootstrap, tx, name, 13, abort=False)
    commit_in_transaction(broker.bootstrap, tx, name, 17, abort=True)
    first = lab.backup(name, groups="all")
    assert (first["topics"], first["groups"]) == (2, 3)
    with pytest.raises(Refused, match="the brokers' own"):
        lab.restore("__consumer_offsets", append=True)
    seen = lab.sql(
        f"SELECT group_id, protocol, scope, region, position, metadata, epoch FROM groups "
        f"WHERE group_id LIKE '{name}%' ORDER BY group_id, region",
    )
    (epoch,) = {row["epoch"] for row in seen}
    assert [(r["group_id"], r["protocol"], r["region"], r["position"], r["metadata"]) for r in seen] == [
        (new, "consumer", "0", 11, None),
        (old, "classic", "0", 5, "m"),
        (old, "classic", "1", 6, "m"),
        (tx, "classic", "0", 13, None),
    ]

    commit_in_transaction(broker.bootstrap, tx, name, 19, abort=True)
    before_deletion = now_ms()
    truth.delete_topic(broker.bootstrap, name)
    truth.until(
        lambda: not [t for t, _ in consumers.committed(broker.bootstrap, old) if t == name], "it is erased"
    )
    second = lab.backup(other, groups="all", isolation="read_uncommitted")
    assert second["kind"] == "differential"

    log = lab.sql(
        f"SELECT group_id, region, position, metadata, epoch FROM group_offsets "
        f"WHERE seen = 'log' AND scope = '{name}' ORDER BY group_id, region, log_position",
    )
    assert [(r["group_id"], r["region"], r["position"]) for r in log] == [
        (new, "0", 11), (new, "0", None),
        (old, "0", 2), (old, "0", 5), (old, "0", None), (old, "1", 6), (old, "1", None),
        (tx, "0", 13), (tx, "0", None),
    ]  # fmt: skip
    assert {r["epoch"] for r in log if r["group_id"] == old and r["position"] is not None} == {epoch}
    told = lab.sql(
        f"SELECT group_id, region, max_by(position, log_position) AS position, max(time) AS committed "
        f"FROM group_offsets WHERE scope = '{name}' AND seen = 'log' AND position IS NOT NULL "
        f"GROUP BY group_id, region ORDER BY group_id, CAST(region AS INT)",
    )
    last = [(new, "0", 11), (old, "0", 5), (old, "1", 6), (tx, "0", 13)]
    assert [(r["group_id"], r["region"], r["position"]) for r in told] == last
    assert all(r["committed"] is not None for r in told)
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

    def at(ts: int | None, *, ignore_erased: bool) -> list[tuple[str, str, int]]:
        rows = reader.rows("group_offsets_at", source="lab", ts=ts, ignore_erased=ignore_erased)
        return [(r["group_id"], r["region"], r["position"]) for r in rows if r["scope"] == name]

    assert at(before_deletion, ignore_erased=False) == last
    assert at(None, ignore_erased=False) == []
    assert at(None, ignore_erased=True) == last

    assert_rebuilt_the_same(lab)


def assert_rebuilt_the_same(lab: Lab) -> None:
    """A rebuilt catalog has the same rows of groups."""
    ask = "SELECT * FROM group_offsets ORDER BY ts, seen, group_id, scope, region, log_position"
    before = lab.sql(ask)
    (lab.folder / "catalog").rename(lab.folder.parent / "lost")
    result = rebuild(RebuildRequest(str(lab.folder)), spark=lab.spark, reporter=lab.reporter)
    assert result["left_out"] == []
    assert lab.sql(ask) == before


def schema(
    subject: str, version: int, schema_id: int, *, deleted: bool = False, text: str = '"string"'
) -> tuple[bytes, bytes]:
    """A record as registries of Confluent's form write it."""
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


def test_schemas_are_rows_and_come_back_in_order(lab: Lab, broker: Broker, registry: str) -> None:
    held = [
        NOOP,
        schema("orders-value", 1, 7),
        LEVEL,
        schema("orders-value", 2, 8, text='"long"'),
        (schema("broken", 1, 9)[0], b"<schema/>"),
        schema("gone", 1, 10),
        (schema("gone", 1, 10)[0], None),
    ]
    write(broker.bootstrap, registry, held)
    first = lab.backup(registry, schema_topics=(registry,))
    assert first["entries"] == len(held)
    assert "1 records are kept but could not be decoded" in lab.warnings.getvalue()
    assert "partition 0, offset 4: value: it is not JSON" in lab.warnings.getvalue()
    assert subjects(lab) == [("orders-value", 1, 7, False), ("orders-value", 2, 8, False)]

    later = [schema("orders-value", 2, 8, text='"long"', deleted=True), schema("new", 1, 11)]
    write(broker.bootstrap, registry, later)
    lab.backup(registry, schema_topics=(registry,))
    assert subjects(lab) == [
        ("new", 1, 11, False),
        ("orders-value", 1, 7, False),
        ("orders-value", 2, 8, True),
    ]
    problems = lab.sql("SELECT * FROM schemas WHERE problem IS NOT NULL")
    assert [(r["kind"], r["subject"], r["log_position"]) for r in problems] == [("schema", "broken", 4)]

    copy = f"{registry}-copy"
    lab.restore(registry, maps={registry: copy})
    try:
        assert records_of(broker.bootstrap, copy) == held + later
        (state,) = Cluster({"bootstrap.servers": broker.bootstrap}).describe([copy])
        assert (state.regions, state.settings["cleanup.policy"]) == (1, "compact")
    finally:
        delete_topic(broker.bootstrap, copy)


@pytest.mark.long
def test_a_registry_with_other_schemas_is_left_as_it_is(
    lab: Lab, broker: Broker, registry: str, topic: Callable[..., str]
) -> None:
    write(broker.bootstrap, registry, [schema("a", 1, 7), schema("b", 1, 8, text='"long"')])
    lab.backup(registry, schema_topics=(registry,))
    other = topic("schemas-other", **{"cleanup.policy": "compact"})
    theirs = [schema("a", 1, 9), schema("c", 5, 8, text='"int"')]
    write(broker.bootstrap, other, theirs)
    for append in (False, True):
        with pytest.raises(Refused) as refused:
            lab.restore(registry, maps={registry: other}, append=append)
        assert "subject a, version 1: id 7 in the backup, 9 at the target" in refused.value.message
        assert "id 8: b, version 1 in the backup, c, version 5, another schema" in refused.value.message
    shown = lab.restore(registry, maps={registry: other}, dry_run=True)["target_topics"][0]
    assert "holds other schemas" in shown["refused_because"]
    assert records_of(broker.bootstrap, other) == theirs
    assert settings(broker.bootstrap, other)["cleanup.policy"] == "compact"

    wide = topic("schemas-wide", partitions=2)
    with pytest.raises(Refused, match="one partition"):
        lab.restore(registry, maps={registry: wide}, repartition=True)


@pytest.mark.long
def test_a_registry_gets_what_it_lacks_once(
    lab: Lab, broker: Broker, registry: str, topic: Callable[..., str]
) -> None:
    deletion = (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b'{"subject":"a","version":1}')
    ours = [NOOP, schema("a", 1, 7), deletion, schema("b", 1, 8, text='"long"'), schema("b", 2, 7)]
    write(broker.bootstrap, registry, ours)
    lab.backup(registry, schema_topics=(registry,))
    other = topic("schemas-half", **{"cleanup.policy": "compact"})
    theirs = [schema("a", 1, 7), NOOP, schema("z", 1, 3, text='"int"')]
    write(broker.bootstrap, other, theirs)
    for _ in range(2):  # the second finds that nothing is lacking
        lab.restore(registry, maps={registry: other})
        assert records_of(broker.bootstrap, other) == [*theirs, *ours[3:]]
    assert settings(broker.bootstrap, other)["cleanup.policy"] == "compact"
