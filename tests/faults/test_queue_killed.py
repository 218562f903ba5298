"""Backups and restores of an engine's queues that are killed; the next run completes them.

Restores that are killed before each step are in tests/contract/test_restore_life.py. Backups that are
interrupted within this process are in tests/kafka/test_backup_queue_resumed.py.
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

import pytest
from tests.support import kafka_truth as truth
from tests.support.chosen import mark_long
from tests.support.faults import Killed, expire_leases, watched
from tests.support.graph_lab import Graph, GraphLab
from tests.support.graph_story import some_writes

from lakebackup.storage import open_storage
from lakebackup_jobs.demo.broker import Broker

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@dataclass(frozen=True)
class BackedUpEngine:
    """An engine with a full and a differential; it has written since, and has a snapshot of its present
    state."""

    lab: GraphLab
    graph: Graph
    snapshot: str
    tid: int

    def copied(self, folder: Path) -> GraphLab:
        """A copy with its own destination."""
        copy_lab = GraphLab(folder, self.lab.bootstrap, self.lab.empty_catalog)
        shutil.rmtree(copy_lab.repo)
        shutil.copytree(self.lab.repo, copy_lab.repo)
        return copy_lab


@pytest.fixture(scope="module")
def engine(
    broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BackedUpEngine]:
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
    yield BackedUpEngine(
        lab, graph, str(snapshot), max(op.tid for op in graph.writers.ops if op.kind != "schema")
    )
    lab.close()


def writes(graph: Graph, seed: int) -> None:
    some_writes(graph.writers, Random(seed), 30)


def backup_rows(lab: GraphLab) -> list[dict[str, Any]]:
    return lab.rows(
        "SELECT b.backup_id, b.entries, b.kind, p.last_tid FROM backups AS b "
        "JOIN queue_points AS p ON b.backup_id = p.backup_id ORDER BY b.number"
    )


def assert_complete(lab: GraphLab, engine: BackedUpEngine) -> None:
    """Check that the newest backup restores what was written, and that no other object exists."""
    folder, queues = lab.drill(engine.graph.queues)
    lab.taken_up(folder, queues, engine.graph.writers.ops, engine.tid)
    catalog_paths = {row["path"] for row in lab.rows("SELECT path FROM files")}
    stored_paths = {blob.path for blob in open_storage(str(lab.repo)).list("social/")}
    object_paths = {path for path in stored_paths if path.endswith((".data", ".yaml", ".parquet"))}
    assert object_paths == {path for path in catalog_paths if path.startswith("social/")}
    assert not list(lab.repo.glob("social/begun.json"))
    assert not list(lab.repo.glob("social/backups/*/seen/*"))


def changes(engine: BackedUpEngine, mode: str) -> dict[str, Any]:
    return {"mode": mode, **({"snapshot": engine.snapshot} if mode == "full" else {})}


@pytest.mark.long
@pytest.mark.parametrize("mode", ["differential", "incremental", "full"])
def test_a_backup_killed_before_any_step_is_completed(
    mode: str, engine: BackedUpEngine, tmp_path: Path
) -> None:
    lab = engine.copied(tmp_path / "all")
    with watched(tmp_path / "steps") as steps:
        expected = lab.backup(engine.graph, **changes(engine, mode))
    rows_before, rows_after = backup_rows(engine.lab), backup_rows(lab)
    assert {"put begun.json", "put manifest.json", "commit backups", "put complete"} <= set(steps.names())
    for number, name in enumerate(steps.names(), 1):
        lab = engine.copied(tmp_path / str(number))
        with watched(tmp_path / f"steps-{number}", kill_at=number) as killed, suppress(Killed):
            lab.backup(engine.graph, **changes(engine, mode))
        assert killed.dead, name
        commits = [killed.names()[:-1].count("commit backups"), steps.names().count("commit backups")]
        published = commits[0] == commits[1]
        assert [row["backup_id"] for row in backup_rows(lab)[: len(rows_before)]] == [
            r["backup_id"] for r in rows_before
        ]
        assert len(backup_rows(lab)) == len(rows_before) + published, name
        expire_leases(lab.repo)
        result = lab.backup(engine.graph, **changes(engine, mode))
        assert result["last_tid"] == expected["last_tid"], name
        backup, *later_backups = backup_rows(lab)[len(rows_before) :]
        assert backup == {**rows_after[-1], "backup_id": backup["backup_id"]}, name
        # After an interrupted backup comes one of the changes since, here of none. If the killed run had
        # completed, there is a second backup: of nothing, or of everything since the full once more.
        interrupted = mode != "full" and "put begun.json" in killed.names()[:-1]
        repeated = [[backup["entries"] if mode == "differential" else 0]] if published else []
        assert [row["entries"] for row in later_backups] in [[0] if interrupted else [], *repeated], name
    assert_complete(lab, engine)
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
    """Restore in a new process, and kill it when it comes to a step."""
    arguments = json.dumps([request, str(steps), hold])
    child = subprocess.Popen([sys.executable, "-c", _CHILD, arguments], env=os.environ, cwd=ROOT)
    try:
        truth.until(lambda: (steps / "held").exists() or child.poll() is not None, f"it comes to {hold}", 120)
        assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


@pytest.mark.long
@pytest.mark.parametrize(
    "hold",
    mark_long(
        ["put queue.json", "commit transaction", "after transaction", "commit queue_restores"],
        ["commit transaction"],
    ),
)
def test_a_restore_killed_by_sigkill_is_completed(hold: str, engine: BackedUpEngine, tmp_path: Path) -> None:
    lab, graph = engine.copied(tmp_path / "lab"), engine.graph
    lab.backup(graph, "incremental")
    queues, folder = lab.queues(graph.queues), lab.new_folder()
    maps = dict(zip(graph.queues.topics, queues.topics, strict=True))
    request_fields = {n: v for n, v in asdict(lab.restore_request(folder, maps)).items() if n != "names"}
    killed_at(hold, request_fields, tmp_path / "steps")
    assert not lab.rows("SELECT * FROM queue_restores")
    expire_leases(lab.repo)
    lab.restore(folder, maps)
    lab.taken_up(folder, queues, graph.writers.ops, engine.tid)
    lab.close()
