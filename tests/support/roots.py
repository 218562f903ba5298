"""Roots of destinations for tests."""

from __future__ import annotations

import json

from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store.roots import FORMAT, Roots


def roots_of(**uris: str) -> Roots:
    """Roots of these ids; writes a lakebackup.json to each."""
    for name, uri in uris.items():
        content = json.dumps({"format": FORMAT, "destination": name}).encode()
        open_storage(uri).put(layout.ROOT_FILE, content)
    return Roots(uris)
