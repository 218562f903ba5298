"""Reads the pixels and colours of PNG images without an imaging library."""

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
    size, data, offset = _CHANNELS[colours], b"", 8
    while offset < len(png):
        length, kind = struct.unpack(">I4s", png[offset : offset + 8])
        data += png[offset + 8 : offset + 8 + length] if kind == b"IDAT" else b""
        offset += 12 + length
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * size)
    image = _unfiltered(lines, size).reshape(height, width, size).astype(np.float64)
    if size == 4:
        alpha = image[..., 3:] / 255
        image = image[..., :3] * alpha + 255 * (1 - alpha)
    return image.round().astype(np.uint8)


def share(image: NDArray[np.uint8], colour: str, near: int = 12) -> float:
    """The share of an image's pixels that have a colour such as #d3122a, or nearly so."""
    rgb = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)])
    return float((np.abs(image.astype(int) - rgb).max(axis=2) <= near).mean())


def colours(image: NDArray[np.uint8]) -> int:
    """The number of different colours."""
    return len(np.unique(image.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)))


@njit  # type: ignore[untyped-decorator, unused-ignore]
def _unfiltered(lines: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Undo the filters: a line starts with the kind of prediction from the bytes to the left and above."""
    image = np.zeros((lines.shape[0], lines.shape[1] - 1), np.uint8)
    for row in range(lines.shape[0]):
        filter_type = lines[row, 0]
        for column in range(image.shape[1]):
            left_byte = np.int64(image[row, column - size]) if column >= size else 0
            upper_byte = np.int64(image[row - 1, column]) if row else 0
            corner_byte = np.int64(image[row - 1, column - size]) if row and column >= size else 0
            prediction = 0
            if filter_type == 1:
                prediction = left_byte
            elif filter_type == 2:
                prediction = upper_byte
            elif filter_type == 3:
                prediction = (left_byte + upper_byte) // 2
            elif filter_type == 4:
                left_distance, upper_distance = abs(upper_byte - corner_byte), abs(left_byte - corner_byte)
                corner_distance = abs(left_byte + upper_byte - 2 * corner_byte)
                if left_distance <= upper_distance and left_distance <= corner_distance:
                    prediction = left_byte
                else:
                    prediction = upper_byte if upper_distance <= corner_distance else corner_byte
            image[row, column] = (lines[row, column + 1] + prediction) & 255
    return image
