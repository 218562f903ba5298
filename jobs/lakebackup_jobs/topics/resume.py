"""Whether an interrupted backup of topics can be resumed, and which files it left.

A manifest part is the commit of its task, so a run that resumes copies only the splits of tasks without a
part. A full backup starts over, as does a backup whose parent, positions or request have changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakebackup import requests
from lakebackup.encryption.objects import PREFIX_BYTES, key_id_of
from lakebackup.errors import Damaged, NotFound
from lakebackup.plan.partitions import Range, RegionState
from lakebackup.plan.topics.backup import Prepared, Split
from lakebackup.rules import layout
from lakebackup.storage import Storage, working
from lakebackup.store import data_keys
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.topics import forks
from lakebackup_jobs.topics.request import BackupRequest
from lakebackup_jobs.topics.tasks.copy import BACKUP_ID
from lakebackup_jobs.topics.tasks.decode import decoded_topics

# Two requests are for the same backup if these fields are equal. Fields that are added to requests later are
# compared too, unless they are in _ELSE.
_COMPARED_FIELDS = ("topics", "patterns", "isolation", "groups", "mode", "level", "parent", "new_generation")
# A resumed backup is completed with the values with which it was started, as in its files and its row.
_FROZEN_FIELDS = ("codec", "compression_level", "target_bytes", "roll_ms", "note")
# Ignored in the comparison: places, credentials, speed, and what is decided before a backup is started.
_IGNORED_FIELDS = (
    "destination", "catalog", "source", "kafka", "remote", "lease_ttl_s", "runner", "local_below",
    "parallelism", "dry_run", "log",
    "on_gap", "on_fork", "growth", "schema_topics",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class InProgress:
    """A backup in progress, and the fields of its request (`identity_of`).

    `first`: (topic, partition, number of its first new file) for partitions with files in the catalog.
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
        """`request` with the options for files and the note with which the backup was started."""
        return replace(request, **{name: self.asked[name] for name in _FROZEN_FIELDS})


def identity_of(request: BackupRequest) -> dict[str, Any]:
    """The fields of a request that a draft records."""
    fields = requests.digest_fields(
        request, always=(*_COMPARED_FIELDS, *_FROZEN_FIELDS), never=_IGNORED_FIELDS
    )
    # Both names mean the same mode.
    mode = "incr-diff" if request.mode == "auto" else request.mode
    lists = {name: sorted(fields[name]) for name in ("topics", "patterns")}
    return {**fields, **lists, "mode": mode, "level": request.level or 1}


def different(draft: InProgress, request: BackupRequest) -> list[str]:
    """The options of `request` that differ from those of the backup in progress."""
    request_fields = identity_of(request)
    names = [name for name in {**request_fields, **draft.asked} if name not in _FROZEN_FIELDS]
    return [name for name in names if request_fields.get(name) != draft.asked.get(name)]


def blocker(draft: InProgress, request: BackupRequest, work: Workspace, cluster: Cluster) -> str | None:
    """Why an interrupted backup cannot be resumed; None: it can. The cluster is queried last."""
    plan, reader = draft.prepared.plan, work.reader()
    if plan.parent is None:
        return "a full backup starts over"
    if latest_number(reader, work.source) + 1 != draft.number:
        return "another backup was taken since"
    parent = reader.first_row("parent_backup", backup_id=plan.parent.backup_id)
    if parent is None or parent["reason"]:
        return f"backup {plan.parent.backup_id}, which it depends on, cannot be used any more"
    if options := different(draft, request):
        return f"another {', '.join(options)} is asked for"
    finished_tasks = tasks_done(work, draft.backup_id)
    if not finished_tasks:
        return "no task was done"
    if request.recipients and (topic := _decoded_topic(draft, finished_tasks, request.schema_topics)):
        return f"only an identity could decode what it stored of topic {topic}"
    if topic := _topic_under_old_path(draft, work):
        return f"its version of lakebackup stored topic {topic} under a path that no catalog takes"
    splits = [
        split
        for task, task_splits in enumerate(plan.tasks)
        if task not in finished_tasks
        for split in task_splits
    ]
    return _source_change(splits, request, work.source, cluster, reader)


