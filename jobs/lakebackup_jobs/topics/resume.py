"""Whether an interrupted backup of topics can be resumed, and which files it left.

A task's part is its commit, so a run that resumes reads only what has no part. A full backup starts over; so
does one whose parent, positions or request are not what they were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakebackup import requests
from lakebackup.errors import Damaged, NotFound
from lakebackup.plan.topics.backup import Prepared  # noqa: TC001 - read by pydantic
from lakebackup.rules import layout
from lakebackup.storage import working
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.topics import forks
from lakebackup_jobs.topics.tasks.copy import BACKUP_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebackup.plan.partitions import Range, RegionState
    from lakebackup.plan.topics.backup import Split
    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.kafka.admin.cluster import Cluster
    from lakebackup_jobs.lifecycle.workspace import Workspace
    from lakebackup_jobs.topics.request import BackupRequest

# What makes two requests the same backup: these, what is added to requests later, and none of _ELSE.
_SAME = ("topics", "patterns", "isolation", "groups", "mode", "level", "parent", "new_generation")
# A resumed backup is completed as it was started: its files and its row say so.
_KEPT = ("codec", "compression_level", "target_bytes", "roll_ms", "note")
# Places, credentials, how fast it is done, and what is decided before a backup is started.
_ELSE = (
    "destination", "catalog", "source", "kafka", "remote", "lease_ttl_s", "runner", "local_below",
    "parallelism", "dry_run", "log",
    "on_gap", "on_fork", "growth", "schema_topics",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class InProgress:
    """A backup in progress, and how it was asked for.

    `first`: (topic, partition, first number of a file) where the catalog had files already.
    """

    prepared: Prepared
    asked: dict[str, Any]
    first: list[tuple[str, str, int]]

    @property
    def backup_id(self) -> str:
        return self.prepared.backup_id

    @property
    def number(self) -> int:
        return self.prepared.number

    @property
    def started_at(self) -> int:
        return self.prepared.started_at

    def completing(self, request: BackupRequest) -> BackupRequest:
        """The request that completes it: with the options of files that it was started with."""
        return replace(request, **{name: self.asked[name] for name in _KEPT})


def asked(request: BackupRequest) -> dict[str, Any]:
    """The fields of a request that a draft keeps."""
    made = requests.asked(request, always=(*_SAME, *_KEPT), never=_ELSE)
    # The same backup by two names.
    mode = "incr-diff" if request.mode == "auto" else request.mode
    lists = {name: sorted(made[name]) for name in ("topics", "patterns")}
    return {**made, **lists, "mode": mode, "level": request.level or 1}


def different(draft: InProgress, request: BackupRequest) -> list[str]:
    """The options that differ from those of the backup in progress."""
    now = asked(request)
    names = [name for name in {**now, **draft.asked} if name not in _KEPT]
    return [name for name in names if now.get(name) != draft.asked.get(name)]


def blocker(draft: InProgress, request: BackupRequest, work: Workspace, cluster: Cluster) -> str | None:
    """Why it cannot be resumed, None when it can. Asks the cluster last."""
    plan, reader = draft.prepared.plan, work.reader()
    if plan.parent is None:
        return "a full backup starts over"
    if latest_number(reader, work.source) + 1 != draft.number:
        return "another backup was taken since"
    parent = reader.one("parent_backup", backup_id=plan.parent.backup_id)
    if parent is None or parent["reason"]:
        return f"backup {plan.parent.backup_id}, which it depends on, cannot be used any more"
    if other := different(draft, request):
        return f"another {', '.join(other)} is asked for"
    done = tasks_done(work, draft.backup_id)
    if not done:
        return "no task was done"
    if topic := _under_old_path(draft, work):
        return f"its version of lakebackup stored topic {topic} under a path that no catalog takes"
    rest = [split for task, some in enumerate(plan.tasks) if task not in done for split in some]
    return _changed(rest, request, work.source, cluster, reader)


def _under_old_path(draft: InProgress, work: Workspace) -> str | None:
    """A topic with `..` in its name that was stored before such names were encoded; None: there is none."""
    folder = layout.source_folder(work.source)
    topics = {(s.scope, s.epoch) for task in draft.prepared.plan.tasks for s in task if ".." in s.scope}
    old_topics = (
        topic
        for topic, epoch in sorted(topics)
        if next(work.storage.list(f"{folder}{epoch}/topics/{topic}/"), None)
    )
    return next(old_topics, None)


def tasks_done(work: Workspace, backup_id: str) -> set[int]:
    """The tasks whose part is there."""
    folder = layout.parts_folder(work.source, backup_id)
    names = (at.path.rpartition("/")[2].removesuffix(".jsonl") for at in work.storage.list(folder))
    return {int(name) for name in names if name.isdigit()}


def unread(rest: Iterable[Range], regions: Iterable[RegionState]) -> str | None:
    """Why ranges cannot be read any more from partitions as they are now; None when they can."""
    now = {r.place: r for r in regions}
    for span in rest:
        at = now.get(span.place)
        if at is None:
            return f"topic {span.scope} was recreated"
        if at.low > span.start or at.high < span.end:
            return f"offsets that it has not read of topic {span.scope} are gone"
    return None


def discard_files(
    work: Workspace,
    backup_id: str,
    places: Iterable[tuple[str, str, str]],
    first: Iterable[tuple[str, str, int]],
) -> int:
    """Delete the data files of a backup in partitions (epoch, topic, partition); returns how many.

    `first`: (topic, partition, first number of a file) where the catalog had files already. Those that name
    the backup in their header are deleted, and no other: beside them are those of other backups, and of runs
    that may still be at work.
    """
    known = {(topic, region): number for topic, region, number in first}
    count = 0
    for epoch, topic, region in sorted(places):
        folder = layout.partition_folder(work.source, epoch, topic, int(region))
        for at in work.storage.list(folder):
            seq = layout.parse_seq(at.path.removeprefix(folder), topic, int(region))
            if seq is None or seq < known.get((topic, region), 0):
                continue
            if _of(work.storage, at.path, backup_id):
                count += working.delete(work.storage, [at.path])
    return count


def _of(storage: Storage, path: str, backup_id: str) -> bool:
    try:
        with storage.open(path) as stream:
            return FileReader(stream, path).metadata.get(BACKUP_ID) == backup_id.encode()
    except (NotFound, Damaged):
        return False


def _changed(
    rest: Sequence[Split], request: BackupRequest, source: str, cluster: Cluster, reader: CatalogReader
) -> str | None:
    names = sorted({split.scope for split in rest})
    gone = set(names) - set(cluster.topic_names())
    if gone:
        return f"topic {min(gone)} is gone"
    _, regions = cluster.positions(cluster.describe(names), request.isolation)
    if why := unread(rest, regions):
        return why
    if forks.find(reader, source, regions, request.kafka):
        return "the source's history was cut back"
    return None
