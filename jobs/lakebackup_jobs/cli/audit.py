"""The entry that a command leaves in the audit log: who ran it where, with which words, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from lakebackup.errors import Busy, LakebackupError, NotFound, UsageProblem

if TYPE_CHECKING:
    from lakebackup_jobs.cli.verb import Call

#: Verbs, or groups of them, that leave an entry.
AUDITED = (
    "backup", "restore", "verify", "drill", "merge", "compact", "prune", "policy", "hold", "manage",
    "archive", "catalog break-lease", "catalog export", "catalog import", "catalog import-manifest",
    "catalog init", "catalog optimize", "catalog rebuild", "log start", "log pause", "log resume", "log stop",
    "log run", "log restore", "log snapshot", "log merge", "log compact", "log truncate",
)  # fmt: skip
# These record what they change by themselves, and nothing where nothing was changed.
_RECORD_THEMSELVES = (
    "policy", "hold", "manage", "prune", "catalog break-lease", "log start", "log pause", "log resume",
    "log stop", "log truncate",
)  # fmt: skip
# What the caller got wrong, or what another run was at work on: nothing was done.
_NOTHING_DONE = (UsageProblem, NotFound, Busy, typer.TyperException)
_WAIT_S = 10.0
_MOST_TEXT = 2_000


def record(call: Call, verb: str, error: Exception | None) -> None:
    """Record how a verb ended. Raises nothing: where the row cannot be written, a warning says so.

    Nothing is recorded of a dry run, of what changed nothing, and where there is no catalog.
    """
    if not _named(verb, AUDITED) or call.dry_run or isinstance(error, _NOTHING_DONE):
        return
    if call.own.get("delete") is False or call.own.get("run") is False:  # it only reports
        return
    if error is None and (_named(verb, _RECORD_THEMSELVES) or call.outcome.get("done_before")):
        return
    try:
        _append(call, verb, error)
    except Exception as problem:  # noqa: BLE001 - what the verb did is done, or its own error is the one to report
        if error is None:
            text = problem.message if isinstance(problem, LakebackupError) else str(problem)
            call.warn(f"not recorded in the audit log: {text}")


def _named(verb: str, names: tuple[str, ...]) -> bool:
    return any(f"{verb} ".startswith(f"{name} ") for name in names)


def _append(call: Call, verb: str, error: Exception | None) -> None:
    from lakebackup.store.caller import OK
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.lifecycle.identity import audit_entry, origin
    from lakebackup_jobs.runtime.masking import secrets_of, without_secrets

    secrets = secrets_of(call.settings)
    if CatalogReader.open(*call.places) is None:
        return
    outcome = OK
    if error is not None:
        outcome = without_secrets(f"{type(error).__name__}: {error}", secrets)[:_MOST_TEXT]
    sources = (call.outcome.get("source"), getattr(call.job_request, "source", None), call.own.get("source"))
    subject = next(filter(None, sources), "")
    writer = CatalogWriter(None, *call.places)
    writer.migrate()
    detail = {"request": origin(call.job_request), **_scalars(call.outcome)}
    detail = {
        name: without_secrets(value, secrets) if isinstance(value, str) else value
        for name, value in detail.items()
    }
    entry = audit_entry(verb, str(subject), detail, outcome=outcome)
    writer.append_audit(entry, wait_s=_WAIT_S)


def _scalars(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if isinstance(value, str | int | float)}
