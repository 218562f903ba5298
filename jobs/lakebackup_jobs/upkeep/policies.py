"""Policies and holds: set, shown and released; and the backups that are due by them. No Java."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.plan.upkeep.prune import KEEP_RULES
from lakebackup.rows.base import CHANGES, QUEUES, TOPICS
from lakebackup.rows.upkeep import Hold, Policy, PolicyTopics
from lakebackup.rules import schedule
from lakebackup.rules.kinds import KINDS, kind_of, require_known
from lakebackup.rules.layout import check_source
from lakebackup.rules.patterns import compile_pattern, is_internal, owned_patterns, patterns_of
from lakebackup.rules.stored_json import texts_of
from lakebackup.rules.suggestions import did_you_mean
from lakebackup.rules.times import format_ts, time_zone
from lakebackup.storage import open_storage
from lakebackup.store import tombstones, trust
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.trust import HINT, Approvals, Claim, Unapproved
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Kind = Literal["differential", "cumulative"]
_MODES: Mapping[str, str] = {"differential": "incr-diff", "cumulative": "incr-accu"}
# What `backup queue` calls them.
_QUEUE_MODES: Mapping[str, str] = {"differential": "incremental", "cumulative": "differential"}
# Flags that a policy's command may have, of those that are not the verb's own: none that names what runs, or
# where it reads and writes. This machine's settings say that.
_SHARED_FLAGS = """
    --note --bandwidth --codec --compression-level --target-size --lease-ttl --local-below
"""
_SNAPSHOT_FLAGS = """
    --layout --snapshot --all --taken-at --sidecar --always --verify-unchanged --trust-mtime --find-same
    --pack-below
"""
_QUEUE_FLAGS = """
    --pattern --snapshot-folder --positions --engine-config --engine-schema --tid-header --tid-format
    --transaction-header --kind-header --skip-message --parallelism
"""
_FLAGS = {
    "snapshot": frozenset((_SNAPSHOT_FLAGS + _SHARED_FLAGS).split()),
    "queue": frozenset((_QUEUE_FLAGS + _SHARED_FLAGS).split()),
}
# The schedules of a policy, and their flags.
_SCHEDULES = {"full": "--full", "incremental": "--incr", "drill": "--drill"}


@dataclass(frozen=True, slots=True)
class Change:
    """What a person changes of a policy; None: as it was. A schedule or a time zone of "none", a number of 0,
    empty `patterns` of topics and an empty `command` remove what was set.

    `command`: what a due run backs up when that is not topics, as arguments of `lakebackup backup`.
    """

    full: str | None = None
    incremental: str | None = None
    kind: Kind | None = None
    level: int | None = None
    window_days: int | None = None
    redundancy: int | None = None
    min_redundancy: int | None = None
    note: str | None = None
    patterns: tuple[str, ...] | None = None
    keep_last: int | None = None
    keep_hourly: int | None = None
    keep_daily: int | None = None
    keep_weekly: int | None = None
    keep_monthly: int | None = None
    keep_yearly: int | None = None
    keep_differentials: int | None = None
    time_zone: str | None = None
    command: tuple[str, ...] | None = None
    drill: str | None = None


def set_policy(destination: str, catalog: str | None, name: str, change: Change) -> dict[str, Any]:
    """Change the policy of a source, or of the one that has a topic of that name; returns it as it is then.

    A source that has no backup yet is one that the change says what to back up of. Raises NotFound (no such
    source or topic), UsageProblem (several have it, no name for a source, no schedule or time zone, or what
    does not apply to its backups).
    """
    reader = CatalogReader.require(destination, catalog)
    source = _source(reader, name, new=bool(change.patterns or change.command))
    made = replace(_changed(_policy(reader, source), change, source), **_by_now(reader, source=source))
    patterns = owned_patterns(reader, source) if change.patterns is None else change.patterns
    for pattern in patterns:
        compile_pattern(pattern)
    _require_applies(reader, made, patterns)
    writer = CatalogWriter(None, destination, catalog)
    writer.migrate()
    writer.record(made)
    if change.patterns is not None:
        text = json.dumps(list(patterns)) if patterns else None
        writer.record(PolicyTopics(source=source, at=made.at, actor=made.actor, patterns=text))
        if made.full_schedule or made.incremental_schedule:
            from lakebackup_jobs.topics.announce import forget_owned

            forget_owned(CatalogReader(destination, catalog), writer, source)
    return {**asdict(made), "command": _words(made.command), "patterns": list(patterns)}


def _require_applies(reader: CatalogReader, made: Policy, patterns: Sequence[str]) -> None:
    """UsageProblem when the backups of a source cannot be taken or kept as a policy says."""
    source, words = made.source, _words(made.command)
    kinds = {row["source_kind"] for row in reader.rows("source_kinds", source=source)}
    kinds |= {kind for kind, known in KINDS.items() if words and known.scheduled == words[0]}
    if len(kinds) > 1 or (words and patterns):
        raise UsageProblem(
            f"--command {words[0] if words else ''} does not go with the other backups of {source} "
            f"({', '.join(sorted(kinds | ({TOPICS} if patterns else set())))}).",
            hint="A source holds one kind of backups: set a policy for a source of another name.",
        )
    kind = kinds.pop() if kinds else TOPICS
    if kind != TOPICS and patterns:
        raise UsageProblem(f"The backups of {source} are of no topics ({kind}).", hint="Leave out --pattern.")
    if kind == CHANGES:
        if made.incremental_schedule:
            raise UsageProblem(
                f"{source} is a change feed: its task flushes by itself, so no incremental can be due.",
                hint="Leave out --incr: `log start --flush-every` sets how often it flushes. "
                "--full schedules `log snapshot`.",
            )
        if any(getattr(made, f"keep_{rule}") for rule in KEEP_RULES):
            raise UsageProblem(
                f"{source} is a change feed: its log is kept from a time on, without holes.",
                hint="Leave out --keep-…: --window and --redundancy limit what `log truncate` may delete.",
            )
    elif kind != TOPICS and (made.full_schedule or made.incremental_schedule):
        verb = kind_of(kind).scheduled
        if verb is None:
            raise UsageProblem(
                f"The backups of {source} were made by another program ({kind}): none can be due here.",
                hint="Leave out --full and --incr; what is kept can be set for every source.",
            )
        if not words:
            raise UsageProblem(
                f"The policy of {source} does not say what to back up.",
                hint=f"Add it: --command '{verb} …', as you would write after `lakebackup backup`.",
            )
    if words and words[0] == kind_of(QUEUES).scheduled and words[1:2] != [source]:
        raise UsageProblem(
            f"--command names {' '.join(words[1:2]) or 'no engine'}, and the policy is of {source}.",
            hint=f"Write --command 'queue {source} …'.",
        )


def require_schedulable(words: Sequence[str]) -> None:
    """UsageProblem for a flag that a policy's command may not have."""
    allowed = _FLAGS.get(words[0], frozenset())
    for word in words[1:]:
        flag = word.partition("=")[0]
        if flag.startswith("-") and flag not in allowed:
            raise UsageProblem(
                f"--command has {flag}, which no policy may give.",
                hint="A due run has it from the flags and settings of the machine where it runs.",
            )


