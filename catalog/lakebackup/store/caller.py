"""What entries of the audit log need of this process: the command that it runs, and its signing key."""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lakebackup.config import MASK, is_secret
from lakebackup.rows.upkeep import Audit
from lakebackup.signing.keys import SigningKey

#: The outcome of a command that succeeded.
OK = "ok"
_USER_INFO = re.compile(r"(?<=//)[^/\s]+(?=@)")
_MIN_SECRET_CHARS = 4
_MAX_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls the library: a command line, by its words, or a program, which has none."""

    words: Sequence[str] = ()

    @property
    def command(self) -> str | None:
        """The command line without secrets, or None when a program calls."""
        return shlex.join(["lakebackup", *without_secrets(self.words)])[:_MAX_CHARS] if self.words else None

    def completed(self, entry: Audit) -> Audit:
        """Returns the entry with this machine's name and the command."""
        return replace(entry, host=socket.gethostname(), command=self.command)


_callers = [Caller()]
_load_key: Callable[[], SigningKey | None] | None = None


def current() -> Caller:
    """The present caller; the same in all threads."""
    return _callers[-1]


def sign_with(load_key: Callable[[], SigningKey | None]) -> None:
    """Sign the audit entries of this process from now on with the key that a function loads, if any."""
    global _load_key
    _load_key = load_key


def signing_key() -> SigningKey | None:
    """The key that signs audit entries; None if there is none. Raises what the function raises."""
    return _load_key() if _load_key else None


@contextmanager
def calling(words: Sequence[str]) -> Iterator[None]:
    """Within the block, audit entries name the command line with these words."""
    _callers.append(Caller(words))
    try:
        yield
    finally:
        _callers.pop()


def without_secrets(words: Sequence[str]) -> list[str]:
    """The words of a command line, with masks in place of secrets.

    Secrets are accounts in URLs, and the values of secret properties, secret flags and secret variables of
    the environment.
    """
    secrets = [
        value for name, value in os.environ.items() if is_secret(name) and len(value) >= _MIN_SECRET_CHARS
    ]
    masked: list[str] = []
    for index, word in enumerate(words):
        flag = words[index - 1] if index else ""
        if flag.startswith("--") and "=" not in flag and is_secret(flag):
            text = MASK
        else:
            # Masks sasl.password=…, --kafka-property=sasl.password=… and s3://bucket?region=…&secret_key=….
            parts = word.split("=")
            secret_position = next(
                (position for position, name in enumerate(parts[:-1], 1) if is_secret(name)), None
            )
            text = word if secret_position is None else "=".join([*parts[:secret_position], MASK])
        for value in secrets:
            text = text.replace(value, MASK)
        masked.append(_USER_INFO.sub(MASK, text))
    return masked
