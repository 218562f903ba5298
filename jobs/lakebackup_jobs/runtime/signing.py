"""The keys that sign and those that are trusted, by the settings `[signing]` of this process."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from shlex import split

from lakebackup.config import EncryptionOptions, SigningOptions
from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.signing.keys import SigningKey, TrustedKeys, load_private, load_public, read_passphrase
from lakebackup.store import caller

_PASSPHRASES = ("passphrase", "passphrase_file", "passphrase_command")
# A person may have to confirm it.
_COMMAND_S = 120
_COMMAND_HINT = "Run the command by hand. Its first line of output must be the passphrase."
_options = SigningOptions()
_key: SigningKey | None = None


def use(options: SigningOptions) -> None:
    """Set the options of this process."""
    global _options, _key
    _options, _key = options, None
    caller.sign_with(signing_key)


def signing_key() -> SigningKey | None:
    """The key that signs backups and the audit log, which is loaded once; None if the settings of this
    process name none. Raises as `load_private`."""
    global _key
    _key = _key or configured_key(_options)
    return _key


def in_use() -> SigningOptions:
    """The options of this process."""
    return _options


def trusted_keys(
    options: SigningOptions, public_keys: Sequence[Path] = (), retired_keys: Sequence[Path] = ()
) -> TrustedKeys | None:
    """Load the trusted and the retired public keys: those in some files, or else those that options name.

    None if there is no trusted one. Raises as `load_public`.
    """
    active = map(load_public, public_keys or map(Path, options.public_keys))
    retired = map(load_public, retired_keys or map(Path, options.retired_keys))
    keys = TrustedKeys.of(active, retired)
    return keys if keys.active else None


def configured_key(options: SigningOptions) -> SigningKey | None:
    """Load the key that options name; None if they name none. Raises as `load_private`."""
    if options.key_file is None:
        return None
    return load_private(Path(options.key_file), passphrase_of(options))


def passphrase_of(
    options: SigningOptions | EncryptionOptions, file: Path | None = None, *, section: str = "signing"
) -> str | None:
    """Return the passphrase in `file`, or else that of the settings `section`; None if there is none.

    Raises UsageProblem if the settings have two, and as `read_passphrase` and `_printed_passphrase`.
    """
    if file is not None:
        return read_passphrase(file)
    settings = [name for name in _PASSPHRASES if getattr(options, name) is not None]
    if len(settings) > 1:
        raise UsageProblem(
            f"[{section}] has both {settings[0]} and {settings[1]}.", hint="Set one of them, and not both."
        )
    if options.passphrase_file is not None:
        return read_passphrase(Path(options.passphrase_file))
    if options.passphrase_command is not None:
        command = options.passphrase_command
        return _printed_passphrase(tuple(split(command)) if isinstance(command, str) else command, section)
    return None if options.passphrase is None else options.passphrase.get_secret_value()


@cache
def _printed_passphrase(command: tuple[str, ...], section: str) -> str:
    """Return the first line that a command prints. It runs once, and may ask on the terminal.

    Raises EnvironmentProblem (it fails) and UsageProblem (it prints no text).
    """
    name = f"passphrase_command under [{section}]"
    try:
        output = subprocess.run(command, stdout=subprocess.PIPE, timeout=_COMMAND_S, check=True).stdout
        passphrase = output.decode().partition("\n")[0].rstrip("\r")
    except OSError as error:
        raise _failed_command(f"{name} cannot run {command[0]}: {error.strerror}.") from None
    except subprocess.TimeoutExpired:
        raise _failed_command(f"{name}: {command[0]} did not end within {_COMMAND_S} s.") from None
    except subprocess.CalledProcessError as error:
        raise _failed_command(f"{name}: {command[0]} ended with {error.returncode}.") from None
    except UnicodeDecodeError:
        passphrase = ""
    if not passphrase:
        raise UsageProblem(
            f"{name}: {command[0]} prints no passphrase in its first line.", hint=_COMMAND_HINT
        )
    return passphrase


def _failed_command(message: str) -> EnvironmentProblem:
    return EnvironmentProblem(message, hint=_COMMAND_HINT)