def _decoded_topic(draft: InProgress, tasks: Collection[int], schema_topics: Collection[str]) -> str | None:
    """A topic whose records become rows of the catalog, and which these tasks have stored; None: none."""
    decoded = frozenset[str]().union(*decoded_topics(schema_topics).values())
    scopes = {split.scope for task in tasks for split in draft.prepared.plan.tasks[task]}
    return min(decoded & scopes, default=None)


def _topic_under_old_path(draft: InProgress, work: Workspace) -> str | None:
    """A topic with `..` in its name, stored when such names were not encoded in paths yet; None: none."""
    folder = layout.source_folder(work.source)
    topics = {(s.scope, s.epoch) for task in draft.prepared.plan.tasks for s in task if ".." in s.scope}
    old_topics = (
        topic
        for topic, epoch in sorted(topics)
        if next(work.storage.list(f"{folder}{epoch}/topics/{topic}/"), None)
    )
    return next(old_topics, None)


def tasks_done(work: Workspace, backup_id: str) -> set[int]:
    """The numbers of the tasks that have written their part."""
    folder = layout.parts_folder(work.source, backup_id)
    names = (entry.path.rpartition("/")[2].removesuffix(".jsonl") for entry in work.storage.list(folder))
    return {int(name) for name in names if name.isdigit()}


def unread(ranges: Iterable[Range], regions: Iterable[RegionState]) -> str | None:
    """Why ranges can no longer be read from the partitions as they are now; None: they can."""
    region_states = {r.key: r for r in regions}
    for span in ranges:
        state = region_states.get(span.key)
        if state is None:
            return f"topic {span.scope} was recreated"
        if state.low > span.start or state.high < span.end:
            return f"offsets that it has not read of topic {span.scope} are gone"
    return None


def discard_files(
    work: Workspace,
    backup_id: str,
    partitions: Iterable[tuple[str, str, str]],
    first: Iterable[tuple[str, str, int]],
) -> int:
    """Delete the data files of a backup in partitions (epoch, topic, partition). Returns how many.

    `first`: (topic, partition, number of its first new file) for partitions with files in the catalog. Only
    files that name the backup in their header, or one of its data keys, are deleted, since the folders also
    hold files of other backups, and of runs that may still be at work.
    """
    key_ids = frozenset(data_keys.key_ids(work.storage, work.source, backup_id))
    first_numbers = {(topic, region): number for topic, region, number in first}
    count = 0
    for epoch, topic, region in sorted(partitions):
        folder = layout.partition_folder(work.source, epoch, topic, int(region))
        for entry in work.storage.list(folder):
            seq = layout.parse_seq(entry.path.removeprefix(folder), topic, int(region))
            if seq is None or seq < first_numbers.get((topic, region), 0):
                continue
            if _is_of_backup(work.storage, entry.path, backup_id, key_ids):
                count += working.delete(work.storage, [entry.path])
    return count


def _is_of_backup(storage: Storage, path: str, backup_id: str, key_ids: Collection[str]) -> bool:
    try:
        key_id = key_id_of(storage.get(path, start=0, length=PREFIX_BYTES)) if key_ids else None
        if key_id is not None:
            return key_id in key_ids
        with storage.open(path) as stream:
            return FileReader(stream, path).metadata.get(BACKUP_ID) == backup_id.encode()
    except (NotFound, Damaged):
        return False


def _source_change(
    splits: Sequence[Split], request: BackupRequest, source: str, cluster: Cluster, reader: CatalogReader
) -> str | None:
    names = sorted({split.scope for split in splits})
    missing_topics = set(names) - set(cluster.topic_names())
    if missing_topics:
        return f"topic {min(missing_topics)} is gone"
    _, regions = cluster.positions(cluster.describe(names), request.isolation)
    if reason := unread(splits, regions):
        return reason
    if forks.find(reader, source, regions, request.kafka):
        return "the source's history was cut back"
    return None
