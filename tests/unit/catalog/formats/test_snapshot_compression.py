"""Frames of files: what is read is what was written, or an error, and never more than the catalog says."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.formats.snapshots.compression import (
    Compressor,
    compressed,
    decompressed,
    is_worth,
    sample_positions,
)

TEXT = b"".join(b'{"id": %d, "city": "Oslo"}\n' % number for number in range(60_000))
RANDOM = random.Random(3).randbytes(1 << 20)
CONTENTS = st.binary(max_size=3000) | st.builds(
    lambda start, size, zeros: TEXT[start : start + size] + bytes(zeros) + RANDOM[start : start + size // 3],
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.integers(0, 20_000),
)
CUTS = st.lists(st.integers(1, 4000), max_size=8)


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """The data in pieces of these sizes, and the rest."""
    start = 0
    for size in sizes:
        if start < len(data):
            yield data[start : start + size]
        start += size
    if start < len(data):
        yield data[start:]


def read(frame: bytes, size: int, sizes: list[int] | None = None) -> bytes:
    return b"".join(decompressed(map(memoryview, pieces(frame, sizes or [])), size))


@given(CONTENTS, CUTS, CUTS)
def test_a_frame_holds_the_contents(data: bytes, chunk_sizes: list[int], stored_sizes: list[int]) -> None:
    for frame in (Compressor().frame(data), b"".join(compressed(pieces(data, chunk_sizes), len(data)))):
        assert read(frame, len(data), stored_sizes) == data
        assert zstd.decompress(frame) == data
        assert zstd.get_frame_info(frame).decompressed_size == len(data)


def test_a_compressor_makes_one_frame_after_another() -> None:
    compressor = Compressor()
    for data in (b"", TEXT[:1000], RANDOM[:1000], b"x"):
        assert zstd.decompress(compressor.frame(data)) == data


@given(CONTENTS, st.data())
def test_a_torn_frame_is_an_error(data: bytes, draw: st.DataObject) -> None:
    frame = Compressor().frame(data)
    torn = frame[: draw.draw(st.integers(0, len(frame) - 1))]
    with pytest.raises(ValueError, match="ends too early"):
        read(torn, len(data))


@given(CONTENTS.filter(len), st.data())
def test_a_flipped_bit_is_an_error_or_changes_nothing(data: bytes, draw: st.DataObject) -> None:
    frame = bytearray(Compressor().frame(data))
    frame[draw.draw(st.integers(0, len(frame) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    with suppress(ValueError):
        assert read(bytes(frame), len(data)) == data


@pytest.mark.parametrize("size", [0, 1, 99, 101, 1 << 40])
def test_a_frame_of_another_size_is_an_error(size: int) -> None:
    with pytest.raises(ValueError, match="it holds"):
        read(Compressor().frame(b"x" * 100), size)


def test_a_frame_that_expands_too_far_is_read_no_further_than_its_size() -> None:
    bomb = b"".join(compressed((bytes(1 << 20) for _ in range(1000)), 1000 << 20))
    assert len(bomb) < 1 << 18
    sizes: list[int] = []
    with pytest.raises(ValueError, match="more than 3145728 bytes"):
        sizes.extend(len(piece) for piece in decompressed([memoryview(bomb)], 3 << 20))
    assert sum(sizes) <= 3 << 20
    assert max(sizes) <= 1 << 20


def test_a_frame_that_claims_a_huge_size_or_window_is_an_error() -> None:
    options = {zstd.CompressionParameter.compression_level: 1, zstd.CompressionParameter.window_log: 27}
    encoder = zstd.ZstdCompressor(options=options)
    wide = encoder.compress(TEXT) + encoder.flush()
    with pytest.raises(ValueError, match=r"[Ww]indow|memory"):
        read(wide, len(TEXT))
    # A header that claims 2^62 bytes: single segment, so the claim is the window too.
    claims = b"\x28\xb5\x2f\xfd" + bytes([0b11100000]) + (1 << 62).to_bytes(8, "little") + bytes(100)
    with pytest.raises(ValueError, match=r"."):
        read(claims, 1 << 62)


@pytest.mark.parametrize("trailing", [b"x", b"\x28\xb5\x2f\xfd", Compressor().frame(b"")])
def test_bytes_behind_the_frame_are_an_error(trailing: bytes) -> None:
    frame = Compressor().frame(TEXT)
    for sizes in ([], [len(frame)]):
        with pytest.raises(ValueError, match="other bytes"):
            read(frame + trailing, len(TEXT), sizes)


@given(st.integers(1, 1 << 60))
def test_a_sample_lies_within_the_file_and_covers_both_ends(size: int) -> None:
    positions = sample_positions(size)
    assert positions[0][0] == 0
    assert sum(positions[-1]) == size
    assert all(position >= 0 and position + length <= size for position, length in positions)
    assert sum(length for _, length in positions) <= 128 << 10


def shrinks(data: bytes) -> bool:
    return Compressor().shrinks(
        data[position : position + size] for position, size in sample_positions(len(data))
    )


def test_what_is_compressed_already_is_not_worth_it() -> None:
    assert shrinks(TEXT)
    assert shrinks(RANDOM[: 1 << 19] + TEXT[: 1 << 19])
    noise = b"".join(b"%d " % byte for byte in RANDOM[: 1 << 18])
    for encoded in (RANDOM, gzip.compress(noise), zstd.compress(noise)):
        assert not shrinks(encoded)
        assert not shrinks(TEXT[:4096] + encoded)  # a header that shrinks does not decide


def test_a_tenth_is_the_least_gain() -> None:
    assert is_worth(90, 100)
    assert not is_worth(91, 100)
    assert not is_worth(13, 0)
