"""The progress of a job's tasks. It is reported through the destination, so it works on any cluster.

About once a second, a task writes its counts, and what delays it, to `<folder>progress/<task>`. The driver
adds up the counts.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from lakebackup.errors import EnvironmentProblem, LakebackupError
from lakebackup.sql_engine.pace import spend
from lakebackup.storage import Storage, open_storage, working
from lakebackup_jobs.kafka.client.librdkafka import delays

#: The seconds between two reports of a task, and between two looks of the driver at them.
EVERY_S = 1.0
_in_thread = threading.local()


class Stopped(Exception):
    """Another task failed, or a person pressed Ctrl-C, so this task stops."""


def stopped_by(event: threading.Event) -> None:
    """Make this thread's tasks raise Stopped when they report progress and `event` is set."""
    _in_thread.stop = event


class TaskProgress:
    """The progress objects of one job, below `folder` (which ends in `/`)."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._prefix = f"{folder}progress/"

    def counter(self, task: str) -> Callable[[int, int], None]:
        """Return the function by which one task reports the records and bytes that it has done since the last
        call.

        The function adds them up, and writes the sums at most every EVERY_S. If there is a limit of bytes a
        second, it waits until the task may continue. Raises Stopped if the task must stop.
        """
        records = size = 0
        due = time.monotonic() + EVERY_S

        def add(more_records: int, more_bytes: int) -> None:
            nonlocal records, size, due
            if (stop := getattr(_in_thread, "stop", None)) and stop.is_set():
                raise Stopped
            records += more_records
            size += more_bytes
            spend(more_bytes)
            if time.monotonic() >= due:
                due = time.monotonic() + EVERY_S
                report = json.dumps([records, size, *delays()])
                with suppress(EnvironmentProblem):  # optional: the storage may be read-only or full
                    self._storage.put(f"{self._prefix}{task}", report.encode())

        return add

    def total(self) -> tuple[int, int]:
        """Return the records and the bytes of all tasks, as they last reported them."""
        reports = self._reports()
        return sum(report[0] for report in reports), sum(report[1] for report in reports)

    def _reports(self) -> list[Any]:
        """Return for each task a list of its records, its bytes, and a sentence on each cause of delay."""
        return [json.loads(self._storage.get(entry.path)) for entry in self._storage.list(self._prefix)]

    def clear(self) -> None:
        """Delete the progress objects. Call it when the job has finished."""
        with suppress(EnvironmentProblem):
            working.empty(self._storage, self._prefix)

    @contextmanager
    def watched(
        self, update: Callable[[int, int], None], delayed: Callable[[str], None] | None = None
    ) -> Iterator[None]:
        """While the block runs, call `update(records, bytes)` about once a second; then delete the objects.

        `delayed` is called once for each cause that delays tasks.
        """
        finished = threading.Event()
        texts: set[str] = set()

        def watch() -> None:
            while not finished.wait(EVERY_S):
                try:
                    update(*self.total())
                    new = {str(text) for report in self._reports() for text in report[2:]} - texts
                except LakebackupError:
                    continue  # progress is optional: the job raises its own errors
                texts.update(new)
                if delayed:
                    for text in sorted(new):
                        delayed(text)

        thread = threading.Thread(target=watch, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()
            self.clear()


@dataclass(frozen=True, slots=True)
class TaskCounters:
    """Creates a task's counter where the task runs, for code that does not know TaskProgress."""

    uri: str
    folder: str

    def __call__(self, task: str) -> Callable[[int, int], None]:
        return TaskProgress(open_storage(self.uri), self.folder).counter(task)
