"""An engine through fulls, differentials and restores, each of which is continued, and questions about it.

Whatever is restored, the engine makes of it at every tid what its writers had done by then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from tests.support.graph_engine import Engine
from tests.support.graph_lab import Graph, GraphLab
from tests.support.graph_writers import Files, Op, Queues, Writers, kept, open_at, state_at

from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.cluster import Cluster

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


@pytest.mark.long
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


@pytest.fixture
def writers(broker: Broker, tmp_path: Path) -> Iterator[Writers]:
    mark = uuid4().hex[:8]
    queues = Queues(broker.bootstrap, {f"delta.{mark}": 3}, {f"journal.{mark}": 1})
    queues.create()
    files = Files(tmp_path / "files")
    files.begin()
    yield Writers(queues, files)
    queues.delete()


def test_what_is_open_shows_only_when_it_is_done() -> None:
    ops = [
        Op(1, "write", None, "a", {"name": "x"}),
        Op(2, "begin", "t"),
        Op(3, "write", "t", "a", None),
        Op(4, "write", None, "n", 2),
        Op(5, "write", "u", "n", 40),
        Op(6, "commit", "t"),
        Op(7, "rollback", "u"),
    ]
    assert [state_at(ops, tid) for tid in (0, 3, 5, 6, 7)] == [
        {}, {"a": {"name": "x"}}, {"a": {"name": "x"}, "n": 2}, {"n": 2}, {"n": 2},
    ]  # fmt: skip
    assert (open_at(ops, 5), open_at(ops, 6), open_at(ops, 7)) == ({"t", "u"}, {"u"}, set())
    assert [op.tid for op in kept(ops, 6)] == [1, 2, 3, 4, 6]
    assert [op.tid for op in kept(ops, 6, keep_open=True)] == [1, 2, 3, 4, 5, 6]


def test_it_takes_nothing_twice_nor_in_another_order(writers: Writers, tmp_path: Path) -> None:
    writers.write("v:1", 1)
    writers.flush()
    topic, partition = writers.queues.place("v:1")
    producer = Producer({"bootstrap.servers": writers.queues.bootstrap})
    producer.produce(topic, b"1", b"v:1", partition, headers=[("tid", b"1")])
    assert producer.flush(30) == 0
    engine = Engine(writers.queues, tmp_path / "db", writers.files)
    with pytest.raises(AssertionError, match="behind 1"):
        engine.run()
    engine.close()


PAGE = Path(__file__).parents[2] / "docs" / "questions.md"


def asked(lab: GraphLab, begins: str, tid: int) -> list[dict[str, Any]]:
    """The answer to the question that begins so, with a tid of this history."""
    page = PAGE.read_text(encoding="utf-8").split("\n## Of engines with queues\n")[1]
    [sql] = re.findall(rf"\*\*{begins}[^`]*```sql\n(.*?)```", page, re.DOTALL)
    return lab.rows(sql.replace("1500", str(tid)))


@pytest.mark.long
def test_questions(graph_lab: GraphLab) -> None:
    lab = graph_lab
    graph = lab.begin()
    writers = graph.writers
    writers.write("v:1", {"name": "a", "age": 1})
    long = writers.begin()
    writers.write("v:2", {"name": "b", "age": 2}, long)
    full = lab.full(graph)
    short = writers.begin()
    writers.write("id:1", 7, short)
    first = lab.backup(graph, "differential")
    writers.end(short, "commit")
    writers.change_schema(("name", "city"))
    changed = writers.tid
    writers.write("v:3", {"name": "c", "city": "x"})
    second = lab.backup(graph, "incremental")
    writers.end(long, "rollback")
    third = lab.backup(graph, "differential")

    tid = int(first["last_tid"]) + 1
    assert [(row["backup_id"], row["from_tid"]) for row in asked(lab, "Which backups", tid)] == [
        (found["backup_id"], full["last_tid"]) for found in (second, third)
    ]
    assert [row["full_number"] for row in asked(lab, "Which backups", int(full["last_tid"]))] == [1] * 4
    assert asked(lab, "Which backups", writers.tid + 1) == []

    opened = asked(lab, "Which transactions", tid)
    assert [(row["number"], row["transaction_id"]) for row in opened] == [
        (1, long), (2, long), (2, short), (3, long)
    ]  # fmt: skip
    assert {row["messages"] for row in opened} == {2}
    assert [row["since_tid"] for row in opened if row["transaction_id"] == long] == [2, 2, 2]

    for at, version in ((changed - 1, 1), (changed, 2), (changed + 100, 2)):
        [row] = asked(lab, "Which schema", at)
        assert row["version"] == version, at
    assert "city" in row["change"]

    sizes = asked(lab, "How large", tid)
    # The full has none; the first differential the two in front; the last one all since the full.
    assert [row["messages"] for row in sizes] == [None, 4, 2, 7]
    assert [row["carried"] for row in sizes] == [0, 2, 0, 2]
    assert all(row["bytes"] > 0 for row in sizes[1:])

    needed = {(row["scope"], int(row["region"])): row["needed_from"] for row in asked(lab, "From which", tid)}
    assert needed.keys() == set(graph.queues.places)
    ends = {place: graph.engine.position[place] for place in needed}
    late = {place for place in needed if needed[place] < ends[place]}
    assert late == {graph.queues.place(f"v:{long}"), graph.queues.place("v:2")}

    assert asked(lab, "When was", tid) == []
    lab.restore(lab.new_folder(), to_tid=full["last_tid"], append=True)
    [row] = asked(lab, "When was", tid)
    assert (row["backup_id"], row["left_number"]) == (full["backup_id"], None)
    later = lab.backup(graph, "differential")
    assert later["parent"] == full["backup_id"]
    left = asked(lab, "When was", tid)
    assert [row["left_backup_id"] for row in left] == [one["backup_id"] for one in (first, second, third)]
