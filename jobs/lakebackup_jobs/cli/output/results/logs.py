"""The text for a log task's log: captures, restores, compactions and truncations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakebackup_jobs.cli.output.results.phrases import NOTHING_WRITTEN, amount, duration, listed, place_text
from lakebackup_jobs.cli.output.results.summary import Summary
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query.words import counted


def restore(values: Mapping[str, Any]) -> Summary:
    """A restore of a log, a restore of its tables to a moment, or a plan of one."""
    tables = f"{counted(values['of_tables'], 'table')} of {values['source']}"
    if values["tables"]:
        tables_shown, hidden = values["tables"], values["of_tables"] - len(values["tables"])
        names = (
            listed(tables_shown)
            if not hidden
            else f"{', '.join(tables_shown[:8])} and {hidden + len(tables_shown[8:]):,} more"
        )
        tables += f" ({names})"
    target, until = f"into {place_text(values['target'])}", f"up to {values['to_ts']}"
    start = f" It starts from full {values['full']}." if values.get("full") else ""
    read = f"{amount(values['entries_in_files'], 'event', values['bytes'])} of log"
    if values.get("done_before"):
        return Summary([f"Nothing to do: {place_text(values['target'])} has {tables} already, {until}."])
    if values.get("dry_run"):
        sentences = [f"Would restore {tables} {target}, {until}: {read} to read.{start} {NOTHING_WRITTEN}"]
        sentences += [f"In the way: {obstacle}." for obstacle in values.get("obstacles") or ()]
        if reason := values.get("refused_because"):
            sentences.append(f"This would be refused: {reason}.")
        return Summary(sentences)
    changes = counted(values["entries"], "change" if values["target"].startswith("kafka:") else "row")
    time_taken = duration(values.get("seconds"))
    return Summary([f"Restored {tables} {target}, {until}: {changes}{time_taken}.{start}"])


def capture(values: Mapping[str, Any]) -> Summary:
    """The events that a job of a log task captured until it stopped."""
    task = values["task"]
    if not values["flushes"]:
        return Summary([f"Log task {task} ended. It captured nothing."])
    size = amount(values["entries"], "event", values["bytes"])
    flushes = counted(values["flushes"], "backup")
    return Summary([f"Log task {task} ended: {size} in {flushes} (the last one is {values['last_backup']})."])


def snapshot(values: Mapping[str, Any]) -> Summary:
    """A full that was made from a log, or a plan of one."""
    tables = f"{counted(values['of_tables'], 'table')} of {values['source']}"
    base = f"full {values['full']} and " if values.get("full") else ""
    read = f"{base}{amount(values['entries_in_files'], 'event', values['bytes'])} of log"
    if values.get("dry_run"):
        return Summary([f"Would make a full of {tables} at {values['to_ts']} from {read}. {NOTHING_WRITTEN}"])
    size = amount(values["entries"], "row", values["bytes_stored"])
    sentence = f"Made full {values['backup_id']} of {tables} at {values['to_ts']}"
    return Summary([f"{sentence}: {size}{duration(values['seconds'])}."])


def compact(values: Mapping[str, Any]) -> Summary:
    """The compaction of a log, or a plan of one."""
    source = values["source"]
    if not values.get("files"):
        return Summary(
            [f"Nothing to compact: the log of {source} has no small files left to bring together."]
        )
    size = amount(values["files"], "file", values["bytes"])
    if values.get("dry_run"):
        return Summary([f"Would compact {size} of the log of {source}. {NOTHING_WRITTEN}"])
    size_after = amount(values["kept_files"], "file", values["kept_bytes"])
    time_taken = duration(values.get("seconds"))
    return Summary(
        [
            (
                f"Compacted the log of {source}: {size} became {size_after}{time_taken} "
                f"(backup {values['backup_id']})."
            )
        ]
    )


def truncate(values: Mapping[str, Any]) -> Summary:
    """The truncation of a log, or a plan of one."""
    source = values["source"]
    size = f"{values['files']:,} of {counted(values['of_files'], 'file')}"
    size += f" ({human_bytes(values['bytes'])} of {human_bytes(values['of_bytes'])})"
    fulls = values.get("fulls") or ()
    older_fulls = f" and {counted(len(fulls), 'older full')}" if fulls else ""
    restorable = f"What stays can be restored {values['restorable']}."
    if not values["files"] and not fulls:
        return Summary([f"Nothing to delete: the log of {source} has nothing that old.", restorable])
    if not values.get("deleted"):
        return Summary(
            [f"Would delete {size}{older_fulls} of the log of {source}.", restorable, "Nothing was deleted."]
        )
    return Summary(
        [f"Deleted {size}{older_fulls} of the log of {source}{duration(values.get('seconds'))}.", restorable]
    )
