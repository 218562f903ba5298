"""An engine through a full, differentials, a change of its schema, and restores, each of which is lived on.

Whatever is restored, the engine makes of it at every tid what its writers had done by then.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from confluent_kafka import Producer
from tests.support.graph_story import some_writes
from tests.support.graph_writers import Op, headers_of, state_at

from lakebackup.errors import Refused
from lakebackup_jobs.kafka.admin.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.graph_lab import Graph, GraphLab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def borders(ops: Sequence[Op], first: int) -> list[int]:
    """The tids at which transactions end and schemas change, with those beside them."""
    at = [op.tid for op in ops if op.kind in ("commit", "rollback", "schema")]
    found = {tid + step for tid in at for step in (-1, 0, 1)}
    return sorted(tid for tid in found if first <= tid <= ops[-1].tid)


def told(ops: Sequence[Op]) -> int:
    """The greatest tid that a message has."""
    return max(op.tid for op in ops if op.kind != "schema")


def drilled(lab: GraphLab, graph: Graph, ops: Sequence[Op], tid: int, **changes: Any) -> None:
    """Restored beside the engine, to a tid or (without one among the changes) to the newest backup."""
    folder, queues = lab.drill(graph.queues, **changes)
    lab.taken_up(folder, queues, ops, tid).engine.close()


def some_life(graph: Graph, dice: random.Random, count: int, *, schemas: bool = False) -> None:
    some_writes(graph.writers, dice, count, schemas=schemas)
    graph.check()


@pytest.mark.long
@pytest.mark.parametrize("every", [False, True])
def test_the_story(graph_lab: GraphLab, every: bool) -> None:
    dice = random.Random(7)
    first = graph_lab.begin()
    some_writes(first.writers, dice, 50)
    a = graph_lab.full(first, until=40)
    assert (a["kind"], a["last_tid"]) == ("full", 40)
    assert first.engine.open

    some_life(first, dice, 40)
    b = graph_lab.backup(first, "differential")
    assert (b["kind"], b["parent"]) == ("cumulative", a["backup_id"])
    assert b["carried"] > 0

    first.writers.change_schema(("city", "name", "age"))
    some_life(first, dice, 40, schemas=True)
    c = graph_lab.backup(first, "differential")
    assert (c["kind"], c["parent"]) == ("cumulative", a["backup_id"])
    ops = list(first.writers.ops)
    drilled(graph_lab, first, ops, told(ops))
    tids = borders(ops, 40)
    for tid in tids if every else dice.sample(tids, 5):
        drilled(graph_lab, first, ops, tid, to_tid=tid)
    some = {38, 39, 40, told(ops), told(ops) + 1, *dice.sample(range(41, told(ops)), 4)}
    for tid in range(38, told(ops) + 2) if every else sorted(some):
        if 40 <= tid <= told(ops):
            plan = graph_lab.restore(graph_lab.folder / "not", to_tid=tid, append=True, dry_run=True)
            assert plan["to_tid"] == tid
        else:
            with pytest.raises(Refused, match=f"tid {tid} "):
                graph_lab.restore(graph_lab.folder / "not", to_tid=tid, append=True, dry_run=True)
    assert not (graph_lab.folder / "not").exists()

    # Put back to the middle, behind what is in its own queues, and lived on: the tids behind come again.
    middle = next(op.tid for op in ops if op.tid > b["last_tid"] - 10 and op.kind == "commit") - 1
    second_folder = graph_lab.new_folder()
    graph_lab.restore(second_folder, append=True, to_tid=middle)
    second = graph_lab.taken_up(second_folder, first.queues, ops, middle)
    some_life(second, dice, 30, schemas=True)
    d = graph_lab.backup(second, "differential")
    assert (d["kind"], d["parent"]) == ("cumulative", a["backup_id"])
    ops = list(second.writers.ops)
    assert ops[-1].tid < first.writers.tid
    drilled(graph_lab, second, ops, told(ops))
    for tid in dice.sample(borders(ops, 40), 3):
        drilled(graph_lab, second, ops, tid, to_tid=tid)
    # What came before that is there by its name alone.
    drilled(graph_lab, first, first.writers.ops, told(first.writers.ops), backup=c["backup_id"])
    with pytest.raises(Refused, match=c["backup_id"]):
        graph_lab.restore(graph_lab.folder / "not", to_tid=told(first.writers.ops), append=True)

    # Lost with its queues, restored to the end, and lived on.
    second.queues.delete()
    third_folder = graph_lab.new_folder()
    graph_lab.restore(third_folder)
    third = graph_lab.taken_up(third_folder, second.queues, ops, told(ops))
    some_life(third, dice, 30, schemas=True)
    e = graph_lab.backup(third, "incremental")
    assert e["parent"] in (a["backup_id"], d["backup_id"])
    some_life(third, dice, 30)
    f = graph_lab.backup(third, "incremental")
    assert (f["kind"], f["parent"]) == ("differential", e["backup_id"])
    ops = list(third.writers.ops)
    drilled(graph_lab, third, ops, told(ops))
    drilled(graph_lab, third, ops, e["last_tid"], backup=e["backup_id"])
    third.check()
    assert state_at(first.writers.ops) != third.engine.state()


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


@pytest.mark.long
def test_kafkas_own_transactions(graph_lab: GraphLab) -> None:
    """What was aborted is never seen, whatever tids it has; what is not decided is for the next backup."""
    graph = graph_lab.begin()
    topic, partition = graph.queues.place("v:1")
    graph.writers.write("v:1", {"name": "a", "age": 1})
    graph_lab.full(graph)
    producer = Producer({"bootstrap.servers": graph_lab.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for kept in (False, True):
        producer.begin_transaction()
        op = Op(graph.writers.tid + 1, "write", None, "v:1", 5)
        producer.produce(topic, b"5", b"v:1", partition, headers=headers_of(op))
        assert producer.flush(30) == 0
        before = graph_lab.backup(graph, "incremental")
        assert before["entries"] == 0
        (producer.commit_transaction if kept else producer.abort_transaction)(30)
        if kept:
            graph.writers.tid += 1
            graph.writers.ops.append(op)
    graph_lab.settled(graph)
    assert graph_lab.backup(graph, "incremental")["entries"] == 1
    drilled(graph_lab, graph, graph.writers.ops, graph.writers.tid)
    graph.check()


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
