"""Bring backups and files that other catalogs or programs know into the catalog: all of it, or nothing.

Spark tasks read and check the rows; SQL fills in what was left out and turns manifests into lifetimes. The
rows are kept in the destination, then go into the tables, the backups last.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from lakebackup.errors import EnvironmentProblem, NotFound, Refused, UsageProblem
from lakebackup.recovery.exchange import EXCHANGED, read_index, require_whole
from lakebackup.recovery.import_reader import MANIFESTS, ImportFile, import_files
from lakebackup.recovery.imports import Import, append, read_import, sweep, write_import, write_rows
from lakebackup.requests import Request
from lakebackup.rows.upkeep import Audit
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup.storage.uris import normalized
from lakebackup.store.roots import Roots, destination_id
from lakebackup.store.trust import Approvals, destination_claim
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.tasks.progress import TaskCounters
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.upkeep.import_rows import SHOWN_ROWS, Resolver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.upkeep.import_backups import BackupsPlan
    from lakebackup.rows.backups import Backup
    from lakebackup.rows.base import State
    from lakebackup.store.lease import Lease
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.lifecycle.progress import Reporter


@dataclass(frozen=True, slots=True)
class ImportRequest(Request):
    """What to import: the folder of an export, or files of rows by what they hold.

    `trust_roots`: URIs of other catalogs' destinations whose rows are taken from an export.
    `given`: paths of `backups`, `files`, `departures` and `manifests`, the backups always. `mirror`: other
    backups of their sources were deleted there.
    """

    folder: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    source_kind: str = "imported"
    mirror: bool = False
    trust_roots: tuple[str, ...] = ()


def run(request: ImportRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Import, and return what went in; the same once more adds nothing.

    Raises NotFound (no such file), UsageProblem (rows that make no sense), Refused (rows that the catalog
    contradicts), Damaged (an export that is not whole), Busy.
    """
    work = Workspace(request, "", reporter, spark)
    files = _files(request)
    one = _Run(request, work, files, _identity(request, files))
    if request.dry_run:
        return one.plan()
    work.require_java()
    with work.lease("import") as lease:
        return one.carry_out(lease)


def _files(request: ImportRequest) -> dict[str, tuple[ImportFile, ...]]:
    if bool(request.folder) == bool(request.given):
        raise UsageProblem(
            "Give the folder of an export, or name what to import with --backups and --files or --manifests."
        )
    if request.folder:
        if request.mirror:
            raise UsageProblem("--mirror is for another program's backups: give it with --backups.")
        folder = open_storage(request.folder)
        index = read_index(folder)
        require_whole(folder, index.files)
        return {
            table: tuple(
                ImportFile(table, f"{folder.uri}/{file.path}", index.form)
                for file in index.files
                if file.table == table
            )
            for table in EXCHANGED
            if any(file.table == table for file in index.files)
        }
    if "backups" not in request.given:
        raise UsageProblem("Files belong to backups.", hint="Name their rows with --backups FILE.")
    if "files" in request.given and MANIFESTS in request.given:
        raise UsageProblem(
            "--files and --manifests exclude each other: both list the files.", hint="Give one of them."
        )
    return {table: tuple(import_files(table, path)) for table, path in request.given.items()}


def _identity(request: ImportRequest, files: Mapping[str, tuple[ImportFile, ...]]) -> str:
    """16 hex digits of what is imported, so that the same import is recognized."""
    asked: list[object] = [bool(request.folder), request.source_kind]
    asked += [sorted(request.trust_roots)] if request.trust_roots else []
    asked += ["mirror"] if request.mirror else []
    digest = hashlib.sha256(json.dumps(asked).encode())
    for table, some in sorted(files.items()):
        for file in some:
            folder, _, name = file.uri.rpartition("/")
            own = open_storage(folder or ".").sha256(name)
            digest.update(f"{table} {file.form} {own}\n".encode())
    return digest.hexdigest()[:16]


