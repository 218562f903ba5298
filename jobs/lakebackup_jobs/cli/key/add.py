"""`lakebackup key add`: add recipients to the file of recipients of the settings."""

from __future__ import annotations

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


@verb(options.REPO, options.LEASE, options.DRY_RUN)
def add(call: Call, recipients: list[str] = RECIPIENTS, rotate: bool = ROTATE) -> None:
    """Add recipients to recipients_file under [encryption] of the settings.

    Later backups are encrypted for them too. They open older backups after `key rotate`, or with --rotate.
    The file is created if it is missing, and its comments stay. Whom it names already is not added again.

    Examples:
        lakebackup key add age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p
        lakebackup key add "$(cat ~/.ssh/id_ed25519.pub)" --rotate --repo ./backups
    """
    names = names_of(recipients)
    with file_to_change(call) as old:
        present = [name for name in names if name in old.names]
        added = [name for name in names if name not in present]
        values = {"file": str(old.path), "added": added, "present": present}
        values = change(call, old, old.with_recipients(added), rotate, values)
    prefix = "Would add" if call.dry_run else "Added"
    sentences = [f"{prefix} {name} to {old.path}." for name in added]
    sentences += [f"{old.path} names {name} already." for name in present]
    call.show(values, [*sentences, *sentences_of(call, values, changed=bool(added))])
