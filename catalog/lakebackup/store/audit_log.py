"""The signed audit log of a repository: a chain of links that have the entries.

An entry is written in the same object as its signature. So no crash leaves an entry without a signature, or
the other way round. The row in the catalog follows. If the run is killed before that, the next entry that the
same key signs appends the row first.

The first link has a copy of the entries from before that still have an effect, and vouches for them. So a
policy or a hold is signed whenever it was recorded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields

from lakebackup.rows.base import Row
from lakebackup.rows.tables import TABLES, as_row
from lakebackup.rows.upkeep import Audit
from lakebackup.rules.layout import AUDIT_FOLDER
from lakebackup.signing.chain import AuditLink
from lakebackup.signing.envelope import Envelope, verify
from lakebackup.signing.faults import Malformed, Untrusted
from lakebackup.signing.keys import SigningKey, TrustedKeys
from lakebackup.storage import Storage
from lakebackup.store import signatures
from lakebackup.store.manifest import from_json

#: Tables whose rows entries of the audit log have completely: action -> table.
ROWS_IN_AUDIT = {
    "set_policy": "policies",
    "set_policy_topics": "policy_topics",
    "hold": "holds",
    "log_task": "log_tasks",
    "queue_restore": "queue_restores",
    "drill": "drills",
}
#: The action of a change of a backup's state.
SET_STATE = "set_state"
#: The action for a message of an engine that later backups leave out.
SKIP_MESSAGE = "skip message"
#: The actions whose entries have an effect after they are written. A forged one of them does harm.
EFFECTIVE = frozenset({*ROWS_IN_AUDIT, SKIP_MESSAGE})
#: The name of the first link, if it has entries from before.
INHERITED = "before the first signature"
_COLUMNS = frozenset(field.name for field in fields(Audit))


def append(
    storage: Storage,
    name: str,
    entries: Sequence[Audit],
    key: SigningKey,
    inherited_entries: Callable[[], Sequence[Audit]],
    complete: Callable[[AuditLink], None],
) -> None:
    """Append entries to the signed audit log.

    `inherited_entries` returns the entries of `EFFECTIVE` actions in the catalog, for the first link.
    `complete` gets the newest link, if this key signed it: the run that did may have been killed before the
    catalog had its entries. Raises Damaged (the newest link cannot be read), EnvironmentProblem.
    """

    def next_link(newest: AuditLink | None, envelope: Envelope | None) -> AuditLink:
        if newest is None and (inherited := inherited_entries()):
            return _link(None, INHERITED, inherited)
        if newest and envelope and newest.name != INHERITED and _is_signed_by(envelope, key):
            complete(newest)
        return _link(newest, name, entries)

    if signatures.append_next(AuditLink, storage, AUDIT_FOLDER, next_link, key).name == INHERITED:
        signatures.append_next(AuditLink, storage, AUDIT_FOLDER, next_link, key)


def entries_of(link: AuditLink) -> list[Audit]:
    """The entries of a link. Columns of a later version are left out. Raises Malformed."""
    try:
        texts = [
            json.dumps({name: entry[name] for name in entry if name in _COLUMNS}) for entry in link.entries
        ]
        return [from_json(Audit, text) for text in texts]
    except ValueError as error:
        raise Malformed(
            f"{AUDIT_FOLDER}, link {link.number}: it has an entry that is none: {error}.",
            hint="Use the lakebackup that wrote it, or a newer one.",
        ) from None


def rows_of(entries: Sequence[Audit]) -> Iterator[tuple[int, Row]]:
    """Yield the rows of all tables that come from some entries: each entry and the row that it has, with the
    entry's index."""
    for index, entry in enumerate(entries):
        yield index, entry
        if row := _row_in(entry):
            yield index, row


def _row_in(entry: Audit) -> Row | None:
    """The row of a table of `ROWS_IN_AUDIT` that an entry has; None if it has none.

    The entry of a command that has the name of such an action has the command's request, and no row.
    """
    if entry.action not in ROWS_IN_AUDIT:
        return None
    try:
        return from_json(TABLES[ROWS_IN_AUDIT[entry.action]], entry.detail)
    except ValueError:
        return None


def _link(newest: AuditLink | None, name: str, entries: Sequence[Audit]) -> AuditLink:
    return AuditLink(
        source=AUDIT_FOLDER,
        number=newest.number + 1 if newest else 1,
        previous=newest.digest if newest else None,
        name=name,
        entries=tuple(map(as_row, entries)),
        signed_at=time.time_ns() // 1000,
    )


def _is_signed_by(envelope: Envelope, key: SigningKey) -> bool:
    try:
        verify(envelope, AuditLink.PAYLOAD_TYPE, TrustedKeys.of([key.public]))
    except Untrusted:
        return False
    return True
