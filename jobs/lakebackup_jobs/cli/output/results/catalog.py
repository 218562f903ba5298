"""The text for the upkeep of the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakebackup.signing.keys import short_id
from lakebackup_jobs.cli.output.results.phrases import NOTHING_WRITTEN, amount, duration, listed, several
from lakebackup_jobs.cli.output.results.summary import Summary, Table
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query.words import counted

_SOURCES = {"source": "source", "backups": "backups", "files": "files", "bytes": "size", "until_ts": "until"}
_ROWS = {"table": "table", "rows": "rows", "files": "files", "bytes": "size"}


def init(values: Mapping[str, Any]) -> Summary:
    """A catalog that was created or brought up to date."""
    return Summary([f"The catalog is ready: {values['catalog']}"])


def broken_lease(values: Mapping[str, Any]) -> Summary:
    """A lease that was ended."""
    return Summary([f"Lease {values['lease']} of {values['holder']} is ended: {values['reason']}."])


def optimize(values: Mapping[str, Any]) -> Summary:
    """The merge of the tables' small files, or their present state in a dry run."""
    files, size = counted(values["files"], "file"), human_bytes(values["stored_bytes"])
    if values.get("dry_run"):
        return Summary([f"The catalog has {files} in use and takes {size}. {NOTHING_WRITTEN}"])
    size_after = f"{values['files_after']:,} in use and {human_bytes(values['stored_bytes_after'])}"
    return Summary(
        [
            (
                f"Optimized the catalog{duration(values['seconds'])}: "
                f"{files} in use and {size} became {size_after}."
            )
        ]
    )


def rebuild(values: Mapping[str, Any]) -> Summary:
    """A catalog that was rebuilt."""
    states = values["backups"]
    backups = counted(sum(states.values()), "backup")
    if states.keys() - {"complete"}:
        backups += f" ({', '.join(f'{count:,} {state}' for state, count in states.items())})"
    files = counted(values["files"], "file")
    return Summary([f"Rebuilt the catalog: {backups} with {files}{duration(values['seconds'])}."])


def export(values: Mapping[str, Any]) -> Summary:
    """An export of the catalog's rows to files."""
    size = amount(values["rows"], "row", values["bytes"])
    folder = values["folder"].removeprefix("file://")
    time_taken, tables = duration(values["seconds"]), counted(len(values["tables"]), "table")
    sentences = [f"Exported {size} of {tables} into {folder}{time_taken}."]
    if key_id := values["signed_by"]:
        sentences.append(f"Signed with the key {short_id(key_id)}.")
    return Summary(sentences, Table(values["tables"], _ROWS))


def imported(values: Mapping[str, Any]) -> Summary:
    """An import of rows from another catalog or program, or a plan of one."""
    sources = values["sources"]
    states = ", ".join(f"{count:,} now {state}" for state, count in (values.get("states") or {}).items())
    changed = f" States of known backups: {states}." if states else ""
    if not values["backups"]:
        return Summary([f"Nothing new to import.{changed}"])
    verb = "Would import" if values.get("dry_run") else "Imported"
    backups = f"{counted(values['backups'], 'backup')} of {listed(row['source'] for row in sources)}"
    end = f" {NOTHING_WRITTEN}" if values.get("dry_run") else ""
    time_taken = "" if end else duration(values.get("seconds"))
    rows = several(sources)
    return Summary([f"{verb} {backups}{time_taken}.{changed}{end}"], Table(rows, _SOURCES) if rows else None)


def imported_manifest(values: Mapping[str, Any]) -> Summary:
    """A manifest of a snapshot that was imported as a backup."""
    size = amount(values["files"], "file", values["bytes"])
    tables = counted(values["tables"], "table")
    sentence = f"Imported a manifest of {values['source']} as backup {values['backup_id']}"
    return Summary([f"{sentence}: {tables}, {size}{duration(values.get('seconds'))}."])
