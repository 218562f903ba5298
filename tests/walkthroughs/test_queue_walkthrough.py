"""The cases of the design of engines with queues: with dates, tids and parents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from tests.support.graph_lab import Graph, GraphLab
from tests.support.graph_writers import state_at

from lakebackup.errors import LakebackupError, Refused
from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup_jobs.kafka.admin.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


class Clock:
    """The clock of writers and backups."""

    def __init__(self, text: str) -> None:
        self.now_ms = ms(text)

    def __call__(self) -> int:
        return self.now_ms

    @contextmanager
    def backup_at(self, text: str) -> Iterator[None]:
        """A backup that is taken inside the block ends at that instant."""
        self.now_ms = ms(text)
        positions = Cluster.positions

        def dated(
            cluster: Cluster, topics: Iterable[TopicState], isolation: str
        ) -> tuple[int, list[RegionState]]:
            return self.now_ms, positions(cluster, topics, isolation)[1]

        with mock.patch.object(Cluster, "positions", dated):
            yield


def write_at(graph: Graph, clock: Clock, *times: str) -> None:
    """Write something at each of these times, in a new transaction or outside of transactions."""
    for number, text in enumerate(times):
        clock.now_ms = ms(text)
        name = graph.writers.begin() if number % 2 else None
        graph.writers.write(f"n:{number}", 1 + number, name)
        graph.writers.write("v:last", {"name": text, "age": number}, name)
        if name:
            graph.writers.end(name, "commit", everywhere=True)


def restored_state(lab: GraphLab, graph: Graph, **options: Any) -> dict[str, Any]:
    """The state of an engine that is restored beside this one."""
    folder, queues = lab.drill(graph.queues, **options)
    engine = lab.opened(queues, folder)
    try:
        return engine.run()
    finally:
        engine.close()


@pytest.mark.long
def test_a_full_an_incremental_and_a_full(graph_lab: GraphLab) -> None:
    """Between the incremental's end and the next full there is no instant to restore to."""
    clock, day = Clock("2024-06-13T06:00:00"), "2024-06-13T"
    graph = graph_lab.begin(clock)
    write_at(graph, clock, f"{day}06:10:00", f"{day}06:19:00")
    with clock.backup_at(f"{day}06:19:39"):
        first = graph_lab.full(graph)
    write_at(graph, clock, f"{day}06:25:00", f"{day}06:35:00", f"{day}06:35:00.001", f"{day}06:39:15")
    with clock.backup_at(f"{day}06:39:15"):
        second = graph_lab.backup(graph, "incremental")
    write_at(graph, clock, f"{day}06:50:00", f"{day}07:00:00", f"{day}08:00:00")
    with clock.backup_at(f"{day}08:19:39"):
        third = graph_lab.full(graph)
    assert [b["end_ts"] for b in (first, second, third)] == [
        ms(f"{day}06:19:39"), ms(f"{day}06:39:15"), ms(f"{day}08:19:39"),
    ]  # fmt: skip
    ops = graph.writers.ops

    def until(text: str) -> int:
        return max(op.tid for op in ops if op.ts <= ms(f"{day}{text}"))

    for text in ("06:19:39", "06:20:00", "06:35:00", "06:39:15", "08:19:39"):
        state = restored_state(graph_lab, graph, to_ts=ms(f"{day}{text}"))
        assert state == state_at(ops, until(text)), text
    assert until("06:35:00") < until("06:39:15")
    for text in ("06:19:38", "06:39:16", "07:00:00", "08:19:38", "08:19:40"):
        with pytest.raises(Refused) as refused:
            restored_state(graph_lab, graph, to_ts=ms(f"{day}{text}"))
        near = [near for near in ("06:19:39", "06:39:15", "08:19:39") if near in refused.value.message]
        expected_near = {"06:19:38": ["06:19:39"], "08:19:40": ["08:19:39"]}
        assert near == expected_near.get(text, ["06:39:15", "08:19:39"]), refused.value.message


