"""Checksums beside the files of a table in a folder, as Hadoop puts them: Spark verifies them too."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_HEADER = struct.Struct(">4si")
_EVERY = 512


def sums_of(data: bytes, every: int = _EVERY) -> bytes:
    """What Hadoop puts beside a file with these bytes, as `.<name>.crc`; its readers verify it."""
    view = memoryview(data)
    found = (zlib.crc32(view[at : at + every]).to_bytes(4) for at in range(0, len(data), every))
    return _HEADER.pack(b"crc\0", every) + b"".join(found)


def is_whole(file: Path, data: bytes) -> bool:
    """Whether a file's bytes are those that its `.<name>.crc` is of; true without one."""
    try:
        sums = file.with_name(f".{file.name}.crc").read_bytes()
    except FileNotFoundError:
        return True
    if len(sums) < _HEADER.size:
        return False
    magic, every = _HEADER.unpack_from(sums)
    return magic == b"crc\0" and every > 0 and sums_of(data, every) == sums
