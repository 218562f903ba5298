"""Sets and removes policies and holds, and finds the backups and drills that are due by policies. No Java."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from shlex import quote
from typing import Any, Literal

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
from lakebackup_jobs.topics.announce import forget_owned

Kind = Literal["differential", "cumulative"]
_MODES: Mapping[str, str] = {"differential": "incr-diff", "cumulative": "incr-accu"}
# The same modes as `backup queue` names them.
_QUEUE_MODES: Mapping[str, str] = {"differential": "incremental", "cumulative": "differential"}
# The flags that a policy's command may have, for every verb and for each. None of them names a program to run
# or a place to read or write: that comes from the settings of the machine where the command runs.
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
# The schedules of a policy, each with its flag.
_SCHEDULES = {"full": "--full", "incremental": "--incr", "drill": "--drill"}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a policy. A field of None stays as it was.

    A schedule or a time zone of "none", a number of 0, empty `patterns` and an empty `command` remove the old
    value. `patterns`: the topics to back up. `command`: what a due run backs up instead of topics, as
    arguments of `lakebackup backup`.
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
    """Change the policy of a source, or of the source that has a topic `name`; returns the new policy.

    If the change says what to back up, the source may be new. Raises NotFound (no such source or topic),
    UsageProblem (several sources have the topic, an invalid source name, schedule or time zone, or something
    that does not apply to the source's backups).
    """
    reader = CatalogReader.require(destination, catalog)
    source = _source(reader, name, new=bool(change.patterns or change.command))
    policy = replace(_apply_change(_policy(reader, source), change, source), **_stamp(reader, source=source))
    patterns = owned_patterns(reader, source) if change.patterns is None else change.patterns
    for pattern in patterns:
        compile_pattern(pattern)
    _require_applies(reader, policy, patterns)
    writer = CatalogWriter(None, destination, catalog)
    writer.migrate()
    writer.record(policy)
    if change.patterns is not None:
        text = json.dumps(list(patterns)) if patterns else None
        writer.record(PolicyTopics(source=source, at=policy.at, actor=policy.actor, patterns=text))
        if policy.full_schedule or policy.incremental_schedule:
            forget_owned(CatalogReader(destination, catalog), writer, source)
    return {**asdict(policy), "command": _words(policy.command), "patterns": list(patterns)}


def _require_applies(reader: CatalogReader, policy: Policy, patterns: Sequence[str]) -> None:
    """Raises UsageProblem when the backups of a source cannot be taken or kept as a policy says."""
    source, words = policy.source, _words(policy.command)
    kinds = {row["source_kind"] for row in reader.rows("source_kinds", source=source)}
    kinds |= {kind for kind, properties in KINDS.items() if words and properties.scheduled == words[0]}
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
        if policy.incremental_schedule:
            raise UsageProblem(
                f"{source} is a change feed: its task flushes by itself, so no incremental can be due.",
                hint="Leave out --incr: `log start --flush-every` sets how often it flushes. "
                "--full schedules `log snapshot`.",
            )
        if any(getattr(policy, f"keep_{rule}") for rule in KEEP_RULES):
            raise UsageProblem(
                f"{source} is a change feed: its log is kept from a time on, without holes.",
                hint="Leave out --keep-…: --window and --redundancy limit what `log truncate` may delete.",
            )
    elif kind != TOPICS and (policy.full_schedule or policy.incremental_schedule):
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
    """Raises UsageProblem for a flag that a policy's command may not have."""
    allowed = _FLAGS.get(words[0], frozenset())
    for word in words[1:]:
        flag = word.partition("=")[0]
        if flag.startswith("-") and flag not in allowed:
            raise UsageProblem(
                f"--command has {flag}, which no policy may give.",
                hint="A due run has it from the flags and settings of the machine where it runs.",
            )


def claim_of(reader: CatalogReader, source: str) -> Claim:
    """Return the claim of a source's policy: what it would have this machine run, and when."""
    policy = _policy(reader, source)
    words, patterns = _words(policy.command), owned_patterns(reader, source)
    value = {
        "command": words,
        "patterns": patterns,
        "topics": [] if words or patterns else sorted(_backed_up_topics(reader, source)),
        "full": policy.full_schedule,
        "incr": policy.incremental_schedule,
        "drill": policy.drill_schedule,
    }
    reason = "`lakebackup due --run` would take its backups with the rights of this account."
    command = words or ["topics", *(text for pattern in patterns for text in ("--pattern", pattern))]
    return Claim("policy", source, value, reason, trust.local().commands.get(source) == tuple(command))


def approve(reader: CatalogReader, source: str) -> None:
    """Approve the policy of a source on this machine. Raises EnvironmentProblem."""
    Approvals(reader.catalog_uri).approve([claim_of(reader, source)])


def approve_topics(reader: CatalogReader, source: str) -> None:
    """Approve the policy of a source again after a backup from this machine, if only its topics have changed
    and all of them were approved before or are in that newest backup. Raises EnvironmentProblem, Refused."""
    approvals = Approvals(reader.catalog_uri)
    if approvals.value(Claim("policy", source, {}, "")) is None:
        return
    claim = claim_of(reader, source)
    approved = approvals.value(claim)
    topics = {
        *approved["topics"],
        *(row["scope"] for row in reader.rows("newest_topics", source=source)),
    }
    if {**approved, "topics": 0} == {**claim.stored_value, "topics": 0} and topics >= set(
        claim.value["topics"]
    ):
        approvals.approve([claim])


def _backed_up_topics(reader: CatalogReader, source: str) -> list[str]:
    return [str(row["scope"]) for row in reader.rows("held_topics", source=source)]


def _words(command: str | None) -> list[str]:
    """Parse the command of a policy's row into arguments of `lakebackup backup`. Raises UsageProblem."""
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
    """Remove the policy of a source: from now on, all its backups are kept. Raises NotFound (no policy)."""
    reader = CatalogReader.require(destination, catalog)
    source = _source(reader, name)
    policy = _policy(reader, source)
    if policy.at == 0:
        raise NotFound(f"{source} has no policy.", hint="`lakebackup policy show` lists them.")
    CatalogWriter(None, destination, catalog).record(
        replace(policy, **_stamp(reader, source=source), removed=True)
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
    """Keep a backup until an instant, whatever the policy says, or release it; returns the row of the hold.

    `beginning`: of the backup's id. `until_ts` in ms; None: forever. Raises NotFound (no such backup, or it
    is not held), UsageProblem (it is deleted already, or the instant is past), Busy (a backup or a prune of
    its source is running), Refused (an interrupted prune was deleting it).
    """
    reader = CatalogReader.require(destination, catalog)
    backup_id = reader.resolve_backup(beginning)
    (backup,) = reader.rows("show_backup", backup_id=backup_id)
    if until_ts is not None and until_ts <= time.time_ns() // 1_000_000:
        raise UsageProblem(
            f"--until {format_ts(until_ts)} is past.", hint="Give a time to come, or --forever."
        )

    def record() -> dict[str, Any]:
        row = Hold(
            backup_id=backup_id,
            source=backup["source"],
            until_ts=until_ts,
            reason=reason,
            released=release,
            **_stamp(CatalogReader(destination, catalog), backup_id=backup_id),
        )
        CatalogWriter(None, destination, catalog).record(row)
        return asdict(row)

    if release:
        if not reader.rows("hold_in_force", backup_id=backup_id):
            raise NotFound(f"Backup {backup_id} is not held.", hint="The view `holds` lists those that are.")
        return record()
    storage = open_storage(destination)
    # The lease excludes a running prune, which has read the holds already.
    with Lease.acquire(storage, f"source-{backup['source']}", holder()):
        (current,) = CatalogReader(destination, catalog).rows("show_backup", backup_id=backup_id)
        if current["state"] == "deleted":
            raise UsageProblem(f"Backup {backup_id} was deleted.")
        tombstones.require_not_pruned(storage, backup["source"], backup_id)
        return record()


@dataclass(frozen=True, slots=True)
class Due:
    """A backup or a restore drill that is due since `due_ts` (ms).

    `missed`: the number of scheduled times since then. `lag_ms`: how much would be lost if the source were
    lost now; None: everything, or it is a drill. `command`: the words of the command. `unapproved`: why this
    machine does not run it; None: it does.
    """

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
    now_ms: int,
    unreadable: Callable[[UsageProblem], None] | None = None,
) -> list[Due]:
    """Return what is due at `now_ms` (ms), of one source or (None) of all: backups, then drills.

    A source has at most one due backup, since a full also counts as an incremental. `unreadable` is called
    with the error of each stored schedule that cannot be read; the others are still returned. Without
    `unreadable`, raises UsageProblem. Raises NotFound for a `source` that no policy schedules.
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
            problem = _schedule_problem(row)
            if unreadable is None:
                raise problem
            unreadable(problem)
            continue
        if row["due_ts"] > now_ms or (run != "drill" and name in backups):
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
            command = ("drill", name) if run == "drill" else _command_words(reader, row, run == "full")
        except UsageProblem as problem:
            command, refusal = (), refusal or Unapproved(f"policy {name}: {problem.message}", hint=HINT)
        run_due = Due(
            source=name,
            run=run,
            schedule=row["schedule"],
            due_ts=row["due_ts"],
            missed=1 + (now_ms - row["due_ts"]) // row["every_ms"],
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
    """Raises NotFound if there is no such source, or if its policy has no schedule."""
    policy = _policy(reader, source)
    if any(getattr(policy, f"{run}_schedule") for run in _SCHEDULES):
        return
    if policy.at == 0:
        require_known(reader, source)
    raise NotFound(
        f"No policy says when {source} is backed up.",
        hint=f"Set it: lakebackup policy set {quote(source)} --full WHEN",
    )


def _schedule_problem(row: Mapping[str, Any]) -> UsageProblem:
    """Return the error of a stored schedule: an older version accepted it and this one does not, or this
    machine lacks its time zone."""
    source, run, problem_text, flags = row["source"], row["run"], "", f"{_SCHEDULES[row['run']]} WHEN"
    try:
        _parse_schedule(run, row["schedule"], row["time_zone"])
    except UsageProblem as problem:
        problem_text = problem.message
    try:
        time_zone(row["time_zone"])
    except UsageProblem as problem:
        problem_text, flags = f"--time-zone {problem.message}", "--time-zone ZONE"
    return UsageProblem(
        f"The policy of {source} cannot be read: {problem_text}",
        hint=f"Set it again: lakebackup policy set {quote(source)} {flags}",
    )


def _parse_schedule(run: str, text: str, zone: str | None) -> schedule.Schedule:
    try:
        return schedule.parse(text, zone)
    except UsageProblem as problem:
        raise UsageProblem(f"{_SCHEDULES[run]} {problem.message}", hint=problem.hint) from None


def _command_words(reader: CatalogReader, row: Mapping[str, Any], full: bool) -> tuple[str, ...]:
    """Return the words of the command that takes a due backup."""
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
    """Return the arguments of a backup for the topics of a policy: by its patterns, or the topics that some
    backup of the source holds.

    All but internal topics are given as expressions. So a deleted topic does not make the backup fail, and
    after it is recreated, it is backed up again. The topic of committed offsets is left out, because backups
    include it by themselves.
    """
    newest = [row["scope"] for row in reader.rows("newest_topics", source=source)]
    internal = [topic for topic in newest if is_internal(topic) and topic != "__consumer_offsets"]
    if patterns is None:
        topics = _backed_up_topics(reader, source)
        alternatives = "|".join(re.escape(topic) for topic in topics if not is_internal(topic))
        expressions = [alternatives] if alternatives else []
    else:
        expressions = patterns_of(source, patterns)
    return [*internal, *(text for expression in expressions for text in ("--pattern", expression))]


def _source(reader: CatalogReader, name: str, *, new: bool = False) -> str:
    """Return the source called `name`, or the source that has a topic `name`.

    `new`: the name may also be that of a source without backups and policy. Raises NotFound, UsageProblem.
    """
    rows = reader.rows("sources_known")
    if any(row["source"] == name for row in rows) or _policy(reader, name).at:
        return name
    sources = [row["source"] for row in rows if row["scope"] == name]
    if new and not sources:
        return check_source(name)
    if len(sources) > 1:
        raise UsageProblem(
            f"Several sources have a topic {name}: {', '.join(sources)}.",
            hint="A backup is kept or deleted whole: name the source.",
        )
    if not sources:
        names = {str(name) for row in rows for name in (row["source"], row["scope"]) if name}
        hint = did_you_mean(name, sorted(names), "`lakebackup list` shows the sources.")
        raise NotFound(f"There is no source or topic {name!r}.", hint=hint)
    return str(sources[0])


def _policy(reader: CatalogReader, source: str) -> Policy:
    """Return the policy in force; without one, an empty policy with `at` 0."""
    row = reader.first_row("policy_in_force", source=source)
    if row is None:
        return Policy(source=source, at=0, actor="")
    return Policy(**{name: row[name] for name in Policy.__slots__ if name in row})


def _apply_change(current: Policy, change: Change, source: str) -> Policy:
    def normalized(flag: str, text: str) -> str | None:
        value = " ".join(text.split())
        if not value:
            raise UsageProblem(f"{flag} is empty.", hint=f"To remove what was set, write {flag} none.")
        return None if value == "none" else value

    changes: dict[str, Any] = {"source": source, "removed": False}
    zone = current.time_zone if change.time_zone is None else normalized("--time-zone", change.time_zone)
    try:
        schedule.require_time_zone(zone)
    except UsageProblem as problem:
        raise UsageProblem(f"--time-zone {problem.message}", hint=problem.hint) from None
    for name, flag in _SCHEDULES.items():
        text = getattr(change, name)
        schedule_text = getattr(current, f"{name}_schedule") if text is None else normalized(flag, text)
        every_ms = None if schedule_text is None else _parse_schedule(name, schedule_text, zone).every_ms
        changes |= {f"{name}_schedule": schedule_text, f"{name}_every_ms": every_ms}
    plain = {
        "incremental_kind": change.kind,
        "level": change.level,
        "min_redundancy": change.min_redundancy,
        "note": change.note,
    }
    changes |= {name: value for name, value in plain.items() if value is not None}
    limits = ("window_days", "redundancy", *(f"keep_{rule}" for rule in KEEP_RULES))
    changes |= {name: getattr(change, name) or None for name in limits if getattr(change, name) is not None}
    if change.command is not None:
        changes["command"] = json.dumps(list(change.command)) if change.command else None
    return replace(current, time_zone=zone, **changes)


def _stamp(
    reader: CatalogReader, *, source: str | None = None, backup_id: str | None = None
) -> dict[str, Any]:
    """Return the columns `at` and `actor` of a new row.

    `at` is later than that of any earlier row, even if this machine's clock is behind, since the newest row
    counts.
    """
    (last,) = reader.rows("last_set", source=source, backup_id=backup_id)
    return {"at": max(time.time_ns() // 1000, (last["at"] or 0) + 1), "actor": holder()}
