"""Imports an archive: checks all its files, then copies and publishes one backup after another.

Nothing is written before every file is checked, by itself and against the others. A backup is published
like any other: files, parts, manifest, rows, marker.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakebackup.encryption.objects import Keyring
from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.formats.archives import chain, tree
from lakebackup.formats.archives.chain import ArchiveFile, PlannedBackup
from lakebackup.formats.archives.tree import ArchiveBackup
from lakebackup.requests import RunRequest
from lakebackup.rows.base import ARCHIVE
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import Cluster
from lakebackup.storage import Storage, open_storage, working
from lakebackup.storage.nesting import require_no_repository
from lakebackup.store import manifest as sidecar
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup_jobs.archives import read_task as archive_task
from lakebackup_jobs.archives.read_task import StoredObject
from lakebackup_jobs.lifecycle.identity import audit_entry
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import mark_complete, publish
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace

# The greatest size of a JSON file beside the data, in bytes; the largest is meta.json with its baselines.
_MAX_JSON_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ArchiveImportRequest(RunRequest):
    """The request to import an archive. `source` None: the source is named after the folder. `recipients`:
    who can read the files; without any, they are not encrypted."""

    folder: str
    source: str | None = None
    recipients: tuple[str, ...] = ()


def run(
    request: ArchiveImportRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Import an archive and return a summary. A second run adds only new backups.

    Raises NotFound (no archive there), Damaged (a file is cut off or contradicts another), Refused (a backup
    cannot be restored, or the catalog has it with other contents), Busy.
    """
    folder = open_storage(request.folder)
    _refuse_links(folder)
    archive_backups, strays = tree.find(folder.list())
    source = layout.check_source(request.source or _source_name(folder))
    require_no_repository(request, source, request.folder)
    if strays:
        reporter.note(
            f"{len(strays)} files do not belong to an archive and are not imported, such as {strays[0]}"
        )
    work = Workspace(request, source, reporter, spark)
    work.choose_runner(request, sum(stat.bytes for backup in archive_backups for stat in backup.data))
    archive_files = _check(work.task_cluster, folder, archive_backups, reporter)  # before anything is written
    if request.dry_run:
        plans = _plan(
            source, _destination_id(work.storage), archive_backups, archive_files, folder, work.existing()
        )
        return work.timed({"dry_run": True, **_summary(source, plans)})
    with work.running("import", ARCHIVE) as lease:
        work.writer().prepare()
        plans = _plan(source, work.destination, archive_backups, archive_files, folder, work.reader())
        new_plans = [plan for plan in plans if not plan.in_catalog]
        for plan in plans:
            if plan.in_catalog:  # a run may have died between the catalog's rows and the marker
                mark_complete(work, plan.backup.backup_id)
        encryption = RunEncryption.of(request.recipients, work.storage)
        for plan in new_plans:
            stored_plan = _copy(work, folder, plan, encryption)
            lease.renew()
            manifest = _manifest(work.storage, stored_plan)
            _delete_unused(work.storage, stored_plan)
            publish(work, manifest, lease, encrypted=encryption is not None)
            reporter.note(f"{plan.backup.backup_id}: {plan.archive_backup.folder or 'the archive'}")
        if new_plans:
            detail = {"folder": request.folder, "backups": [plan.backup.backup_id for plan in new_plans]}
            work.writer().append_audit(audit_entry("archive import", source, detail))
    return work.timed(_summary(source, plans))


def _refuse_links(folder: Storage) -> None:
    """Raise UsageProblem for a symbolic link, since its target would silently be missing in the catalog."""
    for parent, folders, files in os.walk(folder.uri.removeprefix("file://")):
        link = next((name for name in (*folders, *files) if Path(parent, name).is_symlink()), None)
        if link:
            raise UsageProblem(
                f"{Path(parent, link)} is a symbolic link.", hint="Replace it by the file or folder."
            )


def _source_name(folder: Storage) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.uri.rpartition("/")[2]).lstrip("._-")
    if not name:
        raise UsageProblem("The folder's name cannot be a source's name.", hint="Give --source NAME.")
    return name[:128]


def _destination_id(storage: Storage) -> str:
    try:
        return destination_id(storage, create=False)
    except NotFound:
        return ""


