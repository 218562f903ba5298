# In `make test`: an engine's snapshot and its queues are worth something only together.
"""A graph database applies the messages of its queues, so its snapshot alone is out of date.

A full backup has the snapshot, and an incremental the messages since. Both are restored side by side, and a
new engine on the restored folder and queues has the state that the old one has.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.command_line import Terminal
    from tests.support.graph_lab import GraphLab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_an_engine_is_restored_with_the_messages_of_its_queues(
    lakebackup: Terminal, graph_lab: GraphLab
) -> None:
    graph = graph_lab.begin()
    patterns = " ".join(f"--pattern {name}" for name in graph.queues.topics)
    files = f"--engine-config {graph.files.config} --engine-schema {graph.files.schema}"
    backup = f"backup queue social {patterns} {files}"
    graph.writers.write("v:anna", {"name": "Anna", "age": 30})
    graph.writers.flush()
    graph.engine.run()
    snapshot = graph.engine.snapshot(Path("engine"))
    lakebackup(f"{backup} --mode full --snapshot-folder {snapshot}")
    graph.writers.write("v:anna", {"name": "Anna", "age": 31})
    graph.writers.write("n:friends", 2)
    graph.writers.flush()
    lakebackup(f"{backup} --mode incremental")

    queues = graph_lab.queues(graph.queues)
    names = " ".join(
        f"--map {old}={new}" for old, new in zip(graph.queues.topics, queues.topics, strict=True)
    )
    lakebackup(f"restore queue social --to kafka://{graph_lab.bootstrap} --into restored {names}")

    state = graph_lab.opened(queues, Path("restored")).run()
    assert state == {"v:anna": {"name": "Anna", "age": 31}, "n:friends": 2}
    assert state == graph.engine.run()
