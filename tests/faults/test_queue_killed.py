"""Backups and restores of an engine's queues that are killed; the next run completes them.

One restore is killed outright; the long tests go through every step. Runs that are cut off within this
process are in tests/kafka: test_backup_queue_resumed.py and test_restore_queue.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from tests.support import kafka_truth as truth
from tests.support.chosen import chosen
from tests.support.faults import Killed, expire_leases, watched
from tests.support.graph_lab import Graph, GraphLab
from tests.support.graph_story import some_writes

from lakebackup.errors import Refused
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.queues.restore import replay_task

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@dataclass(frozen=True)
class Started:
    """An engine with a full and a differential; it has written since, and has a snapshot of that."""

    lab: GraphLab
    graph: Graph
    snapshot: str
    tid: int

    def copied(self, folder: Path) -> GraphLab:
        """The same with a destination of its own."""
        made = GraphLab(folder, self.lab.bootstrap, self.lab.empty_catalog)
        shutil.rmtree(made.place)
        shutil.copytree(self.lab.place, made.place)
        return made


@pytest.fixture(scope="module")
def started(
    broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    lab = GraphLab(tmp_path_factory.mktemp("engine"), broker.bootstrap, empty_catalog)
    graph = lab.begin()
    writes(graph, 1)
    lab.full(graph)
    writes(graph, 2)
    lab.backup(graph, "differential")
    writes(graph, 3)
    graph.engine.run()
    assert graph.engine.open
    snapshot = graph.engine.snapshot(lab.new_folder())
    yield Started(lab, graph, str(snapshot), max(op.tid for op in graph.writers.ops if op.kind != "schema"))
    lab.close()


def writes(graph: Graph, seed: int) -> None:
    some_writes(graph.writers, Random(seed), 30)


def taken(lab: GraphLab) -> list[dict[str, Any]]:
    return lab.rows(
        "SELECT b.backup_id, b.entries, b.kind, p.last_tid FROM backups AS b "
        "JOIN queue_points AS p ON b.backup_id = p.backup_id ORDER BY b.number"
    )


def whole(lab: GraphLab, started: Started) -> None:
    """What the newest backup brings back is what was written, and nothing else is there."""
    folder, queues = lab.drill(started.graph.queues)
    lab.taken_up(folder, queues, started.graph.writers.ops, started.tid)
    known = {row["path"] for row in lab.rows("SELECT path FROM files")}
    there = {found.path for found in open_storage(str(lab.place)).list("social/")}
    own = {path for path in there if path.endswith((".data", ".yaml", ".parquet"))}
    assert own == {path for path in known if path.startswith("social/")}
    assert not list(lab.place.glob("social/begun.json"))
    assert not list(lab.place.glob("social/backups/*/seen/*"))


def changes(started: Started, mode: str) -> dict[str, Any]:
    return {"mode": mode, **({"snapshot": started.snapshot} if mode == "full" else {})}


@pytest.mark.long
@pytest.mark.parametrize("mode", ["differential", "incremental", "full"])
def test_a_backup_killed_before_its_steps(mode: str, started: Started, tmp_path: Path) -> None:
    lab = started.copied(tmp_path / "all")
    with watched(tmp_path / "steps") as steps:
        wanted = lab.backup(started.graph, **changes(started, mode))
    before, after = taken(started.lab), taken(lab)
    assert {"put begun.json", "put manifest.json", "commit backups", "put complete"} <= set(steps.taken())
    for at, name in enumerate(steps.taken(), 1):
        lab = started.copied(tmp_path / str(at))
        with watched(tmp_path / f"steps-{at}", kill_at=at) as killed, suppress(Killed):
            lab.backup(started.graph, **changes(started, mode))
        assert killed.dead, name
        commits = [killed.taken()[:-1].count("commit backups"), steps.taken().count("commit backups")]
        there = commits[0] == commits[1]
        assert [row["backup_id"] for row in taken(lab)[: len(before)]] == [r["backup_id"] for r in before]
        assert len(taken(lab)) == len(before) + there, name
        expire_leases(lab.place)
        told = lab.backup(started.graph, **changes(started, mode))
        assert told["last_tid"] == wanted["last_tid"], name
        one, *others = taken(lab)[len(before) :]
        assert one == {**after[-1], "backup_id": one["backup_id"]}, name
        # Behind one that was cut off there is one of what came since: of nothing. When all was done already
        # there is another one, perhaps of all since the full once more.
        cut_off = mode != "full" and "put begun.json" in killed.taken()[:-1]
        again = [[one["entries"] if mode == "differential" else 0]] if there else []
        assert [row["entries"] for row in others] in [[0] if cut_off else [], *again], name
    whole(lab, started)
    lab.close()


@pytest.mark.long
def test_a_restore_killed_before_its_steps(started: Started, tmp_path: Path) -> None:
    graph, lab = started.graph, started.copied(tmp_path / "all")
    lab.backup(graph, "incremental")
    graph_tid, ops = started.tid, graph.writers.ops
    with mock.patch.object(replay_task, "TRANSACTION_BYTES", 1):  # each file a transaction of its own
        with watched(tmp_path / "steps") as steps:
            lab.drill(graph.queues)
        assert {"begin transaction", "after transaction", "create_topic"} <= set(steps.taken())
        for at, name in enumerate(steps.taken(), 1):
            queues, folder = lab.queues(graph.queues), lab.new_folder()
            maps = dict(zip(graph.queues.topics, queues.topics, strict=True))
            with watched(tmp_path / f"steps-{at}", kill_at=at) as killed, suppress(Killed):
                lab.restore(folder, maps)
            expire_leases(lab.place)
            done = lab.rows(f"SELECT * FROM queue_restores WHERE scope = '{next(iter(maps.values()))}'")
            try:
                assert lab.restore(folder, maps)["resumed"] or not done
            except Refused:  # it died when all was on record
                assert done, name
            assert killed.dead, name
            lab.taken_up(folder, queues, ops, graph_tid).engine.close()
            left = [path.name for path in folder.iterdir()]
            assert sorted(left) == ["config.yaml", "delta_schema_history.yaml", "snapshot"], name
            # The snapshot is read again: what was recorded of the one before is not used.
            noted = CatalogReader(str(lab.place)).rows("open_restores")
            assert all(json.loads(row["detail"])["digest"] == row["restore_id"] for row in noted), name
    lab.close()


_CHILD = """
import json, sys
from pathlib import Path
from tests.support.command_line import quiet
from tests.support.faults import watched
from lakebackup.plan.queues.restore import QueueRestoreRequest
from lakebackup_jobs.queues.restore import job
request, steps, hold = json.loads(sys.argv[1])
with watched(Path(steps), hold=hold):
    job.run(QueueRestoreRequest(**request), reporter=quiet(sys.stderr))
