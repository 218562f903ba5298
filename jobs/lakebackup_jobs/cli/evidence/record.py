"""Writes the evidence of a run when it ends (`--evidence`), also when it fails."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from lakebackup.errors import Damaged, LakebackupError, NotFound, Refused, UsageProblem
from lakebackup.requests import RunRequest
from lakebackup.signing.keys import SigningKey, short_id
from lakebackup.signing.statement import PAGE_SUFFIX, UNSIGNED, Evidence, Item, attest
from lakebackup.storage.nesting import require_outside
from lakebackup_jobs.cli.flags.values import naming
from lakebackup_jobs.cli.output.errors import expected
from lakebackup_jobs.cli.output.new_file import write_new_file
from lakebackup_jobs.cli.verb import Call
from lakebackup_jobs.lifecycle.audit import NOTHING_DONE
from lakebackup_jobs.runtime.masking import masked_values, secrets_of
from lakebackup_jobs.runtime.signing import configured_key
from lakebackup_jobs.upkeep.evidence.observations import Observations
from lakebackup_jobs.upkeep.evidence.page import page

# Fields of requests that say what a run was asked for. Others say how it runs, or may be secret.
_REQUEST_FIELDS = ("sources", "seed", "backup_id", "to_ts", "check", "backup_ids", "mode", "grace_ms")
# Counts of the findings of a verify, in its result.
_FINDINGS = ("missing", "changed", "damaged", "unconfirmed", "orphan", "filters_lost")
_MAX_ERROR_CHARS = 2_000


@contextmanager
def recorded_evidence(
    call: Call, command: Literal["drill", "verify"], request: RunRequest, file: Path | None
) -> Iterator[Observations | None]:
    """Write what the block observes, and how it ends, as a statement into `file`, with a page beside it.

    Yields None without a file. Nothing is written if nothing was done (wrong flags, a name that does not
    exist, another run at work), and when a person interrupts the block.

    Raises UsageProblem (a dry run, a file in a repository, a wrong key), Refused (a file exists) and NotFound
    (no such folder or key) before the block runs.
    """
    if file is None:
        yield None
        return
    _require_writable(call, request, file)
    key = configured_key(call.settings.signing)
    observations, started = Observations(), datetime.now(UTC)

    def write(error: LakebackupError | None) -> None:
        evidence = _evidence(call, command, request, observations, started, error, key)
        _write(call, request, file, evidence, key)

    try:
        yield observations
    except Exception as error:
        if observations.items or not isinstance(error, NOTHING_DONE):
            try:
                write(expected(error) or LakebackupError(str(error)))
            except Exception as problem:  # noqa: BLE001 - the run's own error must be reported
                call.warn(f"No evidence was written: {problem}")
        raise
    write(None)


def _require_writable(call: Call, request: RunRequest, file: Path) -> None:
    if call.dry_run:
        raise UsageProblem(
            "--evidence and --dry-run exclude each other.",
            hint="A dry run does nothing to attest.",
        )
    with naming("--evidence"):
        require_outside(request, str(file), is_file=True)
    if not file.absolute().parent.is_dir():
        raise NotFound(f"--evidence {file}: there is no such folder.", hint="Make it, or name another one.")
    for path in (file, _page_of(file)):
        if os.path.lexists(path):
            raise Refused(f"--evidence {path} exists already.", hint="Name a new file, such as with a date.")


def _evidence(
    call: Call,
    command: Literal["drill", "verify"],
    request: RunRequest,
    observations: Observations,
    started: datetime,
    error: LakebackupError | None,
    key: SigningKey | None,
) -> Evidence:
    settings, result = call.settings, call.outcome
    outcome: Literal["ok", "different", "failed"] = "ok"
    if error is not None:
        is_difference = isinstance(error, Damaged) and not error.concerns_identity
        outcome = "different" if is_difference else "failed"
    request_values = {name: getattr(request, name) for name in _REQUEST_FIELDS if hasattr(request, name)}
    if result.get("seed") is not None:
        request_values["seed"] = result["seed"]
    counts = {
        name: value
        for name, value in result.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "seed"
    }
    counts |= {name: len(result[name]) for name in ("drills", "failed") if name in result}
    if result.get("found"):
        counts["rows of the check"] = len(result["found"])
    findings = list(result.get("findings") or ())
    finding_count = sum(result.get(name) or 0 for name in _FINDINGS)
    if finding_count > len(findings):
        text = f"The first {len(findings)} of {finding_count:,} findings are listed."
        observations.leave_out("findings", text)
    # Only texts that may hold a secret: a short one could be a part of a digest.
    texts = {
        "repository": call.repository,
        "request": request_values,
        "error": None if error is None else error.message[:_MAX_ERROR_CHARS],
        "findings": findings,
    }
    secrets = secrets_of(settings)
    values = {
        **masked_values(texts, secrets),
        "integrity": UNSIGNED if key is None else f"signed with {key.key_id}",
        "key_id": None if key is None else key.key_id,
        "command": command,
        "program": "lakebackup",
        "version": version("lakebackup"),
        "host": settings.signing.host or socket.gethostname(),
        "account": _account(),
        "check_id": result.get("check_id"),
        "started": _time_text(started),
        "finished": _time_text(datetime.now(UTC)),
        "outcome": outcome,
        "exit_code": 0 if error is None else error.exit_code,
        "counts": counts,
        "items": [_item(item, bool(result), secrets) for item in observations.items],
        "not_done": [omission.model_dump() for omission in observations.not_done],
        "queries": [query.model_dump() for query in observations.queries()],
        "versions": observations.versions,
        "statements": observations.statements,
    }
    return Evidence.model_validate(values)


def _item(item: Item, has_result: bool, secrets: Sequence[str]) -> dict[str, Any]:
    """Return the fields of an item. `has_result`: the run came to its end."""
    fields = item.model_dump()
    fields["detail"] = masked_values(item.detail, secrets)
    if item.outcome is None and not has_result:
        fields["compared"] = f"Not completed. {item.compared}"
    return fields


def _write(call: Call, request: RunRequest, file: Path, evidence: Evidence, key: SigningKey | None) -> None:
    page_file = _page_of(file)
    page_text = page(evidence, file.name)
    envelope = attest(evidence, page_text.encode(), page_file.name, key)
    write_new_file(request, page_file, iter([page_text]))
    try:
        write_new_file(request, file, iter([envelope.to_bytes().decode()]))
    except BaseException:
        with suppress(OSError):
            page_file.unlink()
        raise
    if key is None:
        call.warn(f"{file} is unsigned and shows integrity only. To sign it, set key_file under [signing].")
    else:
        call.note(f"Evidence is in {file} and {page_file}, signed with the key {short_id(key.key_id)}.")


def _page_of(file: Path) -> Path:
    return file.with_name(f"{file.name}{PAGE_SUFFIX}")


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.geteuid())


def _time_text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
