"""Import backups and files of other catalogs or programs into the catalog: all of them, or nothing.

Spark tasks read and check the rows. SQL fills in missing columns, and turns manifests into the lifetimes of
files. The rows are first written into the destination. Once `import.json` is there too, the import exists,
and a later run resumes it. Then the rows go into the tables, those of `backups` last, so that nothing is
visible before everything is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakebackup.errors import EnvironmentProblem, NotFound, Refused, UsageProblem
from lakebackup.plan.upkeep.import_backups import BackupsPlan
from lakebackup.recovery.exchange import EXCHANGED, read_index, require_whole
from lakebackup.recovery.import_reader import MANIFESTS, ImportFile, import_files
from lakebackup.recovery.imports import Import, append, read_import, sweep, write_import, write_rows
from lakebackup.requests import Request
from lakebackup.rows.backups import Backup
from lakebackup.rows.base import State
from lakebackup.rows.upkeep import Audit
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup.storage.uris import normalized
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import Roots, destination_id
from lakebackup.store.trust import Approvals, destination_claim
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.tasks.progress import TaskCounters
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.runtime.signing import in_use, trusted_keys
from lakebackup_jobs.upkeep.import_rows import SHOWN_ROWS, Resolver


@dataclass(frozen=True, slots=True)
class ImportRequest(Request):
    """What to import: the folder of an export, or files of rows.

    `input_paths`: the paths of the files by what they hold: `backups` (required), `files`, `departures` and
    `manifests`. `mirror`: the list of backups is complete, so others of its sources count as deleted.
    `trust_roots`: URIs of other catalogs' destinations that may be imported from an export.
    """

    folder: str | None = None
    input_paths: Mapping[str, str] = field(default_factory=dict)
    source_kind: str = "imported"
    mirror: bool = False
    trust_roots: tuple[str, ...] = ()


def run(request: ImportRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Import the rows; returns the summary. The same import again adds nothing.

    Raises NotFound (no such file), UsageProblem (invalid rows), Refused (rows that contradict the catalog),
    Damaged (an export that is not complete, or that no trusted key signed), Busy.
    """
    work = Workspace(request, "", reporter, spark)
    files = _files(request)
    importer = _Run(request, work, files, _identity(request, files))
    if request.dry_run:
        return importer.plan()
    work.require_java()
    with work.lease("import") as lease:
        return importer.carry_out(lease)


def _files(request: ImportRequest) -> dict[str, tuple[ImportFile, ...]]:
    if bool(request.folder) == bool(request.input_paths):
        raise UsageProblem(
            "Give the folder of an export, or name what to import with --backups and --files or --manifests."
        )
    if request.folder:
        if request.mirror:
            raise UsageProblem("--mirror is for another program's backups: give it with --backups.")
        folder = open_storage(request.folder)
        index = read_index(folder, trusted_keys(in_use()))
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
    if "backups" not in request.input_paths:
        raise UsageProblem("Files belong to backups.", hint="Name their rows with --backups FILE.")
    if "files" in request.input_paths and MANIFESTS in request.input_paths:
        raise UsageProblem(
            "--files and --manifests exclude each other: both list the files.", hint="Give one of them."
        )
    return {table: tuple(import_files(table, path)) for table, path in request.input_paths.items()}


def _identity(request: ImportRequest, files: Mapping[str, tuple[ImportFile, ...]]) -> str:
    """Return a digest of what is imported, 16 hex digits, by which the same import is recognized."""
    options: list[object] = [bool(request.folder), request.source_kind]
    options += [sorted(request.trust_roots)] if request.trust_roots else []
    options += ["mirror"] if request.mirror else []
    digest = hashlib.sha256(json.dumps(options).encode())
    for table, table_files in sorted(files.items()):
        for file in table_files:
            folder, _, name = file.uri.rpartition("/")
            sha256 = open_storage(folder or ".").sha256(name)
            digest.update(f"{table} {file.form} {sha256}\n".encode())
    return digest.hexdigest()[:16]


