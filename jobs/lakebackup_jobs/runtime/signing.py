"""The signing key that the settings name."""

from __future__ import annotations

from pathlib import Path

from lakebackup.config import EncryptionOptions, SigningOptions
from lakebackup.errors import UsageProblem
from lakebackup.signing.keys import SigningKey, load_private, read_passphrase


def configured_key(options: SigningOptions) -> SigningKey | None:
    """Load the key that signs evidence; None if the settings name none. Raises as `load_private`."""
    if options.key_file is None:
        return None
    return load_private(Path(options.key_file), passphrase_of(options))


def passphrase_of(
    options: SigningOptions | EncryptionOptions, file: Path | None = None, *, section: str = "signing"
) -> str | None:
    """Return the passphrase in `file`, or else that of the settings `section`; None if there is none.

    Raises UsageProblem if the settings have two, and as `read_passphrase`.
    """
    if file is not None:
        return read_passphrase(file)
    if options.passphrase is not None and options.passphrase_file is not None:
        raise UsageProblem(
            f"[{section}] has both passphrase and passphrase_file.", hint="Set one of them, and not both."
        )
    if options.passphrase_file is not None:
        return read_passphrase(Path(options.passphrase_file))
    return None if options.passphrase is None else options.passphrase.get_secret_value()
