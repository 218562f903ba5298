"""JSON texts of the catalog and of stored objects. Others may have written them, in any form."""

from __future__ import annotations

import json
from typing import Any

#: What `json.loads` raises for a text that is no JSON, or is nested too deep.
NO_JSON = (ValueError, RecursionError)


def object_of(text: str | bytes | None) -> dict[str, Any]:
    """The object that a text holds; empty for anything else."""
    try:
        value = json.loads(text or "{}")
    except NO_JSON:
        return {}
    return value if isinstance(value, dict) else {}


def texts_of(text: str | None) -> list[str] | None:
    """The array of texts that a text holds; None for anything else."""
    try:
        value = json.loads(text or "[]")
    except NO_JSON:
        return None
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None
