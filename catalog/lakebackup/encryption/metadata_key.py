"""The key of a repository's metadata: it encrypts names of objects, and all objects without a data key.

Hosts that make backups have it in a file, since they read manifests and leases. A repository stores it too,
wrapped for the recipients of its backups, so that an identity alone opens everything.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from lakebackup.encryption.objects import KEY_ID_BYTES, DataKey
from lakebackup.encryption.segments import KEY_BYTES
from lakebackup.errors import EnvironmentProblem, NotFound, UsageProblem
from lakebackup.storage.private import require_own

_FILE = re.compile(rb"(?:#.*\n)*lakebackup-metadata-key-1:([A-Za-z0-9+/=]+)\s*")
_MAX_FILE_BYTES = 64 << 10
_NAMES_KEY_BYTES = 64
_HINT = "Name what `lakebackup key create --purpose metadata` or `lakebackup key recover` wrote."


@dataclass(frozen=True)
class MetadataKey:
    """The key of a repository's metadata. Its repr does not show the key."""

    data_key: DataKey = field(repr=False)

    @property
    def key_id(self) -> str:
        return self.data_key.key_id

    @classmethod
    def load(cls, path: Path) -> MetadataKey:
        """Load the key in a file.

        Raises NotFound (no such file), Refused (others may read it), UsageProblem (it is no such key) and
        EnvironmentProblem. No message shows the key.
        """
        label = "The metadata key"
        try:
            with path.open("rb") as stream:
                content = stream.read(_MAX_FILE_BYTES)
        except FileNotFoundError:
            raise NotFound(
                f"{label} {path} does not exist.",
                hint="Check metadata_key_file under [encryption] of the settings. `lakebackup key recover` "
                "writes it again with an identity.",
            ) from None
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise EnvironmentProblem(f"{label} {path} cannot be read: {reason}.") from None
        require_own(path, label, secret=True)
        match = _FILE.fullmatch(content)
        try:
            data = base64.b64decode(match[1], validate=True) if match else b""
        except binascii.Error:
            data = b""
        if len(data) != KEY_ID_BYTES + KEY_BYTES:
            raise UsageProblem(f"{path} is not a metadata key, or it is damaged.", hint=_HINT)
        return cls(DataKey(data[:KEY_ID_BYTES].hex(), data[KEY_ID_BYTES:]))

    def __reduce__(self) -> tuple[object, ...]:
        return MetadataKey, (self.data_key,)  # the ciphers are derived again

    @property
    def file_content(self) -> bytes:
        """The content of the file that `load` reads."""
        key = base64.b64encode(bytes.fromhex(self.key_id) + self.data_key.key)
        return b"# metadata key %s\nlakebackup-metadata-key-1:%s\n" % (self.key_id.encode(), key)

    @cached_property
    def contents(self) -> DataKey:
        """The key that encrypts contents."""
        return DataKey(self.key_id, self._derived("contents", KEY_BYTES))

    @cached_property
    def names(self) -> NameCipher:
        """The cipher of names."""
        return NameCipher(self._derived("names", _NAMES_KEY_BYTES))

    def _derived(self, use: str, size: int) -> bytes:
        return HKDFExpand(SHA256(), size, json.dumps(["metadata", use]).encode()).derive(self.data_key.key)


class NameCipher:
    """Encrypts the parts of paths with AES-SIV (RFC 5297): the same name in the same folder always gives the
    same token, so an object is opened, and written once only, by its name. The folder is bound to it."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESSIV(key)
        self.token = lru_cache(1 << 14)(self._token)

    def _token(self, folder: str, name: str) -> str:
        """Return the token of a name in a folder: letters, digits, `-` and `_`."""
        content = self._cipher.encrypt(os.fsencode(name), [os.fsencode(folder)])
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    def name(self, folder: str, token: str) -> str | None:
        """Return the name of a token in a folder; None if it is no token there."""
        try:
            content = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
            return os.fsdecode(self._cipher.decrypt(content, [os.fsencode(folder)]))
        except (binascii.Error, ValueError, InvalidTag):
            return None
