"""Which rows of `files` and `departures` the difference of two backups can lie in: ranges of numbers.

A file's row says with which backup it came, a departure with which it went. So of two backups of one chain
only what came or went between them is looked at, however many files both have.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.requests import Request
from lakebackup.rows.base import QUEUES, SNAPSHOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakebackup.sql_engine import EngineChoice
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.selection import Selection

TOPICS = "kafka"


@dataclass(frozen=True, slots=True)
class Difference:
    """A query, and its parameters: how to get from the backup `a` to `b`, whichever is the older.

    `*_base`, `*_link`: which backups each needs, of topics. Looked at are files added in
    `[from_number, to_number]`, and older ones that went in `(low, high]`.
    """

    source: str
    a: str
    b: str
    a_base: str
    a_link: int
    a_number: int
    a_state: str
    b_base: str
    b_link: int
    b_number: int
    b_state: str
    topics: bool
    from_number: int
    to_number: int
    low: int
    high: int
    snapshots: bool = False

    @property
    def query(self) -> str:
        """What tells the difference: diff_files, or diff_snapshots."""
        return "diff_snapshots" if self.snapshots else "diff_files"

    def parameters(self) -> dict[str, Any]:
        """As the query takes them."""
        if self.snapshots:
            return {"source": self.source, "a_number": self.a_number, "b_number": self.b_number}
        return {name: value for name, value in asdict(self).items() if name != "snapshots"}


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> Difference:
    """What to look at to tell two backups apart, rows of diff_backups.

    Raises Refused for backups of two sources.
    """
    if a["source"] != b["source"]:
        raise Refused(
            f"{a['backup_id']} is a backup of {a['source']}, {b['backup_id']} one of {b['source']}.",
            hint="Compare two backups of one source.",
        )
    topics = a["source_kind"] in (TOPICS, QUEUES)
    low, high = sorted((a["number"], b["number"]))
    older, newer = sorted((a, b), key=lambda one: one["link"])
    # Whatever the older one has and has not lost since is in the newer one too, when that one needs it.
    one_line = not topics or (
        a["base"] == b["base"]
        and newer["link"] < older["unlinked"]
        and a["state"] == b["state"] == "complete"
        and not a["moved"]
    )
    behind = older["place"] if topics else low
    return Difference(
        source=a["source"],
        a=a["backup_id"],
        b=b["backup_id"],
        a_base=a["base"],
        a_link=a["link"],
        a_number=a["number"],
        a_state=a["state"],
        b_base=b["base"],
        b_link=b["link"],
        b_number=b["number"],
        b_state=b["state"],
        topics=topics,
        from_number=behind + 1 if one_line else min(a["first"], b["first"]),
        to_number=max(a["last"], b["last"]) if topics else high,
        low=low,
        high=high,
        snapshots=a["source_kind"] == SNAPSHOT,
    )


@dataclass(frozen=True, slots=True)
class DiffRequest(Request):
    """What a person asked for: two backups, by their ids or how these begin."""

    a: str
    b: str
    engine: EngineChoice = "auto"


@dataclass(frozen=True, slots=True)
class FileDiff:
    """How the files of the backups `a` and `b` differ: rows of diff_totals, and `changes`, those of the
    difference's query."""

    a: str
    b: str
    totals: tuple[Mapping[str, Any], ...]
    changes: Selection = field(compare=False)


def plan_diff(request: DiffRequest, reader: CatalogReader) -> FileDiff:
    """Compare the files of two backups.

    Raises NotFound, UsageProblem (a beginning of several ids) and Refused (two sources).
    """
    ids = reader.resolve_backup(request.a), reader.resolve_backup(request.b)
    rows = {row["backup_id"]: row for row in reader.rows("diff_backups", a=ids[0], b=ids[1])}
    found = difference(rows[ids[0]], rows[ids[1]])
    changes = reader.choose("changes", found.query, **found.parameters())
    return FileDiff(found.a, found.b, tuple(changes.rows("diff_totals")), changes)


@dataclass(frozen=True, slots=True)
class Unneeded:
    """Parameters of the query unneeded_files: the only rows that no kept backup can need."""

    source: str
    from_number: int
    to_number: int
    gone_by: int

    def parameters(self) -> dict[str, Any]:
        """As the query takes them."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a backup stands in its chain: with what link, and the first one that does not need it. Of sources
    that are no topics its number is the link, and every later backup needs it."""

    number: int
    link: int
    unlinked: float


def unneeded(source: str, chains: Iterable[Iterable[Standing]], retained: Iterable[int]) -> Unneeded:
    """Where the files lie that no backup of `retained` (numbers) needs.

    `chains`: the source's backups, those of a chain together; sources that are no topics have one.
    """
    kept = frozenset(retained)
    behind: list[int] = []
    gone_by = 0
    for chain in chains:
        following: int | None = None
        for one in sorted(chain, key=lambda one: one.link, reverse=True):
            if one.number in kept:
                following = one.link
            elif following is None or following >= one.unlinked:
                behind.append(one.number)
            else:
                gone_by = max(gone_by, following)
    return Unneeded(source, min(behind, default=1), max(behind, default=0), gone_by)
