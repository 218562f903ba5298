"""Read JSON texts of the catalog and of stored objects. Other programs may have written them, in any form."""

from __future__ import annotations

import json
from typing import Any

#: The errors of `json.loads` for a text that is no JSON, or that is nested too deep.
NO_JSON = (ValueError, RecursionError)


def object_of(text: str | bytes | None) -> dict[str, Any]:
    """The JSON object in a text; empty for anything else."""
    try:
        value = json.loads(text or "{}")
    except NO_JSON:
        return {}
    return value if isinstance(value, dict) else {}


def texts_of(text: str | None) -> list[str] | None:
    """The JSON array of texts in a text; empty without a text, None for anything else."""
    try:
        value = json.loads(text or "[]")
    except NO_JSON:
        return None
    return value if isinstance(value, list) and all(isinstance(entry, str) for entry in value) else None
