"""Import an archive: check all its files, then copy and publish one backup after another.

Nothing is written before every file is checked, by itself and against the others. Backups are published like
any other: files, parts, manifest, rows, marker.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.formats.archives import chain, tree
from lakebackup.requests import Request
from lakebackup.rows.base import ARCHIVE
from lakebackup.rules import layout
from lakebackup.storage import Storage, open_storage
from lakebackup.storage.nesting import require_no_repository
from lakebackup.store import manifest as sidecar
from lakebackup.store.roots import destination_id
from lakebackup_jobs.archives import read_task as archive_task
from lakebackup_jobs.lifecycle.identity import audit_entry
from lakebackup_jobs.lifecycle.run import mark_complete, publish
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.formats.archives.chain import ArchiveFile, PlannedBackup
    from lakebackup.formats.archives.tree import Found
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.progress import Reporter

# Most bytes of a JSON file beside the data; the largest is meta.json with its baselines.
_MOST_JSON_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ArchiveImportRequest(Request):
    """What to import. `source` None: named after the folder."""

    folder: str
    source: str | None = None


def run(
    request: ArchiveImportRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Import an archive, and return a summary. Run again, it adds only new backups.

    Raises NotFound (no archive there), Damaged (a file is cut off or contradicts another), Refused (a backup
    cannot be restored, or the catalog has it with other contents), Busy.
    """
    folder = open_storage(request.folder)
    _refuse_links(folder)
    found, other = tree.find(folder.list())
    source = layout.check_source(request.source or _source_name(folder))
    require_no_repository(request, source, request.folder)
    if other:
        reporter.note(
            f"{len(other)} files do not belong to an archive and are not imported, such as {other[0]}"
        )
    work = Workspace(request, source, reporter, spark)
    copied = _check(work.spark, folder, found, reporter)  # before anything is written
    if request.dry_run:
        planned = _plan(source, _destination_id(work.storage), found, copied, folder, work.existing())
        return work.timed({"dry_run": True, **_summary(source, planned)})
    with work.running("import", ARCHIVE) as lease:
        work.writer().prepare()
        planned = _plan(source, work.destination, found, copied, folder, work.reader())
        new = [one for one in planned if not one.known]
        for one in planned:
            if one.known:  # perhaps committed by a run that died before it marked it
                mark_complete(work, one.backup.backup_id)
        for one in new:
            _copy(work, folder, one)
            lease.renew()
            publish(work, _manifest(work.storage, one), lease)
            reporter.note(f"{one.backup.backup_id}: {one.found.folder or 'the archive'}")
        if new:
            detail = {"folder": request.folder, "backups": [one.backup.backup_id for one in new]}
            work.writer().append_audit(audit_entry("archive import", source, detail))
    return work.timed(_summary(source, planned))


def _refuse_links(folder: Storage) -> None:
    """Raises UsageProblem for a symbolic link: its target would silently be missing in the catalog."""
    for above, folders, files in os.walk(folder.uri.removeprefix("file://")):
        link = next((name for name in (*folders, *files) if Path(above, name).is_symlink()), None)
        if link:
            raise UsageProblem(
                f"{Path(above, link)} is a symbolic link.", hint="Replace it by the file or folder."
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
    spark: SparkSession, folder: Storage, found: Sequence[Found], reporter: Reporter
) -> dict[str, ArchiveFile]:
    """Every file of the archive as it is; the data in tasks."""
    data = [stat for one in found for stat in one.data]
    reporter.start(None, sum(stat.bytes for stat in data), "check", "")
    copied = archive_task.check(spark, folder.uri, [stat.path for stat in data])
    for one in found:
        beside = [path for node in one.nodes.values() for path in node.beside.values()]
        for path in (*beside, *(path for path, _ in one.designs)):
            stat = folder.stat(path)
            if stat.bytes > _MOST_JSON_BYTES:
                raise Damaged(
                    f"{path} has {stat.bytes} bytes, which is too large.", hint="It should be small JSON."
                )
            copied[path] = chain.ArchiveFile(path, stat.bytes, folder.sha256(path))
    return copied


def _plan(
    source: str,
    destination: str,
    found: Sequence[Found],
    copied: Mapping[str, ArchiveFile],
    folder: Storage,
    reader: CatalogReader | None,
) -> list[PlannedBackup]:
    held = [row for row in reader.rows("every_backup") if row["source"] == source] if reader else []
    return chain.plan(source, destination, found, copied, folder.get, held)


def _copy(work: Workspace, folder: Storage, planned: PlannedBackup) -> None:
    backup = planned.backup
    files = tuple(
        (layout.path_in_archive(backup.source, file.path), file.sha256, file.path) for file in planned.files
    )
    size = sum(file.bytes for file in planned.files)
    reports = layout.backup_folder(backup.source, backup.backup_id)
    job = archive_task.CopyJob(folder.uri, work.storage.uri, files, reports)
    work.reporter.start(len(files), size, "import", "files")
    with work.task_progress(reports).watched(work.reporter.update):
        run_all(job, range(len(files)), work.spark, archive_task.MOST_TASKS)
    work.reporter.update(len(files), size)


def _manifest(storage: Storage, planned: PlannedBackup) -> sidecar.Manifest:
    """The rows of a backup whose files are copied; puts its part."""
    backup = planned.backup
    part = layout.parts_path(backup.source, backup.backup_id, 0)
    if storage.exists(part):  # left by an interrupted import, perhaps for a backup with another number
        storage.delete(part)
    sidecar.write_part(storage, part, planned.files)
    return sidecar.Manifest(backup=backup, positions=planned.positions, scopes=(), gaps=(), parts=1)


def _summary(source: str, planned: Sequence[PlannedBackup]) -> dict[str, Any]:
    new = [one.backup for one in planned if not one.known]
    counts = {name: sum(getattr(backup, name) for backup in new) for name in ("files", "bytes", "entries")}
    backups = [
        {
            "backup_id": p.backup.backup_id,
            "folder": p.found.folder,
            **{name: getattr(p.backup, name) for name in ("kind", "level", "parent", "end_ts")},
            "buckets": ", ".join(p.found.buckets),
            **{name: getattr(p.backup, name) for name in ("files", "bytes", "entries")},
            "known": p.known,
        }
        for p in planned
    ]
    known = len(planned) - len(new)
    return {"source": source, "imported": len(new), "known": known, **counts, "backups": backups}
