"""Wrap the data keys of backups for their recipients, and open them with identities.

A recipient is public: an X25519 key of age (`age1…`), an SSH key (`ssh-ed25519 …`, `ssh-rsa …`), or a key of
AWS KMS (`aws-kms:` and its ARN or alias). So a host that makes backups cannot read them. An identity is the
private half, in a file as `age-keygen` writes it, or a private SSH key; a passphrase (scrypt) can protect the
file.

Source: age-encryption.org/v1.
"""

from __future__ import annotations

import base64
import binascii
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pyrage
from botocore.exceptions import BotoCoreError, ClientError

from lakebackup.encryption.objects import KEY_ID_BYTES, DataKey
from lakebackup.encryption.segments import KEY_BYTES
from lakebackup.errors import Damaged, EnvironmentProblem, NotFound, UsageProblem
from lakebackup.storage.private import require_own

_KMS = "aws-kms:"
_RECIPIENT_HINT = (
    "A recipient is age1…, ssh-ed25519 …, ssh-rsa … or aws-kms:ARN, in full. Identities are never recipients."
)
_IDENTITY_HINT = "Name what `lakebackup key create --purpose encryption` wrote, or a private SSH key."
# The first line that is no comment.
_PUBLIC_KEY = re.compile(rb"(?:\s|#.*\n)*(?:age1|ssh-|ecdsa-|sk-|-----BEGIN PUBLIC KEY)")
_SIGNING_KEY = re.compile(rb"-----BEGIN (?:ENCRYPTED )?PRIVATE KEY")
_MAX_FILE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key that one recipient can open. `content` is base64 of what age or KMS made of it."""

    recipient: str
    content: str


class Recipient(ABC):
    """One who can open data keys. `name` is what a person writes for it."""

    name: str

    def wrap(self, data_key: DataKey) -> WrappedKey:
        """Wrap a data key with its id, so that two wrapped keys cannot be exchanged."""
        content = self._encrypt(bytes.fromhex(data_key.key_id) + data_key.key)
        return WrappedKey(self.name, base64.b64encode(content).decode())

    @abstractmethod
    def _encrypt(self, content: bytes) -> bytes: ...


class _AgeRecipient(Recipient):
    def __init__(self, text: str) -> None:
        kind, *fields = text.split()
        try:
            self._key: Any = (
                pyrage.ssh.Recipient.from_str(text) if fields else pyrage.x25519.Recipient.from_str(kind)
            )
        except pyrage.RecipientError:
            raise UsageProblem(_what_is_wrong(text), hint=_RECIPIENT_HINT) from None
        self.name = " ".join([kind, *fields[:1]])  # without the comment of an SSH key

    def _encrypt(self, content: bytes) -> bytes:
        return bytes(pyrage.encrypt(content, [self._key]))


class _KmsRecipient(Recipient):
    def __init__(self, text: str) -> None:
        self.name, self._key = text, text.removeprefix(_KMS)

    def _encrypt(self, content: bytes) -> bytes:
        return bytes(_kms_answer("encrypt", self._key, KeyId=self._key, Plaintext=content)["CiphertextBlob"])


def recipient(text: str) -> Recipient:
    """Return the recipient that a text names. Raises UsageProblem when it names none."""
    stripped = text.strip()
    if "SECRET-KEY-" in stripped.upper() or "PRIVATE KEY" in stripped:
        raise UsageProblem("A recipient is public, and this one is an identity.", hint=_RECIPIENT_HINT)
    if not stripped:
        raise UsageProblem("A recipient is empty.", hint=_RECIPIENT_HINT)
    if len(stripped.splitlines()) > 1:
        raise UsageProblem("A recipient has several lines.", hint=_RECIPIENT_HINT)
    if stripped.startswith(_KMS) and len(stripped) > len(_KMS):
        return _KmsRecipient(stripped)
    return _AgeRecipient(stripped)


def _what_is_wrong(text: str) -> str:
    """Say why a text is not a recipient. One of no known kind may be a secret, so little is shown."""
    if text.lower().startswith("age1"):
        return f"{text[:80]!r} is not a recipient: a character is wrong or missing."
    if text.startswith("ssh-"):
        return f"{text[:80]!r} is not a recipient: it is not a complete public key of SSH."
    return f"{text[:8] + '…'!r} is not a recipient: it begins with neither age1 nor ssh- nor {_KMS}."


def wrap(data_key: DataKey, recipients: Iterable[Recipient]) -> list[WrappedKey]:
    """Wrap a data key for each recipient."""
    return [recipient.wrap(data_key) for recipient in recipients]


@dataclass(frozen=True, slots=True)
class Identities:
    """The private keys of a file. `names`: the recipients that they are, for X25519 keys."""

    file: str
    names: tuple[str, ...]
    _keys: tuple[Any, ...] = field(repr=False)

    @classmethod
    def load(cls, path: Path, passphrase: str | None = None) -> Identities:
        """Load a file of identities.

        Raises NotFound (no such file), Refused (others may read it) and UsageProblem (it has no identity, or
        the passphrase is missing or wrong). No message shows a key.
        """
        content = _content(path)
        if _PUBLIC_KEY.match(content):
            raise UsageProblem(f"{path} is a public key, and opens nothing.", hint=_IDENTITY_HINT)
        require_own(path, "The identity file", secret=True)
        content = _plain(path, content, passphrase)
        if b"PRIVATE KEY" in content:
            return cls(str(path), (), (_ssh_identity(path, content),))
        try:
            lines = [line.strip() for line in content.decode().splitlines()]
            keys = [pyrage.x25519.Identity.from_str(line) for line in lines if line and line[0] != "#"]
        except (UnicodeDecodeError, pyrage.IdentityError):  # the message could show a part of a key
            keys = []
        if not keys:
            raise UsageProblem(
                f"{path} is not a file of identities.",
                hint="Such a file has lines AGE-SECRET-KEY-1…, as age-keygen writes them.",
            )
        return cls(str(path), tuple(str(key.to_public()) for key in keys), tuple(keys))

    def open(self, key_id: str, wrapped_keys: Sequence[WrappedKey], path: str | None = None) -> DataKey:
        """Open the data key `key_id` from that of its wrapped keys which an identity opens.

        `path`: the object that has them. Raises Damaged when no identity opens one: their recipients are
        named. If the identity is none of them, the error says that it concerns the identity.
        """
        name = path or key_id
        for wrapped in wrapped_keys:
            content = self._decrypted(wrapped)
            if content is None:
                continue
            content_id, key = content[:KEY_ID_BYTES].hex(), content[KEY_ID_BYTES:]
            if content_id != key_id or len(key) != KEY_BYTES:
                raise Damaged(
                    f"The data key {name} was exchanged: {wrapped.recipient} opens {content_id}.",
                    hint="Restore the object of keys from another copy of the repository.",
                )
            return DataKey(key_id, key)
        recipients = [wrapped.recipient for wrapped in wrapped_keys]
        error = Damaged(
            f"No identity of {self.file} opens the data key {name}. Its recipients: "
            f"{', '.join(recipients) or 'nobody'}.",
            hint="Name the identity file of one of these recipients.",
        )
        # What names nobody, or names an identity that does not open it, is wrong itself.
        if recipients and set(recipients).isdisjoint(self.names):
            error.with_identity_concern()
        raise error

    def _decrypted(self, wrapped: WrappedKey) -> bytes | None:
        try:
            content = base64.b64decode(wrapped.content, validate=True)
        except (binascii.Error, ValueError):
            return None
        if wrapped.recipient.startswith(_KMS):
            return _kms_decrypted(wrapped.recipient, content)
        try:
            return bytes(pyrage.decrypt(content, list(self._keys)))
        except pyrage.DecryptError:
            return None


def new_identity() -> tuple[str, str]:
    """Return a new identity as the text of its file, and its recipient."""
    identity = pyrage.x25519.Identity.generate()
    name = str(identity.to_public())
    return f"# recipient: {name}\n{identity}\n", name


def protected(content: str, passphrase: str) -> bytes:
    """Return the content of an identity file, encrypted with a passphrase as age does (scrypt)."""
    return bytes(pyrage.passphrase.encrypt(content.encode(), passphrase))


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_FILE_BYTES)
    except FileNotFoundError:
        raise NotFound(
            f"The identity file {path} does not exist.",
            hint="Check identity_file under [encryption] of the settings.",
        ) from None
    except OSError as error:
        raise EnvironmentProblem(f"The identity file {path} cannot be read: {error.strerror}.") from None


def _ssh_identity(path: Path, content: bytes) -> Any:
    with suppress(pyrage.IdentityError):  # the message could show a part of a key
        return pyrage.ssh.Identity.from_buffer(content)
    if _SIGNING_KEY.search(content):
        raise UsageProblem(f"{path} is a key that signs, and opens nothing.", hint=_IDENTITY_HINT)
    raise UsageProblem(
        f"{path} is an SSH key that has a passphrase, or is neither ed25519 nor rsa.",
        hint="Use a copy without its passphrase (ssh-keygen -p -f COPY), or an identity of age with one.",
    )


def _plain(path: Path, content: bytes, passphrase: str | None) -> bytes:
    if not content.startswith(b"age-encryption.org/"):
        return content
    if passphrase is None:
        raise UsageProblem(
            f"{path} is protected by a passphrase, and none is set.",
            hint="Set LAKEBACKUP_ENCRYPTION__PASSPHRASE, or passphrase_file under [encryption].",
        )
    try:
        return bytes(pyrage.passphrase.decrypt(content, passphrase))
    except pyrage.DecryptError:
        raise UsageProblem(
            f"The passphrase of {path} is wrong, or the file is damaged.",
            hint="Check LAKEBACKUP_ENCRYPTION__PASSPHRASE, or passphrase_file under [encryption].",
        ) from None


def _kms_decrypted(name: str, content: bytes) -> bytes | None:
    key = name.removeprefix(_KMS)
    try:
        return bytes(_kms_answer("decrypt", key, KeyId=key, CiphertextBlob=content)["Plaintext"])
    except Damaged:
        return None


def _kms_answer(method: str, key: str, **arguments: Any) -> dict[str, Any]:
    """Call KMS. Raises Damaged for content that this key did not encrypt, else EnvironmentProblem."""
    try:
        answer: dict[str, Any] = getattr(boto3.client("kms"), method)(**arguments)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in ("InvalidCiphertextException", "IncorrectKeyException"):
            raise Damaged(f"The key {key} of KMS did not encrypt this.") from None
        raise EnvironmentProblem(f"KMS refuses to {method} with {key}: {code}.") from None
    except BotoCoreError as error:
        reason = str(error).rstrip(".")
        raise EnvironmentProblem(f"KMS cannot be asked to {method} with {key}: {reason}.") from None
    return answer