"""


def killed_at(hold: str, request: dict[str, Any], steps: Path) -> None:
    """Restore in a process of its own, and kill that when it comes to a step."""
    asked = json.dumps([request, str(steps), hold])
    child = subprocess.Popen([sys.executable, "-c", _CHILD, asked], env=os.environ, cwd=ROOT)
    try:
        truth.until(lambda: (steps / "held").exists() or child.poll() is not None, f"it comes to {hold}", 120)
        assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


@pytest.mark.long
@pytest.mark.parametrize(
    "hold",
    chosen(
        ["put queue.json", "commit transaction", "after transaction", "commit queue_restores"],
        ["commit transaction"],
    ),
)
def test_a_restore_is_killed_outright(hold: str, started: Started, tmp_path: Path) -> None:
    lab, graph = started.copied(tmp_path / "lab"), started.graph
    lab.backup(graph, "incremental")
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    maps = dict(zip(graph.queues.topics, queues.topics, strict=True))
    asked = {n: v for n, v in asdict(lab.wanted(folder, maps)).items() if n != "names"}
    killed_at(hold, asked, tmp_path / "steps")
    assert not lab.rows("SELECT * FROM queue_restores")
    expire_leases(lab.place)
    lab.restore(folder, maps)
    lab.taken_up(folder, queues, graph.writers.ops, started.tid)
    lab.close()
