"""The text for policies, due runs and approvals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakebackup_jobs.cli.output.results.phrases import listed, moment
from lakebackup_jobs.cli.output.results.summary import Summary, Table
from lakebackup_jobs.query.words import counted, span

_DUE = {"source": "source", "run": "run", "since": "due since", "missed": "missed", "command": "command"}
_CLAIMS = {"kind": "kind", "name": "name", "changed": "changed", "reason": "reason"}
_RULES = {
    "keep_last": "backup", "keep_hourly": "hourly backup", "keep_daily": "daily backup",
    "keep_weekly": "weekly backup", "keep_monthly": "monthly backup", "keep_yearly": "yearly backup",
}  # fmt: skip


def due(values: Mapping[str, Any]) -> Summary:
    """The runs that are due, or else the next one."""
    rows = [{**row, "since": moment(row["due_ts"])} for row in values["due"]]
    following = values.get("next")
    if not rows:
        return Summary([f"Nothing is due.{f' Next: {_next(following)}.' if following else ''}"])
    if len(rows) == 1:
        row = rows[0]
        missed = f", {counted(row['missed'], 'run')} missed" if row["missed"] > 1 else ""
        text = f"{row['source']}: {_run(row['run'])} has been due since {row['since']}{missed}."
        return Summary([text, *([f"It runs: lakebackup {row['command']}"] if row["command"] else [])])
    return Summary([f"{counted(len(rows), 'run')} are due."], Table(rows, _DUE))


def policy(values: Mapping[str, Any]) -> Summary:
    """The present policy of a source."""
    lines = [f"  {name + ':':<13}{text}" for name, text in _policy_lines(values)]
    return Summary([f"The policy of {values['source']} is now:", *lines])


def removed_policy(values: Mapping[str, Any]) -> Summary:
    """A policy that was removed."""
    return Summary(
        [f"{values['source']} has no policy any more: all its backups are kept, and none is scheduled."]
    )


def hold(values: Mapping[str, Any]) -> Summary:
    """A backup that is held, or a hold that ended."""
    backup, reason = values["backup_id"], values["reason"]
    if values["released"]:
        return Summary([f"Backup {backup} is held no longer ({reason}): its policy decides again."])
    until = (
        f"until {moment(values['until_ts'])}" if values["until_ts"] is not None else "until it is released"
    )
    return Summary([f"Backup {backup} and all that it needs are kept {until} ({reason})."])


def approve(values: Mapping[str, Any]) -> Summary:
    """The claims that were approved on this machine, or those that are not approved."""
    if "approved" in values:
        rows: Sequence[Mapping[str, Any]] = values["approved"]
        names = listed(f"{row['kind']} {row['name']}" for row in rows)
        return Summary([f"Approved on this machine: {names}." if rows else "Nothing was approved."])
    rows = values["unapproved"]
    if not rows:
        return Summary(["Everything in the catalog that concerns this machine is approved here."])
    return Summary(
        [f"Not approved on this machine: {counted(len(rows), 'claim')} of the catalog."],
        Table(rows, _CLAIMS),
        ["Approve what is right: lakebackup approve NAME"],
    )


def notify(values: Mapping[str, Any]) -> Summary:
    """The channels that a test event reached, and those that failed."""
    targets = [name for name, problem in values.items() if problem == "sent"]
    lines = [f"The test event was sent to {listed(targets)}."] if targets else []
    return Summary(
        lines + [f"{name} failed: {problem}" for name, problem in values.items() if problem != "sent"]
    )


def _next(row: Mapping[str, Any]) -> str:
    """The next run and the time until then: `prod, incremental, at 15:00 UTC (in 23 min)`."""
    wait = row["due_ts"] - row["now_ts"]
    time_text = moment(row["due_ts"])
    text = (
        f"{time_text[11:16]} UTC" if time_text[:10] == moment(row["now_ts"])[:10] else f"{time_text[:16]} UTC"
    )
    return f"{row['source']}, {row['run']}, at {text} (in {_rounded(wait)})"


def _rounded(ms: int) -> str:
    """A wait, in whole minutes if it is at least one."""
    return span(ms - ms % 60_000 if ms >= 60_000 else ms)


def _run(name: str) -> str:
    return {"full": "a full backup", "incremental": "an incremental backup", "drill": "a restore drill"}.get(
        name, name
    )


def _policy_lines(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    zone = f" ({values['time_zone']})" if values.get("time_zone") else ""
    if schedule := values.get("full_schedule"):
        yield "full", schedule + zone
    if schedule := values.get("incremental_schedule"):
        level = f", level {values['level']}" if values.get("level", 1) != 1 else ""
        yield "incremental", f"{schedule}{zone}, {values['incremental_kind']}{level}"
    if schedule := values.get("drill_schedule"):
        yield "drill", schedule + zone
    if not any(values.get(f"{run}_schedule") for run in ("full", "incremental", "drill")):
        yield "schedule", "none: `lakebackup due` takes no backup of it"
    if command := values.get("command"):
        yield "backs up", " ".join(command)
    elif patterns := values.get("patterns"):
        yield "topics", ", ".join(patterns)
    yield "keeps", "; ".join(_retention_rules(values)) or "every backup"
    if note := values.get("note"):
        yield "note", note


def _retention_rules(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields a text for each retention rule of a policy."""
    if days := values.get("window_days"):
        yield f"any time of the last {counted(days, 'day')}"
    if count := values.get("redundancy"):
        last = values.get("keep_differentials")
        only = f", those of the newest {last} only with their increments" if last else ""
        fulls = (
            "the newest full and what depends on it"
            if count == 1
            else (f"the newest {count} fulls and what depends on them")
        )
        yield fulls + only
    rules = [counted(values[rule], name) for rule, name in _RULES.items() if values.get(rule)]
    if rules:
        yield f"the newest {listed(rules)}"
    if rules or values.get("window_days") or values.get("redundancy"):
        yield f"always at least {counted(values.get('min_redundancy') or 1, 'usable full')}"
