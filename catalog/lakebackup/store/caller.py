"""The command that this process carries out, for the entries that it leaves in the audit log."""

from __future__ import annotations

import os
import re
import shlex
import socket
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebackup.rows.upkeep import Audit

#: The outcome of what ended well.
OK = "ok"
_USER_INFO = re.compile(r"(?<=//)[^/\s]+(?=@)")
_SHORTEST_SECRET = 4
_MOST_TEXT = 4_000


@dataclass(frozen=True, slots=True)
class Caller:
    """The words of a command line; none: a program uses the library."""

    words: Sequence[str] = ()

    @property
    def command(self) -> str | None:
        """The command line without secrets; None: there is none."""
        return shlex.join(["lakebackup", *without_secrets(self.words)])[:_MOST_TEXT] if self.words else None

    def sign(self, entry: Audit) -> Audit:
        """The entry with its machine and command."""
        return replace(entry, host=socket.gethostname(), command=self.command)


_callers = [Caller()]


def current() -> Caller:
    """Whoever calls now, in whichever thread."""
    return _callers[-1]


@contextmanager
def calling(words: Sequence[str]) -> Iterator[None]:
    """In the block, what is recorded is done by the command line of these words."""
    _callers.append(Caller(words))
    try:
        yield
    finally:
        _callers.pop()


def without_secrets(words: Sequence[str]) -> list[str]:
    """Words of a command line without accounts in URLs, and without the values of secret properties, secret
    flags and secret variables of the environment."""
    from lakebackup.config import MASK, is_secret

    secrets = [
        value for name, value in os.environ.items() if is_secret(name) and len(value) >= _SHORTEST_SECRET
    ]
    masked: list[str] = []
    for index, word in enumerate(words):
        flag = words[index - 1] if index else ""
        if flag.startswith("--") and "=" not in flag and is_secret(flag):
            text = MASK
        else:
            # In sasl.password=…, --kafka-property=sasl.password=… and s3://bucket?region=…&secret_key=….
            parts = word.split("=")
            secret = next((position for position, name in enumerate(parts[:-1], 1) if is_secret(name)), None)
            text = word if secret is None else "=".join([*parts[:secret], MASK])
        for value in secrets:
            text = text.replace(value, MASK)
        masked.append(_USER_INFO.sub(MASK, text))
    return masked
