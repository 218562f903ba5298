"""Reword pydantic's error messages in plain words. Without I/O."""

from __future__ import annotations

import re

_REWORDINGS = (
    ("Value error, ", ""),
    ("Input should be ", "must be "),
    (r", unable to .*", ""),
    ("a valid integer", "a whole number"),
    ("a valid number", "a number"),
    ("a valid boolean", "true or false"),
    ("a valid string", "text"),
    ("a valid tuple", "a list"),
    ("a valid list", "a list"),
    ("a valid dictionary.*", "a table"),
    ("less than or equal to", "at most"),
    ("greater than or equal to", "at least"),
    ("greater than", "more than"),
)


def plain_reason(reason: str) -> str:
    """Reword why a value is invalid, to follow the name of a flag or setting: `must be at most 65535.`"""
    for pattern, wording in _REWORDINGS:
        reason = re.sub(pattern, wording, reason)
    return f"{reason[:1].lower()}{reason[1:]}".rstrip(".") + "."
