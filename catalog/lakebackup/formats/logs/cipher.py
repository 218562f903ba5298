"""Encrypt log files with AES-256-GCM, one message per file. The keys are in a file outside the catalog.

A message is a random nonce of 12 bytes, then ciphertext and tag (NIST SP 800-38D). The object's path is the
associated data, so an object that was moved to another path cannot be decrypted.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.storage.private import require_own

#: The end of an encrypted log file's name.
SUFFIX = ".aes256gcm"
NONCE_BYTES = 12
_KEY_BYTES = 32
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FORM = 'It is TOML or JSON: current = "b", and a table [keys] with a = "<base64 of 32 bytes>", b = "…".'


@dataclass(frozen=True, slots=True)
class Cipher:
    """One key. Spark tasks receive it pickled. Its repr does not show the key."""

    key_id: str
    key: bytes = field(repr=False)

    def seal(self, data: bytes, path: str) -> bytes:
        """Encrypt `data`, to be stored at `path`. The result is 28 bytes longer."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, data, path.encode())

    def open(self, data: bytes | memoryview, path: str) -> bytes | None:
        """Decrypt the result of `seal`. Returns None if the key, the path or the data differ."""
        if len(data) < NONCE_BYTES + 16:
            return None
        try:
            return AESGCM(self.key).decrypt(bytes(data[:NONCE_BYTES]), data[NONCE_BYTES:], path.encode())
        except InvalidTag:
            return None


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The keys of a key file, by id. `current` is the id of the key that encrypts new files."""

    file: str
    current: str
    keys: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def load(cls, path: str) -> LogKeys:
        """Read a TOML or JSON file with a table `keys` (id -> base64 of 32 bytes) and the id `current`.

        Without `current`, the last key encrypts. Raises NotFound and UsageProblem, whose messages never show
        a key.
        """
        require_own(path, "The key file", secret=True)
        table = _table(path)
        texts_by_id = table.get("keys")
        if table.keys() - {"keys", "current"} or not isinstance(texts_by_id, Mapping) or not texts_by_id:
            raise UsageProblem(f"{path} is not a key file.", hint=_FORM)
        keys = {key_id: _key(path, key_id, text) for key_id, text in texts_by_id.items()}
        current = table.get("current", list(keys)[-1])
        if not isinstance(current, str) or current not in keys:
            raise UsageProblem(f"{path}: current names a key that is not among its keys.", hint=_FORM)
        return cls(path, current, keys)

    @property
    def cipher(self) -> Cipher:
        """The key that encrypts new files."""
        return Cipher(self.current, self.keys[self.current])


def opened(keys: LogKeys | None, key_id: str, path: str, data: bytes, *, intact: bool) -> bytes:
    """Decrypt `data`, the content of the encrypted object `path`.

    `intact`: the object's SHA-256 is correct, so if decryption fails, the key is wrong. Raises UsageProblem
    when there is no key file, when it lacks the key, or when the key is wrong; Damaged when decryption of an
    object that is not `intact` fails.
    """
    if keys is None:
        raise UsageProblem(
            f"{path} is encrypted with the key {key_id!r}, and no key file is set.",
            hint="Set LAKEBACKUP_LOG__KEYS_FILE, or keys_file under [log] in lakebackup.toml.",
        )
    if key_id not in keys.keys:
        raise UsageProblem(
            f"{path} is encrypted with the key {key_id!r}, which {keys.file} does not hold.",
            hint="Add this key to the file. Keep a key as long as files encrypted with it are kept.",
        )
    plaintext = Cipher(key_id, keys.keys[key_id]).open(memoryview(data), path)
    if plaintext is not None:
        return plaintext
    if intact:
        raise UsageProblem(
            f"The key {key_id!r} of {keys.file} cannot decrypt {path}, which is undamaged.",
            hint="Another key has this id there. Use the key with which the file was encrypted.",
        )
    raise Damaged(
        f"{path} cannot be decrypted with the key {key_id!r}: it is damaged.",
        hint="Restore it from another copy of the repository.",
    )


def _table(path: str) -> Mapping[str, object]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise NotFound(f"The key file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageProblem(f"{path} is not a key file.", hint=_FORM) from None
    try:
        table = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError:  # the parser's message could show a key
        raise UsageProblem(f"{path} is neither TOML nor JSON.", hint=_FORM) from None
    return table if isinstance(table, Mapping) else {}


def _key(path: str, key_id: str, text: object) -> bytes:
    try:
        key = base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except ValueError:  # not base64, or not ASCII
        key = b""
    if not _ID.fullmatch(key_id) or len(key) != _KEY_BYTES:
        raise UsageProblem(
            f"{path}: the key {key_id!r} is not base64 of {_KEY_BYTES} bytes, or its id is invalid.",
            hint=_FORM,
        )
    return key
