"""`lakebackup key test`: whether a key can sign, and whether an identity opens the backups."""

from __future__ import annotations

import secrets
from pathlib import Path

from lakebackup.encryption.recipients import Identities
from lakebackup.errors import Refused, UsageProblem
from lakebackup.signing.keys import load_private, load_public, public_path_of, short_id
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.runtime.identities import is_identity_file
from lakebackup_jobs.runtime.signing import passphrase_of
from lakebackup_jobs.upkeep.data_keys import KeysRequest
from lakebackup_jobs.upkeep.data_keys import test as test_keys


@verb(options.REPO, options.ONE_SOURCE)
def _test(
    call: Call,
    file: Path | None = argument(
        "FILE", "The file of the private key, or of the identity.", show_default="the key in use"
    ),
    public_file: Path | None = argument(
        "PUBLIC", "The file of the public key that must belong to it.", show_default="FILE.pub"
    ),
    passphrase_file: Path | None = options.PASSPHRASE_FILE,
) -> None:
    """Test a signing key or an identity.

    A signing key signs something, and its public key verifies that. An identity opens each data key of the
    repository; the backups whose keys it cannot open are named, with exit code 7. Without FILE, the signing
    key of the settings is tested, or the identity if they name no signing key.

    It fails if others may read the file, if the passphrase is wrong, or if the public key belongs to another
    private key.

    Examples:
        lakebackup key test
        lakebackup key test evidence.key handed-out.pub
        lakebackup key test restore.identity --repo ./backups
    """
    signing, encryption = call.settings.signing, call.settings.encryption
    if file is not None and is_identity_file(file):
        identities = Identities.load(file, passphrase_of(encryption, passphrase_file, section="encryption"))
        request = call.request(KeysRequest, source=call.flags["source"])
        call.run(test_keys, request, spark=False, identities=identities)
        return
    if file is None and signing.key_file is None and encryption.identity_file is not None:
        request = call.request(KeysRequest, source=call.flags["source"])
        call.run(test_keys, request, spark=False, identities=None)
        return
    if file is None and signing.key_file is None:
        raise UsageProblem(
            "No key is in use, and none is named.",
            hint="Name a file, or set key_file under [signing] or identity_file under [encryption].",
        )
    key_path = file or Path(signing.key_file or "")
    key = load_private(key_path, passphrase_of(signing, passphrase_file))
    public_path = public_file or public_path_of(key_path)
    public = load_public(public_path)
    message = secrets.token_bytes(32)
    if not public.matches(key.sign(message), message):
        raise Refused(
            f"The public key {public_path} belongs to another private key ({short_id(public.key_id)}, not "
            f"{short_id(key.key_id)}).",
            hint="Signatures of this key cannot be checked with it. Hand out the right public key.",
        )
    call.show(
        {"key_id": key.key_id, "purpose": "signing", "file": str(key_path), "public_key": str(public_path)},
        [f"The key {short_id(key.key_id)} in {key_path} signs, and {public_path} verifies it."],
    )
