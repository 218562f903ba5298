"""How soon a cluster that does not answer is told from one that is only slow."""

from __future__ import annotations

import socket
import time

import pytest

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.kafka.admin import cluster
from lakebackup_jobs.kafka.admin.cluster import Cluster


def test_refused_connections_are_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ALL_DOWN_S", 0.5)
    started = time.monotonic()
    with pytest.raises(EnvironmentProblem, match=r"No broker answers at 127\.0\.0\.1:1: .*refused"):
        Cluster({"bootstrap.servers": "127.0.0.1:1"}).topic_names()
    assert time.monotonic() - started < 5


def test_a_silent_broker_has_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ALL_DOWN_S", 0.1)
    monkeypatch.setattr(cluster, "ADMIN_TIMEOUT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(EnvironmentProblem):
            Cluster({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"}).topic_names()
        assert time.monotonic() - started >= 1
