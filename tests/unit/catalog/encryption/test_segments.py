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
    seal,
    stored_bytes,
    unseal,
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


def content_of(size: int) -> bytes:
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
def test_a_content_comes_back(size: int) -> None:
    content = content_of(size)
    stored = seal(KEY, NAME, content)
    assert len(stored) == stored_bytes(size)
    assert content_bytes(len(stored)) == size
    assert unseal(KEY, NAME, stored) == content
    assert seal(KEY, NAME, content) != stored, "another salt"


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
    stored, start = b"", 0
    for piece in pieces:
        stored += sealer.update(content[start : start + piece])
        start += piece
    stored += sealer.finish()
    read = 0

    def read_range(start: int, length: int) -> bytes:
        nonlocal read
        read += length
        return stored[start : start + length]

    sealed = SealedObject(KEY, NAME, len(stored), read_range)
    for start, length in ranges:
        read = 0
        assert sealed.get(start, length) == content[start : start + length]
        assert read <= length + 2 * SEGMENT_BYTES
    assert io.BufferedReader(sealed).read() == content


@given(size=st.sampled_from(SIZES), data=st.data())
def test_a_flipped_bit_is_noticed(size: int, data: st.DataObject) -> None:
    stored = bytearray(seal(KEY, NAME, content_of(size)))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Damaged, match=NAME):
        unseal(KEY, NAME, bytes(stored))


def whole(number: int) -> slice:
    return slice(number * SEGMENT_BYTES, (number + 1) * SEGMENT_BYTES)


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored[:-1],
        lambda stored: stored[: 2 * SEGMENT_BYTES],
        lambda stored: stored[: HEADER_BYTES + 15],
        lambda stored: stored[:0],
        lambda stored: stored + stored[-20:],
        lambda stored: (
            stored[:SEGMENT_BYTES] + stored[whole(2)] + stored[whole(1)] + stored[3 * SEGMENT_BYTES :]
        ),
        lambda stored: (
            stored[:SEGMENT_BYTES] + stored[whole(1)] + stored[whole(1)] + stored[3 * SEGMENT_BYTES :]
        ),
    ],
    ids=["a byte less", "whole segments gone", "header alone", "nothing", "more", "exchanged", "repeated"],
)
def test_another_sequence_of_segments_is_noticed(change: object) -> None:
    stored = seal(KEY, NAME, content_of(220_000))
    assert callable(change)
    with pytest.raises(Damaged, match=NAME):
        unseal(KEY, NAME, change(stored))


def test_another_key_or_name_opens_nothing() -> None:
    stored = seal(KEY, NAME, b"content")
    with pytest.raises(Damaged):
        unseal(bytes(KEY_BYTES), NAME, stored)
    with pytest.raises(Damaged):
        unseal(KEY, f"{NAME}2", stored)


def test_sizes_that_no_object_has() -> None:
    for stored in (0, HEADER_BYTES, HEADER_BYTES + 15, SEGMENT_BYTES + 1, SEGMENT_BYTES + 16):
        assert content_bytes(stored) is None
    assert content_bytes(HEADER_BYTES + 16) == 0
