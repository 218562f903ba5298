"""Key filters as they are stored: a CRC-32 behind each block. What fills them is compiled; this is not."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

#: Of a block of a filter, and of a block with its CRC-32.
BLOCK_WORDS, BLOCK_BYTES = 8, 32
SEALED_BYTES = BLOCK_BYTES + 4
_CRC = np.array([zlib.crc32(bytes([i])) ^ zlib.crc32(b"\0") for i in range(256)], np.uint32)


def seal(words: npt.NDArray[np.uint32], sha256: str) -> bytes:
    """The blocks of a key filter, uint32[blocks, BLOCK_WORDS], as they are stored: each with its CRC-32.

    It goes over the digest of the filter's data file, the block's number and the block.
    """
    count = len(words)
    blocks = np.ascontiguousarray(words, "<u4").view(np.uint8)
    numbers = np.arange(count, dtype="<u8").view(np.uint8).reshape(count, 8)
    crc = np.full(count, zlib.crc32(bytes.fromhex(sha256)) ^ 0xFFFFFFFF, np.uint32)
    for column in (*numbers.T, *blocks.T):  # of all blocks at once
        crc = _CRC[(crc ^ column) & 0xFF] ^ (crc >> 8)
    sums = (crc ^ 0xFFFFFFFF).astype("<u4").view(np.uint8).reshape(count, 4)
    return np.hstack((blocks, sums)).tobytes()


def words_of(sealed: bytes) -> Any:
    """The blocks of a filter as stored, without their sums."""
    blocks = np.frombuffer(sealed, np.uint8).reshape(-1, SEALED_BYTES)[:, :BLOCK_BYTES]
    return np.ascontiguousarray(blocks).view("<u4")


def intact(sealed: bytes, number: int, sha256: str) -> bool:
    """Whether these are block `number` of the filter of a data file, and its CRC-32, as they were written."""
    block, crc = sealed[:BLOCK_BYTES], sealed[BLOCK_BYTES:]
    try:
        digest = bytes.fromhex(sha256)
    except ValueError:  # the catalog has another text
        return False
    start = zlib.crc32(number.to_bytes(8, "little"), zlib.crc32(digest))
    return len(crc) == 4 and zlib.crc32(block, start) == int.from_bytes(crc, "little")


def whole(sealed: bytes, sha256: str) -> bool:
    """Whether this is the filter of a data file, as it was written."""
    try:
        return seal(words_of(sealed), sha256) == sealed
    except ValueError:  # it is no number of blocks, or the catalog has no digest of the file
        return False
