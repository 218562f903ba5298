"""A restore of values compares their schema ids with the target's registry, where they must mean the same."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Refused
from lakebackup_jobs.kafka.admin.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def schema_record(subject: str, schema_id: int, name: str, *, version: int = 1) -> Record:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    schema = json.dumps({"type": "record", "name": name, "fields": [{"name": "n", "type": "int"}]})
    value = {"subject": subject, "version": version, "id": schema_id, "schema": schema, "deleted": False}
    return Record(0, json.dumps(key).encode(), json.dumps(value).encode(), (), now_ms())


def value_record(schema_id: int) -> Record:
    return Record(0, b"k", b"\0" + schema_id.to_bytes(4, "big") + b"\x02", (), now_ms())


def test_schema_ids_with_another_meaning_at_the_target_are_reported(
    lab: Lab, topic: Callable[..., str]
) -> None:
    name, registry, target_registry = topic("values"), topic("registry"), topic("registry-there")
    truth.produce(lab.bootstrap, name, [value_record(771), value_record(772), value_record(773)])
    subject = f"{name}-value"
    truth.produce(
        lab.bootstrap,
        registry,
        [
            schema_record(subject, 771, "Customer"),
            schema_record(subject, 772, "Buyer", version=2),
            schema_record(subject, 773, "Guest", version=3),
        ],
    )
    truth.produce(
        lab.bootstrap,
        target_registry,
        [schema_record("invoices-value", 771, "Invoice"), schema_record(subject, 773, "Guest")],
    )
    lab.backup(name, registry, schema_topics=(registry,))
    copy_topic = f"{name}-copy"
    options = {"maps": {name: copy_topic}, "schema_topics": (target_registry,)}
    plan = lab.restore(name, dry_run=True, **options)
    mismatch, missing = plan["schemas"]
    assert f"topic {copy_topic}: id 771 of its values is Customer (subject {subject}, version 1" in mismatch
    assert "and Invoice (subject invoices-value, version 1" in mismatch
    assert "id 772 of its values is missing from the target's registry; it is Buyer" in missing
    assert "refused" not in plan
    with pytest.raises(Refused, match="id 771 of its values is Customer"):
        lab.restore(name, strict_schemas=True, **options)
    assert copy_topic not in Cluster({"bootstrap.servers": lab.bootstrap}).topic_names()
    assert lab.restore(name, strict_schemas=True, dry_run=True, **options)["refused"].startswith("topic")
    assert lab.restore(name, **options)["entries"] == 3
    assert mismatch in lab.warnings.getvalue()
    # The registry that issued the ids agrees. Without a registry no schema is reported as different.
    lab.restore(name, maps={name: f"{name}-2"}, schema_topics=(registry,), strict_schemas=True)
    assert "schemas" not in lab.restore(name, maps={name: f"{name}-3"}, schema_topics=("none",), dry_run=True)
    with pytest.raises(Refused, match="is missing from the target's registry"):
        lab.restore(name, maps={name: f"{name}-3"}, schema_topics=("none",), strict_schemas=True)
    for created_topic in (copy_topic, f"{name}-2"):
        truth.delete_topic(lab.bootstrap, created_topic)
