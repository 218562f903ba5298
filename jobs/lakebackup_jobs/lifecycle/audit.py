"""The entry that a job leaves in the audit log: its action, its source and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakebackup.config import Settings
from lakebackup.errors import Busy, NotFound, UsageProblem
from lakebackup.store.caller import OK
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import audit_entry, origin
from lakebackup_jobs.runtime.masking import secrets_of, without_secrets

#: Errors after which nothing was done: a mistake of the caller, or another run at work.
NOTHING_DONE = (UsageProblem, NotFound, Busy)
_WAIT_S = 10.0
_MOST_TEXT = 2_000


def append_outcome(
    settings: Settings,
    destination: str,
    action: str,
    source: str | None,
    *,
    request: object,
    result: Mapping[str, Any],
    error: Exception | None,
) -> str | None:
    """Record an action that ended, with `error` or without one. Records nothing if nothing was done, or if
    there is no catalog.

    Returns why the entry could not be signed, although there is a key; None if it could, or if there is none.
    Raises what the catalog's tables and the storage raise.
    """
    if isinstance(error, NOTHING_DONE) or (error is None and result.get("done_before")):
        return None
    if CatalogReader.open(destination, settings.catalog) is None:
        return None
    secrets = secrets_of(settings)
    outcome = OK
    if error is not None:
        outcome = without_secrets(f"{type(error).__name__}: {error}", secrets)[:_MOST_TEXT]
    scalars = {name: value for name, value in result.items() if isinstance(value, str | int | float)}
    detail = {
        name: without_secrets(value, secrets) if isinstance(value, str) else value
        for name, value in {"request": origin(request), **scalars}.items()
    }
    writer = CatalogWriter(None, destination, settings.catalog)
    writer.migrate()
    writer.append_audit(audit_entry(action, source or "", detail, outcome=outcome), wait_s=_WAIT_S)
    return writer.unsigned
