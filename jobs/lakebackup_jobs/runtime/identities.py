"""The identities that open data keys, by the settings `[encryption]` of this process."""

from __future__ import annotations

import shlex
from os import environ
from pathlib import Path

from lakebackup.config import EncryptionOptions
from lakebackup.encryption.recipients import Identities, recipient
from lakebackup.errors import UsageProblem
from lakebackup_jobs.runtime.recipients_file import RecipientsFile
from lakebackup_jobs.runtime.signing import passphrase_of

#: The hint of an error about a missing identity.
MISSING_HINT = (
    "Set identity_file under [encryption] of lakebackup.toml, or LAKEBACKUP_ENCRYPTION__IDENTITY_FILE."
)
_PREFIX = "LAKEBACKUP_ENCRYPTION__"
# Variables for processes below this one. They are not the user's: those would count for the next connection
# of this process, before its file of settings.
_INHERITED = "_LAKEBACKUP_ENCRYPTION__"
# What files of identities contain: those of age, and private SSH keys.
_MARKS = (b"AGE-SECRET-KEY-1", b"BEGIN OPENSSH PRIVATE KEY")
_PROTECTED = b"age-encryption.org/"
_LOOKED_AT = 1 << 16
_SOURCES = ("IDENTITY_FILE", "PASSPHRASE_FILE", "PASSPHRASE_COMMAND")
_options: EncryptionOptions | None = None


def use(options: EncryptionOptions) -> None:
    """Set the options of this process, and its files and its command as variables for processes below it."""
    global _options
    _options = options
    for name in _SOURCES:
        variable, source = f"{_INHERITED}{name}", getattr(options, name.lower())
        if source:
            environ[variable] = source if isinstance(source, str) else shlex.join(source)
        else:  # an earlier connection of this process may have set it
            environ.pop(variable, None)


def in_use() -> EncryptionOptions:
    """The options of this process; those of its variables if none were set."""
    if _options is not None:
        return _options
    values = {
        name: environ.get(f"{_INHERITED}{name}") or environ.get(f"{_PREFIX}{name}") for name in _SOURCES
    }
    values["PASSPHRASE"] = environ.get(f"{_PREFIX}PASSPHRASE")
    return EncryptionOptions.model_validate({name.lower(): text for name, text in values.items() if text})


def configured_identities(file: str | None = None) -> Identities | None:
    """Load the identities in `file`, or else those that the settings name; None if there are none.

    Raises as `Identities.load`.
    """
    options = in_use()
    file = file or options.identity_file
    if file is None:
        return None
    return Identities.load(Path(file), passphrase_of(options, section="encryption"))


def is_identity_file(path: Path) -> bool:
    """Whether a file looks like one of identities, and not like a key that signs."""
    content = _beginning(path)
    return content.startswith(_PROTECTED) or any(mark in content for mark in _MARKS)


def has_passphrase(path: Path) -> bool:
    """Whether a file of identities is protected by a passphrase, as age does it."""
    return _beginning(path).startswith(_PROTECTED)


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LOOKED_AT)
    except OSError:
        return b""


def configured_recipients(options: EncryptionOptions) -> tuple[str, ...]:
    """Return the names of the recipients of the settings, each once. Raises UsageProblem for one that is
    none, and for a file of them that cannot be read."""
    texts = [(text, "in recipients under [encryption]") for text in options.recipients]
    if options.recipients_file is not None:
        texts += RecipientsFile.read(Path(options.recipients_file)).located_texts()
    return tuple(dict.fromkeys(_name(*text) for text in texts))


def _name(text: str, location: str) -> str:
    try:
        return recipient(text).name
    except UsageProblem as error:
        raise UsageProblem(f"{error.message.rstrip('.')} ({location}).", hint=error.hint) from None
