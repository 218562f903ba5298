"""A schema registry's topic: its schemas as rows, and its way back with every id as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.kafka_truth import Record, contents, delete_topic, produce, settings

from lakebackup.errors import Refused
from lakebackup_jobs.kafka.admin.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.runs import Lab

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


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
