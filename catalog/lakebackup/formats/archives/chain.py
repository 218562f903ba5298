"""Plan the import of an archive: the catalog's rows for each of its backups, with parents and positions.

A full backup starts a chain. Unless `meta.json` names another parent, a differential backup depends on the
backup before it, and a cumulative backup on the full. A position is the next sequence number to read: it is
8 when the last mutation of a vbucket has sequence number 7.

A vbucket starts where its parent ends. It starts earlier when it was rolled back: when `failover.json` names
a branch of its history that the parent does not know, or when a file has a mutation before the parent's end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from lakebackup.errors import Damaged, Refused
from lakebackup.formats.archives import meta, tree
from lakebackup.formats.archives.cbb import Summary
from lakebackup.formats.archives.tree import ArchiveBackup
from lakebackup.rows.backups import Backup, DataFile, Position
from lakebackup.rows.base import ARCHIVE
from lakebackup.rows.digest import Digest
from lakebackup.rows.tables import json_line
from lakebackup.rules import layout
from lakebackup.rules.kinds import require_kind
from lakebackup.rules.stored_json import object_of

#: The epoch of every row, since a bucket has none. A rollback shows in the positions instead: the vbucket
#: starts below the end position of its parent.
EPOCH = "-"
#: The branches of the history of each (bucket, vbucket), see `meta.read_branches`.
Branches = dict[tuple[str, int], dict[int, int]]
#: The start and end position of each (bucket, vbucket).
Spans = dict[tuple[str, int], tuple[int, int]]
Role = Literal["data", "meta", "schema"]
# The field of an encrypted backup's note with the digest of its files as they are in the archive.
_CONTENTS = "contents"


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A checked file of an archive. `summary` has the totals of a .cbb file; it is None for other files."""

    path: str
    bytes: int
    sha256: str
    summary: Summary | None = None


class StoredSize(Protocol):
    """The columns of an object's row that are known when it is stored."""

    @property
    def bytes(self) -> int: ...
    @property
    def sha256(self) -> str: ...


@dataclass(slots=True)
class PlannedBackup:
    """The rows of one backup of an archive. `in_catalog` tells whether the catalog has them already."""

    archive_backup: ArchiveBackup
    backup: Backup
    files: list[DataFile]
    positions: list[Position]
    in_catalog: bool = False

    def encrypted(self, key_id: str, objects: Mapping[str, StoredSize]) -> PlannedBackup:
        """The rows of the same backup if a data key encrypts its files. `objects`: path -> the stored object.

        The note has the digest of the files as they are in the archive, by which another import of it is
        compared.
        """
        suffix = layout.encrypted_suffix(key_id)
        files = []
        for file in self.files:
            stored = objects[f"{file.path}{suffix}"]
            files.append(
                replace(
                    file,
                    path=f"{file.path}{suffix}",
                    bytes=stored.bytes,
                    sha256=stored.sha256,
                    key_id=key_id,
                )
            )
        note = {**json.loads(self.backup.note or "{}"), _CONTENTS: self.backup.digest}
        backup = replace(
            self.backup,
            bytes=sum(file.bytes for file in files),
            digest=_digest(files),
            note=json.dumps(note, ensure_ascii=False, sort_keys=True),
        )
        return replace(self, files=files, backup=backup)


@dataclass(slots=True)
class _ChainEnds:
    """The newest full backup below a folder of the archive, and the last backup that depends on it.

    `ends`: backup id -> (bucket, vbucket) -> end position. `branches`: backup id -> branches. `sequenced`:
    whether the full has sequence numbers.
    """

    full: Backup
    last: Backup
    ends: dict[str, dict[tuple[str, int], int]]
    sequenced: bool
    branches: dict[str, Branches]


def backup_id(source: str, folder: str, backup_time: datetime) -> str:
    """Return the id of an archive's backup. The same folder, source and time always give the same id."""
    return f"{backup_time:%Y%m%dT%H%M%SZ}-{_suffix(source, folder)}"


