"""Plan the import of an archive: the catalog's rows for each of its backups, their parents and positions.

A full backup starts a chain. A differential backup depends on the latest one before it, a cumulative backup
on the full, unless `meta.json` names others. A position is the next sequence number to read: it is 8 when
the last mutation of a vbucket has sequence number 7.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import Damaged, Refused
from lakebackup.formats.archives import meta, tree
from lakebackup.formats.archives.cbb import Summary  # noqa: TC001 - read by pydantic
from lakebackup.rows.backups import Backup, DataFile, Position
from lakebackup.rows.base import ARCHIVE
from lakebackup.rows.digest import Digest
from lakebackup.rows.tables import json_line
from lakebackup.rules import layout
from lakebackup.rules.kinds import require_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakebackup.formats.archives.tree import Found

#: A bucket has no epoch. When a vbucket is rolled back, its next start position is below its last end.
EPOCH = "-"
Branches = dict[tuple[str, int], dict[int, int]]
Spans = dict[tuple[str, int], tuple[int, int]]
Role = Literal["data", "meta", "schema"]


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A checked file of an archive; `summary`: the content of a .cbb file, None for other files."""

    path: str
    bytes: int
    sha256: str
    summary: Summary | None = None


@dataclass(slots=True)
class PlannedBackup:
    """The rows of one backup of an archive; `known`: the catalog has them already."""

    found: Found
    backup: Backup
    files: list[DataFile]
    positions: list[Position]
    known: bool = False


@dataclass(slots=True)
class _ChainEnds:
    """The newest full backup of a folder, the last backup that depends on it, and the end positions of each
    backup: id -> (bucket, vbucket) -> position. `sequenced`: the full has sequence numbers. `branches`: as
    `ends`, those of a vbucket's history, see meta.read_branches.
    """

    full: Backup
    last: Backup
    ends: dict[str, dict[tuple[str, int], int]]
    sequenced: bool
    branches: dict[str, Branches]


def backup_id(source: str, folder: str, taken: datetime) -> str:
    """The id of an archive's backup; the same folder of the same source always gets the same id."""
    return f"{taken:%Y%m%dT%H%M%SZ}-{_suffix(source, folder)}"


def _suffix(source: str, folder: str) -> str:
    return hashlib.sha256(f"{source}\n{folder}".encode()).hexdigest()[:8]


def plan(
    source: str,
    destination: str,
    found: Sequence[Found],
    copied: Mapping[str, ArchiveFile],
    get: Callable[[str], bytes],
    held: Sequence[Mapping[str, Any]],
) -> list[PlannedBackup]:
    """Rows for every backup of an archive. `held`: the source's rows of `backups`, in order of number.

    Raises Damaged (files that contradict each other), Refused (a backup that cannot be restored, that the
    catalog has with other contents or another state, or that is older than the catalog's newest).
    """
    kinds = [row["source_kind"] for row in held]
    require_kind(source, ARCHIVE, kinds, hint="Give another name with --source.")
    every = {one.folder: one for one in found}
    ids = {row["backup_id"].rpartition("-")[2]: row for row in held}
    number = max((row["number"] for row in held), default=0)
    newest = max((row["end_ts"] for row in held), default=-1)
    chains: dict[str, _ChainEnds] = {}
    made: list[PlannedBackup] = []
    for one in found:
        known = ids.get(_suffix(source, one.folder))
        if known is None:
            number += 1
        metas = meta.read_meta(one, get)
        parent = _parent(one, metas, every, chains, made)
        taken = one.taken or _last_modified(one)
        own = number if known is None else known["number"]
        ts, name = int(taken.timestamp()) * 1000, backup_id(source, one.folder, taken)
        if known is not None and one.taken is None:  # its files' times may differ by now
            ts, name = known["end_ts"], known["backup_id"]
        row = _BackupRows(source, destination, one, parent, own, ts, name)
        branches = meta.read_branches(one, get)
        planned = row.make(metas, copied, meta.read_seqnos(one, get), branches, chains)
        planned.known = known is not None
        _require_importable(planned, known, newest)
        made.append(planned)
    return made


