"""The text for a backup that was taken or imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakebackup_jobs.cli.output.results.phrases import (
    NOTHING_WRITTEN,
    amount,
    backup,
    duration,
    is_or_are,
    listed,
    several,
)
from lakebackup_jobs.cli.output.results.summary import Summary, Table
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query.words import counted


def topics(values: Mapping[str, Any]) -> Summary:
    """A backup of topics, a plan of one, or all backups of a run that followed its topics."""
    if "backups" in values:
        return Summary([_followed(values)])
    subject = f"{counted(values['topics'], 'topic')} of {values['source']}"
    if values.get("dry_run"):
        read = f"{counted(values['offsets'], 'offset')} in {counted(values['partitions'], 'partition')}"
        sentence = f"Would take a {values['kind']} backup of {subject}: {read}. {NOTHING_WRITTEN}"
    elif values["entries"]:
        sentence = (
            f"Backed up {subject}: {amount(values['entries'], 'record', values['bytes'])}"
            f"{duration(values['seconds'])} ({backup(values)})."
        )
    else:
        sentence = f"Backed up {subject}: nothing was new ({backup(values)})."
    return Summary([*_earlier(values, "record"), sentence, *_of_topics(values)])


def snapshot(values: Mapping[str, Any]) -> Summary:
    """A backup of one snapshot or of several, or a plan of one."""
    source = values["source"]
    if values.get("dry_run"):
        return Summary([_planned_snapshot(values)])
    if "backup_id" in values:
        return Summary([_copied(values)])
    backups = values["backups"]
    if not backups:
        return Summary([f"Nothing to back up: every snapshot of {source} has a backup."])
    size = sum(row["copied_bytes"] for row in backups)
    copied = amount(sum(row["copied"] for row in backups), "file", size)
    columns = {
        "snapshot": "snapshot", "backup_id": "backup", "kind": "kind", "files": "files", "copied": "copied",
        "copied_bytes": "size", "gone": "gone",
    }  # fmt: skip
    sentence = f"Backed up {counted(len(backups), 'snapshot')} of {source}: {copied} copied."
    return Summary([sentence], Table(backups, columns))


def queue(values: Mapping[str, Any]) -> Summary:
    """A backup of an engine, or a plan of one."""
    source, subject = values["source"], f"{counted(values['topics'], 'queue')}"
    if values.get("dry_run"):
        read = counted(values["offsets"], "offset")
        sentences = [f"Would take a {values['kind']} backup of {source}: {read} in {subject}."]
        if files := values.get("snapshot"):
            size = amount(files["copied"], "file", files["copied_bytes"])
            sentences.append(f"Its snapshot: {size} to copy.")
        return Summary([*sentences, NOTHING_WRITTEN])
    messages = (
        amount(values["entries"], "message", values["bytes"]) if values["entries"] else "nothing was new"
    )
    time_taken = duration(values["seconds"]) if values["entries"] else ""
    sentences = [f"Backed up {source}: {subject}, {messages}{time_taken} ({backup(values)})."]
    if gaps := values.get("gaps"):
        sentences.append(_gaps(gaps))
    return Summary([*_earlier(values, "message"), *sentences])


def archive(values: Mapping[str, Any]) -> Summary:
    """An import of a cbbackup archive, or a plan of one."""
    source, known_count = values["source"], values["known"]
    verb = "Would import" if values.get("dry_run") else "Imported"
    new = [row for row in values["backups"] if not row["known"]]
    known_backups = (
        f" {counted(known_count, 'backup')} {is_or_are(known_count)} in the catalog already."
        if known_count
        else ""
    )
    if not values["imported"]:
        return Summary([f"Nothing to import into {source}.{known_backups}"])
    size = amount(values["entries"], "document", values["bytes"])
    time_taken = "" if values.get("dry_run") else duration(values.get("seconds"))
    sentence = (
        f"{verb} {counted(values['imported'], 'backup')} of {source}: {size}{time_taken}.{known_backups}"
    )
    columns = {
        "backup_id": "backup", "folder": "folder", "kind": "kind", "buckets": "buckets",
        "entries": "documents", "bytes": "size",
    }  # fmt: skip
    rows = several(new)
    return Summary(
        [sentence, *([NOTHING_WRITTEN] if values.get("dry_run") else ())],
        Table(rows, columns) if rows else None,
    )


def _followed(values: Mapping[str, Any]) -> str:
    source, time_taken = values["source"], duration(values.get("seconds"))
    if not values["backups"]:
        return f"Followed {source}{time_taken}: nothing was new, and no backup was taken."
    size = amount(values["entries"], "record", values["bytes"])
    backups = counted(values["backups"], "backup")
    return f"Took {backups} of {source}{time_taken}: {size} (the last one is backup {values['last_backup']})."


def _earlier(values: Mapping[str, Any], unit: str) -> Iterator[str]:
    """A sentence on the interrupted backup that the run finished first."""
    if earlier := values.get("ended"):
        size = amount(earlier.get("entries"), unit, earlier.get("bytes"))
        yield f"Finished the {backup(earlier)} of an interrupted run: {size}."


def _of_topics(values: Mapping[str, Any]) -> Iterator[str]:
    """Further sentences on a backup of topics."""
    if groups := values.get("groups"):
        yield f"The positions of {counted(groups, 'consumer group')} are saved too."
    if generations := values.get("generations"):
        yield f"Read again from the start: {listed(row['topic'] for row in generations)}."
    if gaps := values.get("gaps"):
        yield _gaps(gaps)
    if opened := len(values.get("open_transactions") or ()):
        yield (
            f"{counted(opened, 'partition')} {'ends' if opened == 1 else 'end'} where a transaction is open; "
            "the next backup continues there."
        )
    if unprotected := values.get("unprotected"):
        have = f"{'has' if unprotected == 1 else 'have'} no backup; `lakebackup status` names them."
        yield f"{counted(unprotected, 'other topic')} of {values['source']} {have}"


def _gaps(number: int) -> str:
    return f"{counted(number, 'partition')} lost records before this backup; the warnings above name them."


def _planned_snapshot(values: Mapping[str, Any]) -> str:
    source = values["source"]
    if "files" not in values:
        return f"Nothing to back up: every snapshot of {source} has a backup."
    later = len(values["snapshots"]) - 1
    size = f"copy {values['copied']:,} of {amount(values['files'], 'file', None)}"
    size += f", {human_bytes(values['copied_bytes'])}" if values["copied"] else ""
    later_snapshots = f" {counted(later, 'later snapshot')} would follow." if later else ""
    return f"Would back up {source}: {size}{_gone_files(values)}.{later_snapshots} {NOTHING_WRITTEN}"


def _copied(values: Mapping[str, Any]) -> str:
    """The sentence on the backup of one snapshot."""
    source, files = values["source"], counted(values["files"], "file")
    if not values["copied"] and not values["gone"]:
        return f"Nothing changed in {source} since the last backup: {files} ({backup(values)})."
    copied = (
        f"copied {files}"
        if values["copied"] == values["files"]
        else f"copied {values['copied']:,} of {files}"
    )
    size = f", {human_bytes(values['copied_bytes'])}" if values["copied"] else ""
    time_taken = duration(values.get("seconds"))
    return f"Backed up {source}: {copied}{size}{time_taken}{_gone_files(values)} ({backup(values)})."


def _gone_files(values: Mapping[str, Any]) -> str:
    """The clause on files that are gone since the last backup; empty when there are none."""
    count = values["gone"]
    return f"; {counted(count, 'file')} {is_or_are(count)} gone" if count else ""