@pytest.mark.long
def test_the_third_day_needs_the_first_and_the_second(graph_lab: GraphLab) -> None:
    clock = Clock("2024-01-01T00:00:00")
    graph = graph_lab.begin(clock)
    days = {}
    for day in (1, 2, 3, 4):
        write_at(graph, clock, *(f"2024-01-{day:02d}T{hour:02d}:00:00" for hour in (1, 2, 3, 4)))
        with clock.backup_at(f"2024-01-{day:02d}T12:00:00"):
            backup = graph_lab.full(graph) if day == 1 else graph_lab.backup(graph, "incremental")
        days[day] = backup["backup_id"], graph.writers.tid
    chain = graph_lab.rows("SELECT parent FROM backups WHERE source = 'social' ORDER BY number")
    assert [row["parent"] for row in chain] == [None, *(days[day][0] for day in (1, 2, 3))]
    expected = state_at(graph.writers.ops, days[3][1])
    third = {"to_ts": ms("2024-01-03T12:00:00")}
    assert restored_state(graph_lab, graph, backup=days[3][0]) == expected
    assert restored_state(graph_lab, graph, **third) == expected

    @contextmanager
    def without(day: int) -> Iterator[None]:
        """Move every object of messages, or of the snapshot, of a day away inside the block."""
        name = days[day][0]
        rows = graph_lab.rows(
            "SELECT f.path FROM files AS f "
            "JOIN queue_points AS p ON f.backup_id IN (p.backup_id, p.snapshot_id) "
            f"WHERE p.backup_id = '{name}' AND f.entries > 0"
        )
        paths = [graph_lab.repo / row["path"] for row in rows]
        assert paths
        for path in paths:
            path.rename(f"{path}.away")
        try:
            yield
        finally:
            for path in paths:
                path.with_name(f"{path.name}.away").rename(path)

    for day in (1, 2, 3):
        with without(day), pytest.raises(LakebackupError):
            restored_state(graph_lab, graph, **third)
    with without(4):
        assert restored_state(graph_lab, graph, backup=days[3][0]) == expected


@pytest.mark.long
def test_a_differential_after_a_restore_has_the_restored_backup_as_its_parent(graph_lab: GraphLab) -> None:
    """Full A, full B, A restored, a differential: its parent is A, and it can be restored in turn."""
    graph = graph_lab.begin()
    graph.writers.write("n:1", 1)
    a = graph_lab.full(graph)["backup_id"]
    graph.writers.write("n:1", 10)
    b = graph_lab.full(graph)["backup_id"]
    ops = list(graph.writers.ops)
    folder = graph_lab.new_folder()
    graph_lab.restore(folder, backup=a[:20], append=True)
    graph = graph_lab.taken_up(folder, graph.queues, ops, 1)
    assert graph.engine.watermark is not None
    marks = {name: graph.engine.watermark[name] for name in ("graph", "full", "backup", "last_tid", "to_tid")}
    assert marks == {"graph": "social", "full": a, "backup": a, "last_tid": 1, "to_tid": 1}
    graph.writers.write("n:1", 100)
    graph.writers.flush()
    assert graph.engine.run() == {"n:1": 101}
    c = graph_lab.backup(graph, "differential")
    assert c["parent"] == a
    assert restored_state(graph_lab, graph) == {"n:1": 101}
    assert restored_state(graph_lab, graph, backup=b) == {"n:1": 11}
    superseded = graph_lab.rows("SELECT backup_id FROM queue_points WHERE superseded")
    assert [row["backup_id"] for row in superseded] == [b]


@pytest.mark.long
def test_a_schema_changes_between_a_full_and_a_differential(graph_lab: GraphLab) -> None:
    """A full at tid 100, a change of the schema at tid 150, a differential at 200."""
    graph = graph_lab.begin()
    for number in range(99):
        graph.writers.write(f"v:{number % 7}", {"name": "a", "age": number})
    late = graph.writers.begin()
    assert graph.writers.tid == 100
    full = graph_lab.full(graph)
    for number in range(49):
        graph.writers.write(f"v:{number % 5}", {"name": "b", "age": number}, late if number % 3 else None)
    graph.writers.change_schema(("city", "age", "name"))
    for number in range(49):
        graph.writers.write(f"v:{number % 5}", {"name": "c", "age": number, "city": "x"})
    graph.writers.end(late, "commit")
    assert graph.writers.tid == 200
    differential = graph_lab.backup(graph, "differential")
    assert (full["last_tid"], differential["last_tid"], differential["carried"]) == (100, 200, 1)
    rows = graph_lab.rows(
        "SELECT number, version, from_tid, to_tid FROM queue_schemas ORDER BY number, version"
    )
    assert [tuple(row.values()) for row in rows] == [(1, 1, 0, None), (2, 1, 0, 150), (2, 2, 150, None)]
    for tid in (100, 149, 150, 151, 199, 200):
        folder, queues = graph_lab.drill(graph.queues, to_tid=tid)
        graph_lab.taken_up(folder, queues, graph.writers.ops, tid).engine.close()
        assert versions(folder) == ([1, 2] if tid >= 150 else [1])
    folder, queues = graph_lab.drill(graph.queues, backup=full["backup_id"])
    assert versions(folder) == [1]
    graph_lab.taken_up(folder, queues, graph.writers.ops, 100).engine.close()


def versions(folder: Path) -> list[int]:
    history = yaml.safe_load((folder / "delta_schema_history.yaml").read_text())
    return [schema["version"] for schema in history["schemas"]]
