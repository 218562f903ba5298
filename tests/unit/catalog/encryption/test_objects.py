"""Encrypted objects: other programs open them as documented, and no key opens what is another's."""

from __future__ import annotations

import json
import pickle
from itertools import product

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.encryption.objects import (
    MAGIC,
    PREFIX_BYTES,
    BackupKey,
    BoundName,
    DataKey,
    FileName,
    Keyring,
    key_id_of,
    sealed_bytes,
)
from lakebackup.errors import Damaged

KEY = BackupKey(DataKey.random(), "prod", "20260101T000000Z-00000001")
NAME: FileName = ("orders", "0" * 32, "3", 17)


def opened(ring: Keyring, ciphertext: bytes, kind: str = "data", name: BoundName = NAME) -> bytes:
    read = ring.open("p", kind, name, len(ciphertext), lambda start, n: ciphertext[start : start + n])  # type: ignore[arg-type]
    return read.read()


def opened_by_hand(ciphertext: bytes, data_key: bytes, name: str) -> bytes:
    """What docs/data-format.md says, in another program."""
    header, body = ciphertext[16:56], ciphertext[56:]
    assert header[0] == 40
    key = HKDF(SHA256(), 32, header[1:33], name.encode()).derive(data_key)
    content, number, size = b"", 0, 65_496
    while True:
        segment, body = body[:size], body[size:]
        nonce = header[33:40] + number.to_bytes(4, "big") + bytes([not body])
        content += AESGCM(key).decrypt(nonce, segment, None)
        if not body:
            return content
        number, size = number + 1, 65_536


@given(st.lists(st.binary(max_size=1 << 17), max_size=4))
def test_the_documented_format_opens_what_is_sealed_piece_by_piece(pieces: list[bytes]) -> None:
    sealer = KEY.sealer("data", NAME)
    ciphertext = b"".join([*(sealer.update(piece) for piece in pieces), sealer.finish()])
    content = b"".join(pieces)
    assert len(ciphertext) == sealer.size == sealed_bytes(len(content))
    assert (ciphertext[:8], ciphertext[8:16].hex()) == (MAGIC, KEY.key_id)
    assert opened(Keyring([KEY]), ciphertext) == content
    name = json.dumps([KEY.key_id, "prod", KEY.backup_id, "data", "orders", "0" * 32, "3", 17])
    assert opened_by_hand(ciphertext, KEY.data_key.key, name) == content
    path = "prod/snapshots/b/t/a.sst.zst.enc"
    ciphertext = b"".join(KEY.sealer("files", (path,)).chunks(pieces))
    assert opened(Keyring([KEY]), ciphertext, "files", (path,)) == content
    name = json.dumps([KEY.key_id, "prod", KEY.backup_id, "files", path])
    assert opened_by_hand(ciphertext, KEY.data_key.key, name) == content


def test_an_object_opens_only_as_what_it_is() -> None:
    """All objects of one key, under the names of all others; and under other backups of the same key."""
    names: list[tuple[str, BoundName]] = [
        *product(("data", "keys"), [NAME, ("other", *NAME[1:]), (*NAME[:2], "4", 17), (*NAME[:3], 18)]),
        *product(("files",), [("prod/snapshots/b/t/a.sst",), ("prod/snapshots/b/t/b.sst",)]),
    ]
    objects = {name: KEY.seal(*name, b"content") for name in names}  # type: ignore[arg-type]
    ring = Keyring([KEY])
    for (name, ciphertext), other in product(objects.items(), names):
        if name == other:
            assert opened(ring, ciphertext, *other) == b"content"
        else:
            with pytest.raises(Damaged, match="p cannot be decrypted"):
                opened(ring, ciphertext, *other)
    for changed in (
        BackupKey(KEY.data_key, "test", KEY.backup_id),
        BackupKey(KEY.data_key, "prod", "20260101T000000Z-00000002"),
        BackupKey(DataKey(KEY.key_id, DataKey.random().key), "prod", KEY.backup_id),
    ):
        with pytest.raises(Damaged, match="p cannot be decrypted"):
            opened(Keyring([changed]), objects["data", NAME])


def test_an_object_without_a_key_or_with_an_unknown_one_is_damaged() -> None:
    other = BackupKey(DataKey.random(), "prod", KEY.backup_id)
    with pytest.raises(Damaged, match=f"data key {other.key_id}, which was not opened"):
        opened(Keyring([KEY]), other.seal("data", NAME, b""))
    with pytest.raises(Damaged, match="is not encrypted"):
        opened(Keyring([KEY]), b"Obj\x01" + bytes(100))
    assert key_id_of(MAGIC) is None
    assert key_id_of(MAGIC + bytes(7)) is None


def test_keys_follow_from_the_secret_and_are_never_shown() -> None:
    secret = bytes(32)
    key = DataKey.derive(secret, "prod", "b1")
    assert key == DataKey.derive(secret, "prod", "b1")
    others = [
        DataKey.derive(*arguments)
        for arguments in ((secret, "prod", "b2"), (secret, "prodb1"), (b"x" * 32, "prod", "b1"))
    ]
    assert len({key.key_id, *(other.key_id for other in others)}) == 4
    ring = Keyring([KEY])
    shown = f"{KEY!r} {ring!r} {KEY.data_key!r}"
    assert KEY.key_id in shown
    assert KEY.data_key.key.hex() not in shown
    assert repr(KEY.data_key.key) not in shown
    copy = pickle.loads(pickle.dumps(ring))
    assert dict(copy) == dict(ring)
    assert len(KEY.seal("data", NAME, b"")) > PREFIX_BYTES
