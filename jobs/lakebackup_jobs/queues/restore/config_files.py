"""Reads an engine's own files, its configuration and its schema history, from its backups."""

from __future__ import annotations

import hashlib
from dataclasses import asdict

from lakebackup.errors import Damaged, NotFound
from lakebackup.plan.queues.restore import ConfigFile
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.keyring import open_keys


def read_config(file: ConfigFile, reader: CatalogReader) -> bytes:
    """Return the content of a file. Raises Damaged when it is missing or has changed, and as `keyring`."""
    roots = reader.destinations()
    try:
        data = roots.open(file.destination).get(file.path)
    except NotFound:
        data = b""
    if len(data) != file.bytes or hashlib.sha256(data).hexdigest() != file.sha256:
        raise Damaged(
            f"{file.path} is missing, or not what was written (size or sha256).",
            hint="Bring the file back from a copy of the repository, or choose another backup.",
        )
    if file.key_id is None:
        return data
    return open_keys(roots, [asdict(file)]).open_data(file.path, "files", (file.path,), data).read()
