"""The stored form of key filters: a CRC-32 follows each block. This module needs no compiled code.

The CRC-32 covers the SHA-256 of the filter's data file, the block's number and the block. For many blocks,
`seal` computes all CRC-32 at once: it goes through the byte positions, and updates every block's CRC from a
table.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

#: Sizes of a filter's block, without and with its CRC-32.
BLOCK_WORDS, BLOCK_BYTES = 8, 32
SEALED_BYTES = BLOCK_BYTES + 4
# For up to so many blocks, zlib takes less time than numpy, whose time hardly depends on their number.
_FEW_BLOCKS = 256
# The usual table of CRC-32 for one byte. zlib's own inversions of the CRC cancel out.
_CRC = np.array([zlib.crc32(bytes([i])) ^ zlib.crc32(b"\0") for i in range(256)], np.uint32)


def seal(words: npt.NDArray[np.uint32], sha256: str) -> bytes:
    """Return the stored form of a key filter: its blocks, uint32[blocks, BLOCK_WORDS], each with its
    CRC-32."""
    count = len(words)
    if count <= _FEW_BLOCKS:
        data, digest_crc = words.astype("<u4").tobytes(), zlib.crc32(bytes.fromhex(sha256))
        parts = (data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES))
        return b"".join(
            block + _block_crc(block, number, digest_crc).to_bytes(4, "little")
            for number, block in enumerate(parts)
        )
    blocks = np.ascontiguousarray(words, "<u4").view(np.uint8)
    numbers = np.arange(count, dtype="<u8").view(np.uint8).reshape(count, 8)
    crc = np.full(count, zlib.crc32(bytes.fromhex(sha256)) ^ 0xFFFFFFFF, np.uint32)
    for column in (*numbers.T, *blocks.T):  # a column has the same byte of all blocks
        crc = _CRC[(crc ^ column) & 0xFF] ^ (crc >> 8)
    sums = (crc ^ 0xFFFFFFFF).astype("<u4").view(np.uint8).reshape(count, 4)
    return np.hstack((blocks, sums)).tobytes()


def words_of(sealed: bytes) -> Any:
    """Return the blocks of a stored filter, uint32[blocks, BLOCK_WORDS]. Their CRC-32 are not checked."""
    blocks = np.frombuffer(sealed, np.uint8).reshape(-1, SEALED_BYTES)[:, :BLOCK_BYTES]
    return np.ascontiguousarray(blocks).view("<u4")


def is_undamaged_block(sealed: bytes, number: int, sha256: str) -> bool:
    """Return whether `sealed` is the undamaged block `number` of the filter of the data file with this
    SHA-256."""
    block, crc = sealed[:BLOCK_BYTES], sealed[BLOCK_BYTES:]
    try:
        digest = bytes.fromhex(sha256)
    except ValueError:  # the catalog has no valid digest
        return False
    return len(crc) == 4 and _block_crc(block, number, zlib.crc32(digest)) == int.from_bytes(crc, "little")


def _block_crc(block: bytes, number: int, digest_crc: int) -> int:
    return zlib.crc32(block, zlib.crc32(number.to_bytes(8, "little"), digest_crc))


def is_undamaged(sealed: bytes, sha256: str) -> bool:
    """Return whether `sealed` is the undamaged filter of the data file with this SHA-256."""
    try:
        return seal(words_of(sealed), sha256) == sealed
    except ValueError:  # it is not a whole number of blocks, or the catalog has no valid digest
        return False
