"""Compress files of a snapshot: each becomes one zstd frame, which the program `zstd` reads too.

The frame's header has the size of the contents. Reading a frame is bounded: no frame makes more bytes than
the catalog has for the file, and none takes a window of more than 8 MiB, whatever it claims.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: How the bytes of a file are stored: as they are, or as a zstd frame.
Codec = Literal["none", "zstd"]
#: How a backup chooses the codec of a file: `auto` compresses the files that become smaller.
CodecChoice = Literal["auto", "zstd", "none"]
#: Files up to this size are compressed as a whole: that takes about as long as a sample of a larger file.
SMALL: Final = 512 << 10
# Higher levels make files hardly smaller: docs/results/snapshots.md has the figures.
_OPTIONS: Final[Mapping[int, int]] = {
    zstd.CompressionParameter.compression_level: 1,
    zstd.CompressionParameter.checksum_flag: 1,
}
_LIMITS: Final[Mapping[int, int]] = {zstd.DecompressionParameter.window_log_max: 23}
_PIECE = 1 << 20
_SAMPLES = 8
_SAMPLE_BYTES = 16 << 10
# A file is compressed if that saves a tenth: reading it back costs more time than a smaller gain is worth.
_WORTH = 0.9


def sample_positions(size: int) -> Sequence[tuple[int, int]]:
    """Return what to read as a sample of a file of `size` bytes, as (position, bytes).

    The parts are spread evenly over the file, since headers and indexes compress better than the rest.
    """
    length = min(size, _SAMPLE_BYTES)
    return [(number * (size - length) // (_SAMPLES - 1), length) for number in range(_SAMPLES)]


def is_worth(stored_bytes: int, size: int) -> bool:
    """Return whether `size` bytes should be stored as a frame of `stored_bytes`."""
    return stored_bytes <= _WORTH * size


class Compressor:
    """Compresses small pieces of data. It is reused, since making one takes longer than a small file."""

    def __init__(self) -> None:
        self._encoder = zstd.ZstdCompressor(options=_OPTIONS)

    def frame(self, data: bytes) -> bytes:
        """Return the frame of a small file."""
        return self._encoder.compress(data, self._encoder.FLUSH_FRAME)

    def shrinks(self, parts: Iterable[bytes]) -> bool:
        """Return whether the parts of a sample are worth compressing."""
        frame_bytes = part_bytes = 0
        for part in parts:
            frame_bytes += len(self.frame(part))
            part_bytes += len(part)
        return is_worth(frame_bytes, part_bytes)


def compressed(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the frame of a file of `size` bytes, in pieces. Memory holds one chunk."""
    encoder = zstd.ZstdCompressor(options=_OPTIONS)
    encoder.set_pledged_input_size(size)
    for chunk in chunks:
        if piece := encoder.compress(chunk):
            yield piece
    yield encoder.flush(encoder.FLUSH_FRAME)


def decompressed(chunks: Iterable[memoryview], size: int) -> Iterator[memoryview]:
    """Yield the contents of a frame, at most `size` bytes, in pieces of up to 1 MiB.

    Raises ValueError when the chunks are not exactly one frame of `size` bytes.
    """
    decoder = zstd.ZstdDecompressor(options=_LIMITS)
    count, is_complete = 0, False
    for chunk in chunks:
        if is_complete:
            raise ValueError("other bytes follow it")
        data: bytes | memoryview = chunk
        while True:
            try:
                piece = decoder.decompress(data, _PIECE)
            except zstd.ZstdError as error:
                raise ValueError(str(error)) from error
            data = b""
            count += len(piece)
            if count > size:
                raise ValueError(f"it holds more than {size} bytes")
            if piece:
                yield memoryview(piece)
            if decoder.eof or decoder.needs_input:
                break
        is_complete = decoder.eof
        if decoder.unused_data:
            raise ValueError("other bytes follow it")
    if not is_complete:
        raise ValueError("it ends too early")
    if count != size:
        raise ValueError(f"it holds {count} bytes, not {size}")
