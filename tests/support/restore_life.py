"""A restore for the tests of its life: backups, a new target, and what tests ask of both."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, Self
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from tests.support import kafka_truth as truth
from tests.support.command_line import quiet
from tests.support.faults import Killed, Steps, expire_leases, watched
from tests.support.looks import select_rows
from tests.support.made_backups import MadeBackups
from tests.support.rows import EPOCH

from lakebackup.errors import LakebackupError, Refused
from lakebackup.requests import RunRequest
from lakebackup.rows.backups import Floor
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.leftovers import sweep

Runner = Literal["local", "spark"]
RETENTION_MS = str(10**14)


class RestoreCase(ABC):
    """Backups of a source, and a target that does not exist yet; both lie below `folder`."""

    JOB: ClassVar[ModuleType]
    #: The source's name in the catalog.
    SOURCE: ClassVar[str]
    #: What can run the tasks; the first is what tests use that need only one.
    RUNNERS: ClassVar[tuple[Runner, ...]] = ("local", "spark")
    #: Steps before which a killed run leaves a distinct state, in their order.
    STATES: ClassVar[tuple[str, ...]]
    #: The step before which the target holds a part of the restore, or is about to.
    MIDDLE: ClassVar[str]
    #: Changes to the request with which it is another restore.
    ANOTHER_REQUEST: ClassVar[dict[str, Any]]
    #: Whether the command succeeds when the restore is complete already. Otherwise it is refused.
    IS_IDEMPOTENT: ClassVar[bool] = False
    #: Whether a target refuses another restore while one is unfinished.
    GUARDS_UNFINISHED: ClassVar[bool] = False
    #: Names of objects below `restores/` that stay, since later restores or the catalog need them.
    PERMANENT: ClassVar[tuple[str, ...]] = ()
    #: Whether the target is in a Kafka cluster.
    INTO_KAFKA: ClassVar[bool] = False
    #: The topics that exist before the restore, and their partitions; retention in them is suspended.
    TOPICS: ClassVar[dict[str, int]] = {}

    def __init__(self, folder: Path, bootstrap: str = "", spark: Any = None) -> None:
        self.folder, self.bootstrap, self.spark = folder, bootstrap, spark
        self.root, self.target_path = folder / "backups", folder / "out"
        self.prefix = f"restored-{uuid4().hex[:8]}"
        self.runner: Runner = self.RUNNERS[0]
        self.messages = io.StringIO()
        self.kills = 0
        for name, partitions in self.TOPICS.items():
            truth.create_topic(bootstrap, f"{self.prefix}{name}", partitions, retention_ms=RETENTION_MS)
        MadeBackups(self.root)
        self.back_up()

    def fresh(self, name: str) -> Self:
        """The same case in a folder of its own."""
        case = type(self)(self.folder / name, self.bootstrap, self.spark)
        case.runner = self.runner
        return case

    @abstractmethod
    def back_up(self) -> None:
        """Make the backups."""

    @abstractmethod
    def request(self, **changes: Any) -> RunRequest:
        """The request of the restore."""

    @abstractmethod
    def contents(self) -> Any:
        """What the target holds for its readers, read without code of the product."""

    @property
    @abstractmethod
    def expected(self) -> Any:
        """What the target holds after the restore."""

    def run(self, runner: Runner | None = None, **changes: Any) -> dict[str, Any]:
        runner = runner or self.runner
        self.messages = io.StringIO()
        request = self.request(**{"destination": str(self.root), "runner": runner, **changes})
        session = self.spark if runner == "spark" else None
        result: dict[str, Any] = self.JOB.run(request, spark=session, reporter=quiet(self.messages))
        return result

    @contextmanager
    def watched(self, step: int | str | None = None, error: BaseException | None = None) -> Iterator[Steps]:
        """Record the steps of a run; it dies before `step`, or `error` is raised there."""
        self.kills += 1
        with watched(self.folder / f"steps{self.kills}", kill_at=step, error=error) as steps:
            yield steps

    def killed(self, step: int | str, **changes: Any) -> list[str] | None:
        """The steps of a run that is killed before `step`; None if it ends without reaching it."""
        with self.watched(step) as steps, suppress(Killed):
            try:
                self.run(**changes)
            except LakebackupError:
                if not steps.dead:
                    raise
        if not steps.dead:
            return None
        expire_leases(self.root)
        return steps.names()

    def repeat(self) -> None:
        """Give the command again after the restore is complete: nothing is restored twice."""
        if self.IS_IDEMPOTENT:
            assert self.run()["done_before"]
        else:
            with pytest.raises(Refused):
                self.run()

    def finish(self) -> None:
        """Give the command again after an interrupted run, which may have completed the restore."""
        if self.is_complete:
            self.repeat()
            self.sweep()
        else:
            self.run()

    def sweep(self) -> None:
        """Delete what a restore left that was killed after its last row, as upkeep does after a day."""
        for path in self.root.glob("restores/**/*"):
            os.utime(path, (0, 0))
        sweep(open_storage(str(self.root)), (), {row["restore_id"] for row in self.rows()})

    def is_empty(self) -> bool:
        """Whether the target has nothing for its readers."""
        files = (path.relative_to(self.target_path) for path in self.target_path.rglob("*") if path.is_file())
        return all(file.parts[0].startswith(".") for file in files)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of this source's restores, without those of partitions."""
        return select_rows(
            self.root,
            f"SELECT * FROM restores WHERE source = '{self.SOURCE}' AND scope IS NULL ORDER BY at",
        )

    @property
    def is_complete(self) -> bool:
        return any(row["state"] == "complete" for row in self.rows())

    def prune(self) -> None:
        """Record what a prune of the source records first."""
        row = Floor(
            prune_id="p",
            at=1,
            source=self.SOURCE,
            scope="-",
            epoch=EPOCH,
            region="-",
            low_position=0,
            reason="",
        )
        CatalogWriter(None, str(self.root)).append([row])

    def leftovers(self) -> list[str]:
        """The paths of what is below `restores/` and not needed any more."""
        paths = [
            str(path.relative_to(self.root)) for path in self.root.glob("restores/**/*") if path.is_file()
        ]
        return [path for path in paths if not any(f"/{name}" in path for name in self.PERMANENT)]

    def assert_restored(self) -> None:
        """Check that all is restored once, by one complete restore, and that no work is left."""
        assert self.contents() == self.expected
        assert [row["state"] for row in self.rows()].count("complete") == 1
        assert self.leftovers() == []
        self.assert_no_lease()

    def assert_no_lease(self) -> None:
        storage = open_storage(str(self.root))
        for name in list(storage.folders("leases/")):
            Lease.acquire(storage, name, "test").release()

    def stored_bytes(self) -> dict[str, bytes]:
        """The content of each file of the repository and the target, leases excepted."""
        files = [
            path for folder in (self.root, self.target_path) for path in folder.rglob("*") if path.is_file()
        ]
        names = {str(path.relative_to(self.folder)): path for path in files}
        return {name: path.read_bytes() for name, path in names.items() if "/leases/" not in f"/{name}"}

    def close(self) -> None:
        """Delete the topics that the restores made."""
        if self.bootstrap:
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            topics = [name for name in admin.list_topics(timeout=30).topics if name.startswith(self.prefix)]
            for future in admin.delete_topics(topics).values() if topics else ():
                future.result(30)

    def topic_contents(self, name: str) -> dict[int, list[truth.Record]]:
        return truth.contents(self.bootstrap, f"{self.prefix}{name}")
