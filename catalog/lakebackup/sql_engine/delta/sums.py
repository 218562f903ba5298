"""Checksums beside the files of a table in a folder, as Hadoop puts them: Spark verifies them too."""

from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_HEADER = struct.Struct(">4si")
_EVERY = 512
_LEAST_EVERY = 64  # of a stranger's file, whose sums would take long


def sums_of(data: bytes, every: int = _EVERY) -> bytes:
    """What Hadoop puts beside a file with these bytes, as `.<name>.crc`; its readers verify it."""
    view = memoryview(data)
    found = (zlib.crc32(view[at : at + every]).to_bytes(4) for at in range(0, len(data), every))
    return _HEADER.pack(b"crc\0", every) + b"".join(found)


def is_whole(file: Path, data: bytes) -> bool:
    """Whether a file's bytes are those that its `.<name>.crc` is of; true without one."""
    try:
        with open(file.with_name(f".{file.name}.crc"), "rb", opener=_unfollowed) as stream:
            sums = stream.read(_HEADER.size + 4 * len(data) + 1)
    except FileNotFoundError:
        return True
    except OSError:  # a link or a folder
        return False
    if len(sums) < _HEADER.size:
        return False
    magic, every = _HEADER.unpack_from(sums)
    return magic == b"crc\0" and every >= _LEAST_EVERY and sums_of(data, every) == sums


def _unfollowed(path: str, flags: int) -> int:
    """Open a file, but through no link, and without waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
