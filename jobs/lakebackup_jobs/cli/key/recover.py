"""`lakebackup key recover`: write the key of a repository's metadata again, with an identity."""

from __future__ import annotations

from pathlib import Path

from lakebackup.errors import UsageProblem
from lakebackup.signing.keys import write_new
from lakebackup.storage import open_storage
from lakebackup.storage.nesting import require_outside
from lakebackup.store import metadata_keys
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.runtime.identities import MISSING_HINT, configured_identities


@verb(options.REPO)
def recover(call: Call, file: Path = argument("FILE", "The new file of the metadata key.", ...)) -> None:
    """Write the key of a repository's metadata into a new file.

    The repository stores the key for its recipients. The identity of the settings (identity_file under
    [encryption]) opens it. Name FILE as metadata_key_file then. It is needed on a host that restores, or when
    the file of a host that makes backups is lost.

    Examples:
        lakebackup key recover /etc/lakebackup/metadata.key --repo s3://backups/prod
    """
    require_outside(None, str(file), is_file=True)
    storage = open_storage(call.repository, decrypts=False)
    identities = configured_identities()
    if identities is None:
        raise UsageProblem("No identity is set.", hint=MISSING_HINT)
    key = metadata_keys.open_key(storage, identities)
    write_new(file, key.file_content, 0o600)
    call.show(
        {"key_id": key.key_id, "file": str(file)},
        [
            f"Wrote the metadata key {key.key_id} of {call.repository} to {file}.",
            f"Set metadata_key_file under [encryption] to {file.absolute()}.",
        ],
    )
