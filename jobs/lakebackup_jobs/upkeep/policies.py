"""Policies and holds: set, shown and released; and the backups that are due by them. No Java."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.rows.base import CHANGES, TOPICS
from lakebackup.rows.upkeep import Hold, Policy, PolicyTopics
from lakebackup.rules import schedule
from lakebackup.rules.kinds import kind_of
from lakebackup.rules.patterns import compile_pattern, is_internal
from lakebackup.rules.times import format_ts
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder
from lakebackup_jobs.topics.unprotected import owned_patterns

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["differential", "cumulative"]
_MODES: Mapping[str, str] = {"differential": "incr-diff", "cumulative": "incr-accu"}


@dataclass(frozen=True, slots=True)
class Change:
    """What a person changes of a policy; None: as it was. A schedule of "none", a window or a redundancy of 0
    and empty `patterns` of topics remove what was set."""

    full: str | None = None
    incremental: str | None = None
    kind: Kind | None = None
    level: int | None = None
    window_days: int | None = None
    redundancy: int | None = None
    min_redundancy: int | None = None
    note: str | None = None
    patterns: tuple[str, ...] | None = None


def set_policy(destination: str, catalog: str | None, name: str, change: Change) -> dict[str, Any]:
    """Change the policy of a source, or of the one that has a topic of that name; returns it as it is then.

    Raises NotFound (no such source or topic), UsageProblem (several have it, no schedule, or one for a
    source that no backup here can read, or for a change feed).
    """
    reader = CatalogReader.require(destination, catalog)
    source = _source(reader, name)
    made = _changed(_policy(reader, source), change, source)
    others = {row["source_kind"] for row in reader.rows("source_kinds", source=source)} - {TOPICS}
    if CHANGES in others and (made.full_schedule or made.incremental_schedule):
        raise UsageProblem(
            f"{source} is a change feed: its task flushes by itself, so no backup of it can be due.",
            hint="Leave out --full and --incr. `log start --flush-every` sets how often it flushes; a window "
            "and a redundancy limit what `log truncate` may delete.",
        )
    if others and (made.full_schedule or made.incremental_schedule):
        other = others.pop()
        why = kind_of(other).unscheduled or f"were made by another program ({other})"
        raise UsageProblem(
            f"The backups of {source} {why}: none can be due here.",
            hint="Leave out --full and --incr; a window and a redundancy are for every source.",
        )
    patterns = owned_patterns(reader, source) if change.patterns is None else change.patterns
    for pattern in patterns:
        compile_pattern(pattern)
    if others and change.patterns:
        raise UsageProblem(
            f"The backups of {source} are of no topics ({', '.join(sorted(others))}).",
            hint="Leave out --pattern.",
        )
    writer = CatalogWriter(None, destination, catalog)
    writer.migrate()
    writer.record(made)
    if change.patterns is not None:
        text = json.dumps(list(patterns)) if patterns else None
        writer.record(PolicyTopics(source=source, at=made.at, actor=made.actor, patterns=text))
    return {**asdict(made), "patterns": list(patterns)}


def remove_policy(destination: str, catalog: str | None, name: str) -> dict[str, Any]:
    """From now on the source has no policy: everything is kept. Raises NotFound (it has none)."""
    reader = CatalogReader.require(destination, catalog)
    source = _source(reader, name)
    before = _policy(reader, source)
    if before.at == 0:
        raise NotFound(f"{source} has no policy.", hint="`lakebackup policy show` lists them.")
    CatalogWriter(None, destination, catalog).record(replace(before, **_by_now(), removed=True))
    return {"source": source, "removed": True}


def hold(
    destination: str,
    catalog: str | None,
    beginning: str,
    *,
    reason: str,
    until_ts: int | None = None,
    release: bool = False,
) -> dict[str, Any]:
    """Keep a backup until an instant (ms; None: forever) whatever the policy, or release it.

    Raises NotFound (no such backup, it is not held), UsageProblem (deleted already, an instant that is past),
    Busy (a backup or a prune of its source is running), Refused (an interrupted prune was deleting it).
    """
    reader = CatalogReader.require(destination, catalog)
    backup_id = reader.resolve_backup(beginning)
    (backup,) = reader.rows("show_backup", backup_id=backup_id)
    if until_ts is not None and until_ts <= time.time_ns() // 1_000_000:
        raise UsageProblem(f"{format_ts(until_ts)} is past.", hint="Give a time to come, or --forever.")

    def record() -> dict[str, Any]:
        made = Hold(
            backup_id=backup_id,
            source=backup["source"],
            until_ts=until_ts,
            reason=reason,
            released=release,
            **_by_now(),
        )
        CatalogWriter(None, destination, catalog).record(made)
        return asdict(made)

    if release:
        if not reader.rows("hold_in_force", backup_id=backup_id):
            raise NotFound(f"Backup {backup_id} is not held.", hint="The view `holds` lists those that are.")
        return record()
    storage = open_storage(destination)
    # A running prune has looked at the holds already.
    with Lease.acquire(storage, f"source-{backup['source']}", holder()):
        (now,) = CatalogReader(destination, catalog).rows("show_backup", backup_id=backup_id)
        if now["state"] == "deleted":
            raise UsageProblem(f"Backup {backup_id} was deleted.")
        tombstones.require_not_pruned(storage, backup["source"], backup_id)
        return record()


@dataclass(frozen=True, slots=True)
class Due:
    """A backup that should have run at `due_ts` (ms): arguments of `backup topics`, and what is lost
    when the source is lost now (`lag_ms`; None: everything)."""

    source: str
    run: Literal["full", "incremental"]
    schedule: str
    due_ts: int
    missed: int
    lag_ms: int | None
    arguments: tuple[str, ...]


def due(reader: CatalogReader, source: str | None, now: int) -> list[Due]:
    """The backups that are due at `now` (ms), one a source at most: a full counts as an incremental too."""
    found: dict[str, Due] = {}
    for row in reader.rows("policy_runs", source=source):  # full sorts before incremental
        at = schedule.parse(row["schedule"]).latest(now)
        if row["source"] in found or (row["backup_id"] is not None and row["last_ts"] >= at):
            continue
        full = row["run"] == "full" or row["backup_id"] is None
        mode = ["full"] if full else [_MODES[row["incremental_kind"]], "--level", str(row["level"])]
        topics = _topics(reader, row["source"], row["patterns"])
        found[row["source"]] = Due(
            source=row["source"],
            run="full" if full else "incremental",
            schedule=row["schedule"],
            due_ts=at if row["backup_id"] is not None else now,
            missed=row["missed"],
            lag_ms=row["lag_ms"],
            arguments=(*topics, "--source", row["source"], "--mode", *mode),
        )
    return list(found.values())


def _topics(reader: CatalogReader, source: str, patterns: str | None) -> list[str]:
    """The topics that a policy owns: by its patterns, or those that some backup of the source holds; groups'
    own topic comes by itself.

    Expressions, not names: a topic that was deleted does not stop the others, and comes again when it is
    recreated.
    """
    newest = [row["scope"] for row in reader.rows("newest_topics", source=source)]
    internal = [topic for topic in newest if is_internal(topic) and topic != "__consumer_offsets"]
    if patterns is None:
        held = [row["scope"] for row in reader.rows("held_topics", source=source)]
        others = "|".join(re.escape(topic) for topic in held if not is_internal(topic))
        expressions = [others] if others else []
    else:
        expressions = json.loads(patterns)
    return [*internal, *(text for one in expressions for text in ("--pattern", one))]


def _source(reader: CatalogReader, name: str) -> str:
    known = reader.rows("sources_known")
    if any(row["source"] == name for row in known):
        return name
    having = [row["source"] for row in known if row["scope"] == name]
    if len(having) > 1:
        raise UsageProblem(
            f"Several sources have a topic {name}: {', '.join(having)}.",
            hint="A backup is kept or deleted whole: name the source.",
        )
    if not having:
        raise NotFound(f"There is no source or topic {name!r}.", hint="`lakebackup list` shows the sources.")
    return str(having[0])


def _policy(reader: CatalogReader, source: str) -> Policy:
    """The policy in force; without one, an empty one with `at` 0."""
    found = reader.one("policy_in_force", source=source)
    if found is None:
        return Policy(source=source, at=0, actor="")
    return Policy(**{name: found[name] for name in Policy.__slots__ if name in found})


def _changed(before: Policy, change: Change, source: str) -> Policy:
    made: dict[str, Any] = {"source": source, "removed": False, **_by_now()}
    for column, text in (("full", change.full), ("incremental", change.incremental)):
        if text is None:
            continue
        wanted = None if text == "none" else " ".join(text.split())
        every = schedule.parse(wanted).every_ms if wanted else None
        made |= {f"{column}_schedule": wanted, f"{column}_every_ms": every}
    plain = {
        "incremental_kind": change.kind,
        "level": change.level,
        "min_redundancy": change.min_redundancy,
        "note": change.note,
    }
    made |= {name: value for name, value in plain.items() if value is not None}
    limits = {"window_days": change.window_days, "redundancy": change.redundancy}
    made |= {name: value or None for name, value in limits.items() if value is not None}
    return replace(before, **made)


def _by_now() -> dict[str, Any]:
    return {"at": time.time_ns() // 1000, "actor": holder()}
