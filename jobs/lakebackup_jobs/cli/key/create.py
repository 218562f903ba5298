"""`lakebackup key create`: make a key that signs evidence."""

from __future__ import annotations

from pathlib import Path

from lakebackup.signing import keys
from lakebackup.signing.keys import short_id
from lakebackup.storage.nesting import require_outside
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.runtime.signing import passphrase_of


@verb()
def create(
    call: Call,
    file: Path = argument("FILE", "The new file of the private key. FILE.pub gets the public key.", ...),
    passphrase_file: Path | None = options.PASSPHRASE_FILE,
) -> None:
    """Create an Ed25519 key that signs evidence: a private key in FILE, and a public key in FILE.pub.

    Only this account may read FILE. With a passphrase (--passphrase-file, or passphrase under [signing]) it
    is encrypted too. Hand out FILE.pub to whoever checks evidence. Name FILE as key_file under [signing] of
    the settings, and keep a copy of it elsewhere: what is lost cannot be made again.

    Examples:
        lakebackup key create /etc/lakebackup/evidence.key
        lakebackup key create evidence.key --passphrase-file /run/secrets/passphrase
    """
    require_outside(None, str(file), is_file=True)
    passphrase = passphrase_of(call.settings.signing, passphrase_file)
    key_id = keys.create(file, passphrase).key_id
    public_file = keys.public_path_of(file)
    protection = ", protected by a passphrase" if passphrase is not None else ""
    call.show(
        {
            "key_id": key_id,
            "purpose": "signing",
            "file": str(file),
            "public_key": str(public_file),
            "passphrase": passphrase is not None,
        },
        [
            f"Created the signing key {short_id(key_id)} in {file}{protection}.",
            f"Hand out its public key, {public_file}. Set key_file under [signing] to {file.absolute()}.",
        ],
    )
