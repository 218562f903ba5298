"""Roots of destinations that tests make up."""

from __future__ import annotations

import json

from lakebackup import layout
from lakebackup.roots import FORMAT, Roots
from lakebackup.storage import open_storage


def roots_of(**uris: str) -> Roots:
    """Roots of these ids, each with its lakebackup.json."""
    for name, uri in uris.items():
        content = json.dumps({"format": FORMAT, "destination": name}).encode()
        open_storage(uri).put(layout.ROOT_FILE, content)
    return Roots(uris)
