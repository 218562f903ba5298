"""What somebody should know of a catalog, each with the command that mends it, or that shows more of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from lakebackup.rows.base import CHANGES, QUEUES, SNAPSHOT, TOPICS
from lakebackup.rules.kinds import KINDS
from lakebackup.rules.stored_json import texts_of
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query.words import counted, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Rows = Sequence[Mapping[str, Any]]

Finding = tuple[str, str | None, str, list[str]]
"""Its kind, source, text, and the words of its command."""
_NAMED = 12  # topics that a command has by name
_FEW = 3  # topics that a sentence has by name
_EVERY = ["--pattern", ".*"]
_WORST = 3  # sources that a sentence has by name
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
    """One sentence: how many sources are fine, and what is wrong with the worst of the others."""
    wrong = [row for row in sources if row["status"] != "OK"]
    fine = len(sources) - len(wrong)
    worst = [f"{row['source']} {' '.join(_trouble(row))}" for row in wrong[:_WORST]]
    if more := len(wrong) - len(worst):
        worst.append(f"{counted(more, 'other source')} {'needs' if more == 1 else 'need'} attention too")
    if not sources:
        return "Nothing is backed up yet."
    if not wrong:
        return f"All {fine} sources are fine." if fine > 1 else f"{sources[0]['source']} is fine."
    if len(sources) == 1:
        return f"{worst[0]}."
    return f"{fine} of {len(sources)} sources {'is' if fine == 1 else 'are'} fine; {_listed(worst)}."


def state_words(row: Mapping[str, Any]) -> str:
    """What the status of a source comes to, in a few words; none where it is OK, or late: that is said where
    its next run is."""
    late = row["status"] == "LATE" and row["late_ms"] is not None
    return "" if row["status"] == "OK" or late else _trouble(row)[1]


def findings(found: Mapping[str, Any], where: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of kind (bad or note), source (None: of several), text and command, the bad ones first. `where`:
    the flags that name the repository."""
    rows = [*_of_sources(found), *_of_faults(found), *_of_gaps(found), *_of_checks(found)]
    made = [
        {
            "kind": kind,
            "source": source,
            "text": f"{text} Replace FOLDER with the folder of its data." if "FOLDER" in words else text,
            "command": _command(words, where),
        }
        for kind, source, text, words in rows
    ]
    return sorted(made, key=lambda row: row["kind"] != "bad")


def troubles(facts: Mapping[str, Any], flags: Sequence[str]) -> list[str]:
    """A line for each thing that makes a source not OK, the worst sources first: what is wrong, and the
    command that mends it. `facts` and `flags`: as `found` and `where` of `findings`."""
    rows, lines = findings(facts, flags), []
    for source in (row for row in facts["sources"] if row["status"] != "OK"):
        name, status = source["source"], source["status"]
        own_rows = [row for row in rows if row["source"] == name and row["kind"] == "bad"]
        if status == "UNVERIFIED":
            command = _command(["verify"], flags)
            own_rows = [{"text": f"The newest backup of {name} was never verified.", "command": command}]
        # Of two with the same command the later one says more: which file is damaged.
        for row in {row["command"]: row for row in own_rows}.values():
            text = row["text"].replace(f" of {name}", "", 1)
            lines.append(f"{name} is {status}: {text[:1].lower()}{text[1:]} Fix: {row['command']}")
        if not own_rows:
            lines.append(f"{name} is {status}: {source['detail']}. See: {_command(['report'], flags)}")
    return lines


def _command(words: Sequence[str], flags: Sequence[str]) -> str:
    return " ".join(map(_word, ["lakebackup", *words, *flags]))


def _trouble(row: Mapping[str, Any]) -> tuple[str, str]:
    """What is wrong with a source that is not OK: a verb, and the rest of the sentence."""
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


def _of_sources(found: Mapping[str, Any]) -> Iterator[Finding]:
    unverified = []
    for row in found["sources"]:
        source, status, alone = row["source"], row["status"], row["unprotected"]
        if status == "UNPROTECTED" and row["backup_id"] is None:
            yield "bad", source, f"No backup of {source} can be restored.", _full(found, row)
        elif row["lost"]:
            lost = _topics_of(source, _lost(found["topics"], source), row["lost"])
            yield "bad", source, f"{lost} cannot be restored at all.", _full(found, row)
        if alone:
            yield "bad", source, _without_backup(found, row), _protect(row)
        if row["future"]:
            text = f"{counted(row['future'], 'backup')} of {source} {_are(row['future'])} from the future."
            yield "bad", source, text, ["prune", "--source", source, "--future", "--delete"]
        yield from _of_runs(found, row)
        yield from _of_drills(row)
        if row["backup_id"] is not None and row["verified_at"] is None:
            unverified.append(source)
        if not row["has_policy"] and row["source_kind"] == TOPICS:
            text = f"{source} has no policy: missed runs go unnoticed, and no backup is ever pruned."
            schedules = ["--full", "weekly sun 02:00", "--incr", "hourly", "--window", "14d"]
            yield "note", source, text, ["policy", "set", source, *schedules]
    if unverified:
        others = len(unverified) - _WORST
        some = unverified[:_WORST] + ([counted(others, "other source")] if others > 0 else [])
        text = f"The newest backup of {_listed(some)} was never verified, or not with all its files."
        yield "note", unverified[0] if len(unverified) == 1 else None, text, ["verify"]
    for source, row in {row["source"]: row for row in found["kept"]}.items():
        if obsolete := row["source_obsolete"]:
            size = human_bytes(row["source_obsolete_bytes"])
            takes = "takes" if obsolete == 1 else "take"
            text = f"{counted(obsolete, 'backup')} of {source} {_are(obsolete)} obsolete and {takes} {size}."
            yield "note", source, text, ["prune", "--source", source, "--delete"]


