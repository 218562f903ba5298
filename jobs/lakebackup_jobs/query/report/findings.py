"""What a person should know about a catalog: findings, each with a command that fixes it or shows more."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lakebackup.rows.base import CHANGES, QUEUES, SNAPSHOT, TOPICS
from lakebackup.rules.kinds import KINDS
from lakebackup.rules.stored_json import texts_of
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query.words import counted, span

Rows = Sequence[Mapping[str, Any]]

Finding = tuple[str, str | None, str, list[str]]
"""Kind (bad or note), source, text, and the words of the command."""
_COMMAND_TOPICS = 12  # the most topics that a command names
_SENTENCE_TOPICS = 3  # the most topics that a sentence names
_EVERY = ["--pattern", ".*"]
_SENTENCE_SOURCES = 3  # the most sources that a sentence names
_FAULTS = ("missing", "changed", "damaged", "chain")
_ITEMS = {SNAPSHOT: "table", CHANGES: "table", QUEUES: "queue"}
_UPKEEP = {"merge": "merge", "compact": "compaction", "prune": "prune", "truncate": "truncate"}
_REASONS = {
    "trial": "damaged: a trial restore failed",
    "recreated": "the topic was deleted and recreated",
    "skipped": "`log resume --skip` left out an event",
    "bridged": "the chain continues over it",
    "compacted": "values that were replaced before the backup are not known",
}


def verdict(sources: Rows) -> str:
    """Return one sentence: how many sources are fine, and what is wrong with the worst of the others."""
    wrong = [row for row in sources if row["status"] != "OK"]
    fine = len(sources) - len(wrong)
    worst = [f"{row['source']} {' '.join(_trouble(row))}" for row in wrong[:_SENTENCE_SOURCES]]
    if unnamed := len(wrong) - len(worst):
        worst.append(
            f"{counted(unnamed, 'other source')} {'needs' if unnamed == 1 else 'need'} attention too"
        )
    if not sources:
        return "Nothing is backed up yet."
    if not wrong:
        return f"All {fine} sources are fine." if fine > 1 else f"{sources[0]['source']} is fine."
    if len(sources) == 1:
        return f"{worst[0]}."
    return f"{fine} of {len(sources)} sources {'is' if fine == 1 else 'are'} fine; {_listed(worst)}."


def state_words(row: Mapping[str, Any]) -> str:
    """Return the status of a source in a few words; an empty text if it is OK, or late, since the page says
    that with its next run."""
    late = row["status"] == "LATE" and row["late_ms"] is not None
    return "" if row["status"] == "OK" or late else _trouble(row)[1]


def findings(facts: Mapping[str, Any], flags: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows of kind (bad or note), source (None: several), text and command, the bad ones first.

    `facts`: the values that `facts` collects; `flags`: the flags that name the repository.
    """
    rows = [*_of_sources(facts), *_of_faults(facts), *_of_gaps(facts), *_of_checks(facts)]
    entries = [
        {
            "kind": kind,
            "source": source,
            "text": f"{text} Replace FOLDER with the folder of its data." if "FOLDER" in words else text,
            "command": _command(words, flags),
        }
        for kind, source, text, words in rows
    ]
    return sorted(entries, key=lambda row: row["kind"] != "bad")


def troubles(facts: Mapping[str, Any], flags: Sequence[str]) -> list[str]:
    """Return a line for each problem of a source that is not OK, the worst sources first, with the command
    that fixes it. `facts`, `flags`: `found` and `where` of `findings`."""
    rows, lines = findings(facts, flags), []
    for source in (row for row in facts["sources"] if row["status"] != "OK"):
        name, status = source["source"], source["status"]
        own_rows = [row for row in rows if row["source"] == name and row["kind"] == "bad"]
        if status == "UNVERIFIED":
            command = _command(["verify"], flags)
            own_rows = [{"text": f"The newest backup of {name} was never verified.", "command": command}]
        # Of two rows with the same command the later one is kept: it says which file is damaged.
        for row in {row["command"]: row for row in own_rows}.values():
            text = row["text"].replace(f" of {name}", "", 1)
            lines.append(f"{name} is {status}: {text[:1].lower()}{text[1:]} Fix: {row['command']}")
        if not own_rows:
            lines.append(f"{name} is {status}: {source['detail']}. See: {_command(['report'], flags)}")
    return lines