def _check(
    cluster: Cluster | None, folder: Storage, archive_backups: Sequence[ArchiveBackup], reporter: Reporter
) -> dict[str, ArchiveFile]:
    """Check every file of the archive, the data files in tasks, and return the files by path."""
    data = [stat for archive_backup in archive_backups for stat in archive_backup.data]
    reporter.start(None, sum(stat.bytes for stat in data), "check", "")
    archive_files = archive_task.check(cluster, folder.uri, [stat.path for stat in data])
    for archive_backup in archive_backups:
        json_paths = [path for node in archive_backup.nodes.values() for path in node.beside.values()]
        for path in (*json_paths, *(path for path, _ in archive_backup.designs)):
            stat = folder.stat(path)
            if stat.bytes > _MAX_JSON_BYTES:
                raise Damaged(
                    f"{path} has {stat.bytes} bytes, which is too large.", hint="It should be small JSON."
                )
            archive_files[path] = chain.ArchiveFile(path, stat.bytes, folder.sha256(path))
    return archive_files


def _plan(
    source: str,
    destination: str,
    archive_backups: Sequence[ArchiveBackup],
    archive_files: Mapping[str, ArchiveFile],
    folder: Storage,
    reader: CatalogReader | None,
) -> list[PlannedBackup]:
    catalog_rows = [row for row in reader.rows("every_backup") if row["source"] == source] if reader else []
    return chain.plan(source, destination, archive_backups, archive_files, folder.get, catalog_rows)


def _copy(
    work: Workspace, folder: Storage, plan: PlannedBackup, encryption: RunEncryption | None
) -> PlannedBackup:
    """Copy the files of a backup. Returns its rows, with the objects as they are stored."""
    backup, storage = plan.backup, work.storage
    key = encryption.stored_key(storage, backup.source, backup.backup_id) if encryption else None
    suffix = layout.encrypted_suffix(key.key_id if key else None)
    files = tuple(
        (StoredObject(layout.path_in_archive(backup.source, file.path), file.sha256), f"{file.path}{suffix}")
        for file in plan.files
    )
    size = sum(file.bytes for file in plan.files)
    reports = layout.backup_folder(backup.source, backup.backup_id)
    job = archive_task.CopyJob(folder.uri, storage.uri, files, reports, Keyring(), key)
    work.reporter.start(len(files), size, "import", "files")
    with work.task_progress(reports).watched(work.reporter.update):
        rows = run_all(job, range(len(files)), work.task_cluster, archive_task.MOST_TASKS)
    work.reporter.update(len(files), size)
    return plan if key is None else plan.encrypted(key.key_id, {row.path: row for row in rows})


def _delete_unused(storage: Storage, plan: PlannedBackup) -> None:
    """Delete the objects that interrupted imports of a backup have encrypted with other keys."""
    paths = {file.path for file in plan.files if file.key_id is not None}
    names = set(map(layout.unencrypted_path, paths))
    folders = {f"{path.rpartition('/')[0]}/" for path in paths}
    objects = {entry.path for folder in folders for entry in storage.list(folder)}
    working.delete(storage, [path for path in objects - paths if layout.unencrypted_path(path) in names])


def _manifest(storage: Storage, plan: PlannedBackup) -> sidecar.Manifest:
    """Write the part of a backup whose files are copied, and return its manifest."""
    backup = plan.backup
    part = layout.parts_path(backup.source, backup.backup_id, 0)
    if storage.exists(part):  # from an interrupted import, perhaps of a backup with another number
        storage.delete(part)
    sidecar.write_part(storage, part, plan.files)
    return sidecar.Manifest(backup=backup, positions=plan.positions, scopes=(), gaps=(), parts=1)


def _summary(source: str, plans: Sequence[PlannedBackup]) -> dict[str, Any]:
    new = [plan.backup for plan in plans if not plan.in_catalog]
    counts = {name: sum(getattr(backup, name) for backup in new) for name in ("files", "bytes", "entries")}
    backups = [
        {
            "backup_id": p.backup.backup_id,
            "folder": p.archive_backup.folder,
            **{name: getattr(p.backup, name) for name in ("kind", "level", "parent", "end_ts")},
            "buckets": ", ".join(p.archive_backup.buckets),
            **{name: getattr(p.backup, name) for name in ("files", "bytes", "entries")},
            "known": p.in_catalog,
        }
        for p in plans
    ]
    known_count = len(plans) - len(new)
    return {"source": source, "imported": len(new), "known": known_count, **counts, "backups": backups}