def _last_modified(one: Found) -> datetime:
    return datetime.fromtimestamp(max(stat.modified_ms for stat in one.data) // 1000, UTC)


def _require_importable(planned: PlannedBackup, known: Mapping[str, Any] | None, newest: int) -> None:
    backup, name = planned.backup, planned.found.folder or "the archive"
    if known is None:
        if backup.end_ts < newest:
            raise Refused(
                f"{name} was taken before the newest backup that the catalog has of {backup.source}.",
                hint="Import archives oldest first, or this one under another name with --source.",
            )
    elif known["state"] != "complete":
        raise Refused(
            f"{name} was imported before as {known['backup_id']}, which is {known['state']} now.",
            hint="To import it again, give the archive another name with --source.",
        )
    elif (known["digest"], known["parent"]) != (backup.digest, backup.parent):
        raise Refused(
            f"{name} was imported before as {known['backup_id']}, with other contents.",
            hint="One of them was changed. To keep both, import this one under another name with --source.",
        )


def _parent(
    one: Found,
    metas: Mapping[tuple[str, str], Mapping[str, Any]],
    every: Mapping[str, Found],
    chains: Mapping[str, _ChainEnds],
    made: Sequence[PlannedBackup],
) -> Backup | None:
    folders: list[str] = []
    for (bucket, node), content in metas.items():
        path = one.nodes[bucket, node].beside[tree.META]
        folders += [name for name in meta.baselines(content, path) if name not in folders]
    meta.require_baselines(one, folders, every)
    if one.kind == "full":
        return None
    chain = chains[one.folder.partition("/")[0]]
    if not chain.sequenced:
        raise Refused(
            f"{one.folder} depends on a backup without sequence numbers, which can only be restored alone.",
            hint=f"Take {one.folder} out of the archive.",
        )
    named = [plan.backup for plan in made if plan.found.folder in folders]
    if named:
        parent = max(named, key=lambda backup: backup.number)
        if parent.base != chain.full.backup_id:
            raise Refused(
                f"{one.folder} depends on a full backup in another folder.",
                hint="cbbackup never writes such a meta.json.",
            )
        return parent
    return chain.full if one.kind == "cumulative" else chain.last


@dataclass(frozen=True, slots=True)
class _BackupRows:
    """Creates the rows of one backup."""

    source: str
    destination: str
    one: Found
    parent: Backup | None
    number: int
    ts: int
    backup_id: str

    def make(
        self,
        metas: Mapping[tuple[str, str], Mapping[str, Any]],
        copied: Mapping[str, ArchiveFile],
        seqnos: Mapping[tuple[str, str], Mapping[int, int]],
        branches: Branches,
        chains: dict[str, _ChainEnds],
    ) -> PlannedBackup:
        one, parent = self.one, self.parent
        root = one.folder.partition("/")[0]
        before = chains[root].ends[parent.backup_id] if parent else {}
        known = chains[root].branches[parent.backup_id] if parent else {}
        cut = _cut(before, known, branches)
        # One without a mutation since is cut back all the same.
        spans = {place: (end, end) for place, end in cut.items() if end < before[place]}
        spans |= self._vbucket_spans(copied, seqnos, cut)
        files = [self._file(*place, copied[path]) for path, place in self._files().items()]
        digest = Digest()
        for file in files:
            digest.add(json_line(file))
        versions = sorted({str(m["version"]) for m in metas.values() if m.get("version")})
        backup = Backup(
            backup_id=self.backup_id,
            number=self.number,
            source=self.source,
            source_kind=ARCHIVE,
            destination=self.destination,
            kind=one.kind,
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
            digest=digest.hex(),
            isolation="",
            codec="null",
            created_by=meta.created_by(metas.values()),
            tool=f"cbbackup {', '.join(versions)}".strip(),
            note=json.dumps(
                {"archive": one.folder, "buckets": meta.summary(metas)}, ensure_ascii=False, sort_keys=True
            ),
        )
        ends = before | {place: end for place, (_, end) in spans.items()}
        if parent:
            chains[root].last = backup
            chains[root].ends[backup.backup_id] = ends
            chains[root].branches[backup.backup_id] = known | branches
        else:
            chains[root] = _ChainEnds(
                backup, backup, {self.backup_id: ends}, self._sequenced(copied), {self.backup_id: branches}
            )
        positions = [
            Position(
                backup_id=self.backup_id, source=self.source, scope=bucket, epoch=EPOCH, region=str(vbucket),
                start_position=start, end_position=end, low_position=0, high_position=end, ts=self.ts,
            )
            for (bucket, vbucket), (start, end) in sorted(spans.items())
        ]  # fmt: skip
        return PlannedBackup(one, backup, files, positions)

    def _vbucket_spans(
        self,
        copied: Mapping[str, ArchiveFile],
        seqnos: Mapping[tuple[str, str], Mapping[int, int]],
        before: Mapping[tuple[str, int], int],
    ) -> Spans:
        """Start and end positions of each vbucket.

        A mutation before the parent's end means that the vbucket was rolled back: the parents' mutations from
        that position on are no longer part of its history.
        """
        data: Spans = {}
        stated: dict[tuple[str, int], int] = {}
        for (bucket, name), node in self.one.nodes.items():
            summaries = [(stat.path, copied[stat.path].summary) for stat in node.data]
            ends = seqnos.get((bucket, name))
            for path, summary in summaries:
                if summary is None or not summary.sequenced:
                    self._require_full(path)
                    continue
                for part in summary.vbuckets:
                    place = bucket, part.vbucket
                    low, high = data.get(place, (part.first, part.last))
                    data[place] = min(low, part.first), max(high, part.last)
                    if ends is not None and part.last > ends.get(part.vbucket, 0):
                        raise Damaged(
                            f"{path} holds sequence number {part.last} of vbucket {part.vbucket}, "
                            f"but by {tree.SEQNO} the last one is {ends.get(part.vbucket, 0)}.",
                            hint="The backup was interrupted, or one of these files was changed.",
                        )
            for vbucket, last in (ends or {}).items():
                stated[bucket, vbucket] = max(last, stated.get((bucket, vbucket), 0))
        spans: Spans = {}
        for place in sorted(data.keys() | stated.keys()):
            start = before.get(place, 0)
            low, high = data.get(place, (start, 0))
            start, end = min(start, low), max(high, stated.get(place, 0)) + 1
            if end < start:
                raise Damaged(
                    f"{self.one.folder}: by {tree.SEQNO}, vbucket {place[1]} of bucket {place[0]} "
                    f"ends at {end - 1}; the backup it depends on ended at {start - 1}.",
                    hint="The file was changed, or the backup is of another bucket of that name.",
                )
            spans[place] = start, end
        return spans

    def _sequenced(self, copied: Mapping[str, ArchiveFile]) -> bool:
        summaries = [copied[stat.path].summary for stat in self.one.data]
        return all(summary is not None and summary.sequenced for summary in summaries)

    def _require_full(self, path: str) -> None:
        if self.one.kind != "full":
            raise Refused(
                f"{path} has no sequence numbers, so it cannot be incremental.",
                hint="Only full backups may lack them.",
            )

    def _files(self) -> dict[str, tuple[str, str, Role]]:
        """Each file of the backup, in order: its bucket, node and role."""
        made: dict[str, tuple[str, str, Role]] = {}
        for (bucket, name), node in sorted(self.one.nodes.items()):
            made |= {stat.path: (bucket, name, "data") for stat in node.data}
            made |= dict.fromkeys(node.beside.values(), (bucket, name, "meta"))
        return made | {path: (bucket or "", "", "schema") for path, bucket in self.one.designs}

    def _file(self, bucket: str, node: str, role: Role, copied: ArchiveFile) -> DataFile:
        summary = copied.summary
        sequenced = summary is not None and summary.sequenced and bool(summary.vbuckets)
        return DataFile(
            destination=self.destination,
            path=layout.archive_path(self.source, copied.path),
            backup_id=self.backup_id,
            added_in=self.number,
            source=self.source,
            scope=bucket,
            epoch=EPOCH,
            region=node,
            role=role,
            format=f"cbb-{summary.version}" if summary else "json",
            codec="null",
            bytes=copied.bytes,
            raw_bytes=summary.raw_bytes if summary else copied.bytes,
            sha256=copied.sha256,
            entries=summary.entries if summary else 0,
            min_ts=self.ts,
            max_ts=self.ts,
            start_position=min(p.first for p in summary.vbuckets) if summary and sequenced else 0,
            end_position=max(p.last for p in summary.vbuckets) + 1 if summary and sequenced else 1,
            tombstones=summary.deletions if summary else 0,
            level=1 if self.parent else 0,
            parent=self.parent.backup_id if self.parent else None,
        )


def _cut(
    ends: Mapping[tuple[str, int], int], known: Branches, branches: Branches
) -> dict[tuple[str, int], int]:
    """Where the parent ends, of each vbucket no further than where a branch begins that it does not know.

    Of the mutations since then a backup has the last of each document alone: its first one may be far behind.
    """
    cut = dict(ends)
    for place in ends.keys() & branches.keys():
        if before := known.get(place):
            new = (last + 1 for uuid, last in branches[place].items() if uuid not in before)
            cut[place] = min([ends[place], *new])
    return cut


def takeovers(
    positions: Iterable[Mapping[str, Any]], order: Sequence[str]
) -> dict[str, dict[tuple[str, int], int]]:
    """Where later backups of a chain take over: backup id -> (bucket, vbucket) -> position.

    A mutation at or after that position is not restored from this backup. `order`: ids of the chain's
    backups, oldest first; `positions`: their rows.
    """
    rank = {name: place for place, name in enumerate(order)}
    starts: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row in positions:
        starts.setdefault((row["scope"], int(row["region"])), []).append(
            (rank[row["backup_id"]], row["start_position"])
        )
    made: dict[str, dict[tuple[str, int], int]] = {name: {} for name in order}
    for place, some in starts.items():
        for name in order:
            after = [start for other, start in some if other > rank[name]]
            if after:
                made[name][place] = min(after)
    return made