def _without_backup(facts: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """The topics of a source that nothing protects, by name."""
    source, count = row["source"], row["unprotected"]
    names = [topic["scope"] for topic in facts["unprotected"] if topic["source"] == source]
    unnamed = f" and {count - len(names):,} more" if count > len(names) else ""
    have = "has" if count == 1 else "have"
    return f"{counted(count, 'topic')} of {source} {have} no backup ({', '.join(names)}{unnamed})."


def _protect(row: Mapping[str, Any]) -> list[str]:
    """The command after which topics without a backup have one: the policy's next run takes them, or else
    this backup."""
    if row["full_schedule"] or row["incremental_schedule"]:
        return ["policy", "set", row["source"], *_EVERY]
    return ["backup", "topics", "--source", row["source"], *_EVERY]


def _of_runs(found: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[Finding]:
    source, due = row["source"], ["due", "--run", "--source", row["source"]]
    late = "" if row["late_ms"] is None else f"due for {span(row['late_ms'])}."
    if row["unreadable"]:
        text = f"A schedule of {source} cannot be read, so it starts no run."
        yield "bad", source, text, due[:1] + due[2:]
    if row["failed_runs"]:
        what = _UPKEEP.get(row["failed_run"], "run")
        text = f"The last {what} of {source} failed: {_sentence(row['failure'])}"
        if row["failed_runs"] > 1:
            text += f" {row['failed_runs']:,} runs have failed since the last good one."
        if late:
            text += f" A run has been {late}"
        yield "bad", source, text, due if late else _again(found, row)
    elif late:
        yield "bad", source, f"A run of {source} has been {late}", due
    elif row["status"] == "LATE" and not row["unreadable"]:
        yield "bad", source, f"The log task of {source} paused itself.", ["log", "resume", source]


def _of_drills(row: Mapping[str, Any]) -> Iterator[Finding]:
    source, again = row["source"], ["drill", row["source"]]
    if row["drill_outcome"]:
        what = "found a difference" if row["drill_outcome"] == "different" else "failed"
        same = ["--backup", row["drill_backup_id"]] if row["drill_backup_id"] else []
        yield "bad", source, _sentence(f"A drill of {source} {what}: {row['drill_failure']}"), [*again, *same]
    elif row["drill_late_ms"] is not None:
        yield "note", source, f"A drill of {source} has been due for {span(row['drill_late_ms'])}.", again


def _of_faults(found: Mapping[str, Any]) -> Iterator[Finding]:
    sources = {row["source"]: row for row in found["sources"]}
    for source, mine in _by_source(
        row for row in found["faults"] if row["reason"] not in ("out_of_sync", "pruned")
    ):
        first, now = mine[0], sources[source]
        much = counted(sum(row["backups"] for row in mine), "backup")
        fault = first["path"] or first["fault_backup_id"] or "an earlier backup"
        why = _REASONS.get(first["reason"], first["reason"])
        if first["reason"] == "chain":
            why = first["fault_state"] or "no longer there"
        more = counted(len(mine) - 1, "other cause")
        rest = f", and {_least(found['faults'])}{more}" if len(mine) > 1 else ""
        text = f"{much} of {source} cannot be restored, or only in part: {fault} is {why}{rest}."
        newer = first["to_ts"] < (now["restorable_ts"] or 0)
        if newer and now["status"] != "DAMAGED":
            yield "note", source, f"{text} Newer backups can be restored.", _look("unusable_backups", source)
        elif newer and any(now[rule] for rule in ("window_days", "redundancy", "keep")):
            prune = ["prune", "--source", source, "--delete"]
            yield "bad", source, f"{text} Newer backups can be restored: a prune deletes these.", prune
        else:
            yield "bad", source, f"{text} Take a new full backup.", _full(found, now)


def _of_gaps(found: Mapping[str, Any]) -> Iterator[Finding]:
    sources = {row["source"]: row for row in found["sources"]}
    for status, kind in (("gap", "bad"), ("fork", "note")):
        # What is missing or damaged is a fault, which has a finding of its own.
        for source, mine in _by_source(
            row for row in found["gaps"] if row["status"] == status and row["reason"] not in _FAULTS
        ):
            scopes = list(dict.fromkeys(row["scope"] for row in mine))
            topics = _topics_of(source, scopes, len(scopes))
            much = f"{_least(found['gaps'])}{counted(len(mine), 'time span')}"
            look = _look("coverage", source, f" AND status = '{status}'", scopes)
            if status == "fork":
                text = (
                    f"{topics}: {much} {_are(len(mine))} from a history that the source no longer has. "
                    "A restore brings back the history that continued."
                )
                yield kind, source, text, look
            elif sources[source]["source_kind"] == TOPICS and any(row["reason"] == "purged" for row in mine):
                text = (
                    f"{topics}: {much} cannot be restored, because Kafka deleted the records before a backup "
                    "read them. Run backups more often than the topic's retention."
                )
                hourly = sources[source]["incremental_schedule"] == "hourly"
                yield kind, source, text, look if hourly else ["policy", "set", source, "--incr", "hourly"]
            else:
                why = _REASONS.get(mine[0]["reason"], mine[0]["reason"])
                yield kind, source, f"{topics}: {much} cannot be restored ({why}).", look


def _of_checks(found: Mapping[str, Any]) -> Iterator[Finding]:
    orphans = sum(row["orphan"] for row in found["checks"][:1])
    if orphans:
        text = f"{counted(orphans, 'object')} in the storage {_are(orphans)} in no backup."
        yield "note", None, text, ["sql", "SELECT * FROM orphans"]


def _full(found: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """The command that takes a new full of a source; of what another program made, the one that shows
    more."""
    return _backup(found, row, ["--mode", "full"]) or _look("unusable_backups", row["source"])


def _again(found: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """The command that runs the backup of a source again; of an import and of upkeep, the one that shows
    more."""
    again = None if row["failed_run"] in _UPKEEP else _backup(found, row, [])
    return again or _look("failures", row["source"])


def _backup(found: Mapping[str, Any], row: Mapping[str, Any], full: list[str]) -> list[str] | None:
    """The command that backs up a source, as its policy has it; None: another program does. FOLDER is a
    snapshot's, which no policy names."""
    source = row["source"]
    own = texts_of(row["command"]) or []
    named = next((kind for kind, known in KINDS.items() if own and known.scheduled == own[0]), TOPICS)
    commands = {
        TOPICS: ["backup", "topics", "--source", source, *full, *_topics(found, row)],
        SNAPSHOT: ["backup", *(own or ["snapshot", "FOLDER"]), "--source", source, *full],
        CHANGES: ["log", "snapshot", source],
        QUEUES: ["backup", *(own or ["queue", source, "--snapshot-folder", "FOLDER", *_EVERY]), *full],
    }
    return commands.get(row["source_kind"] or named)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _topics(found: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """The topics of a source: by its policy's patterns, or those of its newest backup where they are few."""
    if patterns := texts_of(row["patterns"]):
        return [word for pattern in patterns for word in ("--pattern", pattern)]
    names = [
        topic["scope"] for topic in found["topics"] if topic["source"] == row["source"] and topic["present"]
    ]
    few = 0 < row["topics"] == len(names) <= _NAMED and not any(name.startswith("-") for name in names)
    return names if few else _EVERY


def _look(view: str, source: str, also: str = "", scopes: Sequence[str] = ()) -> list[str]:
    """The command that shows the rows of a source, of one topic if it is about no others."""
    if len(scopes) == 1:
        also = f" AND scope = {_text(scopes[0])}{also}"
    return ["sql", f"SELECT * FROM {view} WHERE source = {_text(source)}{also}"]  # noqa: S608 - for a person


def _text(name: str) -> str:
    """A name as SQL writes it."""
    return "'" + name.replace("'", "''") + "'"


def _lost(topics: Rows, source: str) -> list[str]:
    """The topics of a source that cannot be restored to any time."""
    return [
        topic["scope"]
        for topic in topics
        if topic["source"] == source and topic["present"] and topic["restorable_ts"] is None
    ]


def _topics_of(source: str, names: Sequence[str], number: int) -> str:
    """Topics by name, as many as a sentence has room for, with how many others there are."""
    some = list(names[:_FEW])
    if not some:
        return f"{counted(number, 'topic')} of {source}"
    if more := number - len(some):
        some.append(f"{more:,} more")
    return f"{'Topic' if number == 1 else 'Topics'} {_listed(some)} of {source}"


def _by_source(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, list[Mapping[str, Any]]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["source"], []).append(row)
    return found.items()


def _word(text: str) -> str:
    """A word for a shell, in the quotes that are easier to read."""
    return f'"{text}"' if "'" in text and not set(text) & set('"$`\\!') else shlex.quote(text)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([*([", ".join(parts[:-1])] if len(parts) > 1 else []), parts[-1]])


def _least(rows: Rows) -> str:
    return "at least " if rows[0]["all_rows"] > len(rows) else ""


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
