"""Bring the many small log files of a change feed together into few large ones, sorted by key.

What comes of it is a log backup like any other: no restore gives anything else, it only reads less. The old
files leave the log with it and are let go by `log truncate`. Flushes go on meanwhile: only the commit takes
the lease of the source.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.formats.logs.logfile import MOST_RAW
from lakebackup.formats.logs.metafile import write_stream_meta
from lakebackup.rows.backups import Backup, DataFile
from lakebackup.rows.base import CHANGES
from lakebackup.rows.tables import from_row
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.numbers import latest_number
from lakebackup_jobs.lifecycle.task_progress import TaskBoard
from lakebackup_jobs.lifecycle.task_totals import OUTCOME, Totals
from lakebackup_jobs.lifecycle.task_totals import totals as told
from lakebackup_jobs.logs.upkeep.compact_task import (
    LISTED_ROW,
    ORDER,
    RECORDS,
    ListDepartures,
    ReadLog,
    WriteLog,
)
from lakebackup_jobs.logs.upkeep.truncate import keep_lease

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.sql_engine.spark import SparkEngine
    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.progress import Reporter

# As long as a flush may take.
_WAIT_S = 900.0
_MOST_TASKS = 2_000
# A table's listing has so many rows in an object.
_LISTED_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class CompactLogRequest:
    """What a person asked for. `until`: of flushes that end by then (the feed's unit), None: all.

    `most_raw`: bytes of records in a file; those with less than half of that are brought together.
    `keys_file` names the file of keys; with `encrypt` its current one encrypts what is written.
    """

    destination: str
    name: str
    until: int | None = None
    codec: str = "zstd"
    encrypt: bool | None = None
    most_raw: int = MOST_RAW
    catalog: str | None = None
    keys_file: str | None = None
    dry_run: bool = False
    lease_ttl_s: float = 60.0
    remote: str | None = None


def run(
    request: CompactLogRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Compact; returns what a person wants to know of it.

    Raises NotFound (no such log), Damaged (a file is not what the catalog says; nothing was written), Busy
    (another run takes files out of the log), UsageProblem (keys), EnvironmentProblem.
    """
    layout.check_source(request.name)
    reader = current_catalog(request.destination, request.catalog)
    if not reader.rows("log_truncate_state", source=request.name):
        raise NotFound(
            f"The catalog holds no log of {request.name}.", hint="`lakebackup log status` shows the tasks."
        )
    if request.dry_run:
        reader.define(
            "to_compact", "log_compact_files", **_asked(request, latest_number(reader, request.name))
        )
        (found,) = reader.rows("log_compact_totals")
        return {"dry_run": True, "source": request.name, **found}
    storage = open_storage(request.destination)
    ttl_s = request.lease_ttl_s
    with Lease.acquire(storage, keep_lease(request.name), holder(), ttl_s=ttl_s) as lease:
        return _Run(request, storage, lease, spark, reporter).compact()


class _Run:
    """One compaction on its way."""

    def __init__(
        self,
        request: CompactLogRequest,
        storage: Storage,
        lease: Lease,
        spark: SparkSession | None,
        reporter: Reporter,
    ) -> None:
        from lakebackup.sql_engine.spark import SparkEngine
        from lakebackup_jobs.runtime.session import spark_session

        self.request, self.source, self.storage = request, request.name, storage
        self.lease, self.reporter = lease, reporter
        self.spark = spark or spark_session(remote=request.remote)
        self.writer = CatalogWriter.open(self.spark, request.destination, request.catalog)
        self.engine: SparkEngine = SparkEngine(self.spark, self.writer.catalog_uri)
        self.destination = destination_id(storage)
        self.keys = LogKeys.load(request.keys_file) if request.keys_file else None

    def compact(self) -> dict[str, Any]:
        started = datetime.now(UTC)
        begun = time.monotonic()
        self._sweep()
        reader = CatalogReader(self.request.destination, self.request.catalog)
        newest = latest_number(reader, self.source)
        chosen = self.engine.query("log_compact_files", **_asked(self.request, newest))
        # What is read is what leaves the log, whatever is held or found damaged meanwhile.
        chosen.localCheckpoint(eager=True).createOrReplaceTempView("to_compact")
        (found,) = self.engine.rows("log_compact_totals")
        result = {"source": self.source, **found}
        if not found["files"]:
            return {**result, "backup_id": None}
        backup_id = layout.new_backup_id(started)
        self.storage.put(layout.compact_path(self.source), json.dumps({"backup_id": backup_id}).encode())
        domain = reader.rows("log_truncate_state", source=self.source)[0]["ts_domain"]
        tasks = self._copy(reader, backup_id, found, domain)
        # Flushes go on until here; those that came since have taken numbers.
        with Lease.acquire(
            self.storage, f"source-{self.source}", holder(), ttl_s=self.request.lease_ttl_s, wait_s=_WAIT_S
        ) as lease:
            made = self._commit(backup_id, started, tasks, found["files"], domain, lease)
        self._clear(backup_id)
        return {
            **result,
            "backup_id": backup_id,
            "kept_files": made.files,
            "kept_bytes": made.bytes,
            "seconds": round(time.monotonic() - begun, 3),
        }

    def _copy(self, reader: CatalogReader, backup_id: str, found: dict[str, Any], domain: str) -> int:
        """Write the new files; how many tasks did."""
        from pyspark.sql import functions as sf

        request, folder = self.request, layout.backup_folder(self.source, backup_id)
        encrypted = request.encrypt
        if encrypted is None:
            encrypted = bool(found["encrypted"])
        if encrypted and self.keys is None:
            raise UsageProblem(
                f"The log of {self.source} is encrypted, and no file of keys is named.",
                hint="Name it by LAKEBACKUP_LOG__KEYS_FILE, or keys_file under [log] in lakebackup.toml.",
            )
        count = max(1, min(_MOST_TASKS, found["raw_bytes"] // request.most_raw + 1))
        read = ReadLog(self.storage.uri, folder, reader.destinations(), self.keys)
        write = WriteLog(
            self.storage.uri,
            self.destination,
            self.source,
            backup_id,
            domain,
            request.codec,
            self.keys.cipher if encrypted and self.keys else None,
            request.most_raw,
        )
        self.reporter.start(found["entries"], found["bytes"], "compact")
        records = self.spark.table("to_compact").repartition(count).mapInArrow(read, RECORDS)
        sorted_ = records.repartitionByRange(count, *(sf.col(name) for name in ORDER))
        sorted_ = sorted_.sortWithinPartitions(*ORDER)
        with TaskBoard(self.storage, folder).watched(self.reporter.update), task_errors():
            rows = sorted_.mapInArrow(write, OUTCOME).collect()  # a row a task
        written = Totals()
        written.add(rows)
        if written.entries != found["entries"]:
            raise AssertionError(f"{written.entries} records were written of {found['entries']}")
        self.reporter.update(found["entries"], found["bytes"])
        return len(rows)

    def _commit(
        self, backup_id: str, started: datetime, tasks: int, files: int, domain: str, lease: Lease
    ) -> Backup:
        """Give the backup its number, list what leaves the log with it, and make it exist."""
        reader = CatalogReader(self.request.destination, self.request.catalog)
        newest = reader.one("log_newest", source=self.source)
        if newest is None:
            raise NotFound(f"The catalog holds no log of {self.source} any more.")
        number = latest_number(reader, self.source) + 1
        totals = Totals()
        for task in range(tasks):
            rows = sidecar.read_part(self.storage, layout.made_path(self.source, backup_id, task))
            totals.add([self._part(backup_id, task, [replace(row, added_in=number) for row in rows])])
        job = ListDepartures(self.storage.uri, self.destination, self.source, backup_id, number)
        count = 1 + files // _LISTED_ROWS
        with task_errors():
            listed = self.spark.table("to_compact").repartition(count).mapInArrow(job, LISTED_ROW).collect()
        rows = [from_row(DataFile, json.loads(one.row)) for one in listed]
        totals.add([self._part(backup_id, tasks, rows)])
        backup = Backup(
            backup_id=backup_id,
            number=number,
            source=self.source,
            source_kind=CHANGES,
            destination=self.destination,
            kind="log",
            level=1,
            parent=newest["backup_id"],
            base=newest["base"],
            chain_position=newest["chain_position"] + 1,
            place=number,
            parent_place=newest["place"],
            ts_domain=domain,
            # No checkpoint is known yet where the log before it has none.
            start_ts=None if newest["start_ts"] is None else newest["end_ts"],
            end_ts=newest["end_ts"],
            started_at=micros(started),
            **totals.columns(),
            isolation="read_committed",
            codec=self.request.codec,
            note=f"compaction of {files} log files",
        )
        # It covers no offsets: the next flush goes on where the last one ended.
        manifest = sidecar.Manifest(backup=backup, positions=[], scopes=[], gaps=[], parts=tasks + 1)
        write_stream_meta(self.storage, self.source, backup_id, backup.end_ts, self._rows(backup_id, tasks))
        self.lease.check()
        lease.renew()
        sidecar.write_manifest(self.storage, layout.manifest_path(self.source, backup_id), manifest)
        self.writer.commit_backup(self.storage, manifest, held=lease)
        sidecar.mark(self.storage, layout.marker_path(self.source, backup_id, "complete"))
        return backup

    def _part(self, backup_id: str, task: int, rows: Sequence[DataFile]) -> SimpleNamespace:
        path = layout.parts_path(self.source, backup_id, task)
        return SimpleNamespace(error=None, **told(task, sidecar.write_part(self.storage, path, rows)))

    def _rows(self, backup_id: str, tasks: int) -> Iterator[DataFile]:
        for task in range(tasks):
            yield from sidecar.read_part(self.storage, layout.parts_path(self.source, backup_id, task))

    def _sweep(self) -> None:
        """End what died: after the commit all but the marker, before it everything."""
        try:
            backup_id = json.loads(self.storage.get(layout.compact_path(self.source)))["backup_id"]
        except NotFound:
            return
        reader = CatalogReader(self.request.destination, self.request.catalog)
        there = reader.one("show_backup", backup_id=backup_id)
        if there and there["state"] == "complete":
            sidecar.mark(self.storage, layout.marker_path(self.source, backup_id, "complete"))
        elif there is None:
            self.reporter.note(f"taking away what compaction {backup_id} left, which was cut off")
            for folder in (
                layout.backup_folder(self.source, backup_id), layout.log_folder(self.source, backup_id)
            ):  # fmt: skip
                self._empty(folder)
            for found in list(self.storage.list(layout.stream_metas_folder(self.source))):
                if backup_id in found.path:
                    self.storage.delete(found.path)
        self._clear(backup_id)

    def _clear(self, backup_id: str) -> None:
        self._empty(f"{layout.backup_folder(self.source, backup_id)}made/")
        self.storage.delete(layout.compact_path(self.source))

    def _empty(self, folder: str) -> None:
        for found in self.storage.list(folder):
            self.storage.delete(found.path)


def _asked(request: CompactLogRequest, newest: int) -> dict[str, Any]:
    return {
        "source": request.name,
        "until": request.until,
        "small": request.most_raw // 2,
        "newest": newest,
    }
