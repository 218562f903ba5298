"""Runs log tasks on a thread of the test, over a feed of tests/support/change_feed.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from tests.support import kafka_truth as truth
from tests.support.change_feed import ChangeFeed
from tests.support.runs import Lab

from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.formats.logs.events import stored_schema
from lakebackup.formats.logs.logfile import FORMAT, read_log_file
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.rows.backups import DataFile
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.trust import Approvals
from lakebackup_jobs.logs.capture.flush import LogRequest
from lakebackup_jobs.logs.capture.job import run
from lakebackup_jobs.logs.control.verbs import LogTasks
from lakebackup_jobs.logs.feeds import Range
from lakebackup_jobs.logs.feeds.br import BrFeed
from lakebackup_jobs.logs.restore import job as restore
from lakebackup_jobs.logs.task import LastError, TaskSettings, claim_of, record

#: (column family, operation, table id, and the columns of a log file's record)
Captured = tuple[object, ...]


def approve(root: str, name: str, settings: TaskSettings) -> None:
    """Approve a task as `log start` does on this machine."""
    approvals = Approvals(CatalogReader.require(root).catalog_uri)
    approvals.approve([claim_of(name, settings, approvals)])


class LogTask:
    """A task `name` over a topic. `run()` runs its job on a thread inside the block."""

    def __init__(self, lab: Lab, topic: str, name: str = "lab", **changes: Any) -> None:
        lab.make_catalog()
        self.lab, self.name = lab, name
        fields = ("keys_file", "tries", "scratch", "recipients")
        self.request_changes = {name: changes.pop(name) for name in fields if name in changes}
        self.settings = TaskSettings(
            **{
                "feed": "br",
                "bootstrap": lab.bootstrap,
                "topics": (topic,),
                "flush_every_s": 0.2,
                **changes,
            }
        )
        self.last_error = LastError()
        self.catalog_place = LogTasks(str(lab.folder), None, {})
        self.outcomes: list[dict[str, Any] | BaseException] = []

    def begin(self) -> None:
        """Record the task."""
        record(str(self.lab.folder), None, self.name, "running", self.settings)
        approve(str(self.lab.folder), self.name, self.settings)

    def request(self) -> LogRequest:
        """The request that the task's job gets."""
        return LogRequest(
            destination=str(self.lab.folder),
            name=self.name,
            settings=self.settings,
            kafka={"bootstrap.servers": self.lab.bootstrap},
            **{"tries": 1, **self.request_changes},
        )

    @contextmanager
    def run(self) -> Iterator[LogTask]:
        """Run the job until the block ends; then `outcomes` has its result or its error."""
        stop = threading.Event()

        def work() -> None:
            job = {"stop": stop, "spark": self.lab.spark, "reporter": self.lab.reporter}
            try:
                self.outcomes.append(run(self.request(), **job, last_error=self.last_error))
            except BaseException as error:  # noqa: BLE001 - the test checks it
                self.outcomes.append(error)

        self.outcomes = []
        thread = threading.Thread(target=work, name="log")
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join(240)
        assert self.outcomes, "the job does not end"

    def status(self) -> dict[str, Any]:
        return self.catalog_place.status(self.name)

    def until(
        self, is_reached: Callable[[dict[str, Any]], bool], description: str, seconds: float = 240
    ) -> dict[str, Any]:
        """Wait until a status satisfies `is_reached`; returns it. Fails if the job ends with an error."""
        statuses: list[dict[str, Any]] = []

        def reached() -> bool:
            assert not [outcome for outcome in self.outcomes if isinstance(outcome, BaseException)], str(
                self.outcomes
            )
            statuses[:] = [self.status()]
            return is_reached(statuses[0])

        try:
            truth.until(reached, description, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {statuses}") from None
        return statuses[0]

    def until_captured(self, ts: int) -> dict[str, Any]:
        """Wait until the checkpoint is at `ts` or later; returns the status."""
        return self.until(lambda status: (status["checkpoint_ts"] or 0) >= ts, f"checkpoint {ts}")


def captured(folder: str, name: str = "lab", keys: LogKeys | None = None) -> list[Captured]:
    """Every record of the log files in the catalog, with repetitions, sorted."""
    storage, reader = open_storage(folder), CatalogReader.require(folder)
    columns = ", ".join(DataFile.__dataclass_fields__)
    records: list[Captured] = []
    query = f"SELECT {columns} FROM files WHERE source = '{name}' AND format = '{FORMAT}'"
    for row in reader.select(query).read_all().to_pylist():
        file = DataFile(**row)
        table = "0" if file.scope == "meta" else file.scope
        for batch in read_log_file(storage, file, keys):
            records.extend((file.cf, file.op, table, *row.values()) for row in batch.to_pylist())
    return sorted(records, key=repr)


def restored(lab: Lab, target: object, **options: Any) -> dict[str, dict[bytes, bytes]]:
    """The rows of a table after a restore of the log `lab` into it, in the form of `ChangeFeed.rows`."""
    request = LogRestoreRequest(str(lab.folder), "lab", f"delta:{target}", **options)
    restore.run(request, spark=lab.spark, reporter=lab.reporter)
    rows_by_table: dict[str, dict[bytes, bytes]] = {}
    for row in lab.spark.read.format("delta").load(str(target)).toArrow().to_pylist():
        rows = rows_by_table.setdefault(f"{row['db']}.{row['name']}", {})
        assert row["key"] not in rows
        rows[row["key"]] = row["value"]
    return rows_by_table


def sent_records(feed: ChangeFeed) -> list[Captured]:
    """The records that a log of everything a feed has sent must hold, sorted like `captured`."""
    records: list[Captured] = []
    for partition in range(feed.partitions):
        batch = feed.records(partition)
        offset_range = Range("feed", partition, "-", 0, len(batch))
        decoder = BrFeed(("feed",)).decoder(open_storage("."), offset_range, {})
        rows = pa.Table.from_batches([decoder.decode(batch).records])
        for row in rows.to_pylist():
            values = [row[name] for name in stored_schema().names]
            records.append((row["cf"], row["op"], str(row["table_id"]), *values))
    return sorted(records, key=repr)


def busy(feed: ChangeFeed, table: int, count: int, *, begin: int = 0) -> None:
    """Run `count` transactions of two keys each, with short and long values; every seventh rolls back."""
    for number in range(begin, begin + count):
        txn = feed.begin()
        txn.put_row(table, b"%d" % (number % 50), b"v%d" % number)
        txn.put_row(table, b"long %d" % (number % 30), b"a longer value %d" % number)
        if number % 7 == 3:
            txn.prewrite()
            txn.rollback()
        else:
            txn.commit()
    feed.resolve()
