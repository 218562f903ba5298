"""Plan a diff of two backups: in which ranges of backup numbers rows of `files` and `departures` can differ.

A row of `files` has the number of the backup that added the file. A row of `departures` has the number of the
backup that dropped it. So the query reads only what changed between two backups of a chain, however many
files both have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebackup.errors import Refused
from lakebackup.requests import Request
from lakebackup.rows.base import QUEUES, SNAPSHOT, TOPICS
from lakebackup.sql_engine import EngineChoice
from lakebackup.store.reader import CatalogReader


def diff_query(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the parameters of the query for the changes from the backup `a` to `b`.

    Both are rows of diff_backups, and either may be the older one. The query reads files added in
    `[from_number, to_number]`, and older files dropped in `(low, high]`. Raises Refused for backups of two
    sources.
    """
    if a["source"] != b["source"]:
        raise Refused(
            f"{a['backup_id']} is a backup of {a['source']}, {b['backup_id']} one of {b['source']}.",
            hint="Compare two backups of one source.",
        )
    if a["source_kind"] == SNAPSHOT:
        numbers = {"a_number": a["number"], "b_number": b["number"]}
        return "diff_snapshots", {"source": a["source"], **numbers}
    topics = a["source_kind"] in (TOPICS, QUEUES)
    low, high = sorted((a["number"], b["number"]))
    older, newer = sorted((a, b), key=lambda backup: backup["link"])
    # If the newer backup depends on the older one, it has all files of that one except dropped ones.
    same_chain = not topics or (
        a["base"] == b["base"]
        and newer["link"] < older["unlinked"]
        and a["state"] == b["state"] == "complete"
        and not a["moved"]
    )
    older_number = older["place"] if topics else low
    sides = {
        f"{side}_{name}": row[name]
        for side, row in (("a", a), ("b", b))
        for name in ("base", "link", "number", "state")
    }
    return "diff_sides", sides | {
        "source": a["source"],
        "a": a["backup_id"],
        "b": b["backup_id"],
        "topics": topics,
        "from_number": older_number + 1 if same_chain else min(a["first"], b["first"]),
        "to_number": max(a["last"], b["last"]) if topics else high,
        "low": low,
        "high": high,
    }


def with_changes(reader: CatalogReader, a: Mapping[str, Any], b: Mapping[str, Any]) -> CatalogReader:
    """A reader with the relation `changes`: the files that changed from the backup `a` to `b`.

    Both are rows of diff_backups. Raises what diff_query raises.
    """
    query, parameters = diff_query(a, b)
    if query == "diff_snapshots":
        return reader.with_query("changes", query, **parameters)
    return reader.with_query("sides", query, **parameters).with_query("changes", "diff_files")


@dataclass(frozen=True, slots=True)
class DiffRequest(Request):
    """Two backups to compare: their ids, or the first characters of these."""

    a: str
    b: str
    engine: EngineChoice = "auto"


@dataclass(frozen=True, slots=True)
class FileDiff:
    """How the files of the backups `a` and `b` differ. `totals`: rows of diff_totals; `changes`: a reader
    with the relation `changes`, the files that changed."""

    a: str
    b: str
    totals: tuple[Mapping[str, Any], ...]
    changes: CatalogReader = field(compare=False)


def plan_diff(request: DiffRequest, reader: CatalogReader) -> FileDiff:
    """Compare the files of two backups.

    Raises NotFound, UsageProblem (an ambiguous id) and Refused (two sources).
    """
    ids = reader.resolve_backup(request.a), reader.resolve_backup(request.b)
    rows = {row["backup_id"]: row for row in reader.rows("diff_backups", a=ids[0], b=ids[1])}
    changes = with_changes(reader, rows[ids[0]], rows[ids[1]])
    return FileDiff(*ids, tuple(changes.rows("diff_totals")), changes)
