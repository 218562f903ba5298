"""Stores objects in a folder or in object storage: `open_storage` opens a URI, `interface` has the types."""

from __future__ import annotations

from lakebackup.storage.interface import (
    A_FEW,
    MANY,
    AlreadyExists,
    ObjectStat,
    ObjectWriter,
    Source,
    Storage,
)
from lakebackup.storage.local import LocalStorage
from lakebackup.storage.s3 import S3Storage
from lakebackup.storage.uris import folder_of, unknown_scheme

__all__ = [
    "A_FEW", "MANY", "AlreadyExists", "ObjectStat", "ObjectWriter", "Source", "Storage", "open_storage",
]  # fmt: skip


def open_storage(uri: str, *, private: bool = True) -> Storage:
    """Open the storage at a URI: a folder's path, `file://`, or `s3://bucket/prefix` (or `s3a://`).

    Only the owner may read objects in a folder, unless `[storage] mode` allows others. For the output of a
    restore or an export, set `private` to False: then the process's umask decides. The settings of S3 come
    from this process's environment, see `lakebackup.storage.options`. Raises UsageProblem for other schemes.
    """
    scheme, separator, path = uri.partition("://")
    if not separator:
        return LocalStorage(uri, private=private)
    if scheme == "file":
        return LocalStorage(str(folder_of(path)), private=private)
    if scheme in ("s3", "s3a"):
        return S3Storage(uri)
    raise unknown_scheme(scheme)
