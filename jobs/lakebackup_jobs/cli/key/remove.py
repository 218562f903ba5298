"""`lakebackup key remove`: remove recipients from the file of recipients of the settings."""

from __future__ import annotations

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.key.recipients import (
    RECIPIENTS,
    ROTATE,
    change,
    file_to_change,
    names_of,
    sentences_of,
)
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.runtime.recipients_file import RecipientsFile


@verb(options.REPO, options.LEASE, options.DRY_RUN)
def remove(call: Call, recipients: list[str] = RECIPIENTS, rotate: bool = ROTATE) -> None:
    """Remove recipients from recipients_file under [encryption] of the settings.

    Later backups are not encrypted for them. Whoever has such an identity still opens older backups until
    `key rotate`, or --rotate, and copies of the repository after that too. Comments of the file stay. The
    last recipient cannot be removed.

    Examples:
        lakebackup key remove age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p
        lakebackup key remove "$(cat ~/.ssh/id_ed25519.pub)" --rotate --repo ./backups
    """
    names = names_of(recipients)
    with file_to_change(call) as old:
        new = _without(call, old, names)
        values = {"file": str(old.path), "removed": list(names)}
        values = change(call, old, new, rotate, values)
    prefix = "Would remove" if call.dry_run else "Removed"
    sentences = [f"{prefix} {name} from {old.path}." for name in names]
    sentences.append(
        "Whoever has such an identity still opens copies of the repository that were taken before."
        if rotate
        else "Whoever has such an identity still opens older backups until `lakebackup key rotate`, "
        "and copies of the repository after that."
    )
    call.show(values, [*sentences, *sentences_of(call, values, changed=False)])


def _without(call: Call, old: RecipientsFile, names: tuple[str, ...]) -> RecipientsFile:
    """Return the file without some recipients. Raises UsageProblem, NotFound and Refused."""
    configured_names = names_of(call.settings.encryption.recipients)
    if configured := [name for name in names if name in configured_names]:
        raise UsageProblem(
            f"{configured[0]} is in the settings, not only in {old.path}. Nothing was removed.",
            hint="Remove it from recipients under [encryption] of lakebackup.toml first.",
        )
    if absent := [name for name in names if name not in old.names]:
        raise NotFound(
            f"{old.path} does not name {absent[0]}. Nothing was removed.",
            hint="`lakebackup key list` shows the recipients of the settings.",
        )
    new = old.without(names)
    if not new.names:
        raise Refused(
            f"{names[-1]} is the last recipient of {old.path}. Nothing was removed.",
            hint="Without recipients nothing is encrypted. Add another one first: `lakebackup key add`.",
        )
    return new
