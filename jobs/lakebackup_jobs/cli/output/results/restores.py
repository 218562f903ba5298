"""The text for a restore: what was restored, where it is, and up to which time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakebackup_jobs.cli.output.results.phrases import (
    NOTHING_WRITTEN,
    amount,
    as_of,
    duration,
    listed,
    moment,
    place_text,
    renamed,
    several,
)
from lakebackup_jobs.cli.output.results.summary import Summary, Table
from lakebackup_jobs.query.words import counted

_TOPICS = {
    "topic": "topic", "target": "into", "action": "action", "placed": "placed", "partitions": "partitions",
    "entries": "records", "bytes": "size", "reaches": "up to", "refused_because": "cannot, since",
}  # fmt: skip
_QUEUES = {
    "queue": "queue", "target": "into", "action": "action", "partitions": "partitions",
    "entries_in_files": "messages", "bytes": "size", "refused_because": "cannot, since",
}  # fmt: skip
_TABLES = {"table": "table", "tablets": "tablets", "files": "files", "bytes": "size", "path": "into"}
_GROUPS = {
    "target_group": "group", "topic": "topic", "partition": "partition", "position": "offset",
    "target_topic": "into", "target_partition": "partition there", "target_position": "offset there",
    "outcome": "outcome",
}  # fmt: skip


def topics(values: Mapping[str, Any]) -> Summary:
    """A restore of topics, or a plan of one."""
    dry, rows = values.get("dry_run"), values["topics"]
    target_topics = {row["target"]: row for row in values.get("target_topics") or ()}
    topic_rows = [_topic_row({**target_topics.get(row["target"], {}), **row}) for row in rows]
    subject = renamed(rows[0]["topic"], rows[0]["target"]) if len(rows) == 1 else counted(len(rows), "topic")
    if not rows:
        subject = "no topic"
    preposition = "in" if len(rows) == 1 and rows[0]["topic"] != rows[0]["target"] else "into"
    location = f" {preposition} {place_text(values['target'])}" if values.get("target") else ""
    until = as_of(values["to_time"] or (rows[0]["reaches"] if len(rows) == 1 else None))
    since = f", from {moment(values['from_time'])}" if values.get("from_time") else ""
    count = values["entries_in_files"] if dry else values["entries"]
    size = amount(count, "record", values["bytes"])
    if "record_bytes" in values:
        size = f"{amount(values['records'], 'record', values['record_bytes'])} that the SELECT returns"
    if dry:
        sentences = [f"Would restore {subject}{location}: {size}{since}{until}. {NOTHING_WRITTEN}"]
    else:
        resumed = " This continued an interrupted restore." if values.get("resumed") else ""
        sentences = [
            f"Restored {subject}{location}: {size}{duration(values['seconds'])}{since}{until}.{resumed}"
        ]
    sentences += _plan_of_topics(values) if dry else ()
    sentences += [f"Note: {note}." for note in values.get("notes") or ()]
    sentences += [f"Note: {note}." for row in target_topics.values() for note in row.get("notes") or ()]
    sentences += values.get("schemas") or ()
    closing = list(_outcomes(values)) if values.get("groups") else []
    if sample := values.get("sample"):
        sentences.append("Its first records:")
        return Summary(sentences, Table(sample, {key: key for key in sample[0]}))
    table_rows = several(topic_rows) or (topic_rows if target_topics else None)
    return Summary(sentences, Table(table_rows, _TOPICS) if table_rows else None, closing)


def groups(values: Mapping[str, Any]) -> Summary:
    """A move of consumer groups, or a plan of one."""
    rows = values["groups"]
    names = sorted({row["target_group"] for row in rows})
    verb = "Would set" if values.get("dry_run") else "Set"
    time_text = as_of(values.get("at_time"))
    sentences = [f"{verb} {counted(len(names), 'consumer group')} ({listed(names)}){time_text}."]
    if not rows:
        sentences = ["No consumer group has a position to restore."]
    sentences += list(_outcomes(values))
    if reason := values.get("refused_because"):
        sentences.append(f"This would be refused: {reason}.")
    if values.get("dry_run"):
        sentences.append(NOTHING_WRITTEN)
    return Summary(sentences, Table(rows, _GROUPS) if rows else None)


def snapshot(values: Mapping[str, Any]) -> Summary:
    """A restore of a snapshot's files, or a plan of one. A plain folder has no tables and no tablets."""
    rows = values["tables"]
    plain = bool(rows) and all(row.get("plain") for row in rows)
    location = rows[0]["path"] if len(rows) == 1 and values["of_tables"] == 1 else values["folder"]
    size = amount(values["files"], "file", values["bytes"])
    if not plain:
        size = f"{counted(values['of_tables'], 'table')}, {size}"
    subject, until = f"{values['source']} to {location}", as_of(values.get("taken"))
    if values.get("dry_run"):
        sentences = [f"Would restore {subject}: {size}{until}. {NOTHING_WRITTEN}"]
        if reason := values.get("refused_because"):
            sentences.append(f"This would be refused: {reason}.")
    elif values.get("done_before"):
        sentences = [f"Nothing to do: {values['source']} is in {location} already: {size}{until}."]
    else:
        sentences = [f"Restored {subject}: {size}{duration(values.get('seconds'))}{until}."]
        if values.get("resumed"):
            sentences.append(
                "This continued an interrupted restore, which had restored "
                f"{counted(values['files'] - values['written'], 'file')}."
            )
    if unknown := values.get("not_verifiable"):
        sentences.append(f"The backup has no SHA-256 of {counted(unknown, 'file')}: they were not checked.")
    table_rows = several(rows)
    hidden = values["of_tables"] - len(rows)
    closing = [f"and {counted(hidden, 'more table')}"] if hidden > 0 and table_rows else []
    return Summary(sentences, Table(table_rows, _TABLES) if table_rows else None, closing)


