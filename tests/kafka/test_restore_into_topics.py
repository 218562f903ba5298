"""What a cluster does not accept is refused before anything is made, and what a restore changes in a topic
that was there is put back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest
from tests.support import kafka_truth as truth
from tests.support.disks import flip
from tests.support.kafka_truth import Record
from tests.support.runs import Lab

from lakebackup.errors import Damaged, Refused
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.targets.topics import NewTopic, Topics

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]
OLD_MS = 1_600_000_000_000


def produce(lab: Lab, topic: str, count: int = 5) -> None:
    truth.produce(lab.bootstrap, topic, [Record(0, b"k", b"v%d" % i, (), OLD_MS + i) for i in range(count)])


def own_settings(lab: Lab, topic: str) -> dict[str, str]:
    (state,) = Cluster({"bootstrap.servers": lab.bootstrap}).describe([topic])
    return dict(state.settings)


def exists(lab: Lab, topic: str) -> bool:
    return topic in Cluster({"bootstrap.servers": lab.bootstrap}).topic_names()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": {"no.such.setting": "1"}}, "Unknown topic config name: no.such.setting"),
        ({"settings": {"segment.bytes": "-7"}}, "segment.bytes"),
        ({"settings": {"cleanup.policy": "compact"}, "name": "a b"}, "Topic name is invalid|invalid"),
        ({"regions": 0}, "[Pp]artitions"),
    ],
)
def test_a_topic_that_the_cluster_does_not_accept_is_refused_in_its_words(
    broker: Broker, change: dict[str, object], words: str
) -> None:
    topics = Topics({"bootstrap.servers": broker.bootstrap})
    new = replace(NewTopic(f"new-{uuid4().hex[:8]}", 1, 1, {}), **change)
    assert topics.refusal(NewTopic(f"new-{uuid4().hex[:8]}", 1, 3, {})) is None
    refusal = topics.refusal(new)
    assert refusal
    assert f"refuses to create topic {new.name}" in refusal
    with pytest.raises(Refused, match=words):
        topics.make(new)
    assert new.name not in topics.topic_names()


def test_a_name_that_collides_is_refused_and_no_other_topic_is_made(lab: Lab, topic: Make) -> None:
    one, two = topic("one"), topic("two")
    taken = topic("taken")
    truth.create_topic(lab.bootstrap, f"{taken}.x")
    for name in (one, two):
        produce(lab, name)
    lab.backup(one, two)
    maps = {one: f"{one}-new", two: f"{taken}_x"}
    dry = lab.restore(one, two, maps=maps, dry_run=True)
    assert f"Topic '{taken}_x' collides with existing topic: {taken}.x" in dry["refused"]
    with pytest.raises(Refused, match="collides with existing topic"):
        lab.restore(one, two, maps=maps)
    assert not exists(lab, f"{one}-new")
    both = {one: f"{one}.a", two: f"{one}_a"}
    with pytest.raises(Refused, match="their names collide"):
        lab.restore(one, two, maps=both)
    assert not exists(lab, f"{one}.a")
    truth.delete_topic(lab.bootstrap, f"{taken}.x")


def test_a_topic_that_was_there_has_its_own_settings_afterwards(lab: Lab, topic: Make) -> None:
    name = topic("source", **{"max.message.bytes": "8000000", "segment.ms": "777777"})
    produce(lab, name)
    lab.backup(name)
    settings = {"max.message.bytes": "1000000", "retention.ms": str(10**12), "compression.type": "zstd"}
    there = topic("there", **settings)
    expected = own_settings(lab, there)
    lab.restore(name, maps={name: there})
    assert own_settings(lab, there) == expected
    assert there not in lab.warnings.getvalue()
    # The settings of the backup are another choice, and what they change is said.
    lab.restore(name, maps={name: there}, append=True, settings="saved")
    assert own_settings(lab, there)["max.message.bytes"] == "8000000"
    change = f"topic {there}: max.message.bytes is now 8000000, and was 1000000 before the restore"
    assert change in lab.warnings.getvalue()


def test_settings_of_before_a_failed_restore_are_put_back_by_any_later_one(lab: Lab, topic: Make) -> None:
    name, later = topic("damaged"), topic("later")
    produce(lab, name)
    produce(lab, later)
    lab.backup(name, later)
    there = topic("there", **{"retention.ms": str(10**12), "max.message.bytes": "1000000"})
    expected = own_settings(lab, there)
    (row,) = lab.sql(f"SELECT path FROM files WHERE scope = '{name}' AND role = 'data'")
    flip(lab.folder / row["path"])
    with pytest.raises(Damaged) as damaged:
        lab.restore(name, maps={name: there})
    assert f"Retention of {there} is suspended" in damaged.value.hint
    assert own_settings(lab, there)["retention.ms"] == "-1"
    lab.restore(later, maps={later: there})
    assert own_settings(lab, there) == expected


def test_a_topic_that_needs_more_replicas_than_it_gets_can_be_written(lab: Lab, topic: Make) -> None:
    name = topic("safe", **{"min.insync.replicas": "2"})
    produce(lab, name)
    lab.backup(name)
    target = f"{name}-copy"
    dry = lab.restore(name, maps={name: target}, dry_run=True)
    note = f"topic {target} gets min.insync.replicas=1, which is 2 at the source"
    assert note in dry["target_topics"][0]["notes"][0]
    assert lab.restore(name, maps={name: target})["entries"] == 5
    assert note in lab.warnings.getvalue()
    assert own_settings(lab, target)["min.insync.replicas"] == "1"
    truth.delete_topic(lab.bootstrap, target)
