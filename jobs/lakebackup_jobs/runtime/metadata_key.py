"""The key of the repository's metadata, by the settings of this process."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from lakebackup.config import Settings
from lakebackup.encryption.metadata_key import MetadataKey
from lakebackup.encryption.storage import RepositoryUri
from lakebackup.errors import UsageProblem
from lakebackup.storage import encrypt_metadata
from lakebackup.storage.nesting import is_within
from lakebackup.storage.uris import normalized
from lakebackup.store import metadata_keys
from lakebackup_jobs.runtime.identities import configured_recipients


def use(settings: Settings) -> None:
    """Encrypt the metadata of the settings' repository, if they name a key. It is loaded when the repository
    is first opened."""
    file = settings.encryption.metadata_key_file
    if file is None or settings.repo is None:
        encrypt_metadata({})
        return
    load = cache(partial(keyed_uri, settings.repo, settings.catalog, file))
    encrypt_metadata({normalized(settings.repo): load})
    metadata_keys.wrap_for(partial(configured_recipients, settings.encryption))


def keyed_uri(repo: str, catalog: str | None, file: str) -> RepositoryUri:
    """Return the repository's URI with the key in a file.

    Raises UsageProblem if the catalog, which is not encrypted, would be in the repository, and as
    `MetadataKey.load`."""
    if catalog is None or is_within(catalog, repo):
        raise UsageProblem(
            f"metadata_key_file is set, and the catalog would be stored in clear in {repo}.",
            hint="Store the catalog where only its readers can read it: set catalog in lakebackup.toml, or "
            "--catalog.",
        )
    return RepositoryUri.of(normalized(repo), MetadataKey.load(Path(file)), Path(file))
