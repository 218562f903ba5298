"""Plans the restore of an engine to a requested state: which full, which backups of its queues, which files.

SQL selects the files. Planning writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebackup import requests
from lakebackup.errors import Damaged, NotFound, Refused
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.plan.queues.paths import Point, RestorePath, last_ended_by, reached_by, restore_paths
from lakebackup.plan.topics.request import passed_over
from lakebackup.rows.base import QUEUES
from lakebackup.rules import layout, patterns, topic_settings
from lakebackup.rules.kinds import require_kind_of
from lakebackup.sql_engine import EngineChoice
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import CatalogReader
from lakebackup_sql import load

_MAX_SHOWN = 10
# Two requests are the same restore if these fields are equal. The digest takes them in this order, then
# fields that are added to requests later, unless they are in _IGNORED_FIELDS.
_IDENTITY_FIELDS = ("source", "target", "folder", "backup", "to_tid", "to_ts", "maps", "append", "keep_open")
# Locations, credentials, waiting times, how messages are read, and what happens after they are written.
_IGNORED_FIELDS = (
    "destination", "catalog", "kafka", "remote", "lease_ttl_s", "dry_run", "names", "settings", "zero_as_one",
    "engine", "runner", "local_below",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueRestoreRequest(requests.RunRequest):
    """The options of a restore. `folder` is where the snapshot and the configuration are written, `target`
    the cluster that messages are written to. `to_ts` is in ms. `kafka` may hold secrets."""

    source: str
    target: str
    folder: str
    backup: str | None = None
    to_tid: int | None = None
    to_ts: int | None = None
    maps: Mapping[str, str] = field(default_factory=dict)
    append: bool = False
    keep_open: bool = False
    settings: str = "auto"
    zero_as_one: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)
    names: HeaderNames = field(default_factory=HeaderNames)
    engine: EngineChoice = "auto"

    def digest(self) -> str:
        """Return the digest of all fields but the ignored ones. Requests for the same restore have the same
        one."""
        values = requests.digest_fields(self, always=_IDENTITY_FIELDS, never=_IGNORED_FIELDS)
        return requests.digest(
            "queue", {**values, "maps": sorted(self.maps.items())}, always=_IDENTITY_FIELDS
        )


@dataclass(frozen=True, slots=True)
class Queue:
    """A topic of the engine, and how much of it is restored. `min_ts` (ms) is the time of its oldest message;
    None if it has none."""

    scope: str
    epoch: str
    target: str
    regions: int
    replication: int
    settings: Mapping[str, str]
    files: int
    bytes: int
    entries: int
    min_ts: int | None


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file of the engine that is restored beside its snapshot. `role` is config or schema. `key_id`: the
    data key of `backup_id` that encrypts it; None: it is in clear."""

    role: str
    destination: str
    path: str
    bytes: int
    sha256: str
    source: str = ""
    backup_id: str = ""
    key_id: str | None = None

    @property
    def name(self) -> str:
        """Its name in the engine's folder."""
        return self.path.rpartition("/")[2].removesuffix(layout.encrypted_suffix(self.key_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """The state that a restore brings an engine to: the snapshot `snapshot_id` of the full `full_id`, then
    messages up to the tid `upto_tid` (None: all). `selection`: the SQL that selects their files.

    `backup_id`: the backup that contains the state; `whole`: the state is that backup's end. `first_tid`,
    `to_tid`: the last tids of the snapshot and of the restored engine.
    """

    source: str
    selection: str
    full_id: str
    snapshot_id: str
    backup_id: str
    whole: bool
    first_tid: int
    to_tid: int
    upto_tid: int | None
    to_ts: int | None
    queues: tuple[Queue, ...]
    config: tuple[ConfigFile, ...]
    from_ts: None = None

    @property
    def files(self) -> int:
        return sum(queue.files for queue in self.queues)

    @property
    def bytes(self) -> int:
        return sum(queue.bytes for queue in self.queues)

    @property
    def entries(self) -> int:
        """Messages in the chosen files. The restore leaves out those after the point."""
        return sum(queue.entries for queue in self.queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRestorePlan(EngineState):
    """A planned restore. `file` has the rows of the files to read, which are of the backups of
    `restore_path`: those of one partition after another, in the order in which their messages were
    written."""

    restore_path: RestorePath
    parameters: Mapping[str, Any]
    file: PlanFile = field(compare=False)
    obstacles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def plan_restore(
    request: QueueRestoreRequest, reader: CatalogReader, tid_of: Callable[[RestorePath, CatalogReader], int]
) -> QueueRestorePlan:
    """Plan a restore. Writes nothing.

    Several paths, each a full with backups after it, may lead to the requested state. The first path without
    an obstacle is returned; if every path has one, the first path. `tid_of` returns the tid that the
    request's instant means on a path; its reader has the path's files as the relation `selected`.

    Raises NotFound (no such engine or backup), Refused (a point that is not covered), UsageProblem.
    """
    points = _points(request.source, reader)
    backup = reader.resolve_backup(request.backup, request.source) if request.backup else None
    try:
        paths = restore_paths(request.source, points, backup=backup, tid=request.to_tid, ts=request.to_ts)
    except Refused as refused:
        raise _with_gap(request, reader, refused) from None
    first: QueueRestorePlan | None = None
    unusable_paths: list[RestorePath] = []
    for restore_path in paths:
        # The beginning of an unusable path is no way out. It lacks messages that came late, which are in
        # later backups.
        if any(restore_path.is_within(path) for path in unusable_paths):
            continue
        plan = _plan(request, reader, points, restore_path, tid_of)
        if not plan.obstacles:
            return plan
        unusable_paths.append(plan.restore_path)
        first = first or plan
    if first is None:
        raise ValueError("there is a path, or a refusal")
    return first


def require_restorable(plan: QueueRestorePlan) -> None:
    """Raise Refused when files are missing or damaged."""
    if not plan.obstacles:
        return
    obstacles = plan.obstacles[:_MAX_SHOWN]
    suffix = [f"and {len(plan.obstacles) - _MAX_SHOWN} more"] if len(plan.obstacles) > _MAX_SHOWN else []
    raise Refused(
        f"This would not be what {plan.source} held:\n"
        + "\n".join(f"  {text}" for text in [*obstacles, *suffix]),
        hint="Choose a point that does not need these files: `lakebackup sql 'SELECT * FROM queue_points'` "
        "lists the backups, `lakebackup verify` shows all damage.",
    )


def _points(source: str, reader: CatalogReader) -> list[Point]:
    rows = reader.rows("queue_restore_points", source=source)
    if rows:
        return [Point(**row) for row in rows]
    require_kind_of(reader, source, QUEUES)
    raise NotFound(
        f"The catalog holds no backup of an engine {source}.", hint="`lakebackup list` shows what it holds."
    )


def _plan(
    request: QueueRestoreRequest,
    reader: CatalogReader,
    points: Sequence[Point],
    restore_path: RestorePath,
    tid_of: Callable[[RestorePath, CatalogReader], int],
) -> QueueRestorePlan:
    parameters = {
        "source": request.source,
        "base": restore_path.full.base,
        "link": restore_path.last.link,
        "to_tid": None,
    }
    upto_tid = request.to_tid
    read_errors: list[str] = []
    if request.to_ts is not None:
        try:
            tid = tid_of(restore_path, reader.with_rows("selected", _files_of(reader, parameters)))
            upto_tid = max(restore_path.full.last_tid, min(tid, restore_path.last.last_tid))
        except Damaged as damaged:
            read_errors, upto_tid = [damaged.message], restore_path.last.last_tid
    parameters["to_tid"] = upto_tid
    file = _files_of(reader, parameters)
    files = reader.with_rows("selected", file)
    config_from = last_ended_by(points, restore_path, upto_tid)
    if upto_tid is not None:
        restore_path = _shortened(restore_path, files)
        parameters["link"] = restore_path.last.link
    reached = restore_path.last if upto_tid is None else reached_by(points, restore_path, upto_tid)
    # The restore reaches the backup's end if it takes all of its messages, unless later backups hold messages
    # from before that end, which arrived in a queue that the backup had read already.
    reaches_end = (upto_tid is None or upto_tid >= reached.last_tid) and reached == restore_path.last
    queues = _queues(request, files, restore_path.last)
    renamed = any(queue.scope != queue.target for queue in queues)
    config, config_damage = _config(request, reader, restore_path.last, config_from)
    newest = upto_tid is None and not request.backup
    full = restore_path.full
    return QueueRestorePlan(
        source=request.source,
        selection=load("queries", "queue_restore_files"),
        full_id=full.backup_id,
        snapshot_id=full.snapshot_id or "",
        backup_id=reached.backup_id,
        first_tid=full.last_tid,
        restore_path=restore_path,
        upto_tid=upto_tid,
        to_ts=request.to_ts,
        to_tid=restore_path.last.last_tid if upto_tid is None else upto_tid,
        # A backup that continues this restore looks neither for open transactions nor for renamed topics.
        whole=reaches_end and not renamed and not request.keep_open,
        queues=queues,
        config=config,
        parameters=parameters,
        file=file,
        obstacles=(
            *_obstacles(files, parameters, read_errors),
            *_snapshot_obstacles(request, reader, full),
            *config_damage,
        ),
        notes=tuple(passed_over(request.source, restore_path.last.number, reader)) if newest else (),
    )


def _files_of(reader: CatalogReader, parameters: Mapping[str, Any]) -> PlanFile:
    return reader.plan_file("queue_restore_files", **parameters)


def _shortened(restore_path: RestorePath, files: CatalogReader) -> RestorePath:
    """Return the path without the backups at its end of which no file is read."""
    (reach,) = files.rows("queue_restore_reach")
    indexes = [index for index, link in enumerate(restore_path.links) if link.link <= (reach["link"] or 0)]
    return RestorePath(
        restore_path.links[: max([restore_path.reached_index, *indexes]) + 1], restore_path.reached_index
    )


def _queues(request: QueueRestoreRequest, files: CatalogReader, last: Point) -> tuple[Queue, ...]:
    topics = files.rows("queue_restore_topics", source=request.source, backup_id=last.backup_id)
    totals = {row["scope"]: row for row in files.rows("queue_restore_totals")}
    names = patterns.target_names([row["scope"] for row in topics], request.maps)
    nothing = {"files": 0, "bytes": 0, "entries": 0, "min_ts": None}
    return tuple(
        Queue(
            scope=row["scope"],
            epoch=row["epoch"],
            target=names[row["scope"]],
            regions=row["regions"],
            replication=row["replication"],
            settings=topic_settings.load(row["settings"]).own,
            **{name: totals.get(row["scope"], nothing)[name] for name in nothing},
        )
        for row in topics
    )


def _config(
    request: QueueRestoreRequest, reader: CatalogReader, last: Point, config_from: Point
) -> tuple[tuple[ConfigFile, ...], list[str]]:
    """Return the engine's own files, and why some of them cannot be restored.

    The configuration is that of `config_from`. The schema history is that of the path's last backup, since
    messages may need its newest version; it is cut at the restored point.
    """
    rows = reader.rows(
        "queue_restore_config",
        source=request.source,
        backup_id=last.backup_id,
        config_id=config_from.backup_id,
    )
    files = tuple(ConfigFile(**{name: row[name] for name in ConfigFile.__match_args__}) for row in rows)
    damage = [
        f"{row['path']} was {row['outcome']} when it was last checked" for row in rows if row["outcome"]
    ]
    return files, damage


def _obstacles(files: CatalogReader, parameters: Mapping[str, Any], read_errors: Sequence[str]) -> list[str]:
    """Return why the files cannot be restored. `read_errors` is the damage that showed when some were
    read."""
    chain = {name: value for name, value in parameters.items() if name != "to_tid"}
    (pruned,) = files.rows("queue_restore_pruned", **chain)
    pruned_text = f"{pruned['files']} files were pruned ({pruned['prune_id']}), such as {pruned['path']}"
    damage = [
        f"{row['path']} was {row['outcome']} when it was last checked"
        for row in files.rows("selected_damage")
    ]
    return [*([pruned_text] if pruned["files"] else []), *(damage or read_errors)]


def _snapshot_obstacles(request: QueueRestoreRequest, reader: CatalogReader, full: Point) -> list[str]:
    """Return why the engine's snapshot of a full cannot be restored."""
    if full.snapshot_id is None:
        return [f"full {full.backup_id} names no snapshot"]
    rows = reader.rows(
        "restore_snapshot_backups",
        source=layout.snapshot_source(request.source),
        backup_id=full.snapshot_id,
        to_ts=None,
    )
    if not rows or rows[0]["state"] != "complete":
        return [f"the backup {full.snapshot_id} of its snapshot is not there any more"]
    reason = rows[0]["reason"]
    return [f"the backup {full.snapshot_id} of its snapshot is not whole ({reason})"] if reason else []


def _with_gap(request: QueueRestoreRequest, reader: CatalogReader, refused: Refused) -> Refused:
    """Return the refusal `refused` with the gaps, if there are any, that explain why nothing covers the
    instant."""
    if request.to_ts is None:
        return refused
    rows = reader.rows("queue_restore_gaps", source=request.source, to_ts=request.to_ts)
    gaps = [
        f"{row['scope']}, partition {row['region']}: offsets from {row['from_position']} were "
        f"{'deleted' if row['reason'] == 'purged' else 'lost'} before they were backed up"
        for row in rows[:_MAX_SHOWN]
    ]
    return Refused(" ".join([refused.message, *(f"{text}." for text in gaps)]), hint=refused.hint)
