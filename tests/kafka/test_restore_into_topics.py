"""Restores into topics: what a cluster rejects is refused before anything is created, and the settings that a
restore changes on an existing topic are reset."""

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
from lakebackup_jobs.kafka.admin.topic_changes import NewTopic
from lakebackup_jobs.targets.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

MakeTopic = Callable[..., str]
OLD_MS = 1_600_000_000_000


def produce(lab: Lab, topic: str, count: int = 5) -> None:
    truth.produce(lab.bootstrap, topic, [Record(0, b"k", b"v%d" % i, (), OLD_MS + i) for i in range(count)])


def own_settings(lab: Lab, topic: str) -> dict[str, str]:
    (topic_state,) = Cluster({"bootstrap.servers": lab.bootstrap}).describe([topic])
    return dict(topic_state.settings)


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
def test_a_topic_that_the_cluster_rejects_is_refused_in_its_words(
    broker: Broker, change: dict[str, object], words: str
) -> None:
    topics = Topics({"bootstrap.servers": broker.bootstrap})
    new_topic = replace(NewTopic(f"new-{uuid4().hex[:8]}", 1, 1, {}), **change)
    accepted_topic, created = NewTopic(f"new-{uuid4().hex[:8]}", 1, 3, {}), list[str]()
    ((name, refusal),) = topics.refusals([accepted_topic, new_topic]).items()
    assert name == new_topic.name
    assert f"refuses to create topic {new_topic.name}" in refusal
    with pytest.raises(Refused, match=words):
        topics.make([new_topic, accepted_topic], created)
    assert created == [accepted_topic.name]
    topics.wait_until_served({accepted_topic.name: 1})
    assert new_topic.name not in topics.topic_names()


def test_a_colliding_name_is_refused_before_any_topic_is_created(lab: Lab, topic: MakeTopic) -> None:
    first_topic, second_topic = topic("one"), topic("two")
    taken_topic = topic("taken")
    truth.create_topic(lab.bootstrap, f"{taken_topic}.x")
    for name in (first_topic, second_topic):
        produce(lab, name)
    lab.backup(first_topic, second_topic)
    maps = {first_topic: f"{first_topic}-new", second_topic: f"{taken_topic}_x"}
    plan = lab.restore(first_topic, second_topic, maps=maps, dry_run=True)
    assert f"Topic '{taken_topic}_x' collides with existing topic: {taken_topic}.x" in plan["refused"]
    with pytest.raises(Refused, match="collides with existing topic"):
        lab.restore(first_topic, second_topic, maps=maps)
    assert not exists(lab, f"{first_topic}-new")
    colliding_maps = {first_topic: f"{first_topic}.a", second_topic: f"{first_topic}_a"}
    with pytest.raises(Refused, match="their names collide"):
        lab.restore(first_topic, second_topic, maps=colliding_maps)
    assert not exists(lab, f"{first_topic}.a")
    truth.delete_topic(lab.bootstrap, f"{taken_topic}.x")


def test_an_existing_topic_keeps_its_own_settings(lab: Lab, topic: MakeTopic) -> None:
    name = topic("source", **{"max.message.bytes": "8000000", "segment.ms": "777777"})
    produce(lab, name)
    lab.backup(name)
    settings = {"max.message.bytes": "1000000", "retention.ms": str(10**12), "compression.type": "zstd"}
    existing_topic = topic("there", **settings)
    expected = own_settings(lab, existing_topic)
    lab.restore(name, maps={name: existing_topic})
    assert own_settings(lab, existing_topic) == expected
    assert existing_topic not in lab.warnings.getvalue()
    # With the backup's settings, the restore reports each setting that it changes.
    lab.restore(name, maps={name: existing_topic}, append=True, settings="saved")
    assert own_settings(lab, existing_topic)["max.message.bytes"] == "8000000"
    change = f"topic {existing_topic}: max.message.bytes is now 8000000, and was 1000000 before the restore"
    assert change in lab.warnings.getvalue()


def test_a_later_restore_resets_settings_after_a_failed_one(lab: Lab, topic: MakeTopic) -> None:
    name, later_topic = topic("damaged"), topic("later")
    produce(lab, name)
    produce(lab, later_topic)
    lab.backup(name, later_topic)
    existing_topic = topic("there", **{"retention.ms": str(10**12), "max.message.bytes": "1000000"})
    expected = own_settings(lab, existing_topic)
    (row,) = lab.sql(f"SELECT path FROM files WHERE scope = '{name}' AND role = 'data'")
    flip(lab.folder / row["path"])
    with pytest.raises(Damaged) as damaged:
        lab.restore(name, maps={name: existing_topic})
    assert f"Retention of {existing_topic} is suspended" in damaged.value.hint
    assert own_settings(lab, existing_topic)["retention.ms"] == "-1"
    lab.restore(later_topic, maps={later_topic: existing_topic})
    assert own_settings(lab, existing_topic) == expected


def test_a_topic_that_requires_more_replicas_than_it_gets_can_be_written(lab: Lab, topic: MakeTopic) -> None:
    name = topic("safe", **{"min.insync.replicas": "2"})
    produce(lab, name)
    lab.backup(name)
    target = f"{name}-copy"
    plan = lab.restore(name, maps={name: target}, dry_run=True)
    note = f"topic {target} gets min.insync.replicas=1, which is 2 at the source"
    assert note in plan["target_topics"][0]["notes"][0]
    assert lab.restore(name, maps={name: target})["entries"] == 5
    assert note in lab.warnings.getvalue()
    assert own_settings(lab, target)["min.insync.replicas"] == "1"
    truth.delete_topic(lab.bootstrap, target)