def claim_of(reader: CatalogReader, source: str) -> Claim:
    """What the policy of a source would have this machine run, and when."""
    policy = _policy(reader, source)
    words, patterns = _words(policy.command), owned_patterns(reader, source)
    value = {
        "command": words,
        "patterns": patterns,
        "topics": [] if words or patterns else sorted(_held_topics(reader, source)),
        "full": policy.full_schedule,
        "incr": policy.incremental_schedule,
        "drill": policy.drill_schedule,
    }
    reason = "`lakebackup due --run` would take its backups with the rights of this account."
    command = words or ["topics", *(text for pattern in patterns for text in ("--pattern", pattern))]
    return Claim("policy", source, value, reason, trust.local().commands.get(source) == tuple(command))


def approve(reader: CatalogReader, source: str) -> None:
    """Record that the policy of a source counts on this machine. Raises EnvironmentProblem."""
    Approvals(reader.catalog_uri).approve([claim_of(reader, source)])


def approve_topics(reader: CatalogReader, source: str) -> None:
    """Record that the policy of a source counts with the topics of its newest backup, which was taken from
    here, where nothing but topics is new. Raises EnvironmentProblem, Refused."""
    approvals = Approvals(reader.catalog_uri)
    if approvals.value(Claim("policy", source, {}, "")) is None:
        return
    claim = claim_of(reader, source)
    approved = approvals.value(claim)
    known = {*approved["topics"], *(row["scope"] for row in reader.rows("newest_topics", source=source))}
    if {**approved, "topics": 0} == {**claim.stored, "topics": 0} and known >= set(claim.value["topics"]):
        approvals.approve([claim])


def _held_topics(reader: CatalogReader, source: str) -> list[str]:
    return [str(row["scope"]) for row in reader.rows("held_topics", source=source)]


def _words(command: str | None) -> list[str]:
    """Arguments of `lakebackup backup`, out of a policy's row. Raises UsageProblem for what are none."""
    if not command:
        return []
    words = texts_of(command)
    if not words:
        raise UsageProblem(
            f"The command of a policy cannot be read: {command[:100]!r}.",
            hint="Set it again: lakebackup policy set SOURCE --command 'snapshot FOLDER'; or none.",
        )
    return words


