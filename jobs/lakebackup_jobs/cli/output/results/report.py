"""The report as text, with the same facts as the HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lakebackup_jobs.cli.output.results.phrases import moment
from lakebackup_jobs.cli.output.results.summary import Table
from lakebackup_jobs.query.words import span
from lakebackup_jobs.runtime.terminal_table import Screen
from lakebackup_jobs.runtime.terminal_text import visible


class _Section(NamedTuple):
    """A table of the report: its title, the key of its rows, and its columns as `fact: heading`."""

    title: str
    facts: str
    columns: str


_SECTIONS = (
    _Section(
        "Sources",
        "sources",
        "source: source, status: status, restorable_ts: restorable until, lag_ms: ago, backups: backups, "
        "topics: topics, finished_at: last backup, due_ts: next run, verified_at: verified, "
        "drilled_ts: drilled, failed_runs: failed runs",
    ),
    _Section(
        "Topics and tables",
        "topics",
        "source: source, scope: name, restorable_ts: restorable until, lag_ms: ago, regions: partitions, "
        "gaps: gaps, forks: forks",
    ),
    _Section(
        "Times that cannot be restored",
        "gaps",
        "source: source, scope: name, status: what, reason: reason, from_ts: after, to_ts: until, "
        "regions: partitions",
    ),
    _Section(
        "Backups that cannot be restored",
        "faults",
        "source: source, reason: reason, fault_backup_id: backup at fault, backups: backups, path: file",
    ),
    _Section(
        "What is stored",
        "items",
        "source: source, scope: name, bytes: size, items: records, files: files, backups: backups, "
        "chains: chains",
    ),
    _Section(
        "Chains",
        "kept",
        "source: source, base: chain, from_ts: from, to_ts: until, backups: backups, bytes: size, "
        "obsolete: obsolete, obsolete_bytes: obsolete size",
    ),
    _Section(
        "Storage",
        "storage",
        "source: source, bytes: size, files: files, backups: backups, pruned_bytes: deleted by prunes",
    ),
    _Section(
        "Verification",
        "checks",
        "at: time, mode: mode, objects: objects, ok: intact, missing: missing, changed: changed, "
        "damaged: damaged, orphan: orphans",
    ),
)


def lines(facts: Mapping[str, Any], screen: Screen | None) -> Iterator[str]:
    """Yield the lines of the report on the facts of `lakebackup_jobs.query.report.values.facts`."""
    yield f"Backups in {visible(facts['repository'])} on {moment(facts['generated_ts'])}\n"
    yield from findings(facts)
    for section in _SECTIONS:
        if not (rows := facts[section.facts]):
            continue
        headings = dict(column.split(": ") for column in section.columns.split(", "))
        cells = [{fact: _cell(fact, row[fact]) for fact in headings} for row in rows]
        yield f"\n{section.title}\n"
        yield from Table(cells, headings, every_column=True).lines(screen)


def findings(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the verdict, and of each finding with the command that fixes it or shows more."""
    yield f"{visible(facts['verdict'])}\n"
    for row in facts["findings"]:
        yield f"\n{'Problem' if row['kind'] == 'bad' else 'Note'}: {visible(row['text'])}\n"
        if row["command"]:
            yield f"  {visible(row['command'])}\n"


def _cell(fact: str, value: Any) -> Any:
    """A fact for a cell, with times as text. The table formats numbers and sizes itself."""
    if fact == "scope" and not value:
        return "(manifests)"
    if fact == "lag_ms":
        return span(value)
    if fact.endswith("_ts"):
        return moment(value)
    if value is not None and (fact == "at" or fact.endswith("_at")):
        return moment(value // 1000)
    return value
