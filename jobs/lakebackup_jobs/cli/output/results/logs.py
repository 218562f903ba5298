"""What a person reads of a log of changes: what was captured, restored, compacted and truncated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli.output.results.phrases import (
    NOTHING_WRITTEN,
    amount,
    counted,
    duration,
    human_bytes,
    listed,
    place,
)
from lakebackup_jobs.cli.output.results.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping


def restore(values: Mapping[str, Any]) -> Summary:
    """A restore of a log, or of all that its tables held at a time; or a plan of one."""
    tables = f"{counted(values['of_tables'], 'table')} of {values['source']}"
    if values["tables"]:
        shown, more = values["tables"], values["of_tables"] - len(values["tables"])
        names = listed(shown) if not more else f"{', '.join(shown[:8])} and {more + len(shown[8:]):,} more"
        tables += f" ({names})"
    into, until = f"into {place(values['target'])}", f"up to {values['to_ts']}"
    start = f" It starts from full {values['full']}." if values.get("full") else ""
    read = f"{amount(values['entries_in_files'], 'event', values['bytes'])} of log"
    if values.get("done_before"):
        return Summary([f"Nothing to do: {place(values['target'])} has {tables} already, {until}."])
    if values.get("dry_run"):
        sentences = [f"Would restore {tables} {into}, {until}: {read} to read.{start} {NOTHING_WRITTEN}"]
        sentences += [f"In the way: {obstacle}." for obstacle in values.get("obstacles") or ()]
        if why := values.get("refused_because"):
            sentences.append(f"This would be refused: {why}.")
        return Summary(sentences)
    changes = counted(values["entries"], "change" if values["target"].startswith("kafka:") else "row")
    took = duration(values.get("seconds"))
    return Summary([f"Restored {tables} {into}, {until}: {changes}{took}.{start}"])


def capture(values: Mapping[str, Any]) -> Summary:
    """What a job of a log task captured until it stopped."""
    task = values["task"]
    if not values["flushes"]:
        return Summary([f"Log task {task} ended. It captured nothing."])
    size = amount(values["entries"], "event", values["bytes"])
    flushes = counted(values["flushes"], "backup")
    return Summary([f"Log task {task} ended: {size} in {flushes} (the last one is {values['last_backup']})."])


def snapshot(values: Mapping[str, Any]) -> Summary:
    """A full that was made from a log, or a plan of one."""
    tables = f"{counted(values['of_tables'], 'table')} of {values['source']}"
    before = f"full {values['full']} and " if values.get("full") else ""
    read = f"{before}{amount(values['entries_in_files'], 'event', values['bytes'])} of log"
    if values.get("dry_run"):
        return Summary([f"Would make a full of {tables} at {values['to_ts']} from {read}. {NOTHING_WRITTEN}"])
    size = amount(values["entries"], "row", values["bytes_stored"])
    made = f"Made full {values['backup_id']} of {tables} at {values['to_ts']}"
    return Summary([f"{made}: {size}{duration(values['seconds'])}."])


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
    after = amount(values["kept_files"], "file", values["kept_bytes"])
    took = duration(values.get("seconds"))
    return Summary(
        [f"Compacted the log of {source}: {size} became {after}{took} (backup {values['backup_id']})."]
    )


def truncate(values: Mapping[str, Any]) -> Summary:
    """The truncation of a log, or a plan of one."""
    source = values["source"]
    size = f"{values['files']:,} of {counted(values['of_files'], 'file')}"
    size += f" ({human_bytes(values['bytes'])} of {human_bytes(values['of_bytes'])})"
    fulls = values.get("fulls") or ()
    also = f" and {counted(len(fulls), 'older full')}" if fulls else ""
    rest = f"What stays can be restored {values['restorable']}."
    if not values["files"] and not fulls:
        return Summary([f"Nothing to delete: the log of {source} has nothing that old.", rest])
    if not values.get("deleted"):
        return Summary([f"Would delete {size}{also} of the log of {source}.", rest, "Nothing was deleted."])
    return Summary([f"Deleted {size}{also} of the log of {source}{duration(values.get('seconds'))}.", rest])
