"""Records a command in the audit log: who ran it where, with which words, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import typer

from lakebackup.config import Settings
from lakebackup.errors import LakebackupError
from lakebackup_jobs.lifecycle.audit import append_outcome

#: Verbs, or groups of them, that are recorded in the audit log.
AUDITED = (
    "backup", "restore", "verify", "drill", "merge", "compact", "prune", "policy", "hold", "manage",
    "archive", "catalog break-lease", "catalog export", "catalog import", "catalog import-manifest",
    "catalog init", "catalog optimize", "catalog rebuild", "log start", "log pause", "log resume", "log stop",
    "log run", "log restore", "log snapshot", "log merge", "log compact", "log truncate", "key add",
    "key remove", "key rotate",
)  # fmt: skip
# These record their changes themselves, and record nothing when they changed nothing.
_RECORD_THEMSELVES = (
    "policy", "hold", "manage", "prune", "catalog break-lease", "log start", "log pause", "log resume",
    "log stop", "log truncate",
)  # fmt: skip


class AuditedCall(Protocol):
    """What is needed of a call of a verb; `lakebackup_jobs.cli.verb.Call` describes it."""

    dry_run: bool
    own: Mapping[str, Any]
    outcome: dict[str, Any]
    job_request: Any

    @property
    def settings(self) -> Settings: ...
    @property
    def repository(self) -> Any: ...
    def warn(self, text: str) -> None: ...


def record(call: AuditedCall, verb: str, error: Exception | None) -> None:
    """Record how a verb ended. Raises nothing. If the row cannot be written, it prints a warning.

    Records nothing for a dry run, for a verb that changed nothing, and when there is no catalog.
    """
    if not _matches(verb, AUDITED) or call.dry_run or isinstance(error, typer.TyperException):
        return
    # Without these flags a verb only reports, or changes a file of this machine.
    if any(call.own.get(flag) is False for flag in ("delete", "run", "rotate")):
        return
    if error is None and _matches(verb, _RECORD_THEMSELVES):
        return
    try:
        if unsigned := _append(call, verb, error):
            call.warn(f"recorded in the audit log without a signature: {unsigned}")
    except Exception as problem:  # noqa: BLE001 - the verb's work is done, or its own error must be reported
        if error is None:
            text = problem.message if isinstance(problem, LakebackupError) else str(problem)
            call.warn(f"not recorded in the audit log: {text}")


def _matches(verb: str, names: tuple[str, ...]) -> bool:
    return any(f"{verb} ".startswith(f"{name} ") for name in names)


def _append(call: AuditedCall, verb: str, error: Exception | None) -> str | None:
    sources = (call.outcome.get("source"), getattr(call.job_request, "source", None), call.own.get("source"))
    return append_outcome(
        call.settings,
        call.repository,
        verb,
        next(filter(None, sources), None),
        request=call.job_request,
        result=call.outcome,
        error=error,
    )