class _Run:
    """One import on its way."""

    def __init__(
        self,
        request: ImportRequest,
        work: Workspace,
        files: Mapping[str, tuple[ImportFile, ...]],
        import_id: str,
    ) -> None:
        self.request, self.work, self.files, self.import_id = request, work, files, import_id

    def plan(self) -> dict[str, Any]:
        """What would go in; nothing is written."""
        reader = self.work.existing()
        with closing(self._resolver(reader)) as resolver, task_errors():
            found, rows = resolver.resolve()
            self._warn_of_orphans(found)
            rows, _ = self._trusted(rows, reader)
            counts = {table: frame.count() for table, frame in rows.items()}
        return {"dry_run": True, **self._summary(found.new, counts, found.states)}

    def carry_out(self, lease: Lease) -> dict[str, Any]:
        """Import what is new. Raises Busy when a lease was lost: another run may have imported the same."""
        writer = self.work.writer()
        writer.migrate()  # a catalog that is behind may get its rows back by this
        if writer.home.exists(layout.import_path(self.import_id)):
            made = read_import(writer.home, self.import_id)
            there = {row["backup_id"] for row in self.work.reader().rows("every_backup")}
            new = [backup for backup in made.backups if backup.backup_id not in there]
            if new:
                self.work.reporter.note(f"resuming import {self.import_id}, which did not finish")
            if new or not self._on_record():
                self._publish(writer, made, there)
            counts = dict.fromkeys((chunk.table for chunk in made.chunks), 0) if not new else _counts(made)
            return self._summary(new, counts)
        reader = self.work.reader()
        folder = layout.import_folder(self.import_id)
        with closing(self._resolver(reader, folder)) as resolver, ExitStack() as leases:
            self.work.reporter.start(None, self._bytes(), "reading", "")
            with self.work.task_progress(folder).watched(self.work.reporter.update), task_errors():
                found, rows = resolver.resolve()
                self._warn_of_orphans(found)
                backups = found.new
                rows, taken = self._trusted(rows, reader)
            changed = {source for ids in found.states.values() for source in ids.values()}
            sources = sorted({backup.source for backup in backups} | changed)
            own = [leases.enter_context(self.work.lease(f"source-{source}")) for source in sources]
            self._still(backups)
            self.work.reporter.wait("counting the rows")
            with task_errors():
                count = sum(frame.count() for frame in rows.values())
            with self._counting("writing", count) as counters:
                chunks = [
                    chunk
                    for table, frame in rows.items()
                    for chunk in write_rows(frame, table, writer.home, self.import_id, counters)
                ]
            for held in (lease, *own):
                held.renew()
            for state, ids in found.states.items():
                writer.set_states(tuple(ids), state, actor=holder(), reason="catalog import")
            if not backups and not chunks:
                return self._summary([], {}, found.states)
            files = {table: [file.uri for file in some] for table, some in self.files.items()}
            given = json.dumps({"given": files, "destinations": taken})
            now = micros(datetime.now(UTC))
            made = Import(self.import_id, now, holder(), given, tuple(backups), tuple(chunks))
            write_import(writer.home, made)
            sweep(writer.home, made)
            self._publish(writer, made)
            self._approve_roots(writer.catalog_uri)
        return self._summary(backups, _counts(made), found.states)

    def _approve_roots(self, catalog_uri: str) -> None:
        """Who names a root with --trust-root approves it on this machine."""
        roots = [open_storage(uri) for uri in self.request.trust_roots]
        claims = [destination_claim(destination_id(root, create=False), root.uri) for root in roots]
        try:
            Approvals(catalog_uri).approve(claims)
        except EnvironmentProblem as problem:
            self.work.reporter.warning(f"what --trust-root names has to be approved again: {problem.message}")

    def _warn_of_orphans(self, plan: BackupsPlan) -> None:
        orphans = sorted(plan.orphans)
        for file, number, text in orphans[:SHOWN_ROWS]:
            self.work.reporter.warning(f"{self.files['backups'][file].uri}:{number}: {text}")
        if len(orphans) > SHOWN_ROWS:
            hidden_count = len(orphans) - SHOWN_ROWS
            self.work.reporter.warning(f"and {hidden_count} more: see unusable_backups")

    @contextmanager
    def _counting(self, stage: str, rows: int) -> Iterator[TaskCounters]:
        """What counts the rows of a stage in its tasks, while a person sees how many are done."""
        reporter, folder = self.work.reporter, layout.import_folder(self.import_id)
        reporter.start(rows, None, stage, "rows")
        with self.work.task_progress(folder).watched(reporter.update), task_errors():
            yield TaskCounters(self.work.storage.uri, folder)
        reporter.update(rows, 0)

    def _on_record(self) -> bool:
        """Whether the audit log has this import: it follows all rows but those of `backups`."""
        return any(row["subject"] == self.import_id for row in self.work.reader().rows("imports_on_record"))

    def _publish(self, writer: CatalogWriter, made: Import, there: Collection[str] = ()) -> None:
        """Put an import into the tables. `there`: backups in a catalog that a rebuild may have made, whose
        log does not know the import's transactions."""
        new = [backup for backup in made.backups if backup.backup_id not in there]
        spare = {backup.backup_id for backup in made.backups} & set(there)
        with self._counting("publishing", sum(chunk.rows for chunk in made.chunks)) as counters:
            name = f"import-{made.import_id}"
            append(self.work.spark, writer, made, name, spare=spare, counters=counters)
        entry = Audit(
            at=made.at,
            actor=made.actor,
            action="catalog import",
            subject=made.import_id,
            detail=json.dumps({**json.loads(made.given), "backups": len(made.backups)}),
        )
        writer.append_audit(entry, made.import_id)
        writer.append(new, f"import-{made.import_id}")

    def _trusted(
        self, rows: dict[str, DataFrame], reader: CatalogReader | None
    ) -> tuple[dict[str, DataFrame], list[str]]:
        """The rows without those of destinations that are not trusted, and the ids of those that stay:
        the destination that this run was opened with, and those at `trust_roots`, which prove themselves.

        Raises UsageProblem (nothing of the export lies at a root), Refused (it does not prove itself).
        """
        frame = rows.get("destinations")
        found = {row.destination: row.uri for row in frame.collect()} if frame is not None else {}
        named = {normalized(uri): uri for uri in self.request.trust_roots}
        if strange := sorted(uri for root, uri in named.items() if root not in found.values()):
            raise UsageProblem(
                f"--trust-root {strange[0]}: no repository of the export lies there.",
                hint=f"It has {', '.join(sorted(found.values())) or 'none'}.",
            )
        storage = self.work.storage
        home = {}
        with suppress(NotFound):
            home = {destination_id(storage, create=False): storage.uri}
        trusted = {name: uri for name, uri in found.items() if uri in named or home.get(name) == uri}
        roots = Roots(trusted)
        for name in trusted:
            roots.open(name)
        known = reader.destinations().uris if reader else home
        for name, uri in sorted(found.items()):
            if name not in trusted and name not in known:
                self.work.reporter.warning(
                    f"repository {name} at {uri} was left out: what it holds cannot be restored from here "
                    f"before the import is repeated with --trust-root {uri}"
                )
        if frame is not None:
            kept = frame.where(frame["destination"].isin(list(trusted)))
            rows = {name: kept if name == "destinations" else one for name, one in rows.items()}
            if not trusted:
                del rows["destinations"]
        return rows, sorted(found.keys() & {*trusted, *home})

    def _still(self, backups: Iterable[Backup]) -> None:
        """Refused when another run took a number while this one was at work without the sources' leases."""
        now = {(row["source"], row["number"]) for row in self.work.reader().rows("every_backup")}
        taken = [b.backup_id for b in backups if (b.source, b.number) in now]
        if taken:
            raise Refused(
                f"Other backups came in for {', '.join(taken[:5])} meanwhile.", hint="Run the import again."
            )

    def _bytes(self) -> int:
        """The size of the files that tasks read."""
        size = 0
        for table, files in self.files.items():
            for file in files if table != "backups" else ():
                folder, _, name = file.uri.rpartition("/")
                size += open_storage(folder or ".").stat(name).bytes
        return size

    def _resolver(self, reader: CatalogReader | None, folder: str | None = None) -> Resolver:
        """`folder`: where tasks report what they have read; a dry run writes nothing."""
        held = reader.rows("every_backup") if reader else []
        return Resolver(
            self.work.spark,
            self.work.reader().catalog_uri,
            self.files,
            {row["backup_id"]: row for row in held},
            whole=self.request.folder is not None,
            source_kind=self.request.source_kind,
            mirror=self.request.mirror,
            counters=TaskCounters(self.work.storage.uri, folder) if folder else None,
        )

    def _summary(
        self,
        backups: Sequence[Backup],
        counts: Mapping[str, int],
        states: Mapping[State, Collection[str]] | None = None,
    ) -> dict[str, Any]:
        ordered = sorted(backups, key=attrgetter("source"))
        sources = [(source, list(some)) for source, some in groupby(ordered, attrgetter("source"))]
        shown = [
            {
                "source": source,
                "backups": len(some),
                "files": sum(b.files for b in some),
                "bytes": sum(b.bytes for b in some),
                "until_ts": max(b.end_ts for b in some),
            }
            for source, some in sources
        ]
        found = {table: count for table, count in counts.items() if count}
        ids = {"import_id": self.import_id, "backups": len(backups)}
        changed = {"states": {state: len(some) for state, some in states.items()}} if states else {}
        return self.work.timed({**ids, **found, **changed, "sources": shown})


def _counts(made: Import) -> dict[str, int]:
    tables = sorted({chunk.table for chunk in made.chunks})
    return {table: sum(chunk.rows for chunk in made.chunks if chunk.table == table) for table in tables}
