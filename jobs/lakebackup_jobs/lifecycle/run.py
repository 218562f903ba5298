"""The one life of a backup: planned, recorded, copied, published; interrupted, resumed or discarded.

Order of publishing: data objects, their rows as manifest parts, the manifest, the rows of the catalog, the
one `backups` row, which alone makes the backup exist, then its marker. A crash before that row leaves
nothing visible, and the next run resumes or discards what it finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol

from pydantic import TypeAdapter, ValidationError

from lakebackup.errors import Damaged, Refused
from lakebackup.rows.backups import Backup
from lakebackup.rules import layout
from lakebackup.storage import working
from lakebackup.store import manifest as sidecar
from lakebackup_jobs.lifecycle.source import D

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebackup.store.lease import Lease
    from lakebackup.store.manifest import Manifest
    from lakebackup_jobs.lifecycle.source import Draft, Source
    from lakebackup_jobs.lifecycle.tasks.totals import Totals
    from lakebackup_jobs.lifecycle.workspace import Workspace

_OBJECT = TypeAdapter(dict[str, Any])
# In the record of a backup whose files are being deleted.
_DISCARDING = "discarding"


class Parent(Protocol):
    """The backup that another one continues."""

    @property
    def backup_id(self) -> str: ...
    @property
    def base(self) -> str: ...
    @property
    def chain_position(self) -> int: ...
    @property
    def place(self) -> int: ...
    @property
    def end_ts(self) -> int: ...


def publish(workspace: Workspace, manifest: Manifest, lease: Lease) -> None:
    """Make a backup exist whose data files and parts are stored. Repeating it adds nothing.

    Raises Busy (the lease was lost: another run may have discarded the files), EnvironmentProblem.
    """
    storage, backup = workspace.storage, manifest.backup
    lease.renew()
    sidecar.write_record(storage, layout.manifest_path(backup.source, backup.backup_id), manifest)
    workspace.writer().commit_backup(storage, manifest, held=lease)
    mark_complete(workspace, backup.backup_id)


def mark_complete(workspace: Workspace, backup_id: str) -> None:
    """Write the marker of a backup that is in the catalog."""
    sidecar.mark(workspace.storage, layout.marker_path(workspace.source, backup_id, "complete"))


def exists(workspace: Workspace, backup_id: str) -> bool:
    """Whether the catalog, as it is now, has a backup."""
    return bool(workspace.reader().rows("find_backups", prefix=backup_id))


def is_unconfirmed(workspace: Workspace, backup_id: str) -> bool:
    """Whether a rebuild put a backup into the catalog that no run had marked: nothing restores it."""
    return any(
        row["state"] == "unconfirmed" for row in workspace.reader().rows("show_backup", backup_id=backup_id)
    )


def backup_row(
    workspace: Workspace, draft: Draft, totals: Totals, continues: Parent | None, **columns: Any
) -> Backup:
    """The row of a backup that ends now; `continues`: the backup before it in its chain. `columns` win."""
    lineage = {
        "backup_id": draft.backup_id,
        "number": draft.number,
        "source": workspace.source,
        "destination": workspace.destination,
        "parent": continues.backup_id if continues else None,
        "base": continues.base if continues else draft.backup_id,
        "chain_position": continues.chain_position + 1 if continues else 0,
        "place": draft.number,
        "parent_place": continues.place if continues else None,
        "start_ts": continues.end_ts if continues else None,
        "started_at": draft.started_at,
        "runner": workspace.runner,
    }
    return Backup(**{**lineage, **totals.columns(), **columns})


def result_of(backup: Backup, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a backup that exists; `summary`: of its plan."""
    return {
        "backup_id": backup.backup_id,
        **summary,
        "files": backup.files,
        "bytes": backup.bytes,
        "entries": backup.entries,
        "seconds": round((backup.finished_at - backup.started_at) / 1e6, 3),
    }


