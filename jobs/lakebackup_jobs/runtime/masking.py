"""Masks secrets in messages. It is not a part of `notify`, whose modules take longer to load."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from lakebackup.config import MASK, Settings, is_secret

# A shorter secret could be any word of a message.
_SHORTEST_SECRET = 4
_USER_INFO = re.compile(r"(?<=://)[^/\s]+@")


def secrets_of(settings: Settings) -> list[str]:
    """Return the values in the settings that no message may show, the longest first."""
    passphrases = settings.signing.passphrase, settings.encryption.passphrase
    extra = [settings.notify.webhook or "", *(text.get_secret_value() for text in passphrases if text)]
    return secrets_in(settings.kafka, settings.spark, extra=extra)


def secrets_in(*properties: Mapping[str, str], extra: Iterable[str] = ()) -> list[str]:
    """Return the values of secret properties and environment variables, and `extra`, the longest first."""
    pairs = chain.from_iterable(mapping.items() for mapping in (*properties, os.environ))
    values = {value for name, value in pairs if is_secret(name)} | {*extra}
    return sorted((value for value in values if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text in which MASK replaces secrets, and names and passwords in URLs."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return _USER_INFO.sub(f"{MASK}@", text)


def masked_values(value: Any, secrets: Sequence[str]) -> Any:
    """Return values of JSON, at any depth, without secrets in their texts; UTF-8 can encode these."""
    if isinstance(value, str):
        return without_secrets(value.encode(errors="replace").decode(), secrets)
    if isinstance(value, Mapping):
        return {name: masked_values(item, secrets) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked_values(item, secrets) for item in value]
    return value
