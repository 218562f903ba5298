"""A topic's settings as backups keep them, and how restored records are protected from them."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lakebackup.errors import Refused
from lakebackup.plan.partitions import TopicState
from lakebackup.rules.topic_settings import TopicSettings, in_force, load
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.admin.cluster import Denied
from lakebackup_jobs.kafka.admin.topic_changes import NewTopic
from lakebackup_jobs.targets.settings_before import SettingsBefore
from lakebackup_jobs.targets.topics import SUSPENDED, RestoredTopic, Topics

DAY = 86_400_000
BOTH = {"cleanup.policy": "compact,delete"}
BROKERS = {"retention.ms": str(7 * DAY), "retention.bytes": "-1", "cleanup.policy": "delete"}


def test_own_settings_are_saved_as_before_with_inherited_ones_beside_them() -> None:
    saved = TopicSettings(
        {"retention.ms": "5"}, {"broker": {"segment.ms": "7"}, "default": {"cleanup.policy": "delete"}}
    )
    text = saved.dump()
    assert json.loads(text)["retention.ms"] == "5"
    assert load(text) == saved
    assert in_force(text) == {"retention.ms": "5", "segment.ms": "7", "cleanup.policy": "delete"}


def test_settings_of_older_backups_are_the_topics_own_alone() -> None:
    assert load('{"retention.ms": "5"}') == TopicSettings({"retention.ms": "5"})
    assert TopicSettings({"retention.ms": "5"}).dump() == '{"retention.ms": "5"}'
    assert in_force("{}") == {}


class Suspended(Topics):
    """A topic in the middle of a restore, in a cluster with this retention. None: it may not be read."""

    def __init__(self, brokers: Mapping[str, str] | None = BROKERS) -> None:
        self.of_brokers, self.own = brokers, dict(SUSPENDED)

    def retention_of_brokers(self) -> dict[str, str]:
        if self.of_brokers is None:
            raise Denied("no right")
        return dict(self.of_brokers)

    def alter_settings(
        self,
        changes: Mapping[str, Mapping[str, str | None]],
        *,
        validate_only: bool = False,  # noqa: ARG002
    ) -> dict[str, Refused]:
        for settings in changes.values():
            for name, value in settings.items():
                if value is None:
                    del self.own[name]
                else:
                    self.own[name] = value
        return {}

    def finished(self, saved: TopicSettings, oldest: int, mode: str = "auto", size: int = 0) -> list[str]:
        """The notes of a topic that gets its final settings."""
        return self.finish_settings([RestoredTopic("t", saved, oldest, size)], mode)["t"]


def ago(days: int) -> int:
    return time.time_ns() // 1_000_000 - days * DAY


@pytest.mark.parametrize(
    ("own", "days", "mode", "expected", "warning"),
    [
        ({}, 8, "auto", {"retention.ms": "-1"}, "this cluster's 604800000 ms would delete"),
        ({}, 8, "saved", {}, None),
        ({}, 6, "auto", {}, None),
        ({"retention.ms": str(DAY)}, 6, "auto", {"retention.ms": "-1"}, "its own 86400000 ms would delete"),
        ({"retention.ms": str(9 * DAY)}, 8, "auto", {"retention.ms": str(9 * DAY)}, None),
        ({"cleanup.policy": "compact"}, 8, "auto", {"cleanup.policy": "compact"}, None),
        (BOTH, 8, "auto", {**BOTH, "retention.ms": "-1"}, "this cluster's 604800000 ms"),
    ],
)
def test_restored_records_outlive_the_retention_in_force_at_their_new_place(
    own: dict[str, str], days: int, mode: str, expected: dict[str, str], warning: str | None
) -> None:
    topics = Suspended()
    notes = topics.finished(TopicSettings(own), ago(days), mode)
    assert topics.own == expected
    assert [warning in note for note in notes] == ([True] if warning else [])


@pytest.mark.parametrize(
    ("own", "brokers", "size", "warning"),
    [
        ({"retention.bytes": "1000"}, "-1", 1001, "its own 1000 bytes would delete"),
        ({"retention.bytes": "1000"}, "-1", 1000, None),
        ({}, "1000", 1001, "this cluster's 1000 bytes would delete"),
        ({"retention.bytes": "-1"}, "1000", 1001, None),
        ({"cleanup.policy": "compact"}, "1000", 1001, None),
    ],
)
def test_restored_records_outlive_the_size_in_force_at_their_new_place(
    own: dict[str, str], brokers: str, size: int, warning: str | None
) -> None:
    topics = Suspended(BROKERS | {"retention.bytes": brokers})
    notes = topics.finished(TopicSettings(own), ago(1), size=size)
    assert topics.own == (own | {"retention.bytes": "-1"} if warning else own)
    assert [warning in note for note in notes] == ([True] if warning else [])


def test_records_are_protected_where_the_clusters_retention_may_not_be_read() -> None:
    topics = Suspended(None)
    age, size = topics.finished(TopicSettings({}), ago(1))
    assert topics.own == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert "DescribeConfigs on the cluster" in age
    assert "less than the size" in size
    own = {"retention.ms": str(9 * DAY), "retention.bytes": "9"}
    assert Suspended(None).finished(TopicSettings(own), ago(1)) == []


def test_another_retention_than_at_the_source_is_noted_and_not_set() -> None:
    source = TopicSettings({}, {"broker": {"retention.ms": "-1"}, "default": {"cleanup.policy": "delete"}})
    topics = Suspended()
    (note,) = topics.finished(source, ago(1))
    assert note.startswith("topic t: retention.ms is 604800000 here and was -1 at the source")
    assert topics.own == {}
    # The note that the records are protected comes instead.
    topics = Suspended()
    (note,) = topics.finished(source, ago(8))
    assert "keeps retention.ms=-1" in note


class Limited(Topics):
    """A cluster with this many brokers, whose topics need `least` replicas in sync.

    It accepts records up to 1 MB, and no topic with the name `bad`.
    """

    def __init__(self, brokers: int = 1, least: int | None = 1) -> None:
        self._brokers_up, self._least = brokers, least
        self.topics: dict[str, tuple[int, Mapping[str, str]]] = {}

    def brokers(self) -> int:
        return self._brokers_up

    def least_in_sync(self) -> int:
        if self._least is None:
            raise Denied("no right")
        return self._least

    def check_topics(self, topics: Collection[NewTopic]) -> dict[str, Refused]:
        errors = {}
        for topic in topics:
            if topic.name == "bad":
                errors[topic.name] = Refused("The name is bad.")
            elif int(topic.settings.get("max.message.bytes", "0")) > 1_000_000:
                errors[topic.name] = Refused("The policy allows records of 1 MB.")
        return errors

    def create_topics(self, topics: Collection[NewTopic], created: list[str]) -> dict[str, Refused]:
        errors = self.check_topics(topics)
        for topic in topics:
            if topic.name not in errors:
                self.topics[topic.name] = topic.replication, topic.settings
                created.append(topic.name)
        return errors


@pytest.mark.parametrize(
    ("own", "replication", "brokers", "least", "expected", "words"),
    [
        ({}, 1, 3, 2, "1", "which is 2 by this cluster's brokers"),
        ({"min.insync.replicas": "2"}, 3, 1, 1, "1", "which is 2 at the source"),
        ({"min.insync.replicas": "3"}, 3, 2, 2, "2", "which is 3 at the source: it has 2 replicas here"),
        ({"min.insync.replicas": "1"}, 1, 3, 2, "1", None),
        ({}, 3, 3, 2, None, None),
        ({}, 3, 1, 1, None, None),
        ({}, 1, 3, None, None, None),
    ],
)
def test_a_topic_is_made_such_that_its_replicas_can_be_written(
    own: dict[str, str],
    replication: int,
    brokers: int,
    least: int | None,
    expected: str | None,
    words: str | None,
) -> None:
    topics = Limited(brokers, least)
    new = NewTopic("t", 1, replication, own)
    notes = topics.make([new], [])
    assert list(notes) == list(topics.notes(new))
    assert [(words or "") in note for note in notes] == ([True] if words else [])
    created = topics.topics["t"]
    assert (created[0], created[1].get("min.insync.replicas")) == (min(replication, brokers), expected)


def test_a_cluster_that_limits_the_size_of_records_takes_the_topic_without_it() -> None:
    topics = Limited()
    small, bad = NewTopic("t", 1, 1, {}), NewTopic("bad", 1, 1, {})
    large = NewTopic("large", 1, 1, {"max.message.bytes": "2000000"})
    assert topics.refusals([small, bad, large]) == {"bad": "The name is bad"}
    assert topics.make([small], []) == []
    assert "max.message.bytes" not in topics.topics["t"][1]
    assert topics.topics["t"][1]["retention.ms"] == "-1"
    created: list[str] = []
    with pytest.raises(Refused, match="The name is bad"):
        topics.make([bad, small], created)
    assert created == ["t"]
    (note,) = topics.make([large], created)
    assert created == ["t", "large"]
    assert "max.message.bytes: it does not accept the saved 2000000" in note
    assert "max.message.bytes" not in topics.topics["large"][1]


def test_settings_before_are_kept_until_a_restore_has_finished(tmp_path: Path) -> None:
    settings_before = SettingsBefore(open_storage(str(tmp_path)), "c1")
    own = {"retention.ms": "5", "segment.ms": "7"}
    assert settings_before.record(TopicState("t", "e1", 1, 1, own)) == own
    suspended = TopicState("t", "e1", 1, 1, {**own, **SUSPENDED})
    assert settings_before.record(suspended) == own
    assert SettingsBefore(open_storage(str(tmp_path)), "c1").record(suspended) == own
    # The restore was killed after it had put back all but retention and cleanup.
    half = {name: SUSPENDED[name] for name in ("retention.ms", "retention.bytes", "cleanup.policy")}
    assert settings_before.record(replace(suspended, settings=half)) == own
    # Unknown: a topic that a restore made, another topic of that name, and one of another cluster.
    assert settings_before.record(replace(suspended, epoch="e2")) is None
    assert SettingsBefore(open_storage(str(tmp_path)), "c2").record(suspended) is None
    settings_before.forget(suspended)
    assert settings_before.record(suspended) is None
    # A setting made by hand since then counts.
    assert settings_before.record(TopicState("t", "e1", 1, 1, {"retention.ms": "6"})) == {"retention.ms": "6"}