class Life(Generic[D]):
    """The lives of a source's backups while its lease is held."""

    def __init__(self, source: Source[D], lease: Lease) -> None:
        self.source, self.workspace, self.lease = source, source.workspace, lease
        source.lease = lease

    def interrupted(self) -> tuple[D, bool] | None:
        """The draft that the last run left, and whether it was being discarded; None: nothing was left."""
        if self.source.DRAFT is None:
            return None
        storage, path = self.workspace.storage, self.source.record_path
        found = sidecar.get_record(storage, path, _OBJECT)
        if found is None:
            return None
        discarding = bool(found.pop(_DISCARDING, False))
        try:
            return self.source.DRAFT.validate_python(found), discarding
        except ValidationError:  # of another version: what its run stored are orphans, which a prune finds
            working.retire(storage, path)
            return None

    def settle(self) -> dict[str, Any] | None:
        """Complete what the last run left, or discard it; returns the result if it is what is asked for."""
        left = self.interrupted()
        if left is None:
            return None
        draft, discarding = left
        word, report = self.source.WORD, self.workspace.reporter
        if exists(self.workspace, draft.backup_id):
            return self._close(draft)
        why = "it was being discarded" if discarding else self.source.resume_blocker(draft)
        if why is None:
            report.note(f"resuming {word} {draft.backup_id}, which was interrupted")
            return self._complete(draft)
        self.lease.renew()  # another run may have published the backup while this one stalled
        if exists(self.workspace, draft.backup_id):
            return self._close(draft)
        count = self.discard(draft)
        report.note(
            f"{word} {draft.backup_id} was interrupted and is not resumed, since {why}; "
            f"its {count} data files are deleted"
        )
        return None

    def take(self, draft: D) -> dict[str, Any]:
        """Record a draft, copy what it reads and publish it."""
        try:
            self.record(draft)
            ready = self.source.prepare(draft)
            if ready is not draft:
                self.record(ready)
        except BaseException:
            self.lease.renew()  # what is another run's by now stays
            self.discard(draft)
            raise
        return self._complete(ready)

    def record(self, draft: D, *, discarding: bool = False) -> None:
        """Record what will be done, before anything is read."""
        if self.source.DRAFT is not None:
            content = {"format": layout.FORMAT, **self.source.DRAFT.dump_python(draft, mode="json")}
            if discarding:
                content[_DISCARDING] = True
            sidecar.put_sealed(self.workspace.storage, self.source.record_path, content)

    def discard(self, draft: D) -> int:
        """Delete what a backup that is in no catalog has stored; returns how many data files.

        The lease has just been renewed: another run may have resumed the backup, and made it exist.
        """
        storage, source = self.workspace.storage, self.workspace.source
        # From here on no run resumes it, even if this one is killed between a file and its part.
        self.record(draft, discarding=True)
        # The manifest first: without it no rebuilt catalog takes the backup for one.
        working.delete(storage, [layout.manifest_path(source, draft.backup_id)])
        count = self.source.discard(draft)
        self.workspace.empty(layout.backup_folder(source, draft.backup_id))
        self._forget()
        return count

    def _complete(self, draft: D) -> dict[str, Any]:
        self.workspace.has_begun = True
        try:
            totals = self.source.copy(draft)
        except (Refused, Damaged):
            if self.source.DISCARD_WHEN_REFUSED:
                self.lease.renew()  # another run may have published the backup while this one stalled
                self.discard(draft)
            raise
        self.workspace.reporter.wait("publishing")
        with self.source.publishing(self.lease) as lease:
            manifest = self.source.manifest(draft, totals)
            self.lease.check()  # it may be another than the one for publishing
            publish(self.workspace, manifest, lease)
        self._finish(draft)
        return self.source.result(draft, manifest.backup)

    def _close(self, draft: D) -> dict[str, Any] | None:
        """Do what is left for a backup that exists; its result, if it is asked for.

        One that is unconfirmed stays as it is: marked now, it would be called complete, and not be restored.
        """
        if is_unconfirmed(self.workspace, draft.backup_id):
            self.workspace.reporter.warning(
                f"{self.source.WORD} {draft.backup_id} was interrupted at the very end, and the catalog was "
                "rebuilt since: it is unconfirmed, no restore uses it, and it is not resumed"
            )
            self._forget()
            return None
        mark_complete(self.workspace, draft.backup_id)
        self.workspace.reporter.note(
            f"{self.source.WORD} {draft.backup_id} is complete; its run was interrupted at the very end"
        )
        result = None
        if self.source.is_asked_for(draft):
            path = layout.manifest_path(self.workspace.source, draft.backup_id)
            result = self.source.result(draft, sidecar.read_manifest(self.workspace.storage, path).backup)
        self._finish(draft)
        return result

    def _finish(self, draft: D) -> None:
        self.source.finish(draft)
        self._forget()

    def _forget(self) -> None:
        if self.source.DRAFT is not None:
            working.retire(self.workspace.storage, self.source.record_path)
