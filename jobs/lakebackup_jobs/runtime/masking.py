"""Takes secrets out of messages; apart from `notify`, whose modules take longer to load than this."""

from __future__ import annotations

import os
import re
from itertools import chain
from typing import TYPE_CHECKING

from lakebackup.config import MASK, is_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakebackup.config import Settings

# Shorter ones may be any word of a message.
_SHORTEST_SECRET = 4
_USER_INFO = re.compile(r"(?<=://)[^/\s]+@")


def secrets_of(settings: Settings) -> list[str]:
    """Values that no message may show, the longest first."""
    return secrets_in(settings.kafka, settings.spark, extra=settings.notify.webhook or "")


def secrets_in(*properties: Mapping[str, str], extra: str = "") -> list[str]:
    """Values of secret properties and variables of the environment, the longest first; and one more."""
    pairs = chain.from_iterable(some.items() for some in (*properties, os.environ))
    values = {value for name, value in pairs if is_secret(name)} | {extra}
    return sorted((value for value in values if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """A text with `****` in the place of secrets, and of names and passwords in URLs."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return _USER_INFO.sub(f"{MASK}@", text)
