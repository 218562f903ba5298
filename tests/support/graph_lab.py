"""Runs backups and restores of the tests' engine."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.support.graph_engine import Engine
from tests.support.graph_writers import (
    Files,
    Op,
    QueuePartition,
    Queues,
    State,
    Writers,
    kept_ops,
    open_at,
    state_at,
)
from tests.support.looks import select_rows
from tests.support.runs import now_ms

from lakebackup.plan.queues.restore import QueueRestoreRequest
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.queues.backup import job as backup_queue
from lakebackup_jobs.queues.backup.request import QueueRequest
from lakebackup_jobs.queues.restore import job as restore_queue

GRAPH = "social"


@dataclass
class Graph:
    """A running engine: its queues, their writers, and its files."""

    folder: Path
    queues: Queues
    writers: Writers
    engine: Engine

    @property
    def files(self) -> Files:
        return self.writers.files

    def check(self) -> None:
        """Check that the engine's state after each tid is the one that the writers' operations give."""
        for tid, state in self.engine.play():
            assert state == state_at(self.writers.ops, tid), tid
        assert self.engine.state() == state_at(self.writers.ops)


@dataclass
class GraphLab:
    """A destination and a broker. `folder` is the test's own; `close` deletes its topics on the broker."""

    folder: Path
    bootstrap: str
    empty_catalog: Path
    created_queues: list[Queues] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.repo = self.folder / "backups"
        shutil.copytree(self.empty_catalog, self.repo / "catalog")
        self.notes, self.warnings = io.StringIO(), io.StringIO()
        self.reporter = Reporter(self.notes, self.warnings)

    def close(self) -> None:
        for engine in self.engines:
            engine.close()
        for queues in self.created_queues:
            queues.delete()

    def queues(self, template: Queues | None = None) -> Queues:
        """Queues with new names of topics, and as many partitions as those of `template`."""
        mark = uuid4().hex[:8]
        delta, journal = (template.delta, template.journal) if template else ({"": 2}, {"": 1})
        new_queues = Queues(
            self.bootstrap,
            {f"delta.{mark}.{number}": count for number, count in enumerate(delta.values())},
            {f"journal.{mark}.{number}": count for number, count in enumerate(journal.values())},
        )
        self.created_queues.append(new_queues)
        return new_queues

    def new_folder(self) -> Path:
        return self.folder / uuid4().hex[:8]

    def begin(self, clock: Callable[[], int] = now_ms) -> Graph:
        """An empty engine, with its queues and writers."""
        queues, folder = self.queues(), self.new_folder()
        queues.create()
        files = Files(folder / "files")
        files.begin()
        writers = Writers(queues, files, clock=clock)
        return Graph(folder, queues, writers, self.opened(queues, folder / "db", files))

    def opened(self, queues: Queues, folder: Path, files: Files | None = None) -> Engine:
        """Open an engine. Without `files`, it is one that was restored into the folder."""
        engine = Engine(queues, folder if files else folder / "snapshot", files or Files(folder))
        self.engines.append(engine)
        return engine

    def request(self, graph: Graph, **changes: Any) -> QueueRequest:
        """The request of a backup of all queues of an engine."""
        return QueueRequest(
            **{
                "destination": str(self.repo),
                "source": GRAPH,
                "topics": tuple(graph.queues.topics),
                "config": str(graph.files.config),
                "schema": str(graph.files.schema),
                "kafka": {"bootstrap.servers": self.bootstrap},
                **changes,
            }
        )

    def backup(self, graph: Graph, mode: str = "auto", **changes: Any) -> dict[str, Any]:
        graph.writers.flush()
        request = self.request(graph, mode=mode, **changes)
        return backup_queue.run(request, spark=None, reporter=self.reporter)

    def full(
        self,
        graph: Graph,
        *,
        until: int | None = None,
        described: bool = True,
        mode: str = "full",
        **changes: Any,
    ) -> dict[str, Any]:
        """Take a backup with a snapshot of what the engine has applied, up to a tid if one is given."""
        graph.writers.flush()
        graph.engine.run(until)
        snapshot = graph.engine.snapshot(self.new_folder(), described=described)
        return self.backup(graph, mode, snapshot=str(snapshot), **changes)

    def restore_request(
        self, folder: Path, maps: dict[str, str] | None = None, **changes: Any
    ) -> QueueRestoreRequest:
        """The request of a restore into a folder of this machine and into this broker."""
        return QueueRestoreRequest(
            **{
                "destination": str(self.repo),
                "source": GRAPH,
                "target": f"kafka://{self.bootstrap}",
                "folder": str(folder),
                "maps": maps or {},
                **changes,
            }
        )

    def restore(self, folder: Path, maps: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
        request = self.restore_request(folder, maps, **changes)
        return restore_queue.run(request, spark=None, reporter=self.reporter)

    def drill(self, queues: Queues, **changes: Any) -> tuple[Path, Queues]:
        """Restore the engine of these queues into new topics and a new folder."""
        new_queues, folder = self.queues(queues), self.new_folder()
        self.restore(folder, dict(zip(queues.topics, new_queues.topics, strict=True)), **changes)
        return folder, new_queues

    def taken_up(
        self, folder: Path, queues: Queues, ops: Sequence[Op], tid: int, *, keep_open: bool = False
    ) -> Graph:
        """Open the engine that was restored to a tid of a history, check its state at each tid; with
        writers."""
        files = Files(folder)
        engine = self.opened(queues, folder)
        history = kept_ops(ops, tid, keep_open=keep_open)
        first = engine.tid
        states: list[tuple[int, State]] = [(first, engine.state()), *engine.play()]
        for state_tid, state in states:
            assert state == state_at(history, state_tid), state_tid
        write_tids = {
            op.tid for op in history if first < op.tid and not op.transaction and op.kind == "write"
        }
        assert write_tids <= {state_tid for state_tid, _ in states}
        assert engine.state() == state_at(history)
        assert set(engine.open) == (open_at(ops, tid) if keep_open else set())
        writers = Writers(queues, files, history, tid)
        return Graph(folder, queues, writers, engine)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return select_rows(self.repo, sql)

    def ends(self, queues: Queues, *, all_of_it: bool = False) -> dict[QueuePartition, int]:
        """The end of each partition for a reader of committed records, or for any reader."""
        level = IsolationLevel.READ_UNCOMMITTED if all_of_it else IsolationLevel.READ_COMMITTED
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        requests = {TopicPartition(*partition): OffsetSpec.latest() for partition in queues.partitions}
        answers = admin.list_offsets(requests, isolation_level=level)
        return {
            (topic_partition.topic, topic_partition.partition): answer.result(30).offset
            for topic_partition, answer in answers.items()
        }
