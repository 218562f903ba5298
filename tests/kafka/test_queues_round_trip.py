"""An engine through fulls, differentials and restores, each of which it continues, and queries about them.

From whatever is restored, the engine must compute, at each tid, the state that its writers produced.
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
from tests.support.graph_writers import Files, Op, Queues, Writers, kept_ops, open_at, state_at

from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def drill_and_check(lab: GraphLab, graph: Graph, ops: Sequence[Op], tid: int, **changes: Any) -> None:
    """Restore beside the engine, to a tid among the changes or to the newest backup, and check the state."""
    folder, queues = lab.drill(graph.queues, **changes)
    lab.taken_up(folder, queues, ops, tid).engine.close()


@pytest.mark.long
def test_a_backup_holds_ddl_after_the_last_message(graph_lab: GraphLab) -> None:
    graph = graph_lab.begin()
    graph.writers.write("v:1", {"name": "a", "age": 1})
    graph_lab.full(graph)
    graph.writers.write("v:2", {"name": "b", "age": 2})
    graph.writers.change_schema(("age", "name"))
    graph_lab.backup(graph, "incremental")
    folder, queues = graph_lab.drill(graph.queues)
    assert (folder / "delta_schema_history.yaml").read_bytes() == graph.files.schema.read_bytes()
    assert (folder / "config.yaml").read_bytes() == graph.files.config.read_bytes()
    restored = graph_lab.taken_up(folder, queues, graph.writers.ops, graph.writers.tid)
    restored.writers.write("v:3", {"name": "c", "age": 3})
    restored.writers.flush()
    restored.check()


@pytest.mark.long
def test_a_chain_continues_in_queues_that_were_lost_and_restored(graph_lab: GraphLab) -> None:
    graph = graph_lab.begin()
    graph.writers.write("n:1", 1)
    graph_lab.full(graph)
    graph.writers.write("n:1", 10)
    first_backup = graph_lab.backup(graph, "incremental")
    ops = list(graph.writers.ops)
    graph.queues.delete()
    folder = graph_lab.new_folder()
    graph_lab.restore(folder)
    restored = graph_lab.taken_up(folder, graph.queues, ops, 2)
    restored.writers.write("n:1", 100)
    second_backup = graph_lab.backup(restored, "incremental")
    assert (second_backup["parent"], second_backup["entries"]) == (first_backup["backup_id"], 1)
    drill_and_check(graph_lab, restored, restored.writers.ops, 3)


def test_a_backup_holds_a_schema_that_changes_while_it_begins(graph_lab: GraphLab) -> None:
    """The backup holds the schema of every message that it reads."""
    graph = graph_lab.begin()
    graph.writers.write("v:1", {"name": "a", "age": 1})
    graph_lab.full(graph)
    positions = Cluster.positions

    def positions_after_change(cluster: Cluster, topics: Any, isolation: str) -> Any:
        if graph.writers.tid > 1:
            return positions(cluster, topics, isolation)
        graph.writers.change_schema(("age", "city", "name"))
        graph.writers.write("v:2", {"name": "b", "city": "c", "age": 2})
        graph.writers.flush()
        return positions(cluster, topics, isolation)

    with mock.patch.object(Cluster, "positions", positions_after_change):
        backup = graph_lab.backup(graph, "incremental")
    assert backup["last_tid"] == graph.writers.tid == 3
    drill_and_check(graph_lab, graph, graph.writers.ops, 3)


def test_writers_may_write_while_a_backup_reads_the_ends_of_queues(graph_lab: GraphLab) -> None:
    """A write may arrive after the end of its queue was read, and yet belong to a commit elsewhere."""
    graph = graph_lab.begin()
    graph_lab.full(graph)
    txn = graph.writers.begin()
    keys = {graph.queues.partition_of(key): key for key in ("n:1", "n:2", "n:3", "n:4", "id:1")}
    positions, calls = Cluster.positions, []

    def positions_with_late_write(cluster: Cluster, topics: Any, isolation: str) -> Any:
        instant, regions = positions(cluster, topics, isolation)
        calls.append(instant)
        if len(calls) > 1:
            return instant, regions
        for key in keys.values():
            graph.writers.write(key, 1, txn)
        graph.writers.end(txn, "commit")
        graph.writers.write("n:5", 5)
        graph.writers.flush()
        commit_partition = graph.queues.partition_of(list(keys.values())[-1])  # the partition of the commit
        late_regions = positions(cluster, topics, isolation)[1]
        late_regions_by_partition = {(r.scope, int(r.region)): r for r in late_regions}
        return instant, [
            late_regions_by_partition[commit_partition] if (r.scope, int(r.region)) == commit_partition else r
            for r in regions
        ]

    with mock.patch.object(Cluster, "positions", positions_with_late_write):
        backup = graph_lab.backup(graph, "incremental")
    assert len(calls) > 1
    drill_and_check(graph_lab, graph, graph.writers.ops, backup["last_tid"])
    assert backup["last_tid"] >= max(op.tid for op in graph.writers.ops if op.kind == "commit")


def test_restored_transactions_can_be_kept_open(graph_lab: GraphLab) -> None:
    graph = graph_lab.begin()
    first_txn = graph.writers.begin()
    graph.writers.write("n:1", 1, first_txn)
    graph_lab.full(graph)
    graph.writers.write("n:1", 2, first_txn)
    second_txn = graph.writers.begin()
    graph.writers.write("n:2", 4, second_txn)
    graph_lab.backup(graph, "differential")
    ops, tid = graph.writers.ops, graph.writers.tid
    folder, queues = graph_lab.drill(graph.queues, keep_open=True)
    graph = graph_lab.taken_up(folder, queues, ops, tid, keep_open=True)
    graph.writers.end(first_txn, "commit", everywhere=True)
    graph_lab.backup(graph, "incremental")
    graph.writers.end(second_txn, "commit")
    graph_lab.backup(graph, "incremental")
    drill_and_check(graph_lab, graph, graph.writers.ops, graph.writers.tid)
    assert graph.engine.run() == {"n:1": 3, "n:2": 4}


@pytest.fixture
def writers(broker: Broker, tmp_path: Path) -> Iterator[Writers]:
    suffix = uuid4().hex[:8]
    queues = Queues(broker.bootstrap, {f"delta.{suffix}": 3}, {f"journal.{suffix}": 1})
    queues.create()
    files = Files(tmp_path / "files")
    files.begin()
    yield Writers(queues, files)
    queues.delete()


def test_an_open_transaction_shows_only_after_its_commit() -> None:
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
    assert [op.tid for op in kept_ops(ops, 6)] == [1, 2, 3, 4, 6]
    assert [op.tid for op in kept_ops(ops, 6, keep_open=True)] == [1, 2, 3, 4, 5, 6]


def test_the_engine_refuses_repeated_messages(writers: Writers, tmp_path: Path) -> None:
    writers.write("v:1", 1)
    writers.flush()
    topic, partition = writers.queues.partition_of("v:1")
    producer = Producer({"bootstrap.servers": writers.queues.bootstrap})
    producer.produce(topic, b"1", b"v:1", partition, headers=[("tid", b"1")])
    assert producer.flush(30) == 0
    engine = Engine(writers.queues, tmp_path / "db", writers.files)
    with pytest.raises(AssertionError, match="behind 1"):
        engine.run()
    engine.close()


PAGE = Path(__file__).parents[2] / "docs" / "questions.md"


def answer(lab: GraphLab, question: str, tid: int) -> list[dict[str, Any]]:
    """Run the query of a documented question, given by its first words, with a tid of this history."""
    page = PAGE.read_text(encoding="utf-8").split("\n## Of engines with queues\n")[1]
    [sql] = re.findall(rf"\*\*{question}[^`]*```sql\n(.*?)```", page, re.DOTALL)
    return lab.rows(sql.replace("1500", str(tid)))


@pytest.mark.long
def test_the_documented_questions_about_engines(graph_lab: GraphLab) -> None:
    lab = graph_lab
    graph = lab.begin()
    writers = graph.writers
    writers.write("v:1", {"name": "a", "age": 1})
    long_txn = writers.begin()
    writers.write("v:2", {"name": "b", "age": 2}, long_txn)
    full = lab.full(graph)
    short_txn = writers.begin()
    writers.write("id:1", 7, short_txn)
    first_backup = lab.backup(graph, "differential")
    writers.end(short_txn, "commit")
    writers.change_schema(("name", "city"))
    changed_tid = writers.tid
    writers.write("v:3", {"name": "c", "city": "x"})
    second_backup = lab.backup(graph, "incremental")
    writers.end(long_txn, "rollback")
    third_backup = lab.backup(graph, "differential")

    tid = int(first_backup["last_tid"]) + 1
    assert [(row["backup_id"], row["from_tid"]) for row in answer(lab, "Which backups", tid)] == [
        (backup["backup_id"], full["last_tid"]) for backup in (second_backup, third_backup)
    ]
    assert [row["full_number"] for row in answer(lab, "Which backups", int(full["last_tid"]))] == [1] * 4
    assert answer(lab, "Which backups", writers.tid + 1) == []

    open_rows = answer(lab, "Which transactions", tid)
    assert [(row["number"], row["transaction_id"]) for row in open_rows] == [
        (1, long_txn), (2, long_txn), (2, short_txn), (3, long_txn)
    ]  # fmt: skip
    assert {row["messages"] for row in open_rows} == {2}
    assert [row["since_tid"] for row in open_rows if row["transaction_id"] == long_txn] == [2, 2, 2]

    for query_tid, version in ((changed_tid - 1, 1), (changed_tid, 2), (changed_tid + 100, 2)):
        [row] = answer(lab, "Which schema", query_tid)
        assert row["version"] == version, query_tid
    assert "city" in row["change"]

    sizes = answer(lab, "How large", tid)
    # The full has no messages. The first differential carries two, the last one has all since the full.
    assert [row["messages"] for row in sizes] == [None, 4, 2, 7]
    assert [row["carried"] for row in sizes] == [0, 2, 0, 2]
    assert all(row["bytes"] > 0 for row in sizes[1:])

    needed = {
        (row["scope"], int(row["region"])): row["needed_from"] for row in answer(lab, "From which", tid)
    }
    assert needed.keys() == set(graph.queues.partitions)
    ends = {partition: graph.engine.position[partition] for partition in needed}
    late_partitions = {partition for partition in needed if needed[partition] < ends[partition]}
    assert late_partitions == {graph.queues.partition_of(f"v:{long_txn}"), graph.queues.partition_of("v:2")}

    assert answer(lab, "When was", tid) == []
    lab.restore(lab.new_folder(), to_tid=full["last_tid"], append=True)
    [row] = answer(lab, "When was", tid)
    assert (row["backup_id"], row["left_number"]) == (full["backup_id"], None)
    next_backup = lab.backup(graph, "differential")
    assert next_backup["parent"] == full["backup_id"]
    replaced_rows = answer(lab, "When was", tid)
    assert [row["left_backup_id"] for row in replaced_rows] == [
        old_backup["backup_id"] for old_backup in (first_backup, second_backup, third_backup)
    ]