def _suffix(source: str, folder: str) -> str:
    return hashlib.sha256(f"{source}\n{folder}".encode()).hexdigest()[:8]


def plan(
    source: str,
    destination: str,
    archive_backups: Sequence[ArchiveBackup],
    files_by_path: Mapping[str, ArchiveFile],
    read_file: Callable[[str], bytes],
    catalog_rows: Sequence[Mapping[str, Any]],
) -> list[PlannedBackup]:
    """Return the rows of every backup of an archive.

    `archive_backups` are its backups, oldest first. `files_by_path` has its checked files, and `read_file`
    reads one. `catalog_rows` are the source's rows of `backups` in order of number. Raises Damaged if files
    contradict each other. Raises Refused for a backup that cannot be restored, for one that the catalog has
    with other contents or in a state other than complete, and for a new one that is older than the catalog's
    newest.
    """
    kinds = [row["source_kind"] for row in catalog_rows]
    require_kind(source, ARCHIVE, kinds, hint="Give another name with --source.")
    backups_by_folder = {archive_backup.folder: archive_backup for archive_backup in archive_backups}
    rows_by_suffix = {row["backup_id"].rpartition("-")[2]: row for row in catalog_rows}
    number = max((row["number"] for row in catalog_rows), default=0)
    newest_ts = max((row["end_ts"] for row in catalog_rows), default=-1)
    chains: dict[str, _ChainEnds] = {}
    planned_backups: list[PlannedBackup] = []
    for archive_backup in archive_backups:
        catalog_row = rows_by_suffix.get(_suffix(source, archive_backup.folder))
        if catalog_row is None:
            number += 1
        metas = meta.read_meta(archive_backup, read_file)
        parent = _parent(archive_backup, metas, backups_by_folder, chains, planned_backups)
        backup_number = number if catalog_row is None else catalog_row["number"]
        if catalog_row is not None and archive_backup.backup_time is None:
            # The files of such a backup may have other modification times now than when it was imported.
            ts, own_id = catalog_row["end_ts"], catalog_row["backup_id"]
        else:
            backup_time = archive_backup.backup_time or _last_modified(archive_backup)
            ts = int(backup_time.timestamp()) * 1000
            own_id = backup_id(source, archive_backup.folder, backup_time)
        builder = _BackupRows(source, destination, archive_backup, parent, backup_number, ts, own_id)
        branches = meta.read_branches(archive_backup, read_file)
        seqnos = meta.read_seqnos(archive_backup, read_file)
        planned = builder.build(metas, files_by_path, seqnos, branches, chains)
        planned.in_catalog = catalog_row is not None
        _require_importable(planned, catalog_row, newest_ts)
        planned_backups.append(planned)
    return planned_backups


