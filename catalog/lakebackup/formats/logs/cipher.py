"""Encryption of log files: one AES-256-GCM message a file, with keys that a file outside the catalog holds.

A message is a random nonce of 12 bytes, then ciphertext and tag (NIST SP 800-38D). The object's path is its
associated data, so that an object under another one's name does not open.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakebackup.errors import Damaged, NotFound, UsageProblem

#: Behind the name of an encrypted log file.
SUFFIX = ".aes256gcm"
NONCE_BYTES = 12
_KEY_BYTES = 32
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FORM = 'It is TOML or JSON: current = "b", and a table [keys] with a = "<base64 of 32 bytes>", b = "…".'


@dataclass(frozen=True, slots=True)
class Cipher:
    """One key. It may be pickled into tasks; its repr does not show it."""

    key_id: str
    key: bytes = field(repr=False)

    def seal(self, data: bytes, path: str) -> bytes:
        """`data` encrypted, to be stored as `path`: 28 bytes longer."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, data, path.encode())

    def open(self, data: bytes | memoryview, path: str) -> bytes | None:
        """What `seal` was given; None: another key, another path, or not the bytes that it gave."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(data) < NONCE_BYTES + 16:
            return None
        try:
            return AESGCM(self.key).decrypt(bytes(data[:NONCE_BYTES]), data[NONCE_BYTES:], path.encode())
        except InvalidTag:
            return None


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The keys of a key file by their ids; `current` is the id of the one that encrypts."""

    file: str
    current: str
    keys: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def load(cls, path: str) -> LogKeys:
        """The keys of a TOML or JSON file: a table `keys` of id -> base64 of 32 bytes, and `current`.

        Without `current` the last key encrypts. Raises NotFound, and UsageProblem that never shows a key.
        """
        table = _table(path)
        given = table.get("keys")
        if table.keys() - {"keys", "current"} or not isinstance(given, Mapping) or not given:
            raise UsageProblem(f"{path} is no file of keys.", hint=_FORM)
        keys = {key_id: _key(path, key_id, text) for key_id, text in given.items()}
        current = table.get("current", list(keys)[-1])
        if not isinstance(current, str) or current not in keys:
            raise UsageProblem(f"{path}: current names a key that is not among its keys.", hint=_FORM)
        return cls(path, current, keys)

    @property
    def cipher(self) -> Cipher:
        """What encrypts."""
        return Cipher(self.current, self.keys[self.current])


def opened(keys: LogKeys | None, key_id: str, path: str, data: bytes, *, intact: bool) -> bytes:
    """The contents of the encrypted object `path`.

    `intact`: its SHA-256 is what it was, so what does not open was encrypted by another key. Raises
    UsageProblem (no key file, no such key in it, the wrong one), Damaged (when not `intact`).
    """
    if keys is None:
        raise UsageProblem(
            f"{path} is encrypted with the key {key_id!r}, and no file of keys is named.",
            hint="Name it by LAKEBACKUP_LOG__KEYS_FILE, or keys_file under [log] in lakebackup.toml.",
        )
    if key_id not in keys.keys:
        raise UsageProblem(
            f"{path} is encrypted with the key {key_id!r}, which {keys.file} does not hold.",
            hint="Keys that once encrypted stay in the file as long as anything they encrypted is kept.",
        )
    found = Cipher(key_id, keys.keys[key_id]).open(memoryview(data), path)
    if found is not None:
        return found
    if intact:
        raise UsageProblem(
            f"The key {key_id!r} of {keys.file} does not open {path}, whose bytes are as they were written.",
            hint="Another key has this id there: take the one that was used when the file was written.",
        )
    raise Damaged(
        f"{path} does not open with the key {key_id!r}: its bytes are not as they were written.",
        hint="Take it from another copy of the destination.",
    )


def _table(path: str) -> Mapping[str, object]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise NotFound(f"The file of keys {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageProblem(f"{path} is no file of keys.", hint=_FORM) from None
    try:
        table = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError:  # the parser's message could show a key
        raise UsageProblem(f"{path} is neither TOML nor JSON.", hint=_FORM) from None
    return table if isinstance(table, Mapping) else {}


def _key(path: str, key_id: str, text: object) -> bytes:
    try:
        key = base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except binascii.Error:
        key = b""
    if not _ID.fullmatch(key_id) or len(key) != _KEY_BYTES:
        raise UsageProblem(
            f"{path}: the key {key_id!r} is not base64 of {_KEY_BYTES} bytes, or its id is no name.",
            hint=_FORM,
        )
    return key
