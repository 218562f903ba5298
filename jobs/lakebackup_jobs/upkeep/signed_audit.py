"""Check who signed the audit log, and compare the catalog with it.

The catalog must have the entries that are signed, and the rows of policies, holds and so on in them. It may
have other entries, of hosts that have no key, as long as these have no effect.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from lakebackup.errors import LakebackupError
from lakebackup.rows.base import Row, pick
from lakebackup.rows.tables import TABLES, json_line, table_of
from lakebackup.rules.layout import AUDIT_FOLDER
from lakebackup.rules.stored_json import object_of
from lakebackup.rules.times import format_ts
from lakebackup.signing import chain
from lakebackup.signing.chain import AuditLink, Checkpoint
from lakebackup.signing.faults import NoLink, RowsChanged
from lakebackup.signing.keys import PublicKey, TrustedKeys
from lakebackup.storage import Storage
from lakebackup.store import audit_log, signatures
from lakebackup.store.audit_log import EFFECTIVE, ROWS_IN_AUDIT, SET_STATE
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id

_HINT = "Compare the repository with another copy, and find out who could write to it."
# Whoever runs drills needs no key: evidence shows who did.
_TABLES = tuple(table for table in ROWS_IN_AUDIT.values() if table != "drills")
_EFFECTIVE = EFFECTIVE - {"drill"}


@dataclass
class SignedAudit:
    """What is signed of the audit log, and what the catalog has of it.

    `digests`: those of the links, by number. `entries`: the number of signed entries; `unsigned`: of those in
    the catalog that nobody signed. `states`: the states that entries give to each backup, by its id.
    """

    digests: dict[int, str] = field(default_factory=dict)
    signers: set[PublicKey] = field(default_factory=set)
    entries: int = 0
    unsigned: int = 0
    states: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


class AuditCheck:
    """The check of the audit log of a repository."""

    def __init__(
        self, storage: Storage, reader: CatalogReader, keys: TrustedKeys, checkpoint: Checkpoint | None
    ) -> None:
        self.storage, self.reader, self.keys, self.checkpoint = storage, reader, keys, checkpoint
        self.result = SignedAudit()
        self.first: AuditLink | None = None
        self.last: AuditLink | None = None
        # Table -> name of a link and index in it -> the digests of the row, one of each time it was signed.
        self.signed: defaultdict[str, defaultdict[tuple[str, int], set[bytes]]]
        self.signed = defaultdict(lambda: defaultdict(set))
        # Table -> the digests of rows that are signed in other repositories.
        self.elsewhere: defaultdict[str, set[bytes]] = defaultdict(set)

    def run(self) -> None:
        """Fill `result`. Raises Untrusted: the first fault."""
        self._follow()
        self._follow_others()
        if self.checkpoint:
            self.checkpoint.compare(AUDIT_FOLDER, self.result.digests)
        self.result.entries = len(self.signed["audit"])
        self._compare("audit", self._audit_rows())
        for table in _TABLES:
            self._compare(table, self.reader.table(table).to_pylist())

    def _follow(self) -> None:
        links = signatures.links(self.storage, AUDIT_FOLDER)
        for signed in chain.check(AuditLink, AUDIT_FOLDER, links, self.keys):
            link = self.last = signed.link
            self.first = self.first or link
            self.result.digests[link.number] = link.digest
            self.result.signers.add(signed.signer)
            for index, row in audit_log.rows_of(audit_log.entries_of(link)):
                self.signed[table_of(type(row))][link.name, index].add(_digest(row))

    def _follow_others(self) -> None:
        """Note what is signed in other repositories that have the same catalog, up to their first fault."""
        own_id = destination_id(self.storage, create=False)
        roots = self.reader.destinations()
        for destination in sorted(roots.uris.keys() - {own_id}):
            with suppress(LakebackupError):
                links = signatures.links(roots.open(destination), AUDIT_FOLDER)
                for signed in chain.check(AuditLink, AUDIT_FOLDER, links, self.keys):
                    for _, row in audit_log.rows_of(audit_log.entries_of(signed.link)):
                        self.elsewhere[table_of(type(row))].add(_digest(row))

    def _audit_rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of the table `audit`, and note the states that they give to backups."""
        for batch in self.reader.query("audit_rows"):
            for row in batch.to_pylist():
                if row["action"] == SET_STATE:
                    self.result.states[row["subject"]].add(str(object_of(row["detail"]).get("state")))
                yield row

    def _compare(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Compare the rows of a table with those that are signed. Raises NoLink and RowsChanged."""
        signed = self.signed[table]
        trusted_digests = self.elsewhere[table].union(*signed.values())
        present_digests, first_unsigned = set(), None
        for row in rows:
            digest = _digest(pick(TABLES[table], row))
            if digest in trusted_digests:
                present_digests.add(digest)
            elif self.first and self._needs_signature(table, row):
                first_unsigned = first_unsigned or row
            elif table == "audit":
                self.result.unsigned += 1
        if first_unsigned:
            raise NoLink(
                f"{AUDIT_FOLDER}: nobody signed the row of {table} that {first_unsigned['actor']} recorded "
                f"at {format_ts(first_unsigned['at'] // 1000)}.",
                hint="Find out which host recorded it, and whether it has a signing key.",
            )
        for (name, index), digests in signed.items():
            # The run that signed the last link may have been killed before the catalog had its entries.
            if not digests & present_digests and self.last and name != self.last.name:
                raise RowsChanged(
                    f"{AUDIT_FOLDER}: the catalog's table {table} does not have a signed row, entry {index} "
                    f"of {name!r}.",
                    hint=f"{_HINT} If a run was killed then, `lakebackup catalog rebuild` recreates the row.",
                )

    def _needs_signature(self, table: str, row: Mapping[str, Any]) -> bool:
        if table != "audit" or row["action"] in _EFFECTIVE:
            return True
        return row["action"] == SET_STATE and self.first is not None and row["at"] > self.first.signed_at


def _digest(row: Row) -> bytes:
    return hashlib.sha256(json_line(row).encode()).digest()
