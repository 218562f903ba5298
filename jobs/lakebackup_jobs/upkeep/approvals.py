"""What a catalog would have this machine do, and what of it no person approved here. No Java."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.store.trust import Approvals, Claim
from lakebackup_jobs.logs import task
from lakebackup_jobs.upkeep import policies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakebackup.errors import LakebackupError
    from lakebackup.store.reader import CatalogReader


def claims(reader: CatalogReader, unreadable: Callable[[LakebackupError], object]) -> Iterator[Claim]:
    """All claims of a catalog: its other destinations, its log tasks that did not end, its schedules.

    `unreadable` hears of rows that cannot be read: they claim nothing.
    """
    yield from reader.destination_claims(reader.destinations().uris)
    approved = Approvals(reader.catalog_uri)
    for row in reader.rows("log_status", source=None):
        try:
            found = task.require(reader, row["source"])
        except Damaged as error:
            unreadable(error)
            continue
        if not found.over:
            yield task.claim_of(found.name, found.settings, approved)
    for source in sorted({row["source"] for row in reader.rows("policy_runs", source=None)}):
        try:
            yield policies.claim_of(reader, source)
        except UsageProblem as error:
            unreadable(error)


def unapproved(
    reader: CatalogReader,
    names: Sequence[str] = (),
    unreadable: Callable[[LakebackupError], object] = lambda _: None,
) -> list[Claim]:
    """Claims that do not count on this machine; of those names alone, where some are given.

    `unreadable`: see `claims`. Raises NotFound for a name that makes no claim.
    """
    every = list(claims(reader, unreadable))
    for name in names:
        if name not in {claim.name for claim in every}:
            raise NotFound(
                f"{name} claims nothing of this machine.",
                hint="`lakebackup approve --dry-run` lists what does.",
            )
    approved = Approvals(reader.catalog_uri)
    return [claim for claim in every if not approved.allows(claim) and (not names or claim.name in names)]


def rows_of(claims: Sequence[Claim], approved: Approvals) -> list[dict[str, Any]]:
    """Claims as rows: what each is, what was approved before, and why a person is asked."""
    return [
        {
            "kind": claim.kind,
            "name": claim.name,
            "claim": dict(claim.value),
            "approved": approved.value(claim),
            "changed": _changes(approved.value(claim), claim.value),
            "reason": claim.reason,
        }
        for claim in claims
    ]


def _changes(before: Mapping[str, Any] | None, value: Mapping[str, Any]) -> list[str]:
    """The parts that are new or differ."""
    return [name for name, part in value.items() if part and (before is None or before.get(name) != part)]
