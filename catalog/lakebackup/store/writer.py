"""Changes the catalog. Each change holds the catalog's lease.

After a change, small files of the tables that it has committed to are merged when there are enough of them
(sql_engine/delta/tiers.py): without the lease, except for the commit, and never at the expense of the change.

A backup is published in this order: the job writes data objects, manifest parts and the manifest. Then this
module appends to all other tables, and last the one row of `backups`, which makes the backup exist. Each
append is applied once for each backup id, so a commit can be repeated after a crash.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakebackup.errors import Damaged, EnvironmentProblem
from lakebackup.rows.backups import Backup
from lakebackup.rows.base import QUEUES, Row, State, pick
from lakebackup.rows.logs import LogTask
from lakebackup.rows.queues import QueueRestore
from lakebackup.rows.tables import as_row, table_of
from lakebackup.rows.upkeep import Audit, Destination, Drill, Hold, Migration, Policy, PolicyTopics
from lakebackup.rules import layout
from lakebackup.signing.chain import AuditLink
from lakebackup.sql_engine import RAW
from lakebackup.sql_engine.delta.change import replace_rows, set_states
from lakebackup.sql_engine.delta.ddl import make_table
from lakebackup.sql_engine.delta.repeats import RepeatingCommit, remove_repeats
from lakebackup.sql_engine.delta.table import (
    append,
    append_files,
    commit,
    is_appended,
    open_table,
    outrun,
    rows_in,
    settings_of,
    take_due_tables,
)
from lakebackup.sql_engine.delta.upkeep import delete_old_files, merge_due_files, merge_files, tidy_log
from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.worker import Cluster, PerNumber
from lakebackup.storage import Storage
from lakebackup.store import audit_log, caller, metadata_keys
from lakebackup.store.audit_log import ROWS_IN_AUDIT
from lakebackup.store.behind import require_current
from lakebackup.store.delta_append import (
    ADDED,
    LISTED_BY,
    ROWS_PER_FILE,
    FrameWriter,
    ListedRows,
    PartRows,
    RowSource,
    WrittenRows,
    grouped,
)
from lakebackup.store.lease import Lease
from lakebackup.store.manifest import Manifest, mark
from lakebackup.store.reader import Catalog, CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.tombstones import incomplete
from lakebackup.store.trust import Approvals, destination_claim
from lakebackup_sql import names

Recorded: TypeAlias = "Policy | PolicyTopics | Hold | LogTask | QueueRestore | Drill"
Session: TypeAlias = "SparkSession | Callable[[], SparkSession] | None"
#: Tables that are folded, and the query for their live rows.
FOLDED = {
    "log_regions": "log_regions_kept", "removals": "removals_kept", "failures": "failures_kept"
}  # fmt: skip
# How long failures are kept: longer than the period of the report.
_FAILURES_KEPT_US = 100 * 86_400_000_000
# How long each removed file keeps a row of its own: as long as older versions of tables can be read.
_REMOVALS_US = 30 * 86_400_000_000
# So many entries of the audit log are one signed object.
_SIGNED_ENTRIES = 1_000
_LEASE = "catalog"
_LEASE_TTL_S = 30.0
_LEASE_WAIT_S = 300.0
# The threads mostly wait for the disk or for object storage.
_THREADS = 8


class CatalogWriter(Catalog):
    """Changes the catalog of a destination, or the one at the URI `catalog`. `migrate` creates it.

    `spark`: a Spark context or session, or a function that starts one when it is needed. Without it, only the
    methods work that create tables, append rows from memory, change states, or keep the tables small. Each
    change takes the catalog's lease, so that what it has read stays true until its commit.
    """

    def __init__(
        self, spark: Cluster | Callable[[], Cluster] | None, destination: str, catalog: str | None = None
    ) -> None:
        super().__init__(destination, catalog)
        self._spark_or_starter = spark
        #: Why audit entries of this writer could not be signed, although there is a key; None if they could.
        self.unsigned: str | None = None

    def prepare(self) -> CatalogReader:
        """Create or migrate the catalog, so that a run can add backups, and return a reader of it.

        Raises Refused when the catalog is behind its destination.
        """
        self.migrate()
        reader = CatalogReader(self.home.uri, self.catalog_uri)
        require_current(reader)
        return reader

    @property
    def _cluster(self) -> Cluster:
        if self._spark_or_starter is None:
            raise ValueError("this writer was opened without Spark")
        if callable(self._spark_or_starter):
            self._spark_or_starter = self._spark_or_starter()
        return self._spark_or_starter

    def migrate(self) -> int:
        """Create or update the tables, and return the schema version. Can be repeated."""
        newest = len(names("migrations"))
        if (self.version() or 0) < newest:
            with self._changes() as lease:
                version = self.version() or 0
                missing = dict(enumerate(names("migrations")[version:], version + 1))
                tables = {table for name in missing.values() for table in names(f"migrations/{name}")}
                _run_in_threads(*(partial(make_table, self._storage, table) for table in sorted(tables)))
                lease.renew()
                applied_at = _time_us()
                rows = [
                    Migration(version=number, name=name, applied_at=applied_at)
                    for number, name in missing.items()
                ]
                append(self._storage, "migrations", rows, f"migration-{newest}")
        return newest

    def require_writable(self) -> None:
        """Raise EnvironmentProblem when the catalog cannot be written."""
        self._lease().release()

    def commit_backup(self, storage: Storage, manifest: Manifest, *, source_lease: Lease | None) -> None:
        """Publish a backup whose manifest and parts are in `storage`. Repeating it adds nothing.

        `source_lease` is the lease on the backup's source. Without it another run may take the objects for
        those of a dead run and delete them. The lease is renewed just before the backup exists, since the
        steps before may take long. Raises Busy (that lease was lost, or another process has the catalog's)
        and UsageProblem (a row is invalid).
        """
        backup = manifest.backup
        with self._changes() as lease:
            rows_by_table = _by_table(manifest.rows).items()
            _run_in_threads(
                partial(self._register, storage),
                *self._part_appends(storage, [manifest], backup.backup_id),
                *(
                    partial(append, self._storage, *table_rows, backup.backup_id)
                    for table_rows in rows_by_table
                ),
            )
            if source_lease:
                source_lease.renew()
            lease.renew()
            append(self._storage, "backups", [backup], backup.backup_id)

    def _register(self, storage: Storage) -> str:
        destination = destination_id(storage)
        is_beside_catalog = storage.uri == self.catalog_uri.rpartition("/")[0]
        row = Destination(
            destination=destination, uri="" if is_beside_catalog else storage.uri, created_at=_time_us()
        )
        if (
            not is_beside_catalog
        ):  # a person or a setting named it; if that cannot be recorded, approval is asked for again
            with suppress(EnvironmentProblem):
                Approvals(self.catalog_uri).approve([destination_claim(destination, storage.uri)])
        append(self._storage, "destinations", [row], f"destination-{destination}-{row.uri}")
        return destination

    def append(
        self, rows: Sequence[Row], transaction: str | None = None, *, wait_s: float = _LEASE_WAIT_S
    ) -> None:
        """Append rows to their tables, in one commit for each table, and only once for each `transaction`.

        Raises Busy when another process has the catalog's lease for longer than `wait_s` seconds.
        """
        with self._changes(wait_s):
            for table, table_rows in _by_table(rows).items():
                append(self._storage, table, table_rows, transaction or uuid.uuid4().hex)

    def append_frame(
        self, table: str, rows: DataFrame, transaction: str | None = None, source: RowSource | None = None
    ) -> None:
        """Append any number of rows that Spark computes, only once for each `transaction`.

        `source` converts `rows` to rows of the table, in the task that writes them.
        """
        settings = settings_of(f"{self.catalog_uri}/{table}")
        writer = FrameWriter(self.catalog_uri, table, settings, source)
        added = _write_frame(writer, rows)
        with self._changes():
            commit(self._storage, table, added, transaction or uuid.uuid4().hex)

    def frame_writer(self, table: str) -> FrameWriter:
        """A writer of rows as files of a table, for any process. `append_written` makes the rows visible."""
        return FrameWriter(self.catalog_uri, table, settings_of(f"{self.catalog_uri}/{table}"))

    def append_written(self, added: Mapping[str, Sequence[str]], transaction: str) -> None:
        """Append the rows that frame writers wrote: one commit for each table, once for each `transaction`.

        `added`: table -> what the writers returned.
        """
        with self._changes():
            for table, files in added.items():
                commit(self._storage, table, files, f"{transaction}-{table}")

    def append_read(
        self, table: str, source: PerNumber, tasks: int, transaction: str, *, in_process: bool | None = None
    ) -> None:
        """Append the rows that `source` returns for each task number, only once for each `transaction`.

        `in_process`: whether this process does the work, without Spark. By default it does a single task's
        work.
        """
        settings = settings_of(f"{self.catalog_uri}/{table}")
        added = self._write_tasks(table, source, tasks, settings, in_process=in_process)
        with self._changes():
            commit(self._storage, table, added, transaction)

    def _write_tasks(
        self,
        table: str,
        source: PerNumber,
        tasks: int,
        settings: Mapping[str, str],
        *,
        in_process: bool | None = None,
    ) -> list[str]:
        writer = FrameWriter(self.catalog_uri, table, settings)
        if in_process is None:
            in_process = tasks == 1  # it takes less time than Spark needs to start
        if in_process or self._spark_or_starter is None:
            return [added for number in range(tasks) for added in writer.write(source.rows(number))]
        with task_errors():
            rows = WrittenRows(writer, source).reports(self._cluster, range(tasks), ADDED)
        return [row["added"] for row in rows]

    def append_parts(
        self, manifests: Sequence[Manifest], transaction: str, *, doubtful: Collection[str] = ()
    ) -> None:
        """Append the rows in the manifest parts of some backups of this destination.

        `doubtful` are ids of backups that may never have been published. Other backups may have reused their
        numbers, so their rows of `departures` are not appended.
        """
        with self._changes():
            _run_in_threads(*self._part_appends(self.home, manifests, transaction, doubtful))

    def clear(self, table: str) -> None:
        """Remove all rows of a table. Raises Busy when others commit despite the lease."""
        with self._changes():
            uri = f"{self.catalog_uri}/{table}"
            if not replace_rows(self._storage, table, open_table(uri).version(), []):
                raise outrun(uri)

    def fold(self, table: str) -> None:
        """Drop the rows of a table of `FOLDED` that are no longer live, in one commit.

        What can be restored, and every other answer from the table, stays the same. Raises Busy when another
        process commits to the table meanwhile.
        """
        parameters: dict[str, Any] = {}
        if table == "failures":
            parameters = {"before": _time_us() - _FAILURES_KEPT_US}
        elif table == "removals":
            parameters = {
                "before": _time_us() - _REMOVALS_US,
                "destination": destination_id(self.home),
                "incomplete": ",".join(incomplete(self.home)),
            }
        with self._changes():
            reader = CatalogReader(self.home.uri, self.catalog_uri)
            row_count = reader.count(table)
            if not row_count:
                return
            added = list(self.frame_writer(table).write(reader.query(FOLDED[table], **parameters)))
            version = reader.pinned()[f"{RAW}{table}"]
            if rows_in(added) < row_count and not replace_rows(self._storage, table, version, added):
                raise outrun(f"{self.catalog_uri}/{table}")

    def optimize(self, table: str, *, retain_ms: int) -> tuple[list[RepeatingCommit], int]:
        """Merge and sort the files of a table. The table's rows do not change, except that rows which another
        program has repeated are removed. Returns its commits, and the number of these rows.

        Deletes files that no version of the last `retain_ms` milliseconds needs, and entries of the table's
        log that are older than its retention.
        """
        repeats = remove_repeats(self._storage, table, self._lease)
        merge_files(self._storage, table, self._lease)
        tidy_log(self._storage, table)
        delete_old_files(self._storage, table, retain_ms)
        return repeats

    def register_home(self) -> str:
        """Add a row for this writer's destination, unless it has one, and return the destination's id."""
        with self._changes():
            return self._register(self.home)

    def append_audit(
        self, entry: Audit, audit_id: str | None = None, *, wait_s: float = _LEASE_WAIT_S
    ) -> None:
        """Record an audit entry as an object in the destination, for rebuilds, and as a row.

        With an `audit_id` the call can be repeated, and the entry is recorded once. `wait_s`: see `append`.
        """
        audit_id = audit_id or secrets.token_hex(4)
        with self._changes(wait_s):
            self._log([entry], f"{entry.at}-{audit_id}", [audit_id])

    def record(self, row: Recorded) -> None:
        """Record a policy, a hold, a log task, an engine's restore or a drill.

        The audit log gets a copy, for rebuilds, and the table gets a row.
        """
        self.record_next(lambda: row)

    def record_next(self, make: Callable[[], Recorded | None]) -> None:
        """Like `record`, for the row that `make` returns; None records nothing.

        `make` runs under the catalog's lease, so what it reads cannot change before the row exists.
        """
        with self._changes():
            row = make()
            if row is not None:
                audit_id = secrets.token_hex(4)
                self._log([_entry(row)], f"{row.at}-{audit_id}", [audit_id], [row])

    def record_once(self, rows: Sequence[QueueRestore], name: str) -> None:
        """Like `record`, for several rows, and only once for each `name`."""
        self._log_groups([_entry(row) for row in rows], name, rows)

    def set_states(self, backup_ids: Sequence[str], state: State, *, actor: str, reason: str) -> None:
        """Change the state of some backups in one commit, after it has recorded an audit entry for each.

        The entries have the order of `backup_ids`. A rebuild reads the states from them.
        """
        detail = json.dumps({"state": state, "reason": reason})
        entry = partial(Audit, actor=actor, action=audit_log.SET_STATE, detail=detail, outcome=caller.OK)
        entries = [entry(at=_time_us(), subject=backup_id) for backup_id in backup_ids]
        self._log_groups(entries, secrets.token_hex(4))
        with self._changes():
            set_states(self._storage, backup_ids, state)

    def _log_groups(self, entries: Sequence[Audit], name: str, rows: Sequence[Row] = ()) -> None:
        """Record audit entries, and the rows that they have, only once for each `name`."""
        audit_ids = [f"{name}-{number:06d}" for number in range(len(entries))]
        with self._changes():
            for start in range(0, len(entries), _SIGNED_ENTRIES):
                group = slice(start, start + _SIGNED_ENTRIES)
                self._log(entries[group], f"{name}-{start}" if start else name, audit_ids[group], rows[group])

    def _log(
        self, entries: Sequence[Audit], name: str, audit_ids: Sequence[str], rows: Sequence[Row] = ()
    ) -> None:
        """Store audit entries in the destination, and append them and the rows that they have, only once for
        each `name`. `audit_ids` end the names of the objects of entries that no key signs.

        The caller holds the catalog's lease. If the chain of signatures is damaged, the entries are stored
        without a signature, since whoever damages it must not stop backups.
        """
        metadata_keys.require_key(self.home)
        entries = [caller.current().completed(entry) for entry in entries]
        key = caller.signing_key()
        if key is not None:
            try:
                audit_log.append(self.home, name, entries, key, self._effective_entries, self._append_signed)
            except Damaged as fault:
                key, self.unsigned = None, fault.message
        if key is None:
            for entry, audit_id in zip(entries, audit_ids, strict=True):
                mark(self.home, layout.audit_path(entry.at, audit_id), as_row(entry))
        self._append_entries(entries, rows, name)

    def _effective_entries(self) -> list[Audit]:
        """The entries of the catalog's audit log that have an effect."""
        effective = pa.array(sorted(audit_log.EFFECTIVE))
        return [
            pick(Audit, row)
            for batch in CatalogReader(self.home.uri, self.catalog_uri).query("audit_rows")
            for row in batch.filter(pc.is_in(batch["action"], effective)).to_pylist()
        ]

    def _append_signed(self, link: AuditLink) -> None:
        """Append the entries of a link and the rows that they have, if the catalog lacks them."""
        rows = (row for _, row in audit_log.rows_of(audit_log.entries_of(link)))
        for table, table_rows in _by_table(rows).items():
            transaction = f"audit-{link.name}" if table == "audit" else link.name
            if not is_appended(f"{self.catalog_uri}/{table}", transaction):
                present = self._present_rows(table, table_rows)
                missing = [row for row in table_rows if as_row(row) not in present]
                append(self._storage, table, missing, transaction)

    def _present_rows(self, table: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The rows of a table, among which some rows may be. Of the large table `audit`, those of their span
        of time."""
        reader = CatalogReader(self.home.uri, self.catalog_uri)
        if table != "audit":
            rows_of_table: list[dict[str, Any]] = reader.table(table).to_pylist()
            return rows_of_table
        times = [row.at for row in rows if isinstance(row, Audit)]
        return reader.rows("audit_span", first_at=min(times), last_at=max(times))

    def _append_entries(self, entries: Sequence[Audit], rows: Sequence[Row], name: str) -> None:
        append(self._storage, "audit", entries, f"audit-{name}")
        for table, table_rows in _by_table(rows).items():
            append(self._storage, table, table_rows, name)

    def _part_appends(
        self,
        storage: Storage,
        manifests: Sequence[Manifest],
        transaction: str,
        doubtful: Collection[str] = (),
    ) -> Iterator[Callable[[], object]]:
        """Yields functions that append the rows in backups' parts, one function for each table."""
        parts = {
            manifest.backup.backup_id: [
                layout.parts_path(manifest.backup.source, manifest.backup.backup_id, task)
                for task in range(manifest.parts)
            ]
            for manifest in manifests
        }

        def append_rows(table: str, backups: Sequence[Backup], rows: int) -> None:
            paths = [path for backup in backups for path in parts[backup.backup_id]]
            if not paths:
                return
            count = min(len(paths), 1 + rows // ROWS_PER_FILE)
            groups = grouped(paths, count)
            source = (
                PartRows(storage.uri, groups) if table == "files" else ListedRows(storage.uri, table, groups)
            )
            write = partial(self._write_tasks, table, source, count)
            append_files(self._storage, table, transaction, write)

        backups = [manifest.backup for manifest in manifests]
        yield partial(append_rows, "files", backups, sum(backup.files for backup in backups))
        for kind, table in [(kind, table) for kind, tables in LISTED_BY.items() for table in tables]:
            listed = [backup for backup in backups if backup.source_kind == kind]
            if table == "departures":
                listed = [backup for backup in listed if backup.backup_id not in doubtful]
            # The number of rows that a queue's backup lists does not depend on its `entries`.
            rows = 0 if kind == QUEUES else sum(backup.entries for backup in listed)
            yield partial(append_rows, table, listed, rows)

    @contextmanager
    def _changes(self, wait_s: float = _LEASE_WAIT_S) -> Iterator[Lease]:
        """Hold the catalog's lease while the block commits. Then merge small files of the tables that have
        become due for it, unless another process has the lease by then. Raises Busy."""
        with self._lease(wait_s) as lease:
            yield lease
        if tables := take_due_tables(self.catalog_uri):
            merge_due_files(self._storage, tables, partial(self._lease, 0.0))

    def _lease(self, wait_s: float = _LEASE_WAIT_S) -> Lease:
        holder = f"{socket.gethostname()}:{os.getpid()}"
        return Lease.acquire(self._storage, _LEASE, holder, ttl_s=_LEASE_TTL_S, wait_s=wait_s)


def _write_frame(writer: FrameWriter, rows: DataFrame) -> list[str]:
    """Write rows that Spark computes, in its tasks. Returns a text for each file, which `commit` takes."""
    with task_errors():
        return [row.added for row in rows.mapInArrow(writer, ADDED).collect()]


def _by_table(rows: Iterable[Row]) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(table_of(type(row)), []).append(row)
    return tables


def _run_in_threads(*tasks: Callable[[], object]) -> None:
    """Run tasks in threads. When all are done, raise the first error."""
    with ThreadPoolExecutor(_THREADS) as pool:
        for future in [pool.submit(task) for task in tasks]:
            future.result()


def _entry(row: Recorded) -> Audit:
    """The audit entry that contains a complete row."""
    table = table_of(type(row))
    action = next(action for action, row_table in ROWS_IN_AUDIT.items() if row_table == table)
    subject = row.backup_id if isinstance(row, Hold) else row.source
    detail = json.dumps(as_row(row), ensure_ascii=False)
    return Audit(at=row.at, actor=row.actor, action=action, subject=subject, detail=detail, outcome=caller.OK)


def _time_us() -> int:
    return time.time_ns() // 1000
