"""What `lakebackup key add` and `key remove` share: the file of recipients, and the rotation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from lakebackup.encryption.recipients import recipient
from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags.options import argument, switch
from lakebackup_jobs.cli.verb import Call
from lakebackup_jobs.query.words import counted
from lakebackup_jobs.runtime.recipients_file import RecipientsFile, locked
from lakebackup_jobs.upkeep.data_keys import KeysRequest, rotate

#: The arguments and the flag of both verbs.
RECIPIENTS = argument("RECIPIENT", "Who can read backups: age1…, 'ssh-ed25519 …', aws-kms:ARN.", ...)
ROTATE = switch("--rotate", "Also wrap the data keys of older backups, as `key rotate` does. Needs --repo.")


def names_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of recipients, each once. Raises UsageProblem for a text that is none."""
    return tuple(dict.fromkeys(recipient(text).name for text in texts))


@contextmanager
def file_to_change(call: Call) -> Iterator[RecipientsFile]:
    """Lock the file of recipients of the settings for the block, and read it. A missing one names none.

    A dry run does not lock it. Raises UsageProblem, and as `locked`.
    """
    path = _path_of(call)
    with nullcontext() if call.dry_run else locked(path):
        yield RecipientsFile.read(path, may_be_missing=True)


def _path_of(call: Call) -> Path:
    options = call.settings.encryption
    if options.recipients_file is not None:
        return Path(options.recipients_file)
    if options.recipients:
        raise UsageProblem(
            "The recipients are in the settings, not in a file of recipients.",
            hint="Edit recipients under [encryption] of lakebackup.toml. Or move them into a file, one a "
            "line, and set recipients_file.",
        )
    raise UsageProblem(
        "No file of recipients is set.",
        hint="Set recipients_file under [encryption] of lakebackup.toml. `key add` creates the file.",
    )


def change(
    call: Call, old: RecipientsFile, new: RecipientsFile, rotates: bool, values: dict[str, Any]
) -> dict[str, Any]:
    """Write the file if it differs, then rotate data keys if `rotates`. Returns the values of the result.

    The rotation is planned first, so that one that cannot start leaves the file as it was.
    """
    names = tuple(dict.fromkeys((*names_of(call.settings.encryption.recipients), *new.names)))
    rotation: dict[str, Any] | None = None
    if rotates:
        rotation = _rotation(call, names, dry_run=True)
    if not call.dry_run:
        if new.lines != old.lines:
            new.write()
        if rotates:
            rotation = _rotation(call, names, dry_run=False)
    return {**values, "recipients": list(names), "rotation": rotation, "dry_run": call.dry_run}


def sentences_of(call: Call, values: dict[str, Any], changed: bool) -> list[str]:
    """Return what a person reads about the data keys of older backups."""
    if rotation := values["rotation"]:
        verb, keys = "Would wrap" if call.dry_run else "Wrapped", counted(rotation["keys"], "data key")
        sentences = [f"{verb} {keys} for {', '.join(values['recipients'])}."]
    elif changed:
        sentences = ["`lakebackup key rotate` wraps the data keys of older backups for the new list."]
    else:
        sentences = []
    return [*sentences, "Nothing was written."] if call.dry_run else sentences


def _rotation(call: Call, names: tuple[str, ...], *, dry_run: bool) -> dict[str, Any]:
    settings = call.settings
    # Not `call.request`: it reads the file of recipients, which is written later.
    request = KeysRequest(
        call.repository,
        catalog=settings.catalog,
        lease_ttl_s=settings.lease_ttl,
        dry_run=dry_run,
        recipients=names,
    )
    call.job_request = request
    return call.result_of(rotate, request, spark=False)
