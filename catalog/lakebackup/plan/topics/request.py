"""Plans restores of topics: turns a request into a RestorePlan. The catalog's SQL selects the files.

Planning writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lakebackup import requests
from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.plan.records import RecordsPlan, plan_records
from lakebackup.plan.topics.chains import BackupSet, Cost, Step, backup_sets, on_path
from lakebackup.plan.topics.generations import is_compacted, tombstones_stay_ms
from lakebackup.plan.topics.restore import (
    BackupPart,
    Cover,
    Obstacle,
    PartRead,
    RegionPart,
    RegionSpan,
    RestorePlan,
    TopicPart,
    between,
    refuse_outside,
)
from lakebackup.rows.base import TOPICS, pick
from lakebackup.rows.topics import IN_PART
from lakebackup.rules import patterns, topic_settings
from lakebackup.rules.kinds import only_one, require_kind, require_kind_of, require_known, require_source
from lakebackup.rules.stored_json import object_of
from lakebackup.rules.times import format_ts
from lakebackup.sql_engine import EngineChoice
from lakebackup.sql_engine.guard.check import check_select
from lakebackup.store.reader import LATEST, CatalogReader
from lakebackup_sql import load

# Two requests are the same restore if these fields are equal. The digest takes them in this order, then the
# fields that are added to requests later, unless they are ignored.
_IDENTITY_FIELDS = (
    "target", "topics", "patterns", "maps", "to_ts", "from_ts", "select", "partial", "append", "allow_gaps",
    "continued", "repartition", "partitions", "backup",
)  # fmt: skip
# Locations, credentials, waiting times, and what happens after the records are written.
_IGNORED_FIELDS = (
    "destination", "catalog", "source", "kafka", "remote", "lease_ttl_s", "dry_run", "save_plan", "plan",
    "groups", "settings", "zero_as_one", "engine", "strict_schemas", "schema_topics", "runner", "local_below",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RestoreRequest(requests.RunRequest):
    """The options of a restore. Times are in ms, bounds are `(from_ts, to_ts]`; `kafka` may hold secrets."""

    target: str
    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    source: str | None = None
    maps: Mapping[str, str] = field(default_factory=dict)
    to_ts: int | None = None
    from_ts: int | None = None
    backup: str | None = None
    select: str | None = None
    records: str | None = None
    partial: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)
    append: bool = False
    continued: bool = False
    repartition: bool = False
    partitions: int | None = None
    groups: tuple[str, ...] = ()
    allow_gaps: bool = False
    approximate: bool = False
    allow_empty: bool = False
    settings: str = "auto"
    zero_as_one: bool = False
    strict_schemas: bool = False
    schema_topics: tuple[str, ...] = ("_schemas",)
    save_plan: str | None = None
    plan: str | None = None
    engine: EngineChoice = "auto"

    @property
    def by_sql(self) -> bool:
        """Whether it needs Spark SQL. Restores into topics and folders otherwise need only tasks."""
        return self.records is not None or self.target.startswith("delta:")

    @property
    def to_file(self) -> bool:
        """Whether the records become the rows of one file, which this process writes without Spark."""
        return self.target.startswith(("csv:", "json:", "parquet:"))

    @property
    def accepted(self) -> set[str]:
        """The reasons of obstacles in spite of which the user wants the restore."""
        flags = {"gap": self.allow_gaps, "compacted": self.approximate, "empty": self.allow_empty}
        return {reason for reason, accept in flags.items() if accept}

    def digest(self, source: str) -> str:
        """Return the digest of all fields but the ignored ones. Requests for the same restore have the same
        one."""
        values = requests.digest_fields(self, always=_IDENTITY_FIELDS, never=_IGNORED_FIELDS)
        lists = {name: sorted(values[name]) for name in ("topics", "patterns")}
        return requests.digest(
            source, {**values, **lists, "maps": sorted(self.maps.items())}, always=_IDENTITY_FIELDS
        )


def plan_restore(request: RestoreRequest, reader: CatalogReader) -> RestorePlan:
    """Plan a restore: what it would read, and the obstacles to it. Writes nothing.

    Raises NotFound (no such topic), Refused (a time after the last backup), UsageProblem (a bad SELECT).
    """
    if request.records is not None:
        return _plan_records(request, request.records, reader)
    if request.select is not None:
        return _plan_select(request, request.select, reader)
    backup_id = _backup_id(request, reader)
    points = _with_points_of(backup_id, reader)
    source = _source_of(backup_id, request, points) if backup_id else only_source(reader, request.source)
    newest, points = _newest(request, source, points)
    names = patterns.select(request.topics, request.patterns, newest)
    refuse_outside(source, names, request.to_ts, newest, partial(_latest, source, points))
    bounds: dict[str, Any] = {"source": source, "to_ts": request.to_ts, "scopes": ",".join(names)}
    if not backup_id:  # otherwise each later query reads all restore points, perhaps a million
        points = points.with_query("chain_points", "restore_point", backup_id=None, **bounds)
    (backups,) = points.rows("restore_range", **bounds)
    parameters = {"source": source, "from_ts": request.from_ts, **bounds, **backups}
    file = points.plan_file("restore_files", **parameters)
    points = points.with_rows("selected", file)
    topics = _topics(request, names, points, bounds)
    inexact, notes = _between(request.to_ts, topics, points, bounds)
    if request.to_ts is None and not request.backup:
        notes += passed_over(source, max((topic.number for topic in topics), default=0), reader)
    floors = (
        points.rows("backup_floors", source=source, scopes=bounds["scopes"], **backups)
        if backup_id
        else points.rows("restore_floors", **bounds, **backups)
    )
    gaps = points.rows("restore_gaps", **bounds)
    spans = tuple(RegionSpan(**row) for row in points.rows("restore_regions", **bounds, **backups))
    return RestorePlan(
        source=source,
        from_ts=request.from_ts,
        to_ts=request.to_ts,
        selection=load("queries", "restore_files"),
        parameters=parameters,
        file=file,
        topics=topics,
        obstacles=(*map(_gap, gaps), *inexact, *map(_pruned, floors), *_damage(points)),
        notes=tuple(notes),
        spans=spans,
        backup_id=backup_id,
    )


def _plan_records(request: RestoreRequest, select: str, reader: CatalogReader) -> RestorePlan:
    """The plan for a SELECT of records: that of the topic which its result replaces.

    Damaged files are no obstacle to it: the SELECT finds them when it reads them.
    """
    checked = check_select(select, reader.relations(), records=True)
    now_ms = time.time_ns() // 1_000_000
    plans = [plan_records(reader, checked.spark, call, now_ms=now_ms) for call in checked.records]
    records_plan = stands_for(request, plans)
    topic_request = replace(
        request,
        records=None,
        source=records_plan.source,
        topics=(records_plan.scope,),
        to_ts=records_plan.to_ts,
        backup=records_plan.backup_id,
    )
    plan = plan_restore(topic_request, reader)
    obstacles = tuple(obstacle for obstacle in plan.obstacles if obstacle.reason != "damage")
    return replace(plan, selection=select, parameters={}, to_ts=None, spans=(), obstacles=obstacles)


def _latest(source: str, reader: CatalogReader) -> Cover | None:
    row = reader.first_row("latest_backup", source=source, level=None)
    return Cover(row["end_ts"], row["place"], row["backup_id"]) if row else None


def _newest(
    request: RestoreRequest, source: str, reader: CatalogReader
) -> tuple[dict[str, Cover], CatalogReader]:
    """Topic -> its cover, and a reader with the restore points of these topics: of those that the request
    names, or of all if the request has patterns or a backup, or names a topic without a restore point."""
    if request.topics and not request.patterns and not request.backup:
        scopes = ",".join(request.topics)
        points = reader.with_query("chain_points", "topic_points", source=source, scopes=scopes)
        if set(request.topics) <= set(covers := _covered(source, points)):
            return covers, points
    return _covered(source, reader), reader


def _covered(source: str, reader: CatalogReader) -> dict[str, Cover]:
    rows = reader.rows("restore_coverage", source=source)
    return {row["scope"]: Cover(row["end_ts"], row["place"]) for row in rows}


def _backup_id(request: RestoreRequest, reader: CatalogReader) -> str | None:
    """The id of the backup that the request names; None: it names none."""
    if not request.backup:
        return None
    own = only_source(reader, request.source) if request.backup == LATEST else None
    return reader.resolve_backup(request.backup, own)


def _with_points_of(backup_id: str | None, reader: CatalogReader) -> CatalogReader:
    """A reader in which topics can be restored from this backup only; None: from any."""
    if backup_id is None:
        return reader
    no_bounds = {"source": None, "scopes": None, "to_ts": None}
    return reader.with_query("chain_points", "restore_point", backup_id=backup_id, **no_bounds)


def _source_of(backup_id: str, request: RestoreRequest, reader: CatalogReader) -> str:
    """The source of the backup from which the reader's topics are restored.

    Raises Refused when the backup is no restore point.
    """
    row = reader.first_row("parent_backup", backup_id=backup_id)
    source = only_source(reader, row["source"] if row else None)
    require_source(backup_id, source, request.source)
    if not reader.rows("restore_coverage", source=source):
        raise Refused(
            f"Backup {backup_id} cannot be restored; its state is {row['state'] if row else 'unknown'}.",
            hint="The view unusable_backups says why, restore_points what can be restored.",
        )
    return source


def read_backups(plan: RestorePlan, reader: CatalogReader) -> list[BackupPart]:
    """The backups that the chosen files belong to, in the order of their contents."""
    rows = reader.with_rows("selected", plan.file).rows("restore_backups")
    return [BackupPart(**row) for row in rows]


def other_paths(plan: RestorePlan, reader: CatalogReader) -> list[tuple[list[str], list[BackupSet]]]:
    """For the topics that are restored from one backup, the sets of backups that would bring the same state.

    The first set is the one that the restore reads. Topics without another set are left out. The list is
    empty if the user chose the files.
    """
    if not plan.parameters:
        return []
    points: dict[str, list[str]] = {}
    for topic in plan.topics:
        points.setdefault(topic.backup_id, []).append(topic.scope)
    paths = []
    for backup_id, topics in points.items():
        steps = [Step(**row) for row in reader.rows("restore_steps", backup_id=backup_id)]
        last_place = max(step.place for step in steps)
        steps = on_path(steps, last_place)
        if all(step.used for step in steps):
            continue
        bounds = {"from_ts": plan.from_ts, "to_ts": plan.to_ts, "scopes": ",".join(topics)}
        costs = {
            row.pop("backup_id"): Cost(**row)
            for row in reader.rows("restore_costs", backup_id=backup_id, **bounds)
        }
        paths.append((topics, backup_sets(steps, last_place, costs)))
    return paths


def _plan_select(request: RestoreRequest, select: str, reader: CatalogReader) -> RestorePlan:
    """The plan for a user's SELECT over the views. Its columns `path` and, if it has one, `destination` name
    the files."""
    checked = check_select(select, reader.relations())
    reader = reader.with_select("chosen", checked)
    columns = [name.lower() for name in reader.columns("chosen")]
    if "path" not in columns:
        raise UsageProblem(
            f"The SELECT returns {', '.join(columns)}; a restore needs the column path.",
            hint="Let it return destination and path of rows of `files`; other columns do not matter.",
        )
    (path_bounds,) = reader.rows("chosen_rows")
    rows_chosen = path_bounds.pop("rows_chosen")
    file = reader.plan_file("chosen_files" if "destination" in columns else "chosen_paths", **path_bounds)
    files = reader.with_rows("selected", file)
    (unmatched_bounds,) = files.rows("chosen_left")
    unmatched = files.rows("chosen_rest", **unmatched_bounds) if unmatched_bounds["first_path"] else []
    unknown = [row for row in unmatched if row["reason"] != "pruned"]
    if unknown:
        raise UsageProblem(
            "The SELECT chose what no restore can read: "
            + "; ".join(f"{row['files']} files ({row['reason']}), such as {row['path']}" for row in unknown)
            + ".",
            hint="Its paths must be those of rows of `files`, with destination where one is ambiguous.",
        )
    sources = files.rows("selected_sources")
    if not sources and not unmatched:
        raise NotFound(
            "The SELECT chose no file.",
            hint="It must return the columns destination and path of rows of `files`.",
        )
    source = _one_source(request, [row["source"] for row in sources], reader)
    require_kind(source, TOPICS, [row["source_kind"] for row in sources])
    parts = read_parts(files)
    names = sorted({part.scope for part in parts})
    topic_filter = {"source": source, "scopes": ",".join(names)}
    _refuse_two_histories(parts)
    bounds: dict[str, Any] = {**topic_filter, "to_ts": request.to_ts}
    pruned_texts = [
        f"{row['files']} files that the SELECT chose were pruned ({row['prune_id']}), such as {row['path']}"
        for row in unmatched
    ]
    duplicates = rows_chosen - sum(row["files"] for row in [*sources, *unmatched])
    notes = [f"{duplicates} rows of the SELECT name a file that another row names too"] if duplicates else []
    holes = (
        []
        if request.partial
        else [*map(_hole, pruned_texts), *map(_break, files.rows("selected_breaks", **topic_filter))]
    )
    return RestorePlan(
        source=source,
        from_ts=request.from_ts,
        to_ts=request.to_ts,
        selection=checked.spark,
        parameters={},
        file=file,
        topics=_topics(request, names, files, bounds),
        obstacles=(*_damage(files), *holes),
        notes=(*notes, *(pruned_texts if request.partial else [])),
        reached={
            (row["scope"], row["region"]): row["reaches"]
            for row in files.rows("selected_reach", **topic_filter)
        },
    )


def _one_source(request: RestoreRequest, sources: Sequence[str], reader: CatalogReader) -> str:
    if not sources:
        return only_source(reader, request.source)
    if len(sources) > 1 or (request.source and sources[0] != request.source):
        raise UsageProblem(
            f"The SELECT chose files of {', '.join(sources)}.",
            hint="Restore one source at a time: add AND source = '...' to the SELECT.",
        )
    return sources[0]


def _hole(detail: str) -> Obstacle:
    return Obstacle("", "", "partial", f"{detail}; --partial restores the others all the same")


def only_source(reader: CatalogReader, requested_source: str | None = None) -> str:
    """The given source, or else the only one that has restorable backups of topics.

    Raises NotFound (no source, or one that the catalog does not know), UsageProblem (several sources),
    Refused (another program made the source's backups).
    """
    if requested_source:
        if not require_kind_of(reader, requested_source, TOPICS):
            require_known(reader, requested_source)
        return requested_source
    kinds: dict[str, str] = {row["source"]: row["source_kind"] for row in reader.rows("list_sources")}
    sources = [source for source, kind in kinds.items() if kind == TOPICS]
    return only_source(reader, only_one(sources or [*kinds], "restorable backup"))


def read_parts(files: CatalogReader) -> list[RegionPart]:
    """The files in the relation `selected` of a reader, summed up for each partition."""
    return [RegionPart(**row) for row in files.rows("selected_summary")]


def _refuse_two_histories(parts: Sequence[RegionPart]) -> None:
    for scope in {part.scope for part in parts}:
        epochs = sorted({part.epoch for part in parts if part.scope == scope})
        if len(epochs) > 1:
            raise UsageProblem(
                f"It chooses files of topic {scope} from before and after it was deleted and recreated "
                f"(epochs {', '.join(epochs)}).",
                hint="Restore one at a time: add AND epoch = '...' to the SELECT.",
            )


def _topics(
    request: RestoreRequest, names: Sequence[str], files: CatalogReader, bounds: Mapping[str, Any]
) -> tuple[TopicPart, ...]:
    """The topics to restore, each with its share of the chosen files."""
    parts, targets = read_parts(files), patterns.target_names(names, request.maps)
    return tuple(
        pick(
            TopicPart,
            {
                **row,
                "target": targets[row["scope"]],
                "settings": topic_settings.load(row["settings"]),
                "parts": tuple(part for part in parts if part.scope == row["scope"]),
            },
        )
        for row in files.rows("restore_targets", **bounds)
    )


def _obstacle(row: Mapping[str, Any], reason: str, detail: str, **times: int | None) -> Obstacle:
    """An obstacle in the partition of a row."""
    return Obstacle(row["scope"], row["region"], reason, detail, **times)


def _gap(row: Mapping[str, Any]) -> Obstacle:
    lost = (
        f"to {row['to_position']} were deleted"
        if row["reason"] == "purged"
        else "on were lost, the topic was recreated"
    )
    detail = f"offsets from {row['from_position']} {lost} before they were backed up"
    return _obstacle(row, "gap", detail, before_ts=row["from_ts"], after_ts=row["to_ts"])


def _between(
    to_ts: int | None, topics: Sequence[TopicPart], reader: CatalogReader, bounds: Mapping[str, Any]
) -> tuple[list[Obstacle], list[str]]:
    if to_ts is None or not topics:
        return [], []
    compacted = {topic.scope for topic in topics if is_compacted(topic.settings.in_force)}
    ids = {topic.backup_id for topic in topics}
    rows = reader.rows("restore_between", **bounds, first_backup=min(ids), last_backup=max(ids))
    return between([PartRead(**row) for row in rows], compacted, to_ts)


def _pruned(row: Mapping[str, Any]) -> Obstacle:
    detail = f"what it held then was pruned; it can be restored from offset {row['low_position']} on"
    return _obstacle(row, "pruned", detail, after_ts=row["after_ts"])


def _damage(files: CatalogReader) -> list[Obstacle]:
    return [
        _obstacle(row, "damage", f"file {row['path']} was {row['outcome']} when it was last checked")
        for row in files.rows("selected_damage")
    ]


def _break(row: Mapping[str, Any]) -> Obstacle:
    if row["bases"] > 1:
        why = f"it mixes files of {row['bases']} chains, which hold offsets twice"
    elif row["generations"] > 1:
        why = f"it mixes files of {row['generations']} generations, which hold offsets twice"
    else:
        why = f"it takes {row['chosen']} of the {row['held']} files up to offset {row['end_position']}"
    return _obstacle(row, "partial", f"{why}; --partial restores them all the same")


# --- restores that continue earlier ones


def plan_rest(
    plan: RestorePlan,
    reader: CatalogReader,
    cluster: str,
    target_ids: Mapping[str, str],
    restore_id: str | None,
) -> RestorePlan:
    """The part of the plan `plan` that earlier restores into the same topics did not write.

    `target_ids`: source topic -> id of its target topic in `cluster`, of the target topics that exist.
    `restore_id`: the run that this one resumes, which does not count as an earlier restore.

    Raises Refused when an earlier restore did not end, left records out, or wrote another history of the
    topic, or one that was truncated since; or when the remaining records may lack deletions, or --from-time
    would leave some of them out.
    """
    names = {topic.scope: topic.target for topic in plan.topics}
    refuse_unfinished(plan, reader, cluster, target_ids, restore_id)
    reader = _with_points_of(plan.backup_id, reader)
    parameters: dict[str, Any] = {
        "source": plan.source,
        "cluster": cluster,
        "targets": target_list(target_ids),
        "restore_id": restore_id,
    }
    for row in reader.rows("restored_forks", **parameters):
        raise Refused(
            f"Topic {names[row['scope']]}, partition {row['region']}, holds records that were cut from the "
            f"history of topic {row['scope']} since: backup {row['backup_id']} is out of sync.",
            hint="Restore into another topic with --map.",
        )
    epochs = {topic.scope: topic.epoch for topic in plan.topics}
    until: dict[tuple[str, str], int] = {}
    for row in reader.rows("restored_until", **parameters):
        scope = row["scope"]
        if row["epoch"] != epochs[scope]:
            raise Refused(
                f"Topic {names[scope]} holds records of an earlier topic {scope}, "
                "which was deleted and recreated since.",
                hint="Restore into another topic with --map.",
            )
        if row["to_ts"] is not None:
            in_part = row["to_ts"] == IN_PART
            extent = (
                "in part: some records" if in_part else f"to {format_ts(row['to_ts'])}: records after that"
            )
            raise Refused(
                f"Topic {names[scope]} was restored {extent} were left out between others, and cannot be "
                "inserted any more.",
                hint="Restore into another topic with --map.",
            )
        if plan.from_ts is not None:
            raise Refused(
                f"--from-time would leave out what lies between it and what topic {names[scope]} holds.",
                hint="Leave it out: --continue begins where earlier restores ended.",
            )
        until[scope, row["region"]] = row["position"]
    _refuse_lost_deletions(plan, reader, parameters)
    file = reader.with_rows("selected", plan.file).plan_file("selected_rest", **parameters)
    parts = read_parts(reader.with_rows("selected", file))
    topics = tuple(replace(t, parts=tuple(p for p in parts if p.scope == t.scope)) for t in plan.topics)
    return replace(plan, file=file, topics=topics, until=until)


def _refuse_lost_deletions(plan: RestorePlan, reader: CatalogReader, parameters: Mapping[str, Any]) -> None:
    """Raise Refused when a compacted topic was read from its start again, too long after what the target has.

    Keys that were deleted in between have no tombstone any more, and would stay in the target.
    """
    topics = {topic.scope: topic for topic in plan.topics}
    for row in reader.rows("restored_generations", **parameters, to_ts=plan.to_ts):
        topic = topics[row["scope"]]
        settings = topic.settings.in_force
        restored_ts, stay = row["known_ts"], tombstones_stay_ms(settings)
        if is_compacted(settings) and (restored_ts is None or row["read_ts"] - restored_ts >= stay):
            raise Refused(
                f"Topic {topic.target} may keep keys that were deleted from topic {topic.scope}: backup "
                f"{row['backup_id']} began a generation, and what is there is older than that by more than "
                f"the topic's delete.retention.ms ({stay}), so tombstones may be missing.",
                hint="Restore into another topic with --map; then run --continue more often than that.",
            )


def target_list(target_ids: Mapping[str, str]) -> str:
    """`target_ids` as the text that the queries take as a parameter."""
    return ",".join(f"{scope}={epoch}" for scope, epoch in sorted(target_ids.items()))


def refuse_unfinished(
    plan: RestorePlan,
    reader: CatalogReader,
    cluster: str,
    target_ids: Mapping[str, str],
    restore_id: str | None,
) -> None:
    """Raise Refused when another restore into the same topics did not end; arguments as for `plan_rest`.

    Its command, run again, resumes it. A different restore that may add records would write them twice.
    """
    names = {topic.scope: topic.target for topic in plan.topics}
    for row in reader.rows("open_restores"):
        target = object_of(row["detail"]).get("into")
        if (
            row["restore_id"] == restore_id
            or not isinstance(target, dict)
            or target.get("cluster") != cluster
        ):
            continue
        shared = sorted(set(target["topics"].values()) & set(target_ids.values()))
        if shared:
            topic = next(names[scope] for scope, epoch in target_ids.items() if epoch in shared)
            raise Refused(
                f"Restore {row['restore_id']} into topic {topic} did not end: "
                "it is not known yet what it restored.",
                hint="Run its command again to resume it first, or restore into another topic with --map.",
            )


def passed_over(source: str, number: int, reader: CatalogReader) -> list[str]:
    """Notes on the backups newer than `number`, from which the newest state is restored."""
    return [
        f"backup {row['backup_id']} of {format_ts(row['end_ts'])} is passed over: it cannot be restored, "
        "the view unusable_backups says why"
        for row in reader.rows("passed_over", source=source, number=number)
    ]


def stands_for(request: RestoreRequest, plans: list[RecordsPlan]) -> RecordsPlan:
    """The records(…) call whose topic the result replaces. Raises UsageProblem."""
    conflicting = {
        "--pattern": request.patterns, "--to-time": request.to_ts, "--from-time": request.from_ts,
        "--backup": request.backup, "--select": request.select, "--partial": request.partial,
        "--continue": request.continued, "--group-pattern": request.groups, "--save-plan": request.save_plan,
    }  # fmt: skip
    flags = [
        flag
        for flag, value in conflicting.items()
        if value is not None and value is not False and value != ()
    ]
    if flags:
        raise UsageProblem(
            f"--select-records and {', '.join(flags)} exclude each other.",
            hint="The SELECT says which records: records('orders', '2026-11-21T14:05Z') WHERE …",
        )
    if not plans:
        raise UsageProblem("--select-records reads no records.", hint="Read FROM records('orders').")
    plans_by_topic = {(plan.source, plan.scope): plan for plan in reversed(plans)}
    matches = [
        plan for plan in plans_by_topic.values() if not request.topics or (plan.scope,) == request.topics
    ]
    if len(matches) != 1:
        raise UsageProblem(
            f"--select-records reads {', '.join(sorted(scope for _, scope in plans_by_topic))}.",
            hint="Name as TOPIC the one of them whose settings and partitions the result gets.",
        )
    return matches[0]
