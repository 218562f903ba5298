"""What is to be seen on a PNG, without a library of pictures."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numba import njit
from numpy.typing import NDArray

_CHANNELS = {2: 3, 6: 4}  # colour types of the format: RGB and RGBA


def pixels(png: bytes) -> NDArray[np.uint8]:
    """Rows x columns x RGB, on white. Format: W3C "Portable Network Graphics", 8 bits, not interlaced."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height, depth, colours, *_, interlaced = struct.unpack(">IIBBBBB", png[16:29])
    assert (depth, interlaced) == (8, 0)
    size, data, at = _CHANNELS[colours], b"", 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        data += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * size)
    image = _unfiltered(lines, size).reshape(height, width, size).astype(np.float64)
    if size == 4:
        part = image[..., 3:] / 255
        image = image[..., :3] * part + 255 * (1 - part)
    return image.round().astype(np.uint8)


def share(image: NDArray[np.uint8], colour: str, near: int = 12) -> float:
    """The part of a picture that has a colour such as #d3122a, or nearly so."""
    wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
    return float((np.abs(image.astype(int) - wanted).max(axis=2) <= near).mean())


def colours(image: NDArray[np.uint8]) -> int:
    """How many colours there are."""
    return len(np.unique(image.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)))


@njit  # type: ignore[untyped-decorator, unused-ignore]
def _unfiltered(lines: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Each line begins with how its bytes were predicted from those to the left and above."""
    found = np.zeros((lines.shape[0], lines.shape[1] - 1), np.uint8)
    for row in range(lines.shape[0]):
        how = lines[row, 0]
        for at in range(found.shape[1]):
            left = np.int64(found[row, at - size]) if at >= size else 0
            up = np.int64(found[row - 1, at]) if row else 0
            corner = np.int64(found[row - 1, at - size]) if row and at >= size else 0
            guess = 0
            if how == 1:
                guess = left
            elif how == 2:
                guess = up
            elif how == 3:
                guess = (left + up) // 2
            elif how == 4:
                by_left, by_up = abs(up - corner), abs(left - corner)
                by_corner = abs(left + up - 2 * corner)
                if by_left <= by_up and by_left <= by_corner:
                    guess = left
                else:
                    guess = up if by_up <= by_corner else corner
            found[row, at] = (lines[row, at + 1] + guess) & 255
    return found
