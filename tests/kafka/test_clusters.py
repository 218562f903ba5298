"""Several sources in one catalog, and topics that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from tests.support import kafka_truth as truth
from tests.support.faults import rows_of, shown, stored

from lakebackup.errors import EnvironmentProblem, Incomplete, LakebackupError
from lakebackup_jobs.kafka.admin.cluster import Cluster

if TYPE_CHECKING:
    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]


def partitions(bootstrap: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return len(admin.list_topics(topic, timeout=30).topics[topic].partitions)


def test_two_sources_in_one_catalog(lab: Lab, topic: Make) -> None:
    """Backups of two sources have a topic of the same name; each source's come back as they found it."""
    name = topic("orders", partitions=3)
    truth.produce(lab.bootstrap, name, rows_of(2, 20))  # the last partition stays empty
    lab.backup(name, source="east")
    east = truth.contents(lab.bootstrap, name)
    truth.produce(lab.bootstrap, name, rows_of(2, 30, 20))
    lab.backup(name, source="west")
    assert sorted((b["source"], b["number"], b["kind"]) for b in shown(lab)["backups"]) == [
        ("east", 1, "full"),
        ("west", 1, "full"),
    ]
    with pytest.raises(LakebackupError, match=r"east.*west|west.*east"):
        lab.restore(name)
    for source, held in (("east", east), ("west", truth.contents(lab.bootstrap, name))):
        copy = f"{name}-of-{source}"
        lab.restore(name, source=source, maps={name: copy})
        assert truth.contents(lab.bootstrap, copy) == held
        assert partitions(lab.bootstrap, copy) == 3
        truth.delete_topic(lab.bootstrap, copy)


def test_topics_that_may_not_be_read(lab: Lab, topic: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are left out and named. The broker of test_secured.py refuses them; here the answer is made up."""
    prefix = f"shop-{uuid4().hex[:8]}"
    readable, unreadable = topic(f"{prefix}-readable", partitions=2), topic(f"{prefix}-unreadable")
    truth.produce(lab.bootstrap, readable, rows_of(2, 20))
    truth.produce(lab.bootstrap, unreadable, rows_of(1, 20))
    why = {unreadable: "this user lacks the right Read"}
    monkeypatch.setattr(Cluster, "denied", lambda _, names: {n: why[n] for n in names if n in why})
    with pytest.raises(EnvironmentProblem, match="nothing that this user may back up"):
        lab.backup(unreadable)
    with pytest.raises(Incomplete):
        lab.backup(patterns=(f"{prefix}.*",))
    assert f"topic {unreadable} is left out: this user lacks the right Read" in lab.warnings.getvalue()
    assert [scope["scope"] for scope in shown(lab)["scopes"]] == [readable]
    assert stored(lab) == truth.contents(lab.bootstrap, readable)
    why.clear()
    done = lab.backup(readable, unreadable)
    assert (done["kind"], done["topics"], done["entries"]) == ("differential", 2, 20)


def test_topics_come_and_go(lab: Lab, topic: Make) -> None:
    """A pattern takes up new topics; one that went stays restorable; what is empty comes back empty."""
    prefix = f"app-{uuid4().hex[:8]}"
    goes, empty = topic(f"{prefix}-goes", partitions=2), topic(f"{prefix}-empty", partitions=3)
    truth.produce(lab.bootstrap, goes, rows_of(2, 20))
    before = truth.contents(lab.bootstrap, goes)
    pattern = (f"{prefix}-.*",)
    assert lab.backup(patterns=pattern)["topics"] == 2
    truth.delete_topic(lab.bootstrap, goes)
    comes = topic(f"{prefix}-comes", **{"max.message.bytes": "123456"})
    truth.produce(lab.bootstrap, comes, rows_of(1, 20))
    second = lab.backup(patterns=pattern)
    assert (second["kind"], second["topics"], second["entries"], second["gaps"]) == ("differential", 2, 20, 0)

    copies = {name: f"{name}-copy" for name in (goes, empty, comes)}
    lab.restore(goes, empty, comes, maps=copies)
    assert truth.contents(lab.bootstrap, copies[goes]) == before
    assert truth.contents(lab.bootstrap, copies[comes]) == truth.contents(lab.bootstrap, comes)
    assert truth.contents(lab.bootstrap, copies[empty]) == {}
    assert [partitions(lab.bootstrap, copies[name]) for name in (goes, empty, comes)] == [2, 3, 1]
    assert truth.settings(lab.bootstrap, copies[comes])["max.message.bytes"] == "123456"
    for copy in copies.values():
        truth.delete_topic(lab.bootstrap, copy)
