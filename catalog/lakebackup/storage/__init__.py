"""Stores objects in a folder or in object storage: `open_storage` opens a URI, `interface` has the types."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakebackup.storage.interface import (
    A_FEW,
    MANY,
    AlreadyExists,
    EncryptedUri,
    ObjectStat,
    ObjectWriter,
    Source,
    Storage,
)
from lakebackup.storage.local import LocalStorage
from lakebackup.storage.s3 import S3Storage
from lakebackup.storage.uris import folder_of, normalized, unknown_scheme

__all__ = [
    "A_FEW", "MANY", "AlreadyExists", "EncryptedUri", "ObjectStat", "ObjectWriter", "Source", "Storage",
    "encrypt_metadata", "open_storage", "with_key",
]  # fmt: skip

_encrypted: dict[str, Callable[[], EncryptedUri]] = {}


def encrypt_metadata(uris: Mapping[str, Callable[[], EncryptedUri]]) -> None:
    """Set the storages of this process whose metadata is encrypted, and no others: URI in its normal form ->
    function that loads the key, and returns the URI with it."""
    _encrypted.clear()
    _encrypted.update(uris)


def with_key(uri: str) -> str:
    """Return the URI with the key of its metadata, if this process has one: only that opens it elsewhere."""
    if isinstance(uri, EncryptedUri) or not _encrypted:
        return uri
    load = _encrypted.get(normalized(uri))
    return load() if load else uri


def open_storage(uri: str, *, private: bool = True, decrypts: bool = True) -> Storage:
    """Open the storage at a URI: a folder's path, `file://`, or `s3://bucket/prefix` (or `s3a://`).

    Only the owner may read objects in a folder, unless `[storage] mode` allows others. For the output of a
    restore or an export, set `private` to False: then the process's umask decides. The settings of S3 come
    from this process's environment, see `lakebackup.storage.options`. Names and metadata are encrypted if the
    URI has a key, or if `encrypt_metadata` set one for it, unless `decrypts` is False. Raises UsageProblem
    for other schemes.
    """
    storage = _open(uri, private=private)
    keyed_uri = with_key(uri) if decrypts else uri
    return keyed_uri.open(storage) if decrypts and isinstance(keyed_uri, EncryptedUri) else storage


def _open(uri: str, *, private: bool) -> Storage:
    scheme, separator, path = uri.partition("://")
    if not separator:
        return LocalStorage(uri, private=private)
    if scheme == "file":
        return LocalStorage(str(folder_of(path)), private=private)
    if scheme in ("s3", "s3a"):
        return S3Storage(uri)
    raise unknown_scheme(scheme)
