"""The kinds of sources, and what the rest of the program must know about each.

A new kind needs an entry in KINDS, its name in the view own_kinds, and a package.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.rows.base import ARCHIVE, CHANGES, QUEUES, SNAPSHOT, TOPICS
from lakebackup.rules.suggestions import did_you_mean

#: The most sources that an error lists.
_MAX_LISTED = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """Describes the backups with one `source_kind`.

    holds: what they contain, for messages. hint: the commands for them. listed: tables whose rows are also
    stored in objects beside the data. not_split_reason: why a prune deletes only whole backups of them.
    scheduled: the verb of `lakebackup backup` that a policy must name for them.
    """

    holds: str
    hint: str
    listed: tuple[str, ...] = ()
    not_split_reason: str | None = None
    scheduled: str | None = None


KINDS: dict[str, Kind] = {
    TOPICS: Kind(holds="topics", hint="Use `lakebackup restore topics`, `backup topics`, `prune`."),
    SNAPSHOT: Kind(
        holds="snapshots, which have no topics",
        hint="Use `lakebackup restore snapshot`, `backup snapshot`, `diff`.",
        listed=("snapshot_files", "snapshot_departures", "snapshot_folders"),
        not_split_reason="holds snapshots, which have no topics",
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
        not_split_reason="is an engine, whose messages go with the backups that need them in every topic",
        scheduled="queue",
    ),
    ARCHIVE: Kind(
        holds="made by another program, and imported from an archive",
        hint="Use `lakebackup archive restore` or `archive export`.",
        not_split_reason="was imported from an archive, which has no topics",
    ),
}


def kind_of(name: str) -> Kind:
    """The kind with this `source_kind`. An unknown one belongs to a program whose backups were imported."""
    return KINDS.get(name) or Kind(
        holds=f"made by another program ({name}) and imported",
        hint="The catalog can be asked about them; only that program restores and prunes them.",
    )


def require_kind(source: str, expected_kind: str, kinds: Iterable[str], *, hint: str | None = None) -> None:
    """Raise Refused if any of the kinds `kinds` is not `expected_kind`. `hint` replaces that of the other
    kind."""
    for other_kind in sorted(set(kinds) - {expected_kind}):
        kind = kind_of(other_kind)
        raise Refused(f"The backups of {source} are of another kind: {kind.holds}.", hint=hint or kind.hint)


def require_source(backup_id: str, source: str, requested_source: str | None) -> None:
    """Raise UsageProblem if a backup of `source` was requested with another source, `requested_source`."""
    if requested_source not in (None, source):
        raise UsageProblem(
            f"Backup {backup_id} is one of {source}, not of {requested_source}.",
            hint="Leave --source out: the backup's own source is used.",
        )


def only_one(sources: Sequence[str], backups: str) -> str:
    """The only one of `sources`. Raises NotFound if there is none, UsageProblem if there are several.

    `backups` names the kind of backups in messages.
    """
    if not sources:
        raise NotFound(f"The catalog holds no {backups}.", hint="`lakebackup list` shows what it holds.")
    if len(sources) > 1:
        raise UsageProblem(
            f"The catalog holds several sources: {', '.join(sources)}.",
            hint="Choose one with --source NAME.",
        )
    return sources[0]


class Rows(Protocol):
    """A catalog that runs named queries."""

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]: ...


def require_kind_of(catalog: Rows, source: str, expected_kind: str, *, hint: str | None = None) -> bool:
    """Like `require_kind`, for all backups of a source in the catalog. Returns whether there are any."""
    kinds = [str(row["source_kind"]) for row in catalog.rows("source_kinds", source=source)]
    require_kind(source, expected_kind, kinds, hint=hint)
    return bool(kinds)


def no_source(catalog: Rows, source: str) -> NotFound:
    """The error for a source that the catalog does not know. Its hint has similar names."""
    sources = sorted({str(row["source"]) for row in catalog.rows("sources_known")})
    listing = (
        f"There are: {', '.join(sources[:_MAX_LISTED])}." if sources else "The catalog has no sources yet."
    )
    return NotFound(f"There is no source {source!r}.", hint=did_you_mean(source, sources, listing))


def require_known(catalog: Rows, source: str) -> None:
    """Raise NotFound for a source that has no backups and does not appear in `status` either."""
    if not catalog.rows("source_kinds", source=source) and not catalog.rows("list_status", source=source):
        raise no_source(catalog, source)
