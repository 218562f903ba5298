"""Wrapped data keys: who opens them, and what every mistake with keys is called."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.stub import Stubber
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lakebackup.encryption.objects import DataKey
from lakebackup.encryption.recipients import (
    Identities,
    new_identity,
    protected,
    recipient,
    wrap,
)
from lakebackup.errors import Damaged, EnvironmentProblem, LakebackupError, NotFound, Refused, UsageProblem

if TYPE_CHECKING:
    from pathlib import Path

KMS = "aws-kms:arn:aws:kms:eu-west-1:111122223333:key/backup"


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o600)
    return path


@pytest.fixture
def identity(tmp_path: Path) -> tuple[Path, str]:
    """A file of an identity, and its recipient."""
    text, name = new_identity()
    return write(tmp_path / "identity.txt", text), name


def test_each_recipient_opens_the_key(tmp_path: Path) -> None:
    pairs = [new_identity() for _ in range(3)]
    data_key = DataKey.random()
    wrapped_keys = wrap(data_key, [recipient(name) for _, name in pairs])
    assert [wrapped.recipient for wrapped in wrapped_keys] == [name for _, name in pairs]
    for text, name in pairs:
        identities = Identities.load(write(tmp_path / "identity.txt", text))
        assert identities.names == (name,)
        assert identities.open(data_key.key_id, wrapped_keys) == data_key
        assert data_key.key.hex() not in repr((data_key, wrapped_keys, identities))


def test_a_file_has_several_identities(tmp_path: Path) -> None:
    pairs = [new_identity() for _ in range(2)]
    file = write(tmp_path / "identities", "\n# of both\n".join(text for text, _ in pairs))
    data_key = DataKey.random()
    for _, name in pairs:
        wrapped_keys = wrap(data_key, [recipient(name)])
        assert Identities.load(file).open(data_key.key_id, wrapped_keys) == data_key


def test_an_ssh_key_opens_the_key(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    ).decode()  # fmt: skip
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    data_key = DataKey.random()
    wrapped_keys = wrap(data_key, [recipient(f"{public} someone@host")])
    assert wrapped_keys[0].recipient == public
    identities = Identities.load(write(tmp_path / "id_ed25519", private))
    assert identities.open(data_key.key_id, wrapped_keys) == data_key


def test_a_passphrase_protects_the_file(tmp_path: Path) -> None:
    """Four seconds: scrypt is slow on purpose."""
    text, name = new_identity()
    file = write(tmp_path / "identity.age", protected(text, "correct horse"))
    assert b"SECRET" not in file.read_bytes()
    assert Identities.load(file, "correct horse").names == (name,)
    with pytest.raises(UsageProblem, match="protected by a passphrase"):
        Identities.load(file)
    with pytest.raises(UsageProblem, match=r"passphrase of .* is wrong"):
        Identities.load(file, "wrong horse")


def test_a_foreign_identity_names_the_recipients(identity: tuple[Path, str]) -> None:
    names = [new_identity()[1] for _ in range(2)]
    data_key = DataKey.random()
    with pytest.raises(Damaged, match=f"opens the data key {data_key.key_id}.*{names[0]}, {names[1]}"):
        Identities.load(identity[0]).open(data_key.key_id, wrap(data_key, map(recipient, names)))
    with pytest.raises(Damaged, match="Its recipients: nobody"):
        Identities.load(identity[0]).open(data_key.key_id, [])


def test_exchanged_and_damaged_keys_are_told(identity: tuple[Path, str]) -> None:
    file, name = identity
    first_key, second_key = DataKey.random(), DataKey.random()
    (first,), (second,) = (wrap(data_key, [recipient(name)]) for data_key in (first_key, second_key))
    identities = Identities.load(file)
    with pytest.raises(Damaged, match=f"{first_key.key_id} was exchanged.*{second_key.key_id}"):
        identities.open(first_key.key_id, [second])
    content = bytearray(base64.b64decode(first.content))
    content[-1] ^= 1
    for text in (base64.b64encode(content).decode(), "no base64!", ""):
        with pytest.raises(Damaged, match="No identity"):
            identities.open(first_key.key_id, [replace(first, content=text)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "A recipient is empty"),
        ("age1nonsense", "'age1nonsense' is not a recipient"),
        ("ssh-dss AAAA", "is not a recipient"),
        ("alice@example.org", "is not a recipient"),
        ("aws-kms:", "is not a recipient"),
        ("AGE-SECRET-KEY-1QQ", "this one is an identity"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "this one is an identity"),
    ],
)
def test_what_is_no_recipient(text: str, message: str) -> None:
    with pytest.raises(UsageProblem, match=message) as raised:
        recipient(text)
    assert "SECRET-KEY-1QQ" not in str(raised.value)


def test_what_is_no_identity_file(tmp_path: Path, identity: tuple[Path, str]) -> None:
    file, name = identity
    cases: list[tuple[Path, type[LakebackupError], str]] = [
        (tmp_path / "missing", NotFound, "does not exist"),
        (tmp_path, EnvironmentProblem, "cannot be read"),
        (write(tmp_path / "empty", ""), UsageProblem, "is not a file of identities"),
        (write(tmp_path / "public", name), UsageProblem, "is a public key"),
        (write(tmp_path / "cut", file.read_bytes()[:-9]), UsageProblem, "is not a file of identities"),
        (write(tmp_path / "binary", os.urandom(300)), UsageProblem, "is not a file of identities"),
    ]
    shared = write(tmp_path / "shared", file.read_bytes())
    shared.chmod(0o644)
    cases.append((shared, Refused, "Others may read the identity file"))
    for path, kind, message in cases:
        with pytest.raises(kind, match=message) as raised:
            Identities.load(path)
        assert "AGE-SECRET" not in str(raised.value.message)


def test_a_mock_of_kms_opens_the_key(identity: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """KMS itself does not run here."""
    client: Any = boto3.client(
        "kms", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    monkeypatch.setattr(boto3, "client", lambda _: client)
    data_key = DataKey.random()
    content = bytes.fromhex(data_key.key_id) + data_key.key
    key = KMS.removeprefix("aws-kms:")
    with Stubber(client) as stub:
        stub.add_response("encrypt", {"CiphertextBlob": b"of KMS"}, {"KeyId": key, "Plaintext": content})
        (wrapped,) = wrap(data_key, [recipient(KMS)])
        stub.add_response("decrypt", {"Plaintext": content}, {"KeyId": key, "CiphertextBlob": b"of KMS"})
        assert Identities.load(identity[0]).open(data_key.key_id, [wrapped]) == data_key
        stub.add_client_error("decrypt", "IncorrectKeyException")
        with pytest.raises(Damaged, match="No identity"):
            Identities.load(identity[0]).open(data_key.key_id, [wrapped])
        stub.add_client_error("decrypt", "AccessDeniedException")
        with pytest.raises(EnvironmentProblem, match=r"KMS refuses to decrypt .*AccessDenied"):
            Identities.load(identity[0]).open(data_key.key_id, [wrapped])