def remove_policy(destination: str, catalog: str | None, name: str) -> dict[str, Any]:
    """From now on the source has no policy: everything is kept. Raises NotFound (it has none)."""
    reader = CatalogReader.require(destination, catalog)
    source = _source(reader, name)
    before = _policy(reader, source)
    if before.at == 0:
        raise NotFound(f"{source} has no policy.", hint="`lakebackup policy show` lists them.")
    CatalogWriter(None, destination, catalog).record(
        replace(before, **_by_now(reader, source=source), removed=True)
    )
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
        raise UsageProblem(
            f"--until {format_ts(until_ts)} is past.", hint="Give a time to come, or --forever."
        )

    def record() -> dict[str, Any]:
        made = Hold(
            backup_id=backup_id,
            source=backup["source"],
            until_ts=until_ts,
            reason=reason,
            released=release,
            **_by_now(CatalogReader(destination, catalog), backup_id=backup_id),
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
    """A backup, or a restore drill, that should have run since `due_ts` (ms): the words of its command, and
    what is lost when the source is lost now (`lag_ms`; None: everything, or it is a drill). `unapproved`: why
    this machine does not run it; None: it does."""

    source: str
    run: Literal["full", "incremental", "drill"]
    schedule: str
    due_ts: int
    missed: int
    lag_ms: int | None
    command: tuple[str, ...]
    unapproved: str | None = None


def due(
    reader: CatalogReader,
    source: str | None,
    now: int,
    unreadable: Callable[[UsageProblem], None] | None = None,
) -> list[Due]:
    """What is due at `now` (ms): one backup a source at most, since a full counts as an incremental too; then
    drills.

    `unreadable` gets what is wrong with a stored schedule, and the others are due all the same. Raises
    UsageProblem without it; NotFound for a `source` that nothing schedules: none of it would ever be due.
    """
    backups: dict[str, Due] = {}
    drills: list[Due] = []
    approvals, refusals = Approvals(reader.catalog_uri), dict[str, Unapproved | None]()
    rows = reader.rows("policy_runs", source=source)
    if source is not None and not rows:
        _require_scheduled(reader, source)
    for row in rows:  # full sorts before incremental
        name, run = row["source"], row["run"]
        if row["due_ts"] is None:
            problem = _unreadable(row)
            if unreadable is None:
                raise problem
            unreadable(problem)
            continue
        if row["due_ts"] > now or (run != "drill" and name in backups):
            continue
        if run == "incremental" and row["backup_id"] is None:
            run = "full"
        try:
            if name not in refusals:
                refusals[name] = approvals.refusal(claim_of(reader, name))
        except UsageProblem as problem:
            if unreadable is None:
                raise
            unreadable(problem)
            continue
        refusal = refusals[name]
        try:
            command = ("drill", name) if run == "drill" else _command(reader, row, run == "full")
        except UsageProblem as problem:
            command, refusal = (), refusal or Unapproved(f"policy {name}: {problem.message}", hint=HINT)
        run_due = Due(
            source=name,
            run=run,
            schedule=row["schedule"],
            due_ts=row["due_ts"],
            missed=1 + (now - row["due_ts"]) // row["every_ms"],
            lag_ms=row["lag_ms"],
            command=command,
            unapproved=None if refusal is None else refusal.message,
        )
        if run == "drill":
            drills.append(run_due)
        else:
            backups[name] = run_due
    return [*backups.values(), *drills]


def _require_scheduled(reader: CatalogReader, source: str) -> None:
    """Raises NotFound: there is no such source, or its policy has no schedule."""
    policy = _policy(reader, source)
    if any(getattr(policy, f"{run}_schedule") for run in _SCHEDULES):
        return
    if policy.at == 0:
        require_known(reader, source)
    raise NotFound(
        f"No policy says when {source} is backed up.",
        hint=f"Set it: lakebackup policy set {quote(source)} --full WHEN",
    )


def _unreadable(row: Mapping[str, Any]) -> UsageProblem:
    """What is wrong with a stored schedule: an older version took some that this one refuses, or this
    machine lacks its time zone."""
    source, run, wrong, again = row["source"], row["run"], "", f"{_SCHEDULES[row['run']]} WHEN"
    try:
        _schedule(run, row["schedule"], row["time_zone"])
    except UsageProblem as problem:
        wrong = problem.message
    try:
        time_zone(row["time_zone"])
    except UsageProblem as problem:
        wrong, again = f"--time-zone {problem.message}", "--time-zone ZONE"
    return UsageProblem(
        f"The policy of {source} cannot be read: {wrong}",
        hint=f"Set it again: lakebackup policy set {quote(source)} {again}",
    )


def _schedule(run: str, text: str, zone: str | None) -> schedule.Schedule:
    try:
        return schedule.parse(text, zone)
    except UsageProblem as problem:
        raise UsageProblem(f"{_SCHEDULES[run]} {problem.message}", hint=problem.hint) from None


def _command(reader: CatalogReader, row: Mapping[str, Any], full: bool) -> tuple[str, ...]:
    """The words of the command that takes a due backup."""
    source, kind = row["source"], row["incremental_kind"]
    if row["source_kind"] == CHANGES:
        return ("log", "snapshot", source)
    if not row["command"]:
        topics = _topics(reader, source, row["patterns"])
        mode = ["full"] if full else [_MODES[kind], "--level", str(row["level"])]
        return ("backup", "topics", *topics, "--source", source, "--mode", *mode)
    words = _words(row["command"])
    require_schedulable(words)
    if words[0] == kind_of(QUEUES).scheduled:
        return ("backup", *words, "--mode", "full" if full else _QUEUE_MODES[kind])
    return ("backup", *words, "--source", source, "--mode", "full" if full else "auto")


def _topics(reader: CatalogReader, source: str, patterns: str | None) -> list[str]:
    """The topics that a policy owns: by its patterns, or those that some backup of the source holds; groups'
    own topic comes by itself.

    Expressions, not names: a topic that was deleted does not stop the others, and comes again when it is
    recreated.
    """
    newest = [row["scope"] for row in reader.rows("newest_topics", source=source)]
    internal = [topic for topic in newest if is_internal(topic) and topic != "__consumer_offsets"]
    if patterns is None:
        topics = _held_topics(reader, source)
        others = "|".join(re.escape(topic) for topic in topics if not is_internal(topic))
        expressions = [others] if others else []
    else:
        expressions = patterns_of(source, patterns)
    return [*internal, *(text for one in expressions for text in ("--pattern", one))]


def _source(reader: CatalogReader, name: str, *, new: bool = False) -> str:
    """The source of a name or of a topic; `new`: or one that neither a backup nor a policy knows."""
    known = reader.rows("sources_known")
    if any(row["source"] == name for row in known) or _policy(reader, name).at:
        return name
    having = [row["source"] for row in known if row["scope"] == name]
    if new and not having:
        return check_source(name)
    if len(having) > 1:
        raise UsageProblem(
            f"Several sources have a topic {name}: {', '.join(having)}.",
            hint="A backup is kept or deleted whole: name the source.",
        )
    if not having:
        names = {str(name) for row in known for name in (row["source"], row["scope"]) if name}
        hint = did_you_mean(name, sorted(names), "`lakebackup list` shows the sources.")
        raise NotFound(f"There is no source or topic {name!r}.", hint=hint)
    return str(having[0])


def _policy(reader: CatalogReader, source: str) -> Policy:
    """The policy in force; without one, an empty one with `at` 0."""
    found = reader.one("policy_in_force", source=source)
    if found is None:
        return Policy(source=source, at=0, actor="")
    return Policy(**{name: found[name] for name in Policy.__slots__ if name in found})


def _changed(before: Policy, change: Change, source: str) -> Policy:
    def given(flag: str, text: str) -> str | None:
        words = " ".join(text.split())
        if not words:
            raise UsageProblem(f"{flag} is empty.", hint=f"To remove what was set, write {flag} none.")
        return None if words == "none" else words

    made: dict[str, Any] = {"source": source, "removed": False}
    zone = before.time_zone if change.time_zone is None else given("--time-zone", change.time_zone)
    try:
        schedule.require_time_zone(zone)
    except UsageProblem as problem:
        raise UsageProblem(f"--time-zone {problem.message}", hint=problem.hint) from None
    for name, flag in _SCHEDULES.items():
        text = getattr(change, name)
        wanted = getattr(before, f"{name}_schedule") if text is None else given(flag, text)
        every = None if wanted is None else _schedule(name, wanted, zone).every_ms
        made |= {f"{name}_schedule": wanted, f"{name}_every_ms": every}
    plain = {
        "incremental_kind": change.kind,
        "level": change.level,
        "min_redundancy": change.min_redundancy,
        "note": change.note,
    }
    made |= {name: value for name, value in plain.items() if value is not None}
    limits = ("window_days", "redundancy", *(f"keep_{rule}" for rule in KEEP_RULES))
    made |= {name: getattr(change, name) or None for name in limits if getattr(change, name) is not None}
    if change.command is not None:
        made["command"] = json.dumps(list(change.command)) if change.command else None
    return replace(before, time_zone=zone, **made)


def _by_now(
    reader: CatalogReader, *, source: str | None = None, backup_id: str | None = None
) -> dict[str, Any]:
    """When it is set, and by whom: later than what was set before, since the newest row counts.

    The clock may have been set back, or the other machine's may be ahead.
    """
    (last,) = reader.rows("last_set", source=source, backup_id=backup_id)
    return {"at": max(time.time_ns() // 1000, (last["at"] or 0) + 1), "actor": holder()}
