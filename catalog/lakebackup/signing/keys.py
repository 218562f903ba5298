"""Ed25519 keys for signing: a private key in a file of its own, and its public key in a file to hand out.

Files are PEM: PKCS#8 for private keys, with an optional passphrase, and SubjectPublicKeyInfo for public ones.
A key's id is the SHA-256 of its public key (SubjectPublicKeyInfo, DER). The algorithm tells the purpose of a
key: an Ed25519 key can sign and do nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from lakebackup.errors import EnvironmentProblem, LakebackupError, NotFound, Refused, UsageProblem
from lakebackup.storage.private import require_own

#: The end of the name of a public key's file, which lies beside the private key.
PUBLIC_SUFFIX = ".pub"
# A key has a few hundred bytes. A larger file is something else.
_MAX_FILE_BYTES = 64 << 10
_SHORT_ID_DIGITS = 16
_PRIVATE, _PUBLIC = b"PRIVATE KEY-----", b"-----BEGIN PUBLIC KEY-----"
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_IDENTITY = re.compile(rb"^(?:age-encryption\.org/|AGE-SECRET-KEY-1)", re.MULTILINE)
_MISSING_HINTS = {
    "The private key": "Check key_file under [signing] of the settings, or the file that you named.",
    "The public key": f"Name the file that `lakebackup key create` wrote: it ends with {PUBLIC_SUFFIX}.",
    "The passphrase file": "Check --passphrase-file, or passphrase_file of the settings.",
}
_CREATE_HINT = "`lakebackup key create FILE` makes a key."


def short_id(key_id: str) -> str:
    """The first digits of a key's id, which are enough for people."""
    return key_id[:_SHORT_ID_DIGITS]


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key. `key_id`: the SHA-256 of its DER form, in lower hex."""

    key_id: str
    key: Ed25519PublicKey = field(repr=False, compare=False)

    @classmethod
    def of(cls, key: Ed25519PublicKey) -> PublicKey:
        """Return the public key with its id."""
        der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return cls(hashlib.sha256(der).hexdigest(), key)

    def matches(self, signature: bytes, message: bytes) -> bool:
        """Whether the private half of this key made the signature over this message."""
        try:
            self.key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def pem(self) -> bytes:
        """Return the content of the key's file."""
        return self.key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key, and its public half. Its repr does not show the private key."""

    public: PublicKey
    _key: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def generate(cls) -> SigningKey:
        """Return a new random key."""
        return cls._of(Ed25519PrivateKey.generate())

    @classmethod
    def _of(cls, key: Ed25519PrivateKey) -> SigningKey:
        return cls(PublicKey.of(key.public_key()), key)

    @property
    def key_id(self) -> str:
        return self.public.key_id

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._key.sign(message)

    def pem(self, passphrase: str | None) -> bytes:
        """Return the content of the key's file, encrypted if there is a passphrase. Raises UsageProblem."""
        try:
            encryption = (
                serialization.NoEncryption()
                if passphrase is None
                else serialization.BestAvailableEncryption(passphrase.encode())
            )
            return self._key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
        except ValueError:  # the message could show the passphrase
            raise UsageProblem(
                "The passphrase cannot protect a key.", hint="Use one of 1 to 1,000 letters."
            ) from None


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """The public keys whose signatures count, by their ids, and those that counted once."""

    active: Mapping[str, PublicKey]
    retired: Mapping[str, PublicKey]

    @classmethod
    def of(cls, active: Iterable[PublicKey], retired: Iterable[PublicKey] = ()) -> TrustedKeys:
        """Return the set of some keys. A key that is also among the retired ones does not count."""
        retired_by_id = {key.key_id: key for key in retired}
        active_by_id = {key.key_id: key for key in active if key.key_id not in retired_by_id}
        return cls(active_by_id, retired_by_id)


def create(path: Path, passphrase: str | None) -> SigningKey:
    """Create a key: the private key in a new file with mode 0600, the public key beside it.

    Raises Refused when one of the files exists, and EnvironmentProblem when they cannot be written.
    """
    signing_key, public_path = SigningKey.generate(), public_path_of(path)
    private_pem = signing_key.pem(passphrase)
    for file in (path, public_path):
        if os.path.lexists(file):
            raise Refused(f"{file} exists already.", hint="Name a new file. A key is never replaced.")
    write_new(path, private_pem, 0o600)
    try:
        write_new(public_path, signing_key.public.pem(), 0o644)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    return signing_key


def public_path_of(path: Path) -> Path:
    """The file of the public key that belongs to a private key's file."""
    return path.with_name(f"{path.name}{PUBLIC_SUFFIX}")


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a key into a new file. Raises EnvironmentProblem, also if the file exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # whatever the umask is
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise EnvironmentProblem(
            f"The key cannot be written to {path}: {os.strerror(error.errno or 0)}.",
            hint="Name a new file in a folder that exists and can be written.",
        ) from None


