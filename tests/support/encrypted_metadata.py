"""Repositories whose names and metadata are encrypted, and what they store in clear nevertheless."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.encrypted import Host

from lakebackup.encryption.metadata_key import MetadataKey
from lakebackup.encryption.objects import MAGIC, DataKey
from lakebackup.rules.layout import METADATA_KEY_FILE, RESERVED, ROOT_FILE

#: A token has at least the 16 bytes of its tag.
_SHORTEST = 22


def new_key(host: Host, name: str = "metadata.key") -> Path:
    """Write the file of a new metadata key, which only this account may read."""
    return host.write(name, MetadataKey(DataKey.random()).file_content)


def use_catalog(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set where the next commands have their catalog, which must not be in such a repository."""
    monkeypatch.setenv("LAKEBACKUP_CATALOG", str(folder))
    return folder


def names_in_clear(repository: Path) -> list[str]:
    """Return the paths with a name that is not a token, and those of contents in clear. Temporary files of a
    killed run do not count."""
    files = [path for path in repository.rglob("*") if path.is_file() and path.parent.name != ".tmp"]
    assert files
    paths = [
        file.relative_to(repository) for file in files if file.name not in (ROOT_FILE, METADATA_KEY_FILE)
    ]
    return sorted(
        str(path)
        for path in paths
        if any(len(name) < _SHORTEST for name in path.parts if name not in RESERVED)
        or not (repository / path).read_bytes().startswith(MAGIC)
    )
