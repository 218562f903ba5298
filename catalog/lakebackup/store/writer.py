"""Changes to the catalog, each under its lease.

A backup is published in this order: the job writes data objects, manifest parts and the manifest; then this
module appends to all other tables, and last the one row of `backups`, which makes the backup exist. Each
append is applied once a backup id, so a commit can be repeated after a crash.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy, EnvironmentProblem
from lakebackup.rows.base import QUEUES, Row, State
from lakebackup.rows.tables import ARROW_SCHEMAS, TABLES, as_row, table_of
from lakebackup.rows.upkeep import Audit, Destination, Drill, Hold, Migration, Policy, PolicyTopics
from lakebackup.rules import layout
from lakebackup.sql_engine import RAW
from lakebackup.sql_engine.delta.change import replace_rows, set_states
from lakebackup.sql_engine.delta.table import (
    SORTED_BY,
    append,
    append_files,
    commit,
    open_table,
    outrun,
    rows_in,
    settings_of,
)
from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.worker import session_on
from lakebackup.store import caller
from lakebackup.store.behind import require_current
from lakebackup.store.delta_append import (
    ADDED,
    LISTED_BY,
    ROWS_PER_FILE,
    FrameWriter,
    ListedRows,
    PartRows,
    WrittenRows,
    grouped,
)
from lakebackup.store.lease import Lease
from lakebackup.store.manifest import mark
from lakebackup.store.reader import Catalog, CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.tombstones import incomplete
from lakebackup.store.trust import Approvals, destination_claim
from lakebackup_sql import names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.rows.backups import Backup
    from lakebackup.rows.logs import LogTask
    from lakebackup.rows.queues import QueueRestore
    from lakebackup.sql_engine.worker import Cluster, PerNumber
    from lakebackup.storage import Storage
    from lakebackup.store.delta_append import RowSource
    from lakebackup.store.manifest import Manifest

    Recorded = Policy | PolicyTopics | Hold | LogTask | QueueRestore | Drill
    Session = SparkSession | Callable[[], SparkSession] | None

#: Tables whose rows are stored completely in the audit log: action -> table.
ROWS_IN_AUDIT = {
    "set_policy": "policies",
    "set_policy_topics": "policy_topics",
    "hold": "holds",
    "log_task": "log_tasks",
    "queue_restore": "queue_restores",
    "drill": "drills",
}
#: Tables of which not all rows count for ever -> the statement that gives those that do.
FOLDED = {
    "log_regions": "log_regions_kept", "removals": "removals_kept", "failures": "failures_kept"
}  # fmt: skip
# Longer than the report looks back.
_FAILURES_US = 100 * 86_400_000_000
# So long each removed file has a row of its own, as long as tables can be asked as they were.
_REMOVALS_US = 30 * 86_400_000_000
_LEASE = "catalog"
# A compromise: readers open fewer large files, but they verify a whole file before they use any row of it.
_FILE_BYTES = 4 << 20
_SMALL_BYTES = _FILE_BYTES // 2
_UPKEEP = {
    "spark.databricks.delta.optimize.maxFileSize": _FILE_BYTES,
    "spark.databricks.delta.optimize.minFileSize": _SMALL_BYTES,
    # By default VACUUM starts 10,000 tasks to list a table's only folder.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": 4,
}
_LEASE_TTL_S = 30.0
_LEASE_WAIT_S = 300.0
# Each waits for the disk or for object storage most of the time.
_AT_ONCE = 8


class CatalogWriter(Catalog):
    """Changes the catalog of a destination, or the one at the URI `catalog`; `migrate` creates it.

    `spark`: what runs tasks, or a function that starts it when it is needed. Without it, only methods that
    create tables, append given rows or change states work. Each change takes the catalog's lease, because
    commits to a Delta log in a folder are not atomic across processes.
    """

    def __init__(
        self, spark: Cluster | Callable[[], Cluster] | None, destination: str, catalog: str | None = None
    ) -> None:
        super().__init__(destination, catalog)
        self._started = spark

    def prepare(self) -> CatalogReader:
        """Create or migrate the catalog, so that a run can add backups, and return it; Refused when it is
        behind."""
        self.migrate()
        reader = CatalogReader(self.home.uri, self.catalog_uri)
        require_current(reader)
        return reader

    @property
    def _cluster(self) -> Cluster:
        if self._started is None:
            raise ValueError("this writer was opened without Spark")
        if callable(self._started):
            self._started = self._started()
        return self._started

    @property
    def _spark(self) -> SparkSession:
        return session_on(self._cluster)

    def migrate(self) -> int:
        """Create or update the tables; can be repeated. Returns the schema version."""
        newest = len(names("migrations"))
        if (self.version() or 0) < newest:
            from lakebackup.sql_engine.delta.ddl import make_table

            with self._lease() as lease:
                done = self.version() or 0
                missing = dict(enumerate(names("migrations")[done:], done + 1))
                tables = {table for name in missing.values() for table in names(f"migrations/{name}")}
                _run_in_threads(*(partial(make_table, self._storage, table) for table in sorted(tables)))
                lease.renew()
                now = _now()
                rows = [Migration(version=n, name=name, applied_at=now) for n, name in missing.items()]
                append(self._storage, "migrations", rows, f"migration-{newest}")
        return newest

    def require_writable(self) -> None:
        """Raises EnvironmentProblem when nothing can be written to the catalog."""
        with self._lease():
            pass

    def commit_backup(self, storage: Storage, manifest: Manifest, *, held: Lease | None) -> None:
        """Publish a backup whose manifest and parts are in `storage`. Repeating it adds nothing.

        `held`: the lease on its source, without which another run may delete the objects as those of a dead
        run. It is renewed just before the backup exists, since the steps before may take long. Raises Busy
        (that lease was lost, or another process has the catalog's), UsageProblem (an invalid row).
        """
        backup = manifest.backup
        with self._lease() as lease:
            small = _by_table(manifest.rows).items()
            _run_in_threads(
                partial(self._register, storage),
                *self._part_appends(storage, [manifest], backup.backup_id),
                *(partial(append, self._storage, *some, backup.backup_id) for some in small),
            )
            if held:
                held.renew()
            lease.renew()
            append(self._storage, "backups", [backup], backup.backup_id)

    def _register(self, storage: Storage) -> str:
        name = destination_id(storage)
        beside = storage.uri == self.catalog_uri.rpartition("/")[0]
        row = Destination(destination=name, uri="" if beside else storage.uri, created_at=_now())
        if not beside:  # a person or a setting named it; where that cannot be recorded, it is asked again
            with suppress(EnvironmentProblem):
                Approvals(self.catalog_uri).approve([destination_claim(name, storage.uri)])
        append(self._storage, "destinations", [row], f"destination-{name}-{row.uri}")
        return name

    def append(
        self, rows: Sequence[Row], transaction: str | None = None, *, wait_s: float = _LEASE_WAIT_S
    ) -> None:
        """Append rows of any tables, one commit for each table; once for each `transaction`.

        Raises Busy when another process has the catalog's lease for longer than `wait_s`.
        """
        with self._lease(wait_s):
            for table, some in _by_table(rows).items():
                append(self._storage, table, some, transaction or uuid.uuid4().hex)

    def append_frame(
        self, table: str, rows: DataFrame, transaction: str | None = None, source: RowSource | None = None
    ) -> None:
        """Append any number of rows that Spark computes, once for each `transaction`.

        `source`: converts `rows` to rows of the table, in the task that writes them.
        """
        settings = settings_of(f"{self.catalog_uri}/{table}")
        writer = FrameWriter(self.catalog_uri, table, settings, source)
        added = _write_frame(writer, rows)
        with self._lease():
            commit(self._storage, table, added, transaction or uuid.uuid4().hex)

    def frame_writer(self, table: str) -> FrameWriter:
        """What writes rows as files of a table, in any process; `append_written` makes them visible."""
        return FrameWriter(self.catalog_uri, table, settings_of(f"{self.catalog_uri}/{table}"))

    def append_written(self, added: Mapping[str, Sequence[str]], transaction: str) -> None:
        """Append the rows that frame writers wrote: a commit for each table, once for each `transaction`."""
        with self._lease():
            for table, files in added.items():
                commit(self._storage, table, files, f"{transaction}-{table}")

    def append_read(
        self, table: str, source: PerNumber, tasks: int, transaction: str, *, here: bool | None = None
    ) -> None:
        """Append the rows that `source` returns for each task number, once for each `transaction`.

        `here`: in this process; if it is not given, what a single task does.
        """
        settings = settings_of(f"{self.catalog_uri}/{table}")
        added = self._write_tasks(table, source, tasks, settings, here=here)
        with self._lease():
            commit(self._storage, table, added, transaction)

    def _write_tasks(
        self,
        table: str,
        source: PerNumber,
        tasks: int,
        settings: Mapping[str, str],
        *,
        here: bool | None = None,
    ) -> list[str]:
        writer = FrameWriter(self.catalog_uri, table, settings)
        if here is None:
            here = tasks == 1  # it is done before Spark has started
        if here or self._started is None:
            return [added for number in range(tasks) for added in writer.write(source.rows(number))]
        with task_errors():
            rows = WrittenRows(writer, source).reports(self._cluster, range(tasks), ADDED)
        return [row["added"] for row in rows]

    def append_parts(
        self, manifests: Sequence[Manifest], transaction: str, *, doubtful: Collection[str] = ()
    ) -> None:
        """Append the rows in the manifest parts of some backups of this destination.

        Backups `doubtful` (ids) may never have been published, and others may have reused their numbers:
        their rows of `departures` are not appended.
        """
        with self._lease():
            _run_in_threads(*self._part_appends(self.home, manifests, transaction, doubtful))

    def replace_frame(self, table: str, rows: DataFrame) -> None:
        """Replace all rows of a table."""
        with self._spark_commits():
            rows.write.format("delta").mode("overwrite").save(f"{self.catalog_uri}/{table}")

    def fold(self, table: str) -> None:
        """Drop the rows of a table of `FOLDED` that do not count any more, in one commit: what can be
        restored, and all else that is asked of it, stays the same."""
        parameters: dict[str, Any] = {}
        if table == "failures":
            parameters = {"before": _now() - _FAILURES_US}
        elif table == "removals":
            parameters = {
                "before": _now() - _REMOVALS_US,
                "destination": destination_id(self.home),
                "incomplete": ",".join(incomplete(self.home)),
            }
        with self._lease():
            reader = CatalogReader(self.home.uri, self.catalog_uri).on(self._spark)
            before = reader.count(table)
            if not before:
                return
            rows = reader.frame(FOLDED[table], **parameters).hint("rebalance")  # few tasks where few stay
            settings = settings_of(f"{self.catalog_uri}/{table}")
            added = _write_frame(FrameWriter(self.catalog_uri, table, settings), rows)
            version = reader.pinned()[f"{RAW}{table}"]
            if rows_in(added) < before and not replace_rows(self._storage, table, version, added):
                raise outrun(f"{self.catalog_uri}/{table}")

    def merge_small_files(self, most: int) -> None:
        """Merge the small files of each table that has more than `most` of them, without rows that do not
        count any more.

        Every commit adds a small file, and every reader opens all files. Not over Spark Connect.
        """
        for table in TABLES:
            sizes = open_table(f"{self.catalog_uri}/{table}").get_add_actions(flatten=True)
            if table == "log_regions" and len(sizes) > most:
                self.fold(table)
            elif sum(size < _SMALL_BYTES for size in sizes.column("size_bytes").to_pylist()) > most:
                with self._upkeep(table) as found:
                    found.optimize().executeCompaction()

    def optimize(self, table: str, *, retain_hours: float) -> None:
        """Merge and sort the files of a table; its rows do not change. Not over Spark Connect.

        Deletes files that no version of the last `retain_hours` needs.
        """
        columns = ("source", "gone_in") if table == "departures" else SORTED_BY
        with self._upkeep(table) as found:
            if len(open_table(f"{self.catalog_uri}/{table}").file_uris()) > 1:
                if set(columns) <= set(ARROW_SCHEMAS[table].names):
                    order = self._spark._jvm.PythonUtils.toSeq(list(columns))  # type: ignore[union-attr] # noqa: SLF001
                    found.optimize().executeZOrderBy(order)
                else:
                    found.optimize().executeCompaction()
            found.vacuum(retain_hours)

    @contextmanager
    def _upkeep(self, table: str) -> Iterator[Any]:
        """The DeltaTable in the JVM, while Spark may commit."""
        tables = self._spark._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr] # noqa: SLF001
        session = self._spark._jsparkSession  # noqa: SLF001 - the class in the JVM has no other constructor
        with self._spark_commits(), _settings(self._spark, _UPKEEP):
            yield tables.forPath(session, f"{self.catalog_uri}/{table}")

    def register_home(self) -> str:
        """Add a row for this writer's destination, unless it has one; returns its id."""
        with self._lease():
            return self._register(self.home)

    def append_audit(
        self, entry: Audit, audit_id: str | None = None, *, wait_s: float = _LEASE_WAIT_S
    ) -> None:
        """Record an audit entry: as an object in the destination, for rebuilds, and as a row.

        With an `audit_id` this can be repeated: the entry is recorded once. `wait_s` as of `append`.
        """
        entry, audit_id = caller.current().sign(entry), audit_id or secrets.token_hex(4)
        self._store_audit(entry, audit_id)
        self.append([entry], f"audit-{entry.at}-{audit_id}", wait_s=wait_s)

    def record(self, row: Recorded) -> None:
        """Record a policy, a hold, a log task, an engine's restore or a drill: in the audit log, for
        rebuilds, and as a row."""
        self.record_next(lambda: row)

    def record_next(self, make: Callable[[], Recorded | None]) -> None:
        """As `record`, for the row that `make` returns under the catalog's lease, so that what it reads
        cannot change before the row is there; None: nothing is recorded."""
        with self._lease():
            row = make()
            if row is not None:
                entry, name = caller.current().sign(_entry(row)), secrets.token_hex(4)
                self._store_audit(entry, name)
                append(self._storage, "audit", [entry], f"audit-{entry.at}-{name}")
                append(self._storage, table_of(type(row)), [row], name)

    def record_once(self, rows: Sequence[QueueRestore], name: str) -> None:
        """As `record`, for several rows; once for each `name`."""
        self._record_audits([_entry(row) for row in rows], name)
        self.append(rows, name)

    def set_states(self, backup_ids: Sequence[str], state: State, *, actor: str, reason: str) -> None:
        """Change the state of some backups in one commit, after an audit entry for each, in their order.

        A rebuild reads the states from these entries.
        """
        detail = json.dumps({"state": state, "reason": reason})
        entry = partial(Audit, actor=actor, action="set_state", detail=detail, outcome=caller.OK)
        entries = [entry(at=_now(), subject=backup_id) for backup_id in backup_ids]
        self._record_audits(entries, secrets.token_hex(4))
        with self._lease():
            set_states(self._storage, backup_ids, state)

    def _record_audits(self, entries: Sequence[Audit], name: str) -> None:
        signed = [caller.current().sign(entry) for entry in entries]
        for number, entry in enumerate(signed):
            self._store_audit(entry, f"{name}-{number:06d}")
        self.append(signed, f"audit-{name}")

    def _store_audit(self, entry: Audit, audit_id: str) -> None:
        mark(self.home, layout.audit_path(entry.at, audit_id), as_row(entry))

    def _part_appends(
        self,
        storage: Storage,
        manifests: Sequence[Manifest],
        transaction: str,
        doubtful: Collection[str] = (),
    ) -> Iterator[Callable[[], object]]:
        """Functions that append the rows in backups' parts, one for each table."""
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
            # The number of rows that queues list does not grow with `entries`.
            rows = 0 if kind == QUEUES else sum(backup.entries for backup in listed)
            yield partial(append_rows, table, listed, rows)

    @contextmanager
    def _spark_commits(self) -> Iterator[None]:
        """Hold the lease while Spark commits. In object storage Spark's commits are not atomic (it checks for
        a log entry, then writes it): only the lease excludes others, so losing it is an error."""
        with self._lease() as lease:
            yield
            try:
                lease.renew()
            except Busy as lost:
                raise Busy(
                    f"{lost.message} Commits of others to {self.catalog_uri} in the meantime may be lost.",
                    hint="Move the catalog away and run `lakebackup catalog rebuild`, then the same command.",
                ) from lost

    def _lease(self, wait_s: float = _LEASE_WAIT_S) -> Lease:
        holder = f"{socket.gethostname()}:{os.getpid()}"
        return Lease.acquire(self._storage, _LEASE, holder, ttl_s=_LEASE_TTL_S, wait_s=wait_s)


def _write_frame(writer: FrameWriter, rows: DataFrame) -> list[str]:
    """Write rows that Spark computes, in its tasks: a text for each file."""
    with task_errors():
        return [row.added for row in rows.mapInArrow(writer, ADDED).collect()]


def _by_table(rows: Iterable[Row]) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(table_of(type(row)), []).append(row)
    return tables


def _run_in_threads(*tasks: Callable[[], object]) -> None:
    """Run tasks in threads; when all are done, raise the first error."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(task) for task in tasks]:
            done.result()


def _entry(row: Recorded) -> Audit:
    """The audit entry that contains a complete row."""
    table = table_of(type(row))
    action = next(action for action, held in ROWS_IN_AUDIT.items() if held == table)
    subject = row.backup_id if isinstance(row, Hold) else row.source
    detail = json.dumps(as_row(row), ensure_ascii=False)
    return Audit(at=row.at, actor=row.actor, action=action, subject=subject, detail=detail, outcome=caller.OK)


def _now() -> int:
    return time.time_ns() // 1000


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, object]) -> Iterator[None]:
    """Change settings of the session while the block runs."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, str(value))
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