def load_private(path: Path, passphrase: str | None = None) -> SigningKey:
    """Load a private key.

    Raises NotFound (no such file), Refused (others may read or write it), and UsageProblem (it is not an
    Ed25519 private key, or the passphrase is missing or wrong). No message shows the key or the passphrase.
    """
    content = _read(path, "The private key")
    if _PRIVATE not in content:
        if _PUBLIC in content:
            raise UsageProblem(
                f"{path} is a public key, and a private key is needed to sign.",
                hint=f"Name the file without {PUBLIC_SUFFIX}.",
            )
        if _IDENTITY.search(content):
            raise UsageProblem(
                f"{path} is an identity, which reads encrypted backups and cannot sign.", hint=_CREATE_HINT
            )
        raise UsageProblem(f"{path} is not a private key in PEM form.", hint=_CREATE_HINT)
    require_own(path, "The private key", secret=True)
    if _OPENSSH in content:
        raise UsageProblem(f"{path} is a key of OpenSSH, not PKCS#8.", hint=_CREATE_HINT)
    is_encrypted = _ENCRYPTED in content
    if is_encrypted and passphrase is None:
        raise UsageProblem(
            f"{path} is protected by a passphrase, and none is set.",
            hint="Set LAKEBACKUP_SIGNING__PASSPHRASE, or passphrase_file under [signing] in lakebackup.toml.",
        )
    if passphrase is not None and not is_encrypted:
        raise UsageProblem(
            f"{path} has no passphrase, but one is set.",
            hint="Leave the passphrase out, or create a key that has one.",
        )
    try:
        key = serialization.load_pem_private_key(content, passphrase.encode() if passphrase else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # the message could show a part of the key
        if is_encrypted:
            raise UsageProblem(
                f"The passphrase of {path} is wrong, or the file is damaged.",
                hint="Check LAKEBACKUP_SIGNING__PASSPHRASE, or passphrase_file under [signing].",
            ) from None
        raise UsageProblem(f"{path} is a damaged private key.", hint=_CREATE_HINT) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageProblem(f"{path} has {_kind(key)}, not an Ed25519 key.", hint=_CREATE_HINT)
    return SigningKey._of(key)  # noqa: SLF001 - the same module


def load_public(path: Path) -> PublicKey:
    """Load a public key. Raises NotFound (no such file), UsageProblem (it is no Ed25519 public key)."""
    content = _read(path, "The public key")
    if _PRIVATE in content:
        raise UsageProblem(
            f"{path} is a private key, and only a public key is needed here.",
            hint=f"Name the file that ends with {PUBLIC_SUFFIX}, and never hand out the private key.",
        )
    if _PUBLIC not in content:
        raise UsageProblem(f"{path} is not a public key in PEM form.", hint=_CREATE_HINT)
    try:
        key = serialization.load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise UsageProblem(f"{path} is a damaged public key.", hint=_CREATE_HINT) from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageProblem(f"{path} has {_kind(key)}, not an Ed25519 key.", hint=_CREATE_HINT)
    return PublicKey.of(key)


@dataclass(frozen=True, slots=True)
class KeyFile:
    """What a key's file is, as far as it can be said without a passphrase.

    `key_id`: of an encrypted private key, that of the public key beside it; None if it is not known.
    `problem`: why the key cannot be used.
    """

    path: Path
    kind: Literal["private", "public"]
    key_id: str | None
    has_passphrase: bool = False
    problem: str | None = None


def describe(path: Path) -> KeyFile | None:
    """Describe the file of a key; None if it is not one in PEM form. Raises NotFound."""
    content = _read(path, "The key", check=False)
    is_encrypted = _ENCRYPTED in content
    kind: Literal["private", "public"] = "private" if _PRIVATE in content else "public"
    if kind == "public" and _PUBLIC not in content:
        return None
    try:
        if is_encrypted:
            require_own(path, "The private key", secret=True)
            public_path = public_path_of(path)
            key_id = load_public(public_path).key_id if public_path.is_file() else None
        else:
            key_id = load_private(path).key_id if kind == "private" else load_public(path).key_id
    except LakebackupError as error:
        return KeyFile(path, kind, None, is_encrypted, error.message)
    return KeyFile(path, kind, key_id, is_encrypted)


def read_passphrase(path: Path) -> str:
    """Read a passphrase from the first line of a file.

    Raises NotFound (no such file), Refused (others may read or write it) and UsageProblem (it is empty).
    """
    require_own(path, "The passphrase file", secret=True)
    try:
        passphrase = _read(path, "The passphrase file").decode().partition("\n")[0].rstrip("\r")
    except UnicodeDecodeError:
        raise UsageProblem(f"The passphrase file {path} is not UTF-8 text.") from None
    if not passphrase:
        raise UsageProblem(f"The passphrase file {path} begins with an empty line.")
    return passphrase


def _read(path: Path, label: str, *, check: bool = True) -> bytes:
    """Read a file. Raises NotFound, and UsageProblem for one that is empty or too large, unless `check` is
    False: then it is read up to the largest size."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise NotFound(
            f"{label} {path} cannot be read: {os.strerror(error.errno or 0)}.",
            hint=_MISSING_HINTS.get(label, "Check its name."),
        ) from None
    if check and not content.strip():
        raise UsageProblem(f"{label} {path} is empty.", hint=_CREATE_HINT)
    if check and len(content) > _MAX_FILE_BYTES:
        raise UsageProblem(f"{label} {path} is too large to be a key.", hint=_CREATE_HINT)
    return content


def _kind(key: object) -> str:
    """What a key of another algorithm is called, such as `an RSA key`."""
    name = type(key).__name__.lstrip("_").removesuffix("PrivateKey").removesuffix("PublicKey")
    article = "an" if name[:1] in "AEIORX" else "a"
    return f"{article} {name} key"
