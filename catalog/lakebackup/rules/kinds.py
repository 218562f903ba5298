"""The kinds of sources, and what the rest of the program must know of each.

A new kind is a line of KINDS, its name in the view own_kinds, and a package of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.rows.base import ARCHIVE, CHANGES, QUEUES, SNAPSHOT, TOPICS
from lakebackup.rules.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


#: Sources that an error names.
_MOST_LISTED = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """What backups with this `source_kind` are.

    holds: what they are of. hint: which commands know them. listed: tables whose rows they keep in objects
    beside their data. whole: why a prune deletes nothing smaller than a backup of them. scheduled: the verb
    of `lakebackup backup` that a policy has to name for them.
    """

    holds: str
    hint: str
    listed: tuple[str, ...] = ()
    whole: str | None = None
    scheduled: str | None = None


KINDS: dict[str, Kind] = {
    TOPICS: Kind(holds="topics", hint="Use `lakebackup restore topics`, `backup topics`, `prune`."),
    SNAPSHOT: Kind(
        holds="snapshots, which have no topics",
        hint="Use `lakebackup restore snapshot`, `backup snapshot`, `diff`.",
        listed=("snapshot_files", "snapshot_departures", "snapshot_folders"),
        whole="holds snapshots, which have no topics",
        scheduled="snapshot",
    ),
    CHANGES: Kind(
        holds="a change feed, whose log has tables and no topics",
        hint="Use `lakebackup log restore`, `log snapshot`, `log compact`, `log truncate`; "
        "`lakebackup log status` shows how far it is.",
        listed=("log_regions", "log_tables", "departures"),
    ),
    QUEUES: Kind(
        holds="an engine's queues, which are backed up and restored together with its snapshot",
        hint="Use `lakebackup backup queue`, `restore queue`, `prune`; the views queue_points and coverage "
        "show what can be restored.",
        listed=("queue_points", "queue_positions", "queue_transactions", "queue_schemas"),
        whole="is an engine, whose messages go with the backups that need them, whatever topic they are of",
        scheduled="queue",
    ),
    ARCHIVE: Kind(
        holds="made by another program, and imported from an archive",
        hint="Use `lakebackup archive restore` or `archive export`.",
        whole="was imported from an archive, which has no topics",
    ),
}


def kind_of(name: str) -> Kind:
    """Of a `source_kind`; one that is not known here is of a program whose backups were imported."""
    return KINDS.get(name) or Kind(
        holds=f"made by another program ({name}) and imported",
        hint="The catalog can be asked about them; only that program restores and prunes them.",
    )


def require_kind(source: str, wanted: str, found: Iterable[str], *, hint: str | None = None) -> None:
    """Refused when backups of a source are of another kind than `wanted`; `hint` in place of the other's."""
    for other in sorted(set(found) - {wanted}):
        kind = kind_of(other)
        raise Refused(f"The backups of {source} are of another kind: {kind.holds}.", hint=hint or kind.hint)


def require_source(backup_id: str, source: str, asked: str | None) -> None:
    """UsageProblem when a backup is not one of the source that was asked for."""
    if asked not in (None, source):
        raise UsageProblem(
            f"Backup {backup_id} is one of {source}, not of {asked}.",
            hint="Leave --source out: the backup's own source is used.",
        )


def only_one(sources: Sequence[str], backups: str) -> str:
    """The only source there is. Raises NotFound (there is no backup; `backups` names their kind),
    UsageProblem."""
    if not sources:
        raise NotFound(f"The catalog holds no {backups}.", hint="`lakebackup list` shows what it holds.")
    if len(sources) > 1:
        raise UsageProblem(
            f"The catalog holds several sources: {', '.join(sources)}.",
            hint="Choose one with --source NAME.",
        )
    return sources[0]


class Rows(Protocol):
    """What can be asked about a source."""

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]: ...


def require_kind_of(catalog: Rows, source: str, wanted: str, *, hint: str | None = None) -> bool:
    """As `require_kind`, for all backups that a catalog has of a source; whether it has any."""
    found = [str(row["source_kind"]) for row in catalog.rows("source_kinds", source=source)]
    require_kind(source, wanted, found, hint=hint)
    return bool(found)


def no_source(catalog: Rows, source: str) -> NotFound:
    """The error for a source that the catalog does not know, with the names that are like it."""
    sources = sorted({str(row["source"]) for row in catalog.rows("sources_known")})
    listing = (
        f"There are: {', '.join(sources[:_MOST_LISTED])}." if sources else "The catalog has no sources yet."
    )
    return NotFound(f"There is no source {source!r}.", hint=did_you_mean(source, sources, listing))


def require_known(catalog: Rows, source: str) -> None:
    """NotFound for a source that has no backups and, as in `status`, nothing else."""
    if not catalog.rows("source_kinds", source=source) and not catalog.rows("list_status", source=source):
        raise no_source(catalog, source)
