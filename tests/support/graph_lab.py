"""Backups and restores of the tests' engine, as tests call them."""

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
from tests.support.graph_writers import Files, Op, Place, Queues, State, Writers, kept, open_at, state_at
from tests.support.looks import seen
from tests.support.runs import now_ms

from lakebackup.plan.queues.restore import QueueRestoreRequest
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.queues.backup import job as backup_queue
from lakebackup_jobs.queues.backup.request import QueueRequest
from lakebackup_jobs.queues.restore import job as restore_queue

GRAPH = "social"


@dataclass
class Graph:
    """An engine at work: its queues, what writes to them, and the files beside it."""

    folder: Path
    queues: Queues
    writers: Writers
    engine: Engine

    @property
    def files(self) -> Files:
        return self.writers.files

    def check(self) -> None:
        """What the engine made of its queues is what was done."""
        for tid, state in self.engine.play():
            assert state == state_at(self.writers.ops, tid), tid
        assert self.engine.state() == state_at(self.writers.ops)


@dataclass
class GraphLab:
    """A destination and a broker. `folder` is the test's own; `close` leaves nothing on the broker."""

    folder: Path
    bootstrap: str
    empty_catalog: Path
    made: list[Queues] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place = self.folder / "backups"
        shutil.copytree(self.empty_catalog, self.place / "catalog")
        self.said, self.warnings = io.StringIO(), io.StringIO()
        self.reporter = Reporter(self.said, self.warnings)

    def close(self) -> None:
        for engine in self.engines:
            engine.close()
        for queues in self.made:
            queues.delete()

    def queues(self, like: Queues | None = None) -> Queues:
        """Names of topics that nobody has."""
        mark = uuid4().hex[:8]
        delta, journal = (like.delta, like.journal) if like else ({"": 2}, {"": 1})
        found = Queues(
            self.bootstrap,
            {f"delta.{mark}.{number}": count for number, count in enumerate(delta.values())},
            {f"journal.{mark}.{number}": count for number, count in enumerate(journal.values())},
        )
        self.made.append(found)
        return found

    def new_folder(self) -> Path:
        return self.folder / uuid4().hex[:8]

    def begin(self, clock: Callable[[], int] = now_ms) -> Graph:
        """An engine without anything in it."""
        queues, folder = self.queues(), self.new_folder()
        queues.create()
        files = Files(folder / "files")
        files.begin()
        writers = Writers(queues, files, clock=clock)
        return Graph(folder, queues, writers, self.opened(queues, folder / "db", files))

    def opened(self, queues: Queues, folder: Path, files: Files | None = None) -> Engine:
        """An engine; without its files it is one that was restored into the folder."""
        engine = Engine(queues, folder if files else folder / "snapshot", files or Files(folder))
        self.engines.append(engine)
        return engine

    def request(self, graph: Graph, **changes: Any) -> QueueRequest:
        """Of a backup of all queues of an engine."""
        return QueueRequest(
            **{
                "destination": str(self.place),
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
        self, graph: Graph, *, until: int | None = None, told: bool = True, mode: str = "full", **changes: Any
    ) -> dict[str, Any]:
        """A backup with a snapshot of what the engine has applied, up to a tid if one is given."""
        graph.writers.flush()
        graph.engine.run(until)
        snapshot = graph.engine.snapshot(self.new_folder(), told=told)
        return self.backup(graph, mode, snapshot=str(snapshot), **changes)

    def wanted(self, into: Path, maps: dict[str, str] | None = None, **changes: Any) -> QueueRestoreRequest:
        """Of a restore into a folder of this machine and into this broker."""
        return QueueRestoreRequest(
            **{
                "destination": str(self.place),
                "source": GRAPH,
                "target": f"kafka://{self.bootstrap}",
                "folder": str(into),
                "maps": maps or {},
                **changes,
            }
        )

    def restore(self, into: Path, maps: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
        request = self.wanted(into, maps, **changes)
        return restore_queue.run(request, spark=None, reporter=self.reporter)

    def drill(self, queues: Queues, **changes: Any) -> tuple[Path, Queues]:
        """Restore these queues' engine into topics and a folder of its own."""
        other, folder = self.queues(queues), self.new_folder()
        self.restore(folder, dict(zip(queues.topics, other.topics, strict=True)), **changes)
        return folder, other

    def taken_up(
        self, folder: Path, queues: Queues, ops: Sequence[Op], tid: int, *, keep_open: bool = False
    ) -> Graph:
        """The engine that was restored to a tid of this history, and its writers; checked at every tid."""
        files = Files(folder)
        engine = self.opened(queues, folder)
        whole = kept(ops, tid, keep_open=keep_open)
        first = engine.tid
        seen: list[tuple[int, State]] = [(first, engine.state()), *engine.play()]
        for at, state in seen:
            assert state == state_at(whole, at), at
        ended = {op.tid for op in whole if first < op.tid and not op.transaction and op.kind == "write"}
        assert ended <= {at for at, _ in seen}
        assert engine.state() == state_at(whole)
        assert set(engine.open) == (open_at(ops, tid) if keep_open else set())
        writers = Writers(queues, files, whole, tid)
        return Graph(folder, queues, writers, engine)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return seen(self.place, sql)

    def ends(self, queues: Queues, *, all_of_it: bool = False) -> dict[Place, int]:
        """Where each partition ends for a reader of committed records, or for any."""
        level = IsolationLevel.READ_UNCOMMITTED if all_of_it else IsolationLevel.READ_COMMITTED
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = {TopicPartition(*place): OffsetSpec.latest() for place in queues.places}
        answers = admin.list_offsets(wanted, isolation_level=level)
        return {(at.topic, at.partition): answer.result(30).offset for at, answer in answers.items()}
