"""The task of a backup whose topic is not the planned one any more."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from lakebackup.errors import EnvironmentProblem, NotFound
from lakebackup.plan.topics.backup import Split
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.admin import cluster
from lakebackup_jobs.topics.tasks.copy import CopyJob

EPOCH, ANOTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2


def topic_id(epoch: str) -> Any:
    number = UUID(epoch).int
    return SimpleNamespace(
        get_most_significant_bits=lambda: number >> 64, get_least_significant_bits=lambda: number % (1 << 64)
    )


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The ids of the topics that exist, as a broker describes them."""
    epochs_by_topic: dict[str, str] = {}

    class Admin:
        def __init__(self, _config: object) -> None: ...

        def describe_topics(self, names: Any) -> dict[str, Future[Any]]:
            return {name: Future() for name in names._names}

    def answer(_self: object, _future: object, doing: str) -> Any:
        name = doing.partition("(")[2].rstrip(")")
        if name not in epochs_by_topic:
            raise NotFound("no such topic")
        return SimpleNamespace(topic_id=topic_id(epochs_by_topic[name]))

    monkeypatch.setattr(cluster, "AdminClient", Admin)
    monkeypatch.setattr(cluster, "TopicCollection", lambda names: SimpleNamespace(_names=names))
    monkeypatch.setattr(cluster.Cluster, "_wait", answer)
    monkeypatch.setattr("lakebackup_jobs.topics.tasks.copy.copy_range", lambda *_args, **_kwargs: iter(()))
    return epochs_by_topic


def test_a_topic_that_was_recreated_while_it_was_read_is_not_taken_for_the_planned_one(
    tmp_path: Path, topics: dict[str, str]
) -> None:
    """Its offsets start at 0 again, and the backup of the old topic got records of the new one."""
    job = CopyJob(
        uri=str(tmp_path),
        destination="d",
        source="lab",
        backup_id="20260101T000000Z-00000001",
        number=1,
        client={},
        isolation="read_committed",
        codec="null",
        compression_level=None,
        target_bytes=1,
        sequences={},
        tasks=((Split("orders", EPOCH, "0", 0, 10, 0), Split("gone", EPOCH, "0", 0, 10, 0)),),
        rolls={},
        report=False,
    )
    storage = open_storage(str(tmp_path))
    topics["orders"] = EPOCH
    assert job.write(storage, 0) == []  # the topic that is gone now existed until it was read
    topics["orders"] = ANOTHER
    with pytest.raises(EnvironmentProblem, match="orders was deleted and recreated while") as problem:
        job.write(storage, 0)
    assert "Run it again" in problem.value.hint
