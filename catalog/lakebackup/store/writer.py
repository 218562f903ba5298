"""Changes to the catalog, each under its lease.

Publishing order of a backup: data objects, manifest parts and manifest (the job's), then `files`, then
`positions`, `scopes`, `gaps` and `groups`, and last the one row of `backups`, which alone makes the backup
exist. Each append is made once for each backup id, so that a commit can be repeated after a crash.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy
from lakebackup.rows.base import QUEUES, Row, State
from lakebackup.rows.tables import ARROW_SCHEMAS, TABLES, as_row, table_of
from lakebackup.rows.upkeep import Audit, Destination, Hold, Migration, Policy, PolicyTopics
from lakebackup.rules import layout
from lakebackup.sql_engine.delta.change import set_states
from lakebackup.sql_engine.delta.table import SORTED_BY, append, commit, open_table
from lakebackup.sql_engine.failures import task_errors
from lakebackup.store.behind import current_catalog
from lakebackup.store.delta_append import (
    ADDED,
    LISTED_BY,
    ROWS_PER_FILE,
    FrameWriter,
    ListedRows,
    PartRows,
    grouped,
)
from lakebackup.store.lease import Lease
from lakebackup.store.manifest import mark
from lakebackup.store.reader import Catalog
from lakebackup.store.roots import destination_id
from lakebackup_sql import load, names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.rows.backups import Backup
    from lakebackup.rows.logs import LogTask
    from lakebackup.rows.queues import QueueRestore
    from lakebackup.sql_engine.worker import PerNumber
    from lakebackup.storage import Storage
    from lakebackup.store.delta_append import RowSource
    from lakebackup.store.manifest import Manifest

    Session = SparkSession | Callable[[], SparkSession] | None

#: What the audit log holds whole rows of: action -> table.
ROWS_IN_AUDIT = {
    "set_policy": "policies",
    "set_policy_topics": "policy_topics",
    "hold": "holds",
    "log_task": "log_tasks",
    "queue_restore": "queue_restores",
}
_LEASE = "catalog"
# Readers verify a file whole before they use a row of it: large, so that few are opened, but not too large.
_FILE_BYTES = 4 << 20
_SMALL_BYTES = _FILE_BYTES // 2
_UPKEEP = {
    "spark.databricks.delta.optimize.maxFileSize": _FILE_BYTES,
    "spark.databricks.delta.optimize.minFileSize": _SMALL_BYTES,
    # VACUUM else starts 10,000 tasks to list a table's one folder.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": 4,
}
_LEASE_TTL_S = 30.0
_LEASE_WAIT_S = 300.0


class CatalogWriter(Catalog):
    """Changes to the catalog of a destination, or at the URI `catalog`; `migrate` makes one.

    `spark`: a session, or what makes one when it is needed. Without a session this creates tables, appends
    rows that it is given and changes states, no more. Each change takes the catalog's lease, since a Delta
    log in a folder has no conditional put of its own that holds between processes.
    """

    def __init__(self, spark: Session, destination: str, catalog: str | None = None) -> None:
        super().__init__(destination, catalog)
        self._session = spark

    def prepare(self) -> None:
        """Have a catalog that a run can add backups to: `migrate`, then Refused when it is behind."""
        self.migrate()
        current_catalog(self.home.uri, self.catalog_uri)

    @property
    def _spark(self) -> SparkSession:
        if self._session is None:
            raise ValueError("this writer was opened without a Spark session")
        if callable(self._session):
            self._session = self._session()
        return self._session

    def migrate(self) -> int:
        """Create the tables or bring them up to date, again and again; returns the schema version."""
        if (self.version() or 0) < len(names("migrations")):
            from lakebackup.sql_engine.delta.ddl import create_table

            with self._lease() as lease:
                for number, migration in enumerate(names("migrations"), 1):
                    if number <= (self.version() or 0):
                        continue
                    folder = f"migrations/{migration}"
                    made = ((table, load(folder, table)) for table in names(folder))
                    _side_by_side(*(partial(create_table, self._storage, *one) for one in made))
                    lease.renew()
                    row = Migration(version=number, name=migration, applied_at=_now())
                    append(self._storage, "migrations", [row], f"migration-{number}")
        return len(names("migrations"))

    def require_writable(self) -> None:
        """Raises EnvironmentProblem when nothing can be written to the catalog."""
        with self._lease():
            pass

    def commit_backup(self, storage: Storage, manifest: Manifest, *, held: Lease | None) -> None:
        """Make a backup exist whose manifest and parts are in `storage`. Repeating it adds nothing.

        `held`: the lease on its source, which keeps other runs from taking its objects for those of a dead
        run; checked last, since this may wait and work for long. Raises Busy (it was lost, or another
        process keeps the catalog's lease), UsageProblem (a row breaks a rule).
        """
        backup = manifest.backup
        with self._lease() as lease:
            self._register(storage)
            small = _by_table(manifest.rows).items()
            _side_by_side(
                *self._parts(storage, [manifest], backup.backup_id),
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
        append(self._storage, "destinations", [row], f"destination-{name}-{row.uri}")
        return name

    def append(self, rows: Sequence[Row], transaction: str | None = None) -> None:
        """Append rows of any tables, each table's in one commit, once for each `transaction`."""
        with self._lease():
            for table, some in _by_table(rows).items():
                append(self._storage, table, some, transaction or uuid.uuid4().hex)

    def append_frame(
        self, table: str, rows: DataFrame, transaction: str | None = None, source: RowSource | None = None
    ) -> None:
        """Append any number of rows that Spark computes, once for each `transaction`.

        `source`: what makes rows of the table out of `rows`, in the task that writes them.
        """
        added = self._written(FrameWriter(self.catalog_uri, table, source), rows)
        with self._lease():
            commit(self._storage, table, added, transaction or uuid.uuid4().hex)

    def append_made(self, table: str, source: RowSource, tasks: int, transaction: str) -> None:
        """Append the rows that `source` makes of the numbers of tasks, once for each `transaction`."""
        self.append_frame(table, self._spark.range(0, tasks, 1, tasks), transaction, source)

    def append_read(self, table: str, source: PerNumber, tasks: int, transaction: str) -> None:
        """As `append_made`; the rows of a single task are few enough to be read by this process."""
        added = self._read(table, source, tasks)
        with self._lease():
            commit(self._storage, table, added, transaction)

    def _read(self, table: str, source: PerNumber, tasks: int) -> list[str]:
        if tasks == 1:  # done sooner than Spark has started
            return list(FrameWriter(self.catalog_uri, table).write(source.rows(0)))
        return self._written(
            FrameWriter(self.catalog_uri, table, source), self._spark.range(0, tasks, 1, tasks)
        )

    def _written(self, writer: FrameWriter, rows: DataFrame) -> list[str]:
        with task_errors():
            return [row.added for row in rows.mapInArrow(writer, ADDED).collect()]  # one row a file

    def append_parts(
        self, manifests: Sequence[Manifest], transaction: str, *, doubtful: Collection[str] = ()
    ) -> None:
        """Append the rows that the parts of some backups of this destination hold.

        Backups `doubtful` (ids) may never have come to exist, and others may have their numbers by now: what
        they record as departed from a log still counts.
        """
        with self._lease():
            _side_by_side(*self._parts(self.home, manifests, transaction, doubtful))

    def replace_frame(self, table: str, rows: DataFrame) -> None:
        """Put rows in the place of all that a table holds."""
        with self._spark_commits():
            rows.write.format("delta").mode("overwrite").save(f"{self.catalog_uri}/{table}")

    def tidy(self, most: int) -> None:
        """Merge the small files of each table that has more than `most`; its rows stay as they are.

        Every commit adds a small file, and every reader opens them all. Not over Spark Connect.
        """
        for table in TABLES:
            sizes = open_table(f"{self.catalog_uri}/{table}").get_add_actions(flatten=True)
            if sum(size < _SMALL_BYTES for size in sizes.column("size_bytes").to_pylist()) > most:
                with self._upkeep(table) as found:
                    found.optimize().executeCompaction()

    def optimize(self, table: str, *, retain_hours: float) -> None:
        """Merge the files of a table, rows that are queried together side by side, and delete files that no
        version of the last hours needs. Its rows stay as they are. Not over Spark Connect.
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
        """The JVM's object for a table, while Spark may commit."""
        tables = self._spark._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr] # noqa: SLF001
        session = self._spark._jsparkSession  # noqa: SLF001 - the class in the JVM has no other constructor
        with self._spark_commits(), _settings(self._spark, _UPKEEP):
            yield tables.forPath(session, f"{self.catalog_uri}/{table}")

    def register_home(self) -> str:
        """Have a row for the destination that this was opened with; returns its id."""
        with self._lease():
            return self._register(self.home)

    def append_audit(self, entry: Audit, audit_id: str | None = None) -> None:
        """Record what was done: an object in the destination, for a lost catalog, and a row.

        With an `audit_id`, an entry is written once, however often this is repeated.
        """
        audit_id = audit_id or secrets.token_hex(4)
        self._keep_audit(entry, audit_id)
        self.append([entry], f"audit-{entry.at}-{audit_id}")

    def record(self, row: Policy | PolicyTopics | Hold | LogTask | QueueRestore) -> None:
        """Record a policy, a hold, what a log task is to do or where an engine was restored: in the audit
        log, where a rebuild finds it again, and as a row."""
        self.append_audit(_entry(row))
        self.append([row])

    def record_once(self, rows: Sequence[QueueRestore], name: str) -> None:
        """As `record`, of rows that belong together; once for each `name`."""
        self._append_audits([_entry(row) for row in rows], name)
        self.append(rows, name)

    def set_states(self, backup_ids: Sequence[str], state: State, *, actor: str, reason: str) -> None:
        """Change the state of some backups in one commit, after an audit entry for each, in their order.

        The entry is also how a rebuild learns of it.
        """
        detail = json.dumps({"state": state, "reason": reason})
        entries = [
            Audit(at=_now(), actor=actor, action="set_state", subject=backup_id, detail=detail)
            for backup_id in backup_ids
        ]
        self._append_audits(entries, secrets.token_hex(4))
        with self._lease():
            set_states(self._storage, backup_ids, state)

    def _append_audits(self, entries: Sequence[Audit], name: str) -> None:
        for number, entry in enumerate(entries):
            self._keep_audit(entry, f"{name}-{number:06d}")
        self.append(entries, f"audit-{name}")

    def _keep_audit(self, entry: Audit, audit_id: str) -> None:
        mark(self.home, layout.audit_path(entry.at, audit_id), as_row(entry))

    def _parts(
        self,
        storage: Storage,
        manifests: Sequence[Manifest],
        transaction: str,
        doubtful: Collection[str] = (),
    ) -> Iterator[Callable[[], object]]:
        """For each table that parts of backups have rows of, what appends them."""
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
            commit(self._storage, table, self._read(table, source, count), transaction)

        backups = [manifest.backup for manifest in manifests]
        yield partial(append_rows, "files", backups, sum(backup.files for backup in backups))
        for kind, table in [(kind, table) for kind, tables in LISTED_BY.items() for table in tables]:
            listed = [backup for backup in backups if backup.source_kind == kind]
            if table == "departures":
                listed = [backup for backup in listed if backup.backup_id not in doubtful]
            # What queues list does not grow with their messages.
            rows = 0 if kind == QUEUES else sum(backup.entries for backup in listed)
            yield partial(append_rows, table, listed, rows)

    @contextmanager
    def _spark_commits(self) -> Iterator[None]:
        """The lease while Spark commits. In object storage Spark looks whether an entry of a log is there and
        then puts it: the lease alone keeps others out, so a lease lost meanwhile is an error."""
        with self._lease() as lease:
            yield
            try:
                lease.renew()
            except Busy as lost:
                raise Busy(
                    f"{lost.message} What others committed to {self.catalog_uri} meanwhile may be missing.",
                    hint="Move the catalog away and run `lakebackup catalog rebuild`, then the same command.",
                ) from lost

    def _lease(self) -> Lease:
        holder = f"{socket.gethostname()}:{os.getpid()}"
        return Lease.acquire(self._storage, _LEASE, holder, ttl_s=_LEASE_TTL_S, wait_s=_LEASE_WAIT_S)


def _by_table(rows: Iterable[Row]) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(table_of(type(row)), []).append(row)
    return tables


def _side_by_side(*tasks: Callable[[], object]) -> None:
    """Do tasks that wait more than they work; when all are done, raises the first error."""
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(task) for task in tasks]:
            done.result()


def _entry(row: Policy | PolicyTopics | Hold | LogTask | QueueRestore) -> Audit:
    """The entry of the audit log that holds a row whole."""
    table = table_of(type(row))
    action = next(action for action, held in ROWS_IN_AUDIT.items() if held == table)
    subject = row.backup_id if isinstance(row, Hold) else row.source
    detail = json.dumps(as_row(row), ensure_ascii=False)
    return Audit(at=row.at, actor=row.actor, action=action, subject=subject, detail=detail)


def _now() -> int:
    return time.time_ns() // 1000


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, object]) -> Iterator[None]:
    """Settings of the session while the block runs."""
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
