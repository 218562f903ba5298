"""A restore of values looks at the target's registry: their ids must mean the same there."""

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


def registered(subject: str, schema_id: int, name: str, *, version: int = 1) -> Record:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    schema = json.dumps({"type": "record", "name": name, "fields": [{"name": "n", "type": "int"}]})
    value = {"subject": subject, "version": version, "id": schema_id, "schema": schema, "deleted": False}
    return Record(0, json.dumps(key).encode(), json.dumps(value).encode(), (), now_ms())


def value(schema_id: int) -> Record:
    return Record(0, b"k", b"\0" + schema_id.to_bytes(4, "big") + b"\x02", (), now_ms())


def test_ids_that_mean_something_else_at_the_target_are_named(lab: Lab, topic: Callable[..., str]) -> None:
    name, registry, there = topic("values"), topic("registry"), topic("registry-there")
    truth.produce(lab.bootstrap, name, [value(771), value(772), value(773)])
    subject = f"{name}-value"
    truth.produce(
        lab.bootstrap,
        registry,
        [
            registered(subject, 771, "Customer"),
            registered(subject, 772, "Buyer", version=2),
            registered(subject, 773, "Guest", version=3),
        ],
    )
    truth.produce(
        lab.bootstrap,
        there,
        [registered("invoices-value", 771, "Invoice"), registered(subject, 773, "Guest")],
    )
    lab.backup(name, registry, schema_topics=(registry,))
    copy = f"{name}-copy"
    to_copy = {"maps": {name: copy}, "schema_topics": (there,)}
    dry = lab.restore(name, dry_run=True, **to_copy)
    other, missing = dry["schemas"]
    assert f"topic {copy}: id 771 of its values is Customer (subject {subject}, version 1" in other
    assert "and Invoice (subject invoices-value, version 1" in other
    assert "id 772 of its values is missing from the target's registry; it is Buyer" in missing
    assert "refused" not in dry
    with pytest.raises(Refused, match="id 771 of its values is Customer"):
        lab.restore(name, strict_schemas=True, **to_copy)
    assert copy not in Cluster({"bootstrap.servers": lab.bootstrap}).topic_names()
    assert lab.restore(name, strict_schemas=True, dry_run=True, **to_copy)["refused"].startswith("topic")
    assert lab.restore(name, **to_copy)["entries"] == 3
    assert other in lab.warnings.getvalue()
    # With the registry that gave the ids out, all is right, and without one there is nothing to compare.
    lab.restore(name, maps={name: f"{name}-2"}, schema_topics=(registry,), strict_schemas=True)
    assert "schemas" not in lab.restore(name, maps={name: f"{name}-3"}, schema_topics=("none",), dry_run=True)
    with pytest.raises(Refused, match="is missing from the target's registry"):
        lab.restore(name, maps={name: f"{name}-3"}, schema_topics=("none",), strict_schemas=True)
    for made in (copy, f"{name}-2"):
        truth.delete_topic(lab.bootstrap, made)
