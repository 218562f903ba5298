"""Checksum files, as Hadoop writes them beside the files of a table in a folder, so that Spark verifies them
too.

`.<name>.crc` has a header with the chunk size, then a CRC-32 of each chunk of the file `<name>`.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

_HEADER = struct.Struct(">4si")
_CHUNK_BYTES = 512
_LEAST_CHUNK_BYTES = 64  # smaller chunks, which only a forged file has, would take too long to sum


def sums_of(data: bytes, every: int = _CHUNK_BYTES) -> bytes:
    """Return the bytes of the `.<name>.crc` of a file with the bytes `data`. `every`: the chunk size in
    bytes."""
    view = memoryview(data)
    checksums = (zlib.crc32(view[start : start + every]).to_bytes(4) for start in range(0, len(data), every))
    return _HEADER.pack(b"crc\0", every) + b"".join(checksums)


def is_whole(file: Path, data: bytes) -> bool:
    """Whether the bytes of a file match its `.<name>.crc`; true when there is none."""
    try:
        with open(file.with_name(f".{file.name}.crc"), "rb", opener=_open_without_links) as stream:
            sums = stream.read(_HEADER.size + 4 * len(data) + 1)
    except FileNotFoundError:
        return True
    except OSError:  # a link or a folder
        return False
    if len(sums) < _HEADER.size:
        return False
    magic, chunk_bytes = _HEADER.unpack_from(sums)
    return magic == b"crc\0" and chunk_bytes >= _LEAST_CHUNK_BYTES and sums_of(data, chunk_bytes) == sums


def _open_without_links(path: str, flags: int) -> int:
    """Open a file, but follow no link, and do not wait for the writer of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
