"""How soon a cluster that does not answer is noticed; which committed offsets become rows of a backup."""

from __future__ import annotations

import socket
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError

from lakebackup.errors import EnvironmentProblem
from lakebackup.plan.partitions import TopicState
from lakebackup.plan.topics.groups import Committed, GroupState
from lakebackup.rows.topics import NO_TOPIC
from lakebackup_jobs.kafka.admin import cluster
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.admin.groups import Groups, GroupsRead, group_rows


def test_refused_connections_are_reported_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ALL_DOWN_S", 0.5)
    started = time.monotonic()
    with pytest.raises(EnvironmentProblem, match=r"No broker answers at 127\.0\.0\.1:1: .*refused"):
        Cluster({"bootstrap.servers": "127.0.0.1:1"}).topic_names()
    assert time.monotonic() - started < 5


def test_a_refusal_before_anybody_waits_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client says it once, and then not again before it has waited ten seconds to connect."""
    monkeypatch.setattr(cluster, "ALL_DOWN_S", 0.5)
    refused = Cluster({"bootstrap.servers": "127.0.0.1:1"})
    answer = refused._admin.describe_cluster(request_timeout=30)
    deadline = time.monotonic() + 30
    while not refused._events:
        assert time.monotonic() < deadline
        refused._admin.poll(0.1)
    started = time.monotonic()
    with pytest.raises(EnvironmentProblem, match="refused"):
        refused._wait(answer, "describe the cluster")
    assert time.monotonic() - started < 5


def test_a_client_that_was_idle_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections may be closed by now, which librdkafka's questions to coordinators do not survive."""
    idle = Cluster({"bootstrap.servers": "127.0.0.1:1"})
    client = idle._admin
    assert idle._admin is client
    monkeypatch.setattr(cluster, "IDLE_S", 0.0)
    assert idle._admin is not client


def test_a_silent_broker_has_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ALL_DOWN_S", 0.1)
    monkeypatch.setattr(cluster, "ADMIN_TIMEOUT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(EnvironmentProblem):
            Cluster({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"}).topic_names()
        assert time.monotonic() - started >= 1


def test_offsets_of_the_topics_of_a_backup_and_of_deleted_topics_become_rows() -> None:
    deleted = Committed("deleted", "0", 7)
    offsets = (Committed("orders", "1", 5, 2, "m"), Committed("not-in-it", "0", 6), deleted)
    state = GroupState("g", "consumer", "stable", 1, offsets)
    rows = group_rows(
        backup_id="b",
        source="prod",
        ts=9,
        read=GroupsRead((state, GroupState("idle", "classic", "empty", 0, ())), {}),
        topics=[TopicState("orders", "e1", 2, 1, {})],
        existing=["orders", "not-in-it"],
    )
    assert [(r.scope, r.epoch, r.region, r.position, r.leader_epoch, r.metadata) for r in rows] == [
        ("orders", "e1", "1", 5, 2, "m"),
        ("deleted", None, "0", 7, None, None),
    ]
    assert {(r.backup_id, r.source, r.group_id, r.protocol, r.state, r.ts) for r in rows} == {
        ("b", "prod", "g", "consumer", "stable", 9)
    }


def test_a_share_group_is_named_without_a_position() -> None:
    (row,) = group_rows(
        backup_id="b",
        source="prod",
        ts=9,
        read=GroupsRead((), {}, ("sg",)),
        topics=[TopicState("orders", "e1", 2, 1, {})],
        existing=["orders"],
    )
    assert (row.group_id, row.protocol, row.scope, row.region) == ("sg", "share", NO_TOPIC, "")


def test_a_group_with_members_or_on_its_way_is_active() -> None:
    states = {
        ("stable", 1): True,
        ("preparing_rebalancing", 0): True,
        ("empty", 0): False,
        ("dead", 0): False,
    }
    for (state, members), active in states.items():
        assert GroupState("g", "classic", state, members, ()).active is active


class StartingCoordinators:
    """An admin client whose coordinators refuse the first request for each of some groups."""

    def __init__(self, *starting: str) -> None:
        self.starting, self.requests = set(starting), []

    def alter_consumer_group_offsets(self, requests: list[ConsumerGroupTopicPartitions]) -> dict[str, Future]:
        [request] = requests
        self.requests.append(request.group_id)
        refused = request.group_id in self.starting
        self.starting.discard(request.group_id)
        error = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS) if refused else None
        future: Future = Future()
        future.set_result(SimpleNamespace(topic_partitions=[SimpleNamespace(error=error)]))
        return {request.group_id: future}


def test_offsets_are_committed_again_while_a_coordinator_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    client = StartingCoordinators("b")
    monkeypatch.setattr(Groups, "_admin", client)
    offset = Committed("orders", "0", 5, None, None)
    assert Groups({"bootstrap.servers": "127.0.0.1:1"}).alter({"a": [offset], "b": [offset]}) == set()
    assert client.requests == ["a", "b", "b"]
