"""The lifecycle of a backup. It is planned, recorded, copied and published. The next run resumes or discards
a backup that was interrupted.

A backup is written in this order: the data objects, their rows as manifest parts, the manifest, the rows of
the catalog except the one of `backups`, that row, which alone makes the backup exist, and its marker. A crash
before that row leaves nothing visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol

from pydantic import TypeAdapter, ValidationError

from lakebackup.errors import Damaged, Refused
from lakebackup.rows.backups import Backup
from lakebackup.rows.base import COUNTING
from lakebackup.rules import layout
from lakebackup.storage import working
from lakebackup.store import data_keys
from lakebackup.store import manifest as sidecar
from lakebackup.store.lease import Lease
from lakebackup.store.manifest import Manifest
from lakebackup_jobs.lifecycle.source import D, Draft, Source
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace

_OBJECT = TypeAdapter(dict[str, Any])
# The key in a draft's record that says that the backup's files are being deleted.
_DISCARDING = "discarding"


class Parent(Protocol):
    """The fields of a backup that the row of the backup after it is made from."""

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


def publish(workspace: Workspace, manifest: Manifest, lease: Lease, *, encrypted: bool = False) -> None:
    """Publish a backup whose data files and parts are stored. A repeated call adds nothing. `encrypted`: it
    may have data keys.

    Raises Busy (the lease was lost, so another run may have discarded the files), EnvironmentProblem.
    """
    storage, backup = workspace.storage, manifest.backup
    lease.renew()
    path = layout.manifest_path(backup.source, backup.backup_id)
    sidecar.write_manifest(storage, path, manifest, encrypted=encrypted)
    writer = workspace.writer()
    if encrypted:
        key_objects = data_keys.of_backup(storage, backup.source, backup.backup_id)
        rows = [row for key_object in key_objects for row in key_object.rows]
        writer.append(rows, f"{backup.backup_id}-data-keys")
    writer.commit_backup(storage, manifest, source_lease=lease)
    mark_complete(workspace, backup.backup_id)


def mark_complete(workspace: Workspace, backup_id: str) -> None:
    """Sign a backup that is in the catalog, if there is a key, and write its marker `complete`."""
    workspace.sign("backup", backup_id, layout.manifest_path(workspace.source, backup_id))
    sidecar.mark(workspace.storage, layout.marker_path(workspace.source, backup_id, "complete"))


def complete_newest(workspace: Workspace) -> None:
    """Sign and mark the newest backup of the source, if the run that published it was killed before that and
    no draft of it is recorded. The caller holds the source's lease."""
    source, storage = workspace.source, workspace.storage
    destination = workspace.existing_destination()
    if destination is None:  # there is no backup yet, and this creates nothing
        return
    newest_ids = workspace.reader().rows("newest_ids", destination=destination)
    backup_id = next((row["backup_id"] for row in newest_ids if row["source"] == source), None)
    if backup_id is None or storage.exists(layout.marker_path(source, backup_id, "complete")):
        return
    (row,) = workspace.reader().rows("show_backup", backup_id=backup_id)
    has_manifest = storage.exists(layout.manifest_path(source, backup_id))
    if has_manifest and row["state"] in COUNTING:
        mark_complete(workspace, backup_id)
        workspace.reporter.note(f"backup {backup_id} is complete; its run was interrupted at the very end")


def exists(workspace: Workspace, backup_id: str) -> bool:
    """Return whether the catalog has the backup now."""
    return bool(workspace.reader().rows("find_backups", prefix=backup_id))


def is_unconfirmed(workspace: Workspace, backup_id: str) -> bool:
    """Whether the backup is unconfirmed: a rebuild found it without a marker, so no restore uses it."""
    return any(
        row["state"] == "unconfirmed" for row in workspace.reader().rows("show_backup", backup_id=backup_id)
    )


def backup_row(
    workspace: Workspace, draft: Draft, totals: Totals, previous: Parent | None, **columns: Any
) -> Backup:
    """Return the row of a backup that ends now. `previous` is the backup before it in its chain. `columns`
    override the columns that are computed here."""
    lineage = {
        "backup_id": draft.backup_id,
        "number": draft.number,
        "source": workspace.source,
        "destination": workspace.destination,
        "parent": previous.backup_id if previous else None,
        "base": previous.base if previous else draft.backup_id,
        "chain_position": previous.chain_position + 1 if previous else 0,
        "place": draft.number,
        "parent_place": previous.place if previous else None,
        "start_ts": previous.end_ts if previous else None,
        "started_at": draft.started_at,
        "runner": workspace.runner,
    }
    return Backup(**{**lineage, **totals.columns(), **columns})


