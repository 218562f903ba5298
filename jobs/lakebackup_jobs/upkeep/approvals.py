"""The claims of a catalog (what it would have this machine do), and those that nobody approved here. No
Java."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lakebackup.errors import Damaged, LakebackupError, NotFound, UsageProblem
from lakebackup.store.reader import CatalogReader
from lakebackup.store.trust import Approvals, Claim
from lakebackup_jobs.logs import task
from lakebackup_jobs.upkeep import policies


def claims(reader: CatalogReader, unreadable: Callable[[LakebackupError], object]) -> Iterator[Claim]:
    """Yield all claims of a catalog: of its other destinations, its log tasks that are not over, its
    policies.

    `unreadable` is called with the error of each row that cannot be read; such a row claims nothing.
    """
    yield from reader.destination_claims(reader.destinations().uris)
    approved = Approvals(reader.catalog_uri)
    for row in reader.rows("log_status", source=None):
        try:
            log_task = task.require(reader, row["source"])
        except Damaged as error:
            unreadable(error)
            continue
        if not log_task.over:
            yield task.claim_of(log_task.name, log_task.settings, approved)
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
    """Return the claims that do not count on this machine, if `names` are given only those of these names.

    `unreadable`: see `claims`. Raises NotFound for a name that makes no claim.
    """
    all_claims = list(claims(reader, unreadable))
    for name in names:
        if name not in {claim.name for claim in all_claims}:
            raise NotFound(
                f"{name} claims nothing of this machine.",
                hint="`lakebackup approve --dry-run` lists what does.",
            )
    approved = Approvals(reader.catalog_uri)
    return [
        claim for claim in all_claims if not approved.allows(claim) and (not names or claim.name in names)
    ]


def rows_of(claims: Sequence[Claim], approved: Approvals) -> list[dict[str, Any]]:
    """Return claims as rows: what each claims, what was approved before, and why it needs an approval."""
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


def _changes(approved: Mapping[str, Any] | None, value: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts that are new or differ from those approved."""
    return [name for name, part in value.items() if part and (approved is None or approved.get(name) != part)]