def _last_modified(archive_backup: ArchiveBackup) -> datetime:
    return datetime.fromtimestamp(max(stat.modified_ms for stat in archive_backup.data) // 1000, UTC)


def _require_importable(
    planned: PlannedBackup, catalog_row: Mapping[str, Any] | None, newest_ts: int
) -> None:
    backup, name = planned.backup, planned.archive_backup.folder or "the archive"
    if catalog_row is None:
        if backup.end_ts < newest_ts:
            raise Refused(
                f"{name} was taken before the newest backup that the catalog has of {backup.source}.",
                hint="Import archives oldest first, or this one under another name with --source.",
            )
    elif catalog_row["state"] != "complete":
        raise Refused(
            f"{name} was imported before as {catalog_row['backup_id']}, which is {catalog_row['state']} now.",
            hint="To import it again, give the archive another name with --source.",
        )
    elif (_contents_digest(catalog_row), catalog_row["parent"]) != (backup.digest, backup.parent):
        raise Refused(
            f"{name} was imported before as {catalog_row['backup_id']}, with other contents.",
            hint="One of them was changed. To keep both, import this one under another name with --source.",
        )


def _contents_digest(catalog_row: Mapping[str, Any]) -> str:
    """The digest of an imported backup's files as they were in the archive."""
    return str(object_of(catalog_row["note"]).get(_CONTENTS, catalog_row["digest"]))


def _digest(files: Iterable[DataFile]) -> str:
    digest = Digest()
    for file in files:
        digest.add(json_line(file))
    return digest.hex()


def _parent(
    archive_backup: ArchiveBackup,
    metas: Mapping[tuple[str, str], Mapping[str, Any]],
    backups_by_folder: Mapping[str, ArchiveBackup],
    chains: Mapping[str, _ChainEnds],
    planned_backups: Sequence[PlannedBackup],
) -> Backup | None:
    """Return the backup that this one continues; None for a full. Raises Refused if it cannot be restored.

    If `meta.json` names baselines, the newest of them is the parent.
    """
    folders: list[str] = []
    for (bucket, node), content in metas.items():
        path = archive_backup.nodes[bucket, node].beside[tree.META]
        folders += [name for name in meta.baselines(content, path) if name not in folders]
    meta.require_baselines(archive_backup, folders, backups_by_folder)
    if archive_backup.kind == "full":
        return None
    chain = chains[archive_backup.folder.partition("/")[0]]
    if not chain.sequenced:
        raise Refused(
            f"{archive_backup.folder} depends on a backup without sequence numbers, "
            "which can only be restored alone.",
            hint=f"Take {archive_backup.folder} out of the archive.",
        )
    named_parents = [plan.backup for plan in planned_backups if plan.archive_backup.folder in folders]
    if named_parents:
        parent = max(named_parents, key=lambda backup: backup.number)
        if parent.base != chain.full.backup_id:
            raise Refused(
                f"{archive_backup.folder} depends on a full backup in another folder.",
                hint="cbbackup never writes such a meta.json.",
            )
        return parent
    return chain.full if archive_backup.kind == "cumulative" else chain.last


@dataclass(frozen=True, slots=True)
class _BackupRows:
    """Builds the catalog rows of one backup."""

    source: str
    destination: str
    archive_backup: ArchiveBackup
    parent: Backup | None
    number: int
    ts: int
    backup_id: str

    def build(
        self,
        metas: Mapping[tuple[str, str], Mapping[str, Any]],
        files_by_path: Mapping[str, ArchiveFile],
        seqnos: Mapping[tuple[str, str], Mapping[int, int]],
        branches: Branches,
        chains: dict[str, _ChainEnds],
    ) -> PlannedBackup:
        """Return the rows of the backup, and make it the last backup of its chain in `chains`."""
        archive_backup, parent = self.archive_backup, self.parent
        root = archive_backup.folder.partition("/")[0]
        parent_ends = chains[root].ends[parent.backup_id] if parent else {}
        parent_branches = chains[root].branches[parent.backup_id] if parent else {}
        start_positions = _start_positions(parent_ends, parent_branches, branches)
        # A vbucket that was rolled back gets a row with its new end, even if it had no mutation since then.
        spans = {
            vbucket_key: (position, position)
            for vbucket_key, position in start_positions.items()
            if position < parent_ends[vbucket_key]
        }
        spans |= self._vbucket_spans(files_by_path, seqnos, start_positions)
        files = [
            self._file(*node_and_role, files_by_path[path]) for path, node_and_role in self._files().items()
        ]
        versions = sorted({str(m["version"]) for m in metas.values() if m.get("version")})
        backup = Backup(
            backup_id=self.backup_id,
            number=self.number,
            source=self.source,
            source_kind=ARCHIVE,
            destination=self.destination,
            kind=archive_backup.kind,
            level=1 if parent else 0,
            parent=parent.backup_id if parent else None,
            base=parent.base if parent else self.backup_id,
            chain_position=parent.chain_position + 1 if parent else 0,
            place=self.number,
            parent_place=parent.place if parent else None,
            start_ts=parent.end_ts if parent else None,
            end_ts=self.ts,
            started_at=self.ts * 1000,
            finished_at=self.ts * 1000,
            files=len(files),
            bytes=sum(file.bytes for file in files),
            entries=sum(file.entries for file in files),
            digest=_digest(files),
            isolation="",
            codec="null",
            created_by=meta.created_by(metas.values()),
            tool=f"cbbackup {', '.join(versions)}".strip(),
            note=json.dumps(
                {"archive": archive_backup.folder, "buckets": meta.summary(metas)},
                ensure_ascii=False,
                sort_keys=True,
            ),
        )
        ends = parent_ends | {vbucket_key: end for vbucket_key, (_, end) in spans.items()}
        if parent:
            chains[root].last = backup
            chains[root].ends[backup.backup_id] = ends
            chains[root].branches[backup.backup_id] = parent_branches | branches
        else:
            chains[root] = _ChainEnds(
                backup,
                backup,
                {self.backup_id: ends},
                self._sequenced(files_by_path),
                {self.backup_id: branches},
            )
        positions = [
            Position(
                backup_id=self.backup_id, source=self.source, scope=bucket, epoch=EPOCH, region=str(vbucket),
                start_position=start, end_position=end, low_position=0, high_position=end, ts=self.ts,
            )
            for (bucket, vbucket), (start, end) in sorted(spans.items())
        ]  # fmt: skip
        return PlannedBackup(archive_backup, backup, files, positions)

    def _vbucket_spans(
        self,
        files_by_path: Mapping[str, ArchiveFile],
        seqnos: Mapping[tuple[str, str], Mapping[int, int]],
        start_positions: Mapping[tuple[str, int], int],
    ) -> Spans:
        """The start and end position of each vbucket. Raises Damaged when its files contradict each other.

        A mutation before the parent's end means that the vbucket was rolled back: the parents' mutations from
        that position on are no longer part of its history.
        """
        data_spans: Spans = {}
        stated_ends: dict[tuple[str, int], int] = {}
        for (bucket, name), node in self.archive_backup.nodes.items():
            summaries = [(stat.path, files_by_path[stat.path].summary) for stat in node.data]
            node_seqnos = seqnos.get((bucket, name))
            for path, summary in summaries:
                if summary is None or not summary.sequenced:
                    self._require_full(path)
                    continue
                for part in summary.vbuckets:
                    vbucket_key = bucket, part.vbucket
                    low, high = data_spans.get(vbucket_key, (part.first, part.last))
                    data_spans[vbucket_key] = min(low, part.first), max(high, part.last)
                    if node_seqnos is not None and part.last > node_seqnos.get(part.vbucket, 0):
                        raise Damaged(
                            f"{path} holds sequence number {part.last} of vbucket {part.vbucket}, "
                            f"but by {tree.SEQNO} the last one is {node_seqnos.get(part.vbucket, 0)}.",
                            hint="The backup was interrupted, or one of these files was changed.",
                        )
            for vbucket, last in (node_seqnos or {}).items():
                stated_ends[bucket, vbucket] = max(last, stated_ends.get((bucket, vbucket), 0))
        spans: Spans = {}
        for vbucket_key in sorted(data_spans.keys() | stated_ends.keys()):
            start = start_positions.get(vbucket_key, 0)
            low, high = data_spans.get(vbucket_key, (start, 0))
            start, end = min(start, low), max(high, stated_ends.get(vbucket_key, 0)) + 1
            if end < start:
                raise Damaged(
                    f"{self.archive_backup.folder}: by {tree.SEQNO}, vbucket {vbucket_key[1]} "
                    f"of bucket {vbucket_key[0]} ends at {end - 1}; "
                    f"the backup it depends on ended at {start - 1}.",
                    hint="The file was changed, or the backup is of another bucket of that name.",
                )
            spans[vbucket_key] = start, end
        return spans

    def _sequenced(self, files_by_path: Mapping[str, ArchiveFile]) -> bool:
        summaries = [files_by_path[stat.path].summary for stat in self.archive_backup.data]
        return all(summary is not None and summary.sequenced for summary in summaries)

    def _require_full(self, path: str) -> None:
        if self.archive_backup.kind != "full":
            raise Refused(
                f"{path} has no sequence numbers, so it cannot be incremental.",
                hint="Only full backups may lack them.",
            )

    def _files(self) -> dict[str, tuple[str, str, Role]]:
        """Return each file of the backup, in order: its path, with its bucket, node and role."""
        roles_by_path: dict[str, tuple[str, str, Role]] = {}
        for (bucket, name), node in sorted(self.archive_backup.nodes.items()):
            roles_by_path |= {stat.path: (bucket, name, "data") for stat in node.data}
            roles_by_path |= dict.fromkeys(node.beside.values(), (bucket, name, "meta"))
        return roles_by_path | {
            path: (bucket or "", "", "schema") for path, bucket in self.archive_backup.designs
        }

    def _file(self, bucket: str, node: str, role: Role, file: ArchiveFile) -> DataFile:
        summary = file.summary
        sequenced = summary is not None and summary.sequenced and bool(summary.vbuckets)
        return DataFile(
            destination=self.destination,
            path=layout.archive_path(self.source, file.path),
            backup_id=self.backup_id,
            added_in=self.number,
            source=self.source,
            scope=bucket,
            epoch=EPOCH,
            region=node,
            role=role,
            format=f"cbb-{summary.version}" if summary else "json",
            codec="null",
            bytes=file.bytes,
            raw_bytes=summary.raw_bytes if summary else file.bytes,
            sha256=file.sha256,
            entries=summary.entries if summary else 0,
            min_ts=self.ts,
            max_ts=self.ts,
            start_position=min(p.first for p in summary.vbuckets) if summary and sequenced else 0,
            end_position=max(p.last for p in summary.vbuckets) + 1 if summary and sequenced else 1,
            tombstones=summary.deletions if summary else 0,
            level=1 if self.parent else 0,
            parent=self.parent.backup_id if self.parent else None,
        )


def _start_positions(
    parent_ends: Mapping[tuple[str, int], int], parent_branches: Branches, branches: Branches
) -> dict[tuple[str, int], int]:
    """Return the position of each vbucket from which this backup replaces what the parent holds.

    That is the parent's end, or the start of the earliest branch that the parent does not know. The backup's
    own mutations do not show where that branch starts: it holds only the last mutation of each document, so
    its first one may come much later.
    """
    start_positions = dict(parent_ends)
    for vbucket_key in parent_ends.keys() & branches.keys():
        if known_uuids := parent_branches.get(vbucket_key):
            branch_starts = (
                last + 1 for uuid, last in branches[vbucket_key].items() if uuid not in known_uuids
            )
            start_positions[vbucket_key] = min([parent_ends[vbucket_key], *branch_starts])
    return start_positions


def takeovers(
    positions: Iterable[Mapping[str, Any]], order: Sequence[str]
) -> dict[str, dict[tuple[str, int], int]]:
    """Return where later backups of a chain take over: backup id -> (bucket, vbucket) -> position.

    A restore does not take mutations at or after that position from this backup. `order` has the ids of the
    chain's backups, oldest first. `positions` has their rows.
    """
    rank = {name: index for index, name in enumerate(order)}
    starts: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row in positions:
        starts.setdefault((row["scope"], int(row["region"])), []).append(
            (rank[row["backup_id"]], row["start_position"])
        )
    positions_by_backup: dict[str, dict[tuple[str, int], int]] = {name: {} for name in order}
    for vbucket_key, ranked_starts in starts.items():
        for name in order:
            later_starts = [start for start_rank, start in ranked_starts if start_rank > rank[name]]
            if later_starts:
                positions_by_backup[name][vbucket_key] = min(later_starts)
    return positions_by_backup