class _Run:
    """One run of an import."""

    def __init__(
        self,
        request: ImportRequest,
        work: Workspace,
        files: Mapping[str, tuple[ImportFile, ...]],
        import_id: str,
    ) -> None:
        self.request, self.work, self.files, self.import_id = request, work, files, import_id

    def plan(self) -> dict[str, Any]:
        """Return what an import would add; writes nothing."""
        reader = self.work.existing()
        with closing(self._resolver(reader)) as resolver, task_errors():
            plan, rows = resolver.resolve()
            self._warn_of_orphans(plan)
            rows, _ = self._drop_untrusted(rows, reader)
            counts = {table: frame.count() for table, frame in rows.items()}
        return {"dry_run": True, **self._summary(plan.new, counts, plan.states)}

    def carry_out(self, lease: Lease) -> dict[str, Any]:
        """Import what is new; returns the summary.

        Raises Busy when a lease was lost, since another run may have imported the same.
        """
        writer = self.work.writer()
        summary = self._import(writer, lease)
        self._approve_roots(writer.catalog_uri)  # also if the rows came with an earlier run
        return summary

    def _import(self, writer: CatalogWriter, lease: Lease) -> dict[str, Any]:
        # Not prepare(), which refuses a catalog that has lost rows: this import may bring them back.
        writer.migrate()
        if writer.home.exists(layout.import_path(self.import_id)):
            record = read_import(writer.home, self.import_id)
            present_ids = {row["backup_id"] for row in self.work.reader().rows("every_backup")}
            new = [backup for backup in record.backups if backup.backup_id not in present_ids]
            if new:
                self.work.reporter.note(f"resuming import {self.import_id}, which did not finish")
            if new or not self._is_on_record():
                self._publish(writer, record, present_ids)
            counts = (
                dict.fromkeys((chunk.table for chunk in record.chunks), 0) if not new else _counts(record)
            )
            return self._summary(new, counts)
        reader = self.work.reader()
        folder = layout.import_folder(self.import_id)
        with closing(self._resolver(reader, folder)) as resolver, ExitStack() as leases:
            self.work.reporter.start(None, self._input_bytes(), "reading", "")
            with self.work.task_progress(folder).watched(self.work.reporter.update), task_errors():
                plan, rows = resolver.resolve()
                self._warn_of_orphans(plan)
                backups = plan.new
                rows, destinations = self._drop_untrusted(rows, reader)
            changed = {source for ids in plan.states.values() for source in ids.values()}
            sources = sorted({backup.source for backup in backups} | changed)
            source_leases = [leases.enter_context(self.work.lease(f"source-{source}")) for source in sources]
            self._require_free_numbers(backups)
            self.work.reporter.wait("counting the rows")
            with task_errors():
                count = sum(frame.count() for frame in rows.values())
            with self._counting("writing", count) as counters:
                chunks = [
                    chunk
                    for table, frame in rows.items()
                    for chunk in write_rows(frame, table, writer.home, self.import_id, counters)
                ]
            for active_lease in (lease, *source_leases):
                active_lease.renew()
            for state, ids in plan.states.items():
                writer.set_states(tuple(ids), state, actor=holder(), reason="catalog import")
            if not backups and not chunks:
                return self._summary([], {}, plan.states)
            files = {table: [file.uri for file in table_files] for table, table_files in self.files.items()}
            detail = json.dumps({"given": files, "destinations": destinations})
            now_us = micros(datetime.now(UTC))
            record = Import(self.import_id, now_us, holder(), detail, tuple(backups), tuple(chunks))
            write_import(writer.home, record)
            sweep(writer.home, record)
            self._publish(writer, record)
        return self._summary(backups, _counts(record), plan.states)

    def _approve_roots(self, catalog_uri: str) -> None:
        """Approve on this machine the destinations that --trust-root names."""
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
        """Show the progress of a stage while the block runs; yields the counters for its tasks."""
        reporter, folder = self.work.reporter, layout.import_folder(self.import_id)
        reporter.start(rows, None, stage, "rows")
        with self.work.task_progress(folder).watched(reporter.update), task_errors():
            yield TaskCounters(self.work.storage.uri, folder)
        reporter.update(rows, 0)

    def _is_on_record(self) -> bool:
        """Return whether the audit log has this import. Its entry is written after all rows but `backups`."""
        return any(row["subject"] == self.import_id for row in self.work.reader().rows("imports_on_record"))

    def _publish(self, writer: CatalogWriter, record: Import, present_ids: Collection[str] = ()) -> None:
        """Append the rows of an import to the tables.

        `present_ids`: backups that the catalog has already. A rebuild may have written them, so the tables'
        logs may not know the import's transactions.
        """
        new = [backup for backup in record.backups if backup.backup_id not in present_ids]
        existing_ids = {backup.backup_id for backup in record.backups} & set(present_ids)
        with self._counting("publishing", sum(chunk.rows for chunk in record.chunks)) as counters:
            name = f"import-{record.import_id}"
            append(self.work.spark, writer, record, name, spare=existing_ids, counters=counters)
        entry = Audit(
            at=record.at,
            actor=record.actor,
            action="catalog import",
            subject=record.import_id,
            detail=json.dumps({**json.loads(record.given), "backups": len(record.backups)}),
        )
        writer.append_audit(entry, record.import_id)
        writer.append(new, f"import-{record.import_id}")

    def _drop_untrusted(
        self, rows: dict[str, DataFrame], reader: CatalogReader | None
    ) -> tuple[dict[str, DataFrame], list[str]]:
        """Drop the rows of the table `destinations` that are not trusted; returns the remaining rows of all
        tables, and the ids of the destinations that are trusted.

        A destination is trusted if this run was opened with it, or if it is at one of `trust_roots` and
        proves to be what the export says. Raises UsageProblem (no destination of the export is at a root),
        Refused (a destination does not prove itself).
        """
        frame = rows.get("destinations")
        uris = {row.destination: row.uri for row in frame.collect()} if frame is not None else {}
        requested_roots = {normalized(uri): uri for uri in self.request.trust_roots}
        if unknown_roots := sorted(uri for root, uri in requested_roots.items() if root not in uris.values()):
            raise UsageProblem(
                f"--trust-root {unknown_roots[0]}: no repository of the export lies there.",
                hint=f"It has {', '.join(sorted(uris.values())) or 'none'}.",
            )
        storage = self.work.storage
        home = {}
        with suppress(NotFound):
            home = {destination_id(storage, create=False): storage.uri}
        trusted = {name: uri for name, uri in uris.items() if uri in requested_roots or home.get(name) == uri}
        roots = Roots(trusted)
        for name in trusted:
            roots.open(name)
        known_uris = reader.destinations().uris if reader else home
        for name, uri in sorted(uris.items()):
            if name not in trusted and name not in known_uris:
                self.work.reporter.warning(
                    f"repository {name} at {uri} was left out: what it holds cannot be restored from here "
                    f"before the import is repeated with --trust-root {uri}"
                )
        if frame is not None:
            trusted_rows = frame.where(frame["destination"].isin(list(trusted)))
            rows = {
                name: trusted_rows if name == "destinations" else table_rows
                for name, table_rows in rows.items()
            }
            if not trusted:
                del rows["destinations"]
        return rows, sorted(uris.keys() & {*trusted, *home})

    def _require_free_numbers(self, backups: Iterable[Backup]) -> None:
        """Raises Refused if another run has used a backup's number before this run took the sources'
        leases."""
        used_numbers = {(row["source"], row["number"]) for row in self.work.reader().rows("every_backup")}
        conflicting_ids = [b.backup_id for b in backups if (b.source, b.number) in used_numbers]
        if conflicting_ids:
            raise Refused(
                f"Other backups came in for {', '.join(conflicting_ids[:5])} meanwhile.",
                hint="Run the import again.",
            )

    def _input_bytes(self) -> int:
        """Return the size of the files that tasks read, in bytes."""
        size = 0
        for table, files in self.files.items():
            for file in files if table != "backups" else ():
                folder, _, name = file.uri.rpartition("/")
                size += open_storage(folder or ".").stat(name).bytes
        return size

    def _resolver(self, reader: CatalogReader | None, folder: str | None = None) -> Resolver:
        """Return the resolver of the rows. `folder`: where tasks report how much they have read; None: a dry
        run, which writes nothing."""
        backups = reader.rows("every_backup") if reader else []
        return Resolver(
            self.work.spark,
            self.work.reader().catalog_uri,
            self.files,
            {row["backup_id"]: row for row in backups},
            is_export=self.request.folder is not None,
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
        source_rows = [
            {
                "source": source,
                "backups": len(some),
                "files": sum(b.files for b in some),
                "bytes": sum(b.bytes for b in some),
                "until_ts": max(b.end_ts for b in some),
            }
            for source, some in sources
        ]
        row_counts = {table: count for table, count in counts.items() if count}
        ids = {"import_id": self.import_id, "backups": len(backups)}
        changed = {"states": {state: len(some) for state, some in states.items()}} if states else {}
        return self.work.timed({**ids, **row_counts, **changed, "sources": source_rows})


def _counts(record: Import) -> dict[str, int]:
    tables = sorted({chunk.table for chunk in record.chunks})
    return {table: sum(chunk.rows for chunk in record.chunks if chunk.table == table) for table in tables}
