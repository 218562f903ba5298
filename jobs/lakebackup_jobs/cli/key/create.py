"""`lakebackup key create`: make a key that signs, an identity that reads encrypted backups, or the key of a
repository's metadata."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from lakebackup.encryption.metadata_key import MetadataKey
from lakebackup.encryption.objects import DataKey
from lakebackup.encryption.recipients import new_identity, protected
from lakebackup.errors import Refused, UsageProblem
from lakebackup.signing import keys
from lakebackup.signing.keys import short_id
from lakebackup.storage.nesting import require_outside
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.runtime.signing import passphrase_of


@verb()
def create(
    call: Call,
    file: Path = argument("FILE", "The new file of the private key. FILE.pub gets the public key.", ...),
    purpose: Literal["signing", "encryption", "metadata"] = option(
        "--purpose signing|encryption|metadata", "What the key is for.", "signing"
    ),
    passphrase_file: Path | None = options.PASSPHRASE_FILE,
) -> None:
    """Create a key that signs, an identity that reads encrypted backups, or a key of metadata.

    For signing: an Ed25519 private key in FILE, and its public key in FILE.pub. Hand out FILE.pub to whoever
    checks evidence, and name FILE as key_file under [signing] of the settings.

    For encryption: an identity of age in FILE, as age-keygen writes it. Its recipient is printed: name it
    under [encryption] where backups are made, and FILE as identity_file where they are restored.

    For metadata: the key in FILE that encrypts names and metadata of a new repository. Name FILE as
    metadata_key_file under [encryption] wherever the repository is used. It has no passphrase. The repository
    stores it for its recipients: `lakebackup key recover` writes it again with an identity.

    Only this account may read FILE. With a passphrase (--passphrase-file, or that of the settings) it is
    encrypted too. Keep a copy of it elsewhere: what is lost cannot be made again.

    Examples:
        lakebackup key create evidence.key
        lakebackup key create evidence.key --passphrase-file /run/secrets/passphrase
        lakebackup key create --purpose encryption restore.identity
        lakebackup key create --purpose metadata metadata.key
    """
    require_outside(None, str(file), is_file=True)
    if purpose == "encryption":
        _create_identity(call, file, passphrase_file)
        return
    if purpose == "metadata":
        _create_metadata_key(call, file, passphrase_file)
        return
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


def _create_identity(call: Call, file: Path, passphrase_file: Path | None) -> None:
    passphrase = passphrase_of(call.settings.encryption, passphrase_file, section="encryption")
    if os.path.lexists(file):
        raise Refused(f"{file} exists already.", hint="Name a new file. A key is never replaced.")
    text, recipient = new_identity()
    keys.write_new(file, text.encode() if passphrase is None else protected(text, passphrase), 0o600)
    protection = ", protected by a passphrase" if passphrase is not None else ""
    call.show(
        {
            "recipient": recipient,
            "purpose": "encryption",
            "file": str(file),
            "passphrase": passphrase is not None,
        },
        [
            f"Created the identity of {recipient} in {file}{protection}.",
            "Name this recipient under [encryption] where backups are made.",
            "Keep a copy of the file elsewhere: without it, nobody reads what is encrypted for it alone.",
        ],
    )


def _create_metadata_key(call: Call, file: Path, passphrase_file: Path | None) -> None:
    if passphrase_file is not None:
        raise UsageProblem(
            "--passphrase-file: a metadata key has no passphrase.",
            hint="Leave it out: hosts that make backups use the key unattended.",
        )
    key = MetadataKey(DataKey.random())
    keys.write_new(file, key.file_content, 0o600)
    call.show(
        {"key_id": key.key_id, "purpose": "metadata", "file": str(file)},
        [
            f"Created the metadata key {key.key_id} in {file}.",
            f"Set metadata_key_file under [encryption] to {file.absolute()}, for a new repository.",
        ],
    )
