"""An engine through a full, differentials, a change of its schema, and restores, each of which is lived on.

Whatever is restored, the engine makes of it at every tid what its writers had done by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from lakebackup_jobs.kafka.admin.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.graph_lab import Graph, GraphLab
    from tests.support.graph_writers import Op

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def drilled(lab: GraphLab, graph: Graph, ops: Sequence[Op], tid: int, **changes: Any) -> None:
    """Restored beside the engine, to a tid or (without one among the changes) to the newest backup."""
    folder, queues = lab.drill(graph.queues, **changes)
    lab.taken_up(folder, queues, ops, tid).engine.close()


@pytest.mark.long
def test_ddl_behind_the_last_message_is_in_the_backup(graph_lab: GraphLab) -> None:
    graph = graph_lab.begin()
    graph.writers.write("v:1", {"name": "a", "age": 1})
    graph_lab.full(graph)
    graph.writers.write("v:2", {"name": "b", "age": 2})
    graph.writers.change_schema(("age", "name"))
    graph_lab.backup(graph, "incremental")
    folder, queues = graph_lab.drill(graph.queues)
    assert (folder / "delta_schema_history.yaml").read_bytes() == graph.files.schema.read_bytes()
    assert (folder / "config.yaml").read_bytes() == graph.files.config.read_bytes()
    taken = graph_lab.taken_up(folder, queues, graph.writers.ops, graph.writers.tid)
    taken.writers.write("v:3", {"name": "c", "age": 3})
    taken.writers.flush()
    taken.check()


def test_a_chain_goes_on_in_queues_that_were_lost_and_restored(graph_lab: GraphLab) -> None:
    graph = graph_lab.begin()
    graph.writers.write("n:1", 1)
    graph_lab.full(graph)
    graph.writers.write("n:1", 10)
    first = graph_lab.backup(graph, "incremental")
    ops = list(graph.writers.ops)
    graph.queues.delete()
    folder = graph_lab.new_folder()
    graph_lab.restore(folder)
    again = graph_lab.taken_up(folder, graph.queues, ops, 2)
    again.writers.write("n:1", 100)
    second = graph_lab.backup(again, "incremental")
    assert (second["parent"], second["entries"]) == (first["backup_id"], 1)
    drilled(graph_lab, again, again.writers.ops, 3)


def test_a_schema_changes_while_a_backup_begins(graph_lab: GraphLab) -> None:
    """Whatever was written up to where the queues are read, its schema is in the backup."""
    graph = graph_lab.begin()
    graph.writers.write("v:1", {"name": "a", "age": 1})
    graph_lab.full(graph)
    positions = Cluster.positions

    def late(cluster: Cluster, topics: Any, isolation: str) -> Any:
        if graph.writers.tid > 1:
            return positions(cluster, topics, isolation)
        graph.writers.change_schema(("age", "city", "name"))
        graph.writers.write("v:2", {"name": "b", "city": "c", "age": 2})
        graph.writers.flush()
        return positions(cluster, topics, isolation)

    with mock.patch.object(Cluster, "positions", late):
        made = graph_lab.backup(graph, "incremental")
    assert made["last_tid"] == graph.writers.tid == 3
    drilled(graph_lab, graph, graph.writers.ops, 3)


def test_writers_go_on_while_it_is_looked_where_the_queues_end(graph_lab: GraphLab) -> None:
    """A write that comes to its queue after the end was seen there may be before the commit that was seen."""
    graph = graph_lab.begin()
    graph_lab.full(graph)
    one = graph.writers.begin()
    keys = {graph.queues.place(key): key for key in ("n:1", "n:2", "n:3", "n:4", "id:1")}
    positions, calls = Cluster.positions, []

    def torn(cluster: Cluster, topics: Any, isolation: str) -> Any:
        instant, regions = positions(cluster, topics, isolation)
        calls.append(instant)
        if len(calls) > 1:
            return instant, regions
        for key in keys.values():
            graph.writers.write(key, 1, one)
        graph.writers.end(one, "commit")
        graph.writers.write("n:5", 5)
        graph.writers.flush()
        end = graph.queues.place(list(keys.values())[-1])  # where the commit is
        now = positions(cluster, topics, isolation)[1]
        seen = {(r.scope, int(r.region)): r for r in now}
        return instant, [seen[end] if (r.scope, int(r.region)) == end else r for r in regions]

    with mock.patch.object(Cluster, "positions", torn):
        made = graph_lab.backup(graph, "incremental")
    assert len(calls) > 1
    drilled(graph_lab, graph, graph.writers.ops, made["last_tid"])
    assert made["last_tid"] >= max(op.tid for op in graph.writers.ops if op.kind == "commit")


def test_transactions_that_are_kept_open(graph_lab: GraphLab) -> None:
    graph = graph_lab.begin()
    one = graph.writers.begin()
    graph.writers.write("n:1", 1, one)
    graph_lab.full(graph)
    graph.writers.write("n:1", 2, one)
    two = graph.writers.begin()
    graph.writers.write("n:2", 4, two)
    graph_lab.backup(graph, "differential")
    ops, tid = graph.writers.ops, graph.writers.tid
    folder, queues = graph_lab.drill(graph.queues, keep_open=True)
    graph = graph_lab.taken_up(folder, queues, ops, tid, keep_open=True)
    graph.writers.end(one, "commit", everywhere=True)
    graph_lab.backup(graph, "incremental")
    graph.writers.end(two, "commit")
    graph_lab.backup(graph, "incremental")
    drilled(graph_lab, graph, graph.writers.ops, graph.writers.tid)
    assert graph.engine.run() == {"n:1": 3, "n:2": 4}
