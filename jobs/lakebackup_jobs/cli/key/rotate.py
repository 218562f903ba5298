"""`lakebackup key rotate`: wrap the data keys of backups for the recipients of the settings."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.upkeep.data_keys import KeysRequest
from lakebackup_jobs.upkeep.data_keys import rotate as rotate_keys


@verb(options.REPO, options.ONE_SOURCE, options.LEASE, options.DRY_RUN)
def rotate(call: Call) -> None:
    """Wrap the data keys of all backups for the recipients of the settings, and for nobody else.

    It opens each key with identity_file under [encryption], and replaces its object; no data file is read.
    Run it after a recipient was added or removed. Whoever copied the repository before still has the old
    objects: a removed recipient can read what was backed up before, if he has such a copy.

    If it is interrupted, run it again. Keys that cannot be opened stay as they are and are named, with exit
    code 7.

    Examples:
        lakebackup key rotate --repo ./backups
        lakebackup key rotate --repo ./backups --source prod
    """
    call.run(rotate_keys, call.request(KeysRequest, source=call.flags["source"]), spark=False)