def _command(words: Sequence[str], flags: Sequence[str]) -> str:
    return " ".join(map(_word, ["lakebackup", *words, *flags]))


def _trouble(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is wrong with a source that is not OK, as a verb and the rest of the sentence."""
    match row["status"]:
        case "DAMAGED" if not row["damaged"]:
            return "has", "a drill that found a difference"
        case "DAMAGED":
            return "has", counted(row["damaged"], "damaged backup")
        case "UNPROTECTED" if row["backup_id"] is None:
            return "has", "nothing that can be restored"
        case "UNPROTECTED":
            return "has", f"{counted(row['unprotected'], 'topic')} without a backup"
        case "FAILED" if not row["failed_runs"]:
            return "has", "a failed drill"
        case "FAILED":
            return "has", counted(row["failed_runs"], "failed run")
        case "LATE" if row["late_ms"] is None and row["unreadable"]:
            return "has", "a schedule that cannot be read"
        case "LATE" if row["late_ms"] is None:
            return "has", "a log task that paused itself"
        case "LATE":
            return "is", f"late by {span(row['late_ms'])}"
        case "FUTURE":
            return "has", counted(row["future"], "backup") + " from the future"
        case _:
            return "was", "never verified"


def _of_sources(facts: Mapping[str, Any]) -> Iterator[Finding]:
    unverified = []
    for row in facts["sources"]:
        source, status, unprotected = row["source"], row["status"], row["unprotected"]
        if status == "UNPROTECTED" and row["backup_id"] is None:
            yield "bad", source, f"No backup of {source} can be restored.", _full(facts, row)
        elif row["lost"]:
            lost = _topics_of(source, _lost(facts["topics"], source), row["lost"])
            yield "bad", source, f"{lost} cannot be restored at all.", _full(facts, row)
        if unprotected:
            yield "bad", source, _without_backup(facts, row), _protect(row)
        if row["future"]:
            text = f"{counted(row['future'], 'backup')} of {source} {_are(row['future'])} from the future."
            yield "bad", source, text, ["prune", "--source", source, "--future", "--delete"]
        yield from _of_runs(facts, row)
        yield from _of_drills(row)
        if row["backup_id"] is not None and row["verified_at"] is None:
            unverified.append(source)
        if not row["has_policy"] and row["source_kind"] == TOPICS:
            text = f"{source} has no policy: missed runs go unnoticed, and no backup is ever pruned."
            schedules = ["--full", "weekly sun 02:00", "--incr", "hourly", "--window", "14d"]
            yield "note", source, text, ["policy", "set", source, *schedules]
    if unverified:
        unnamed = len(unverified) - _SENTENCE_SOURCES
        names = unverified[:_SENTENCE_SOURCES] + ([counted(unnamed, "other source")] if unnamed > 0 else [])
        text = f"The newest backup of {_listed(names)} was never verified, or not with all its files."
        yield "note", unverified[0] if len(unverified) == 1 else None, text, ["verify"]
    for source, row in {row["source"]: row for row in facts["kept"]}.items():
        if obsolete := row["source_obsolete"]:
            size = human_bytes(row["source_obsolete_bytes"])
            verb = "takes" if obsolete == 1 else "take"
            text = f"{counted(obsolete, 'backup')} of {source} {_are(obsolete)} obsolete and {verb} {size}."
            yield "note", source, text, ["prune", "--source", source, "--delete"]


def _without_backup(facts: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Return a sentence that names the topics of a source without a backup."""
    source, count = row["source"], row["unprotected"]
    names = [topic["scope"] for topic in facts["unprotected"] if topic["source"] == source]
    unnamed = f" and {count - len(names):,} more" if count > len(names) else ""
    have = "has" if count == 1 else "have"
    return f"{counted(count, 'topic')} of {source} {have} no backup ({', '.join(names)}{unnamed})."


def _protect(row: Mapping[str, Any]) -> list[str]:
    """Return the command that protects topics without a backup: it adds them to the policy, or backs them
    up if the source has no schedule."""
    if row["full_schedule"] or row["incremental_schedule"]:
        return ["policy", "set", row["source"], *_EVERY]
    return ["backup", "topics", "--source", row["source"], *_EVERY]


def _of_runs(facts: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[Finding]:
    source, due = row["source"], ["due", "--run", "--source", row["source"]]
    late = "" if row["late_ms"] is None else f"due for {span(row['late_ms'])}."
    if row["unreadable"]:
        text = f"A schedule of {source} cannot be read, so it starts no run."
        yield "bad", source, text, due[:1] + due[2:]
    if row["failed_runs"]:
        job = _UPKEEP.get(row["failed_run"], "run")
        text = f"The last {job} of {source} failed: {_sentence(row['failure'])}"
        if row["failed_runs"] > 1:
            text += f" {row['failed_runs']:,} runs have failed since the last good one."
        if late:
            text += f" A run has been {late}"
        yield "bad", source, text, due if late else _retry(facts, row)
    elif late:
        yield "bad", source, f"A run of {source} has been {late}", due
    elif row["status"] == "LATE" and not row["unreadable"]:
        yield "bad", source, f"The log task of {source} paused itself.", ["log", "resume", source]


def _of_drills(row: Mapping[str, Any]) -> Iterator[Finding]:
    source, command = row["source"], ["drill", row["source"]]
    if row["drill_outcome"]:
        result = "found a difference" if row["drill_outcome"] == "different" else "failed"
        backup = ["--backup", row["drill_backup_id"]] if row["drill_backup_id"] else []
        yield (
            "bad",
            source,
            _sentence(f"A drill of {source} {result}: {row['drill_failure']}"),
            [*command, *backup],
        )
    elif row["drill_late_ms"] is not None:
        yield "note", source, f"A drill of {source} has been due for {span(row['drill_late_ms'])}.", command


def _of_faults(facts: Mapping[str, Any]) -> Iterator[Finding]:
    sources = {row["source"]: row for row in facts["sources"]}
    for source, faults in _by_source(
        row for row in facts["faults"] if row["reason"] not in ("out_of_sync", "pruned")
    ):
        first, source_row = faults[0], sources[source]
        amount = counted(sum(row["backups"] for row in faults), "backup")
        fault = first["path"] or first["fault_backup_id"] or "an earlier backup"
        reason = _REASONS.get(first["reason"], first["reason"])
        if first["reason"] == "chain":
            reason = first["fault_state"] or "no longer there"
        causes = counted(len(faults) - 1, "other cause")
        ending = f", and {_least(facts['faults'])}{causes}" if len(faults) > 1 else ""
        text = f"{amount} of {source} cannot be restored, or only in part: {fault} is {reason}{ending}."
        newer = first["to_ts"] < (source_row["restorable_ts"] or 0)
        if newer and source_row["status"] != "DAMAGED":
            yield "note", source, f"{text} Newer backups can be restored.", _look("unusable_backups", source)
        elif newer and any(source_row[rule] for rule in ("window_days", "redundancy", "keep")):
            prune = ["prune", "--source", source, "--delete"]
            yield "bad", source, f"{text} Newer backups can be restored: a prune deletes these.", prune
        else:
            yield "bad", source, f"{text} Take a new full backup.", _full(facts, source_row)


def _of_gaps(facts: Mapping[str, Any]) -> Iterator[Finding]:
    sources = {row["source"]: row for row in facts["sources"]}
    for status, kind in (("gap", "bad"), ("fork", "note")):
        # A gap by a missing or damaged file is left out: it has a finding among the faults.
        for source, gaps in _by_source(
            row for row in facts["gaps"] if row["status"] == status and row["reason"] not in _FAULTS
        ):
            scopes = list(dict.fromkeys(row["scope"] for row in gaps))
            topics = _topics_of(source, scopes, len(scopes))
            much = f"{_least(facts['gaps'])}{counted(len(gaps), 'time span')}"
            look = _look("coverage", source, f" AND status = '{status}'", scopes)
            if status == "fork":
                text = (
                    f"{topics}: {much} {_are(len(gaps))} from a history that the source no longer has. "
                    "A restore brings back the history that continued."
                )
                yield kind, source, text, look
            elif sources[source]["source_kind"] == TOPICS and any(row["reason"] == "purged" for row in gaps):
                text = (
                    f"{topics}: {much} cannot be restored, because Kafka deleted the records before a backup "
                    "read them. Run backups more often than the topic's retention."
                )
                hourly = sources[source]["incremental_schedule"] == "hourly"
                yield kind, source, text, look if hourly else ["policy", "set", source, "--incr", "hourly"]
            else:
                reason = _REASONS.get(gaps[0]["reason"], gaps[0]["reason"])
                yield kind, source, f"{topics}: {much} cannot be restored ({reason}).", look


def _of_checks(facts: Mapping[str, Any]) -> Iterator[Finding]:
    orphans = sum(row["orphan"] for row in facts["checks"][:1])
    if orphans:
        text = f"{counted(orphans, 'object')} in the storage {_are(orphans)} in no backup."
        yield "note", None, text, ["sql", "SELECT * FROM orphans"]


def _full(facts: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """Return the command that takes a new full of a source, or, if another program backs it up, shows its
    unusable backups."""
    return _backup(facts, row, ["--mode", "full"]) or _look("unusable_backups", row["source"])


def _retry(facts: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """Return the command that runs the backup of a source again, or, after a failed import or upkeep, shows
    its failures."""
    command = None if row["failed_run"] in _UPKEEP else _backup(facts, row, [])
    return command or _look("failures", row["source"])


def _backup(facts: Mapping[str, Any], row: Mapping[str, Any], mode: list[str]) -> list[str] | None:
    """Return the command that backs up a source, as its policy says; None: another program backs it up.

    FOLDER stands for the folder of a snapshot if the policy does not name it.
    """
    source = row["source"]
    policy_command = texts_of(row["command"]) or []
    policy_kind = next(
        (
            kind
            for kind, kind_rules in KINDS.items()
            if policy_command and kind_rules.scheduled == policy_command[0]
        ),
        TOPICS,
    )
    commands = {
        TOPICS: ["backup", "topics", "--source", source, *mode, *_topics(facts, row)],
        SNAPSHOT: ["backup", *(policy_command or ["snapshot", "FOLDER"]), "--source", source, *mode],
        CHANGES: ["log", "snapshot", source],
        QUEUES: [
            "backup",
            *(policy_command or ["queue", source, "--snapshot-folder", "FOLDER", *_EVERY]),
            *mode,
        ],
    }
    return commands.get(row["source_kind"] or policy_kind)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _topics(facts: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """Return the topics of a source as arguments: the patterns of its policy, or the topics of its newest
    backup if they are few, or a pattern for all."""
    if patterns := texts_of(row["patterns"]):
        return [word for pattern in patterns for word in ("--pattern", pattern)]
    names = [
        topic["scope"] for topic in facts["topics"] if topic["source"] == row["source"] and topic["present"]
    ]
    few = 0 < row["topics"] == len(names) <= _COMMAND_TOPICS and not any(
        name.startswith("-") for name in names
    )
    return names if few else _EVERY


def _look(view: str, source: str, condition: str = "", scopes: Sequence[str] = ()) -> list[str]:
    """Return the command that queries the rows of a source in a view, with `condition`; if `scopes` is one
    topic, only the rows of that topic."""
    if len(scopes) == 1:
        condition = f" AND scope = {_text(scopes[0])}{condition}"
    return ["sql", f"SELECT * FROM {view} WHERE source = {_text(source)}{condition}"]  # noqa: S608 - for a person


def _text(name: str) -> str:
    """Return a name as a literal of SQL."""
    return "'" + name.replace("'", "''") + "'"


def _lost(topics: Rows, source: str) -> list[str]:
    """Return the topics of a source that cannot be restored to any time."""
    return [
        topic["scope"]
        for topic in topics
        if topic["source"] == source and topic["present"] and topic["restorable_ts"] is None
    ]


def _topics_of(source: str, names: Sequence[str], number: int) -> str:
    """Return a phrase that names some topics of a source, and says how many more there are."""
    parts = list(names[:_SENTENCE_TOPICS])
    if not parts:
        return f"{counted(number, 'topic')} of {source}"
    if unnamed := number - len(parts):
        parts.append(f"{unnamed:,} more")
    return f"{'Topic' if number == 1 else 'Topics'} {_listed(parts)} of {source}"


def _by_source(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, list[Mapping[str, Any]]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["source"], []).append(row)
    return groups.items()


def _word(text: str) -> str:
    """Quote a word for a shell, with the quotes that are easier to read."""
    return f'"{text}"' if "'" in text and not set(text) & set('"$`\\!') else shlex.quote(text)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([*([", ".join(parts[:-1])] if len(parts) > 1 else []), parts[-1]])


def _least(rows: Rows) -> str:
    return "at least " if rows[0]["all_rows"] > len(rows) else ""


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