def queue(values: Mapping[str, Any]) -> Summary:
    """A restore of an engine, or a plan of one."""
    source, queues = values["source"], counted(len(values["queues"]), "queue")
    point = f", up to tid {values['to_tid']}{as_of(values.get('to_time'))}"
    if values.get("dry_run"):
        size = amount(values["entries_in_files"], "message", values["bytes"])
        sentences = [f"Would restore {source}: {queues}, {size}{point}. {NOTHING_WRITTEN}"]
        sentences += [f"In the way: {obstacle}." for obstacle in values.get("obstacles") or ()]
        if reason := values.get("refused_because"):
            sentences.append(f"This would be refused: {reason}.")
    else:
        size = amount(values["entries"], "message", values["bytes"])
        sentences = [f"Restored {source}: {queues}, {size}{point}{duration(values['seconds'])}."]
        if values.get("resumed"):
            sentences.append("This continued an interrupted restore.")
        if count := values.get("open_transactions"):
            sentences.append(f"{counted(count, 'transaction')} were open at that point.")
    if values.get("whole") is False:
        sentences.append("The next backup of this source depends on the full backup, not on this point.")
    return Summary(sentences, Table(values["queues"], _QUEUES))


def archive(values: Mapping[str, Any]) -> Summary:
    """A restore of imported buckets to a folder, or a plan of one."""
    subject = f"{values['buckets']} of {values['source']}"
    until, location = as_of(values.get("reaches")), f"into {values['folder']}"
    if values.get("dry_run"):
        size = amount(values["mutations"], "mutation", values["bytes"])
        return Summary([f"Would restore {subject} {location}: {size} to read{until}. {NOTHING_WRITTEN}"])
    size = counted(values["documents"], "document")
    return Summary([f"Restored {subject} {location}: {size}{until}{duration(values['seconds'])}."])


def archive_export(values: Mapping[str, Any]) -> Summary:
    """An export of a backup as an archive, or a plan of one."""
    subject, location = f"backup {values['backup_id']} of {values['source']}", f"into {values['folder']}"
    buckets = f" Buckets: {values['buckets']}." if values.get("buckets") else ""
    if values.get("dry_run"):
        chain = counted(len(values["backups"]), "backup")
        return Summary(
            [f"Would export {subject} with its chain ({chain}) {location}.{buckets} {NOTHING_WRITTEN}"]
        )
    size = amount(values.get("entries"), "document", values.get("bytes"))
    return Summary([f"Exported {subject} {location}: {size}{duration(values.get('seconds'))}.{buckets}"])


def _topic_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table of topics, without a target of the same name."""
    return {
        **row,
        "target": row["target"] if row["target"] != row["topic"] else None,
        "reaches": moment(row["reaches"]),
    }


def _plan_of_topics(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields further sentences on a dry run."""
    if backups := values.get("backups"):
        yield f"It reads {counted(len(backups), 'backup')}. Estimated time: {values['estimate']}."
    if plan := values.get("plan"):
        yield f"The plan is saved in {plan}; carry it out with --plan {plan}."
    if values.get("alternatives"):
        yield "Other backups hold the same records; --wide lists them."


def _outcomes(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each outcome, with its number of partitions of consumer groups."""
    meanings = values.get("meaning") or {}
    for outcome, count in (values.get("outcomes") or {}).items():
        meaning = f": {meanings[outcome]}" if outcome in meanings else ""
        yield f"{counted(count, 'partition')} {outcome.replace('_', ' ')}{meaning}."
