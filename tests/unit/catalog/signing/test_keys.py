"""Signing keys in files, and every mistake with them that we could think of."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import EnvironmentProblem, LakebackupError, NotFound, Refused, UsageProblem
from lakebackup.signing.keys import (
    SigningKey,
    create,
    describe,
    load_private,
    load_public,
    public_path_of,
    read_passphrase,
    short_id,
)

PASSPHRASE = "correct horse battery"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evidence.key"


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE, "pässwörd ☃"])
def test_a_created_key_signs_and_its_public_key_verifies(path: Path, passphrase: str | None) -> None:
    key = create(path, passphrase)
    loaded, public = load_private(path, passphrase), load_public(public_path_of(path))
    assert loaded.key_id == public.key_id == key.key_id
    assert public.matches(loaded.sign(b"message"), b"message")
    assert not public.matches(loaded.sign(b"message"), b"another")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(public_path_of(path).stat().st_mode) == 0o644
    assert (b"ENCRYPTED" in path.read_bytes()) == (passphrase is not None)


@given(message=st.binary(max_size=200), other_message=st.binary(max_size=200))
def test_a_signature_is_of_one_message(message: bytes, other_message: bytes) -> None:
    key = SigningKey.generate()
    assert key.public.matches(key.sign(message), message)
    assert key.public.matches(key.sign(message), other_message) == (message == other_message)


def test_an_id_is_the_digest_of_the_public_key(path: Path) -> None:
    """What `base64 -d | sha256sum` says of the lines between the first and the last."""
    pem = b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n"
    path.write_bytes(pem + b"-----END PUBLIC KEY-----\n")
    public = load_public(path)
    assert public.key_id == "182ff9da701fd144e2fd2cd41da8ddba979eb01b2bf7fcc3376f4b1b2ecee4e7"
    assert short_id(public.key_id) == public.key_id[:16]


def test_a_repr_shows_no_key(path: Path) -> None:
    key = create(path, None)
    secret = path.read_text().splitlines()[1]
    assert secret not in repr(key)
    assert "Ed25519PrivateKey" not in repr(key)


def test_no_file_is_replaced(path: Path) -> None:
    create(path, None)
    content = path.read_bytes()
    with pytest.raises(Refused, match="exists already"):
        create(path, None)
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(Refused, match=r"\.pub exists already"):
        create(path, None)
    assert not path.exists()
    assert path.with_name("elsewhere").read_bytes() == content
    with pytest.raises(EnvironmentProblem, match="No such file"):
        create(path.parent / "gone" / "key", None)


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused):
        create(path, None)
    assert not (tmp_path / "elsewhere").exists()


def _pem(key: object) -> bytes:
    content: bytes = key.private_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return content


def _public_pem(key: object) -> bytes:
    content: bytes = key.public_key().public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return content


def _openssh_pem() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


KEY = SigningKey.generate()
RSA, EC = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
MISTAKES: dict[str, tuple[Callable[[], bytes], str | None, type[LakebackupError], str]] = {
    "empty": (lambda: b"", None, UsageProblem, "is empty"),
    "empty lines": (lambda: b"\n \n", None, UsageProblem, "is empty"),
    "another file": (lambda: b"[signing]\n", None, UsageProblem, "not a private key in PEM form"),
    "binary": (lambda: bytes(range(256)), None, UsageProblem, "not a private key in PEM form"),
    "public key": (KEY.public.pem, None, UsageProblem, "is a public key"),
    "RSA": (lambda: _pem(RSA), None, UsageProblem, "an RSA key, not an Ed25519 key"),
    "elliptic curve": (lambda: _pem(EC), None, UsageProblem, "not an Ed25519 key"),
    "X25519": (lambda: _pem(X25519PrivateKey.generate()), None, UsageProblem, "an X25519 key"),
    "OpenSSH": (_openssh_pem, None, UsageProblem, "OpenSSH"),
    "damaged": (lambda: KEY.pem(None).replace(b"M", b"N"), None, UsageProblem, "damaged private key"),
    "cut": (lambda: KEY.pem(None)[:-30], None, UsageProblem, "damaged private key"),
    "too large": (lambda: KEY.pem(None) * 1000, None, UsageProblem, "too large"),
    "no passphrase": (lambda: KEY.pem(PASSPHRASE), None, UsageProblem, "none is set"),
    "wrong passphrase": (lambda: KEY.pem(PASSPHRASE), "wrong one", UsageProblem, "is wrong"),
    "needless passphrase": (lambda: KEY.pem(None), PASSPHRASE, UsageProblem, "has no passphrase"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_with_a_private_key_is_named(path: Path, name: str) -> None:
    content, passphrase, kind, text = MISTAKES[name]
    path.write_bytes(content())
    path.chmod(0o600)
    with pytest.raises(kind, match=text) as caught:
        load_private(path, passphrase)
    assert str(path) in caught.value.message
    assert caught.value.hint
    text = str(caught.value)
    assert PASSPHRASE not in text
    assert "wrong one" not in text
    assert caught.value.__cause__ is None


def test_a_key_that_others_may_read_or_that_is_missing_is_named(path: Path) -> None:
    with pytest.raises(NotFound, match="No such file"):
        load_private(path)
    create(path, None)
    path.chmod(0o644)
    with pytest.raises(Refused, match="Others may read the private key") as caught:
        load_private(path)
    assert "chmod go=" in caught.value.hint
    with pytest.raises(NotFound, match="Is a directory"):
        load_public(path.parent)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (KEY.pem(None), "is a private key"),
        (KEY.pem(PASSPHRASE), "is a private key"),
        (_public_pem(RSA), "an RSA key"),
        (_public_pem(EC), "not an Ed25519 key"),
        (KEY.public.pem().replace(b"MCow", b"MCox"), "damaged public key"),
        (b"ssh-ed25519 AAAA", "not a public key in PEM form"),
        (b"", "is empty"),
    ],
)
def test_a_mistake_with_a_public_key_is_named(path: Path, content: bytes, text: str) -> None:
    path.write_bytes(content)
    with pytest.raises(UsageProblem, match=text):
        load_public(path)


def test_a_passphrase_is_the_first_line_of_a_private_file(path: Path) -> None:
    path.write_text(f"{PASSPHRASE}\r\nmore\n")
    path.chmod(0o600)
    assert read_passphrase(path) == PASSPHRASE
    path.write_text("\nsecond line")
    with pytest.raises(UsageProblem, match="empty line"):
        read_passphrase(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageProblem, match="UTF-8"):
        read_passphrase(path)
    path.chmod(0o644)
    with pytest.raises(Refused, match="Others may read the passphrase file"):
        read_passphrase(path)


def test_a_passphrase_that_protects_nothing_is_refused(path: Path) -> None:
    for passphrase in ("", "a" * 5000):
        with pytest.raises(UsageProblem, match="cannot protect"):
            create(path, passphrase)
    assert not path.exists()


def test_a_description_needs_no_passphrase(path: Path) -> None:
    key = create(path, PASSPHRASE)
    described = describe(path)
    assert described is not None
    assert (described.kind, described.key_id, described.has_passphrase) == ("private", key.key_id, True)
    public_path_of(path).unlink()
    described = describe(path)
    assert described is not None
    assert described.key_id is None
    path.write_bytes(b"text")
    assert describe(path) is None
    path.write_bytes(_pem(RSA))
    described = describe(path)
    assert described is not None
    assert "RSA" in (described.problem or "")
