"""Changes of many topics in few requests. The cluster's answers are stand-ins; tests/kafka has real ones."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from lakebackup_jobs.kafka.admin import topic_changes
from lakebackup_jobs.kafka.admin.cluster import Denied
from lakebackup_jobs.kafka.admin.topic_changes import NewTopic, TopicChanges


class StandInAdmin:
    """Answers each request with the next error of each topic, and remembers the requests."""

    def __init__(self, **errors: Sequence[int]) -> None:
        self.errors = {name: list(codes) for name, codes in errors.items()}
        self.requests: list[list[str]] = []

    def poll(self, _: float) -> None:
        pass

    def create_topics(self, topics: Sequence[Any], *, validate_only: bool) -> dict[str, Future[None]]:
        assert not validate_only
        self.requests.append([topic.topic for topic in topics])
        return {topic.topic: self._answer(topic.topic) for topic in topics}

    def _answer(self, name: str) -> Future[None]:
        answer: Future[None] = Future()
        if codes := self.errors.get(name):
            answer.set_exception(KafkaException(KafkaError(codes.pop(0))))
        else:
            answer.set_result(None)
        return answer


class StandInChanges(TopicChanges):
    """A cluster that a stand-in answers for."""

    def __init__(self, admin: StandInAdmin) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1"})
        self._stand_in = admin

    @property
    def _admin(self) -> Any:
        return self._stand_in


def create(admin: StandInAdmin, names: Sequence[str], created: list[str]) -> list[str]:
    """Create topics; return the names of those that are refused."""
    return [*StandInChanges(admin).create_topics([NewTopic(name, 1, 1, {}) for name in names], created)]


def test_a_request_names_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_changes, "_REQUEST_TOPICS", 2)
    admin, created = StandInAdmin(b=[KafkaError.INVALID_CONFIG]), list[str]()
    assert create(admin, "abcde", created) == ["b"]
    assert created == [*"acde"]
    assert admin.requests == [["a", "b"], ["c", "d"], ["e"]]


def test_topics_over_a_quota_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    quota = KafkaError.THROTTLING_QUOTA_EXCEEDED
    admin, created = StandInAdmin(a=[quota], c=[quota, quota]), list[str]()
    assert create(admin, "abc", created) == []
    assert created == [*"bac"]
    assert admin.requests == [["a", "b", "c"], ["a", "c"], ["c"]]
    monkeypatch.setattr(topic_changes, "QUOTA_S", 0.0)
    assert create(StandInAdmin(a=[quota] * 9), "ab", created) == ["a"]


def test_all_topics_of_a_request_are_known_when_one_is_denied() -> None:
    admin, created = StandInAdmin(a=[KafkaError.TOPIC_AUTHORIZATION_FAILED]), list[str]()
    with pytest.raises(Denied):
        create(admin, "abc", created)
    assert created == [*"bc"]
