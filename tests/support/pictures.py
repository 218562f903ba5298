"""What is to be seen on a PNG, without a library of pictures."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
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
    found = np.zeros((height, width * size), np.uint8)
    above = np.zeros(width * size, np.int64)
    for number, (how, line) in enumerate(zip(lines[:, 0], lines[:, 1:].astype(np.int64), strict=True)):
        above = _line(int(how), line, above, size)
        found[number] = above
    image = found.reshape(height, width, size).astype(np.float64)
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
    return len(np.unique(image.reshape(-1, 3), axis=0))


def _line(how: int, line: NDArray[np.int64], above: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    if how == 0:
        return line
    if how == 2:
        return (line + above) & 255
    if how == 1:
        return line.reshape(-1, size).cumsum(axis=0).reshape(-1) & 255
    done = np.zeros_like(line)
    for at, value in enumerate(line.tolist()):
        left = int(done[at - size]) if at >= size else 0
        up, corner = int(above[at]), int(above[at - size]) if at >= size else 0
        if how == 3:
            guess = (left + up) // 2
        else:
            near = [abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)]
            guess = (left, up, corner)[near.index(min(near))]
        done[at] = (value + guess) & 255
    return done