def result_of(backup: Backup, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a run whose backup exists now. `summary` is the summary of its plan."""
    return {
        "backup_id": backup.backup_id,
        **summary,
        "files": backup.files,
        "bytes": backup.bytes,
        "entries": backup.entries,
        "seconds": round((backup.finished_at - backup.started_at) / 1e6, 3),
    }


class Life(Generic[D]):
    """Runs backups of a source, and finishes one that was interrupted, while the source's lease is held."""

    def __init__(self, source: Source[D], lease: Lease) -> None:
        self.source, self.workspace, self.lease = source, source.workspace, lease
        source.lease = lease

    def interrupted(self) -> tuple[D, bool] | None:
        """Return the draft of an unfinished run, and whether that run was discarding it; None if there is
        none."""
        if self.source.DRAFT is None:
            return None
        storage, path = self.workspace.storage, self.source.record_path
        record = sidecar.get_record(storage, path, _OBJECT)
        if record is None:
            return None
        discarding = bool(record.pop(_DISCARDING, False))
        try:
            return self.source.DRAFT.validate_python(record), discarding
        except ValidationError:  # another version's draft: its files are orphans, which a prune finds
            working.retire(storage, path)
            return None

    def finish_interrupted(self) -> dict[str, Any] | None:
        """Complete or discard what the last run left unfinished. Return the result of the completed backup;
        None if no backup was completed, or if the request is for another one."""
        interrupted = self.interrupted()
        if interrupted is None:
            complete_newest(self.workspace)
            return None
        draft, discarding = interrupted
        word, report = self.source.WORD, self.workspace.reporter
        if exists(self.workspace, draft.backup_id):
            return self._close(draft)
        reason = "it was being discarded" if discarding else self.source.resume_blocker(draft)
        if reason is None:
            report.note(f"resuming {word} {draft.backup_id}, which was interrupted")
            return self._complete(draft)
        self.lease.renew()  # another run may have published the backup while this one stalled
        if exists(self.workspace, draft.backup_id):
            return self._close(draft)
        count = self.discard(draft)
        report.note(
            f"{word} {draft.backup_id} was interrupted and is not resumed, since {reason}; "
            f"its {count} data files are deleted"
        )
        return None

    def run(self, draft: D) -> dict[str, Any]:
        """Record a draft, run its tasks and publish the backup. Returns the result."""
        try:
            self.record(draft)
            prepared_draft = self.source.prepare(draft)
            if prepared_draft is not draft:
                self.record(prepared_draft)
        except BaseException:
            self.lease.renew()  # raises Busy if another run has taken over, whose files must stay
            self.discard(draft)
            raise
        return self._complete(prepared_draft)

    def record(self, draft: D, *, discarding: bool = False) -> None:
        """Record the draft, so that the next run can resume or discard it. Call this before anything is
        read."""
        if self.source.DRAFT is not None:
            content = {"format": layout.FORMAT, **self.source.DRAFT.dump_python(draft, mode="json")}
            if discarding:
                content[_DISCARDING] = True
            sidecar.put_sealed(self.workspace.storage, self.source.record_path, content)

    def discard(self, draft: D) -> int:
        """Delete what a backup that is in no catalog has stored. Returns the number of its data files.

        Renew the lease first: another run may have resumed and published the backup.
        """
        storage, source = self.workspace.storage, self.workspace.source
        # From here on no run resumes the backup, even if this run is killed between a file and its part.
        self.record(draft, discarding=True)
        # The manifest goes first: without it, no rebuild takes the backup into the catalog.
        working.delete(storage, [layout.manifest_path(source, draft.backup_id)])
        count = self.source.discard(draft)
        self.workspace.empty(self.source.folder(draft))
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
            self.lease.check()  # the lease for publishing may be another one
            publish(self.workspace, manifest, lease, encrypted=self.source.encryption is not None)
        self._finish(draft)
        return self.source.result(draft, manifest.backup)

    def _close(self, draft: D) -> dict[str, Any] | None:
        """Do what remains for a backup that exists. Return its result if the request is for it.

        An unconfirmed backup gets no marker, since the marker would call it complete, although no restore
        uses it.
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
        if self.source.matches_request(draft):
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
