"""A backup of topics that was cut off: what it had stored is gone on with, or taken away.

Before it reads anything, a backup puts down what it is going to be: every position it begins and ends at. A
task's part is its commit, so a later run that finds the same to be done reads only what has no part.
A full backup starts over; so does one whose parent, positions or request are not what they were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from lakebackup import requests
from lakebackup.errors import Damaged, NotFound
from lakebackup.plan.topics.backup import Prepared  # noqa: TC001 - read by pydantic
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.topics import forks
from lakebackup_jobs.topics.tasks.copy import BACKUP_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakebackup.plan.topics.backup import RegionState, Split
    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.kafka.admin.cluster import Cluster
    from lakebackup_jobs.topics.backup import BackupRequest

# What makes two requests the same backup: these, what is added to requests later, and none of _ELSE.
_SAME = ("topics", "patterns", "isolation", "groups", "mode", "level", "parent", "new_generation")
# What was begun is ended as it was begun: its files and its row say so.
_KEPT = ("codec", "compression_level", "target_bytes", "roll_ms", "note")
# Places, credentials, how fast it is done, and what is decided before a backup is begun.
_ELSE = (
    "destination", "catalog", "source", "kafka", "remote", "lease_ttl_s", "parallelism", "dry_run", "log",
    "on_gap", "on_fork", "growth", "schema_topics",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Begun:
    """A backup that was begun, and how it was asked for.

    `first`: (topic, partition, first number of a file) where the catalog had files already.
    """

    prepared: Prepared
    asked: dict[str, Any]
    first: list[tuple[str, str, int]]

    @property
    def backup_id(self) -> str:
        return self.prepared.backup_id

    def same(self, request: BackupRequest) -> bool:
        """Whether it is the backup that is asked for."""
        return not _other(self, request)

    def ends(self, request: BackupRequest) -> BackupRequest:
        """The request that ends it: with the options of files that it was begun with."""
        return replace(request, **{name: self.asked[name] for name in _KEPT})


def begin(
    storage: Storage,
    source: str,
    request: BackupRequest,
    prepared: Prepared,
    sequences: Mapping[tuple[str, str], int],
) -> None:
    """Put it down, before anything is read; when there is nothing to read, there is no need."""
    if prepared.plan.tasks:
        first = [(topic, region, number) for (topic, region), number in sequences.items()]
        content = _BEGUN.dump_python(Begun(prepared, _asked(request), first), mode="json")
        sidecar.put_sealed(storage, layout.begun_path(source), {"format": layout.FORMAT, **content})


def found(storage: Storage, source: str) -> Begun | None:
    """What the last run of a source left; None when it came to its end."""
    return sidecar.get_record(storage, layout.begun_path(source), _BEGUN)


def end(storage: Storage, source: str) -> None:
    """It is over: the backup exists, or nothing of it is left."""
    storage.delete(layout.begun_path(source))


def hindrance(
    begun: Begun,
    request: BackupRequest,
    source: str,
    storage: Storage,
    cluster: Cluster,
    reader: CatalogReader,
) -> str | None:
    """Why a begun backup is not gone on with, None when it is. Asks the cluster if nothing else hinders."""
    prepared, plan = begun.prepared, begun.prepared.plan
    if plan.parent is None:
        return "a full backup starts over"
    newest = reader.one("latest_number", source=source)
    if ((newest and newest["number"]) or 0) + 1 != prepared.number:
        return "another backup came in since"
    parent = reader.one("parent_backup", backup_id=plan.parent.backup_id)
    if parent is None or parent["reason"]:
        return f"backup {plan.parent.backup_id}, which it stands on, cannot be used any more"
    if other := _other(begun, request):
        return f"another {', '.join(other)} is asked for"
    done = stored(begun, source, storage)
    if not done:
        return "no task had come to its end"
    rest = [split for task, some in enumerate(plan.tasks) if task not in done for split in some]
    return _changed(rest, request, source, cluster, reader)


def stored(begun: Begun, source: str, storage: Storage) -> set[int]:
    """The tasks whose part is there."""
    folder = layout.parts_folder(source, begun.backup_id)
    names = (at.path.rpartition("/")[2].removesuffix(".jsonl") for at in storage.list(folder))
    return {int(name) for name in names if name.isdigit()}


def take_away(begun: Begun, source: str, storage: Storage) -> int:
    """Delete what a backup that is in no catalog has stored; returns how many data files.

    Of data files those that name it in their header, and no other: beside them lie those of other backups,
    and of runs that may still go on. Can be cut off and repeated. The caller holds the lease for sure, and
    has looked into the catalog since: another run may have made the backup exist.
    """
    # The manifest first: without it no catalog that is made anew takes the backup for one.
    storage.delete(layout.manifest_path(source, begun.backup_id))
    places = {(s.epoch, s.scope, s.region) for task in begun.prepared.plan.tasks for s in task}
    count = take_files(storage, source, begun.backup_id, places, begun.first)
    for at in storage.list(layout.backup_folder(source, begun.backup_id)):
        storage.delete(at.path)
    return count


def take_files(
    storage: Storage,
    source: str,
    backup_id: str,
    places: Iterable[tuple[str, str, str]],
    first: Iterable[tuple[str, str, int]],
) -> int:
    """Delete the data files of a backup in partitions (epoch, topic, partition); returns how many.

    `first`: (topic, partition, first number of a file) where the catalog had files already.
    """
    known = {(topic, region): number for topic, region, number in first}
    count = 0
    for epoch, topic, region in sorted(places):
        inside = layout.partition_folder(source, epoch, topic, int(region))
        for at in storage.list(inside):
            seq = layout.parse_seq(at.path.removeprefix(inside), topic, int(region))
            if seq is not None and seq >= known.get((topic, region), 0) and _of(storage, at.path, backup_id):
                storage.delete(at.path)
                count += 1
    return count


def _of(storage: Storage, path: str, backup_id: str) -> bool:
    try:
        with storage.open(path) as stream:
            return FileReader(stream, path).metadata.get(BACKUP_ID) == backup_id.encode()
    except (NotFound, Damaged):
        return False


def _changed(
    rest: list[Split], request: BackupRequest, source: str, cluster: Cluster, reader: CatalogReader
) -> str | None:
    names = sorted({split.scope for split in rest})
    gone = set(names) - set(cluster.topic_names())
    if gone:
        return f"topic {min(gone)} is not there any more"
    _, regions = cluster.positions(cluster.describe(names), request.isolation)
    now: dict[tuple[str, str, str], RegionState] = {(r.scope, r.epoch, r.region): r for r in regions}
    for split in rest:
        at = now.get((split.scope, split.epoch, split.region))
        if at is None:
            return f"topic {split.scope} was made again"
        if at.low > split.start or at.high < split.end:
            return f"offsets that it has not read of topic {split.scope} are gone"
    if forks.find(reader, source, regions, request.kafka):
        return "the source's history was cut back"
    return None


def _other(begun: Begun, request: BackupRequest) -> list[str]:
    """The options that differ from those of the backup in progress."""
    asked = _asked(request)
    names = [name for name in {**asked, **begun.asked} if name not in _KEPT]
    return [name for name in names if asked.get(name) != begun.asked.get(name)]


def _asked(request: BackupRequest) -> dict[str, Any]:
    asked = requests.asked(request, always=(*_SAME, *_KEPT), never=_ELSE)
    # The same backup by two names.
    mode = "incr-diff" if request.mode == "auto" else request.mode
    lists = {name: sorted(asked[name]) for name in ("topics", "patterns")}
    return {**asked, **lists, "mode": mode, "level": request.level or 1}


_BEGUN = TypeAdapter(Begun)
