"""Encrypted objects: what can be read by range, and what is noticed."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.encryption.segments import (
    HEADER_BYTES,
    KEY_BYTES,
    SEGMENT_BYTES,
    SealedObject,
    Sealer,
    content_bytes,
    stored_bytes,
)
from lakebackup.errors import Damaged

KEY = bytes(range(KEY_BYTES))
NAME = "events/backups/20260131T134511Z-0a1b2c3d/data"
SEGMENT = SEGMENT_BYTES - 16
TINK = (
    "2869a3bcaa3228945d7a671ae27dc861686cd35276eb15a93c26d8f9b8b8b40e9bfa943a820a9edbaa6479540f"
    "0d9823a3506d4c5824b0080d057c9877706e"
)
SIZES = [
    0,
    1,
    SEGMENT - HEADER_BYTES,
    SEGMENT - HEADER_BYTES + 1,
    SEGMENT,
    2 * SEGMENT - HEADER_BYTES,
    200_000,
]


def seal(key: bytes, name: str, content: bytes) -> bytes:
    sealer = Sealer(key, name)
    return sealer.update(content) + sealer.finish()


def unseal(key: bytes, name: str, ciphertext: bytes) -> bytes:
    def read_range(start: int, length: int) -> bytes:
        return ciphertext[start : start + length]

    return SealedObject(key, name, len(ciphertext), read_range, path=name).read()


def content_of(size: int) -> bytes:
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
def test_a_content_comes_back(size: int) -> None:
    content = content_of(size)
    ciphertext = seal(KEY, NAME, content)
    assert len(ciphertext) == stored_bytes(size)
    assert content_bytes(len(ciphertext)) == size
    assert unseal(KEY, NAME, ciphertext) == content
    assert seal(KEY, NAME, content) != ciphertext, "another salt"


def test_the_format_is_that_of_tink() -> None:
    """This object was written by Tink 1.16 with AES256-GCM-HKDF, SHA256 and segments of 64 KiB."""
    assert unseal(KEY, NAME, bytes.fromhex(TINK)) == b"of Tink"


@given(
    pieces=st.lists(st.integers(0, 90_000), max_size=6),
    ranges=st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 150_000)), max_size=6),
)
def test_any_pieces_are_read_by_any_range(pieces: list[int], ranges: list[tuple[int, int]]) -> None:
    sealer = Sealer(KEY, NAME)
    content = content_of(sum(pieces))
    ciphertext, start = b"", 0
    for piece in pieces:
        ciphertext += sealer.update(content[start : start + piece])
        start += piece
    ciphertext += sealer.finish()
    read = 0

    def read_range(start: int, length: int) -> bytes:
        nonlocal read
        read += length
        return ciphertext[start : start + length]

    sealed = SealedObject(KEY, NAME, len(ciphertext), read_range, path=NAME)
    for start, length in ranges:
        read = 0
        assert sealed.content(start, length) == content[start : start + length]
        assert read <= length + 2 * SEGMENT_BYTES
    assert io.BufferedReader(sealed).read() == content


@given(size=st.sampled_from(SIZES), data=st.data())
def test_a_flipped_bit_is_noticed(size: int, data: st.DataObject) -> None:
    ciphertext = bytearray(seal(KEY, NAME, content_of(size)))
    ciphertext[data.draw(st.integers(0, len(ciphertext) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Damaged, match=NAME):
        unseal(KEY, NAME, bytes(ciphertext))


def segment(number: int) -> slice:
    return slice(number * SEGMENT_BYTES, (number + 1) * SEGMENT_BYTES)


@pytest.mark.parametrize(
    "change",
    [
        lambda ciphertext: ciphertext[:-1],
        lambda ciphertext: ciphertext[: 2 * SEGMENT_BYTES],
        lambda ciphertext: ciphertext[: HEADER_BYTES + 15],
        lambda ciphertext: ciphertext[:0],
        lambda ciphertext: ciphertext + ciphertext[-20:],
        lambda ciphertext: (
            ciphertext[:SEGMENT_BYTES]
            + ciphertext[segment(2)]
            + ciphertext[segment(1)]
            + ciphertext[3 * SEGMENT_BYTES :]
        ),
        lambda ciphertext: (
            ciphertext[:SEGMENT_BYTES]
            + ciphertext[segment(1)]
            + ciphertext[segment(1)]
            + ciphertext[3 * SEGMENT_BYTES :]
        ),
    ],
    ids=["a byte less", "whole segments gone", "header alone", "nothing", "more", "exchanged", "repeated"],
)
def test_another_sequence_of_segments_is_noticed(change: object) -> None:
    ciphertext = seal(KEY, NAME, content_of(220_000))
    assert callable(change)
    with pytest.raises(Damaged, match=NAME):
        unseal(KEY, NAME, change(ciphertext))


def test_another_key_or_name_opens_nothing() -> None:
    ciphertext = seal(KEY, NAME, b"content")
    with pytest.raises(Damaged):
        unseal(bytes(KEY_BYTES), NAME, ciphertext)
    with pytest.raises(Damaged):
        unseal(KEY, f"{NAME}2", ciphertext)


def test_sizes_that_no_object_has() -> None:
    for ciphertext in (0, HEADER_BYTES, HEADER_BYTES + 15, SEGMENT_BYTES + 1, SEGMENT_BYTES + 16):
        assert content_bytes(ciphertext) is None
    assert content_bytes(HEADER_BYTES + 16) == 0
