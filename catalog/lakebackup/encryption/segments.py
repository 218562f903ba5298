"""Encrypt an object in segments that are read by range: Tink's AES-GCM-HKDF streaming AEAD.

An object begins with a header: its own length (1 byte), a salt (32 bytes) and the beginning of all nonces
(7 bytes). Ciphertext follows, in segments of 64 KiB, header and tag of 16 bytes included. HKDF-SHA256 derives
the key of the object from the data key, the salt and the object's name as associated data. The nonce of a
segment is the beginning, its number (4 bytes) and whether it is the last (1 byte). So segments can be neither
exchanged, nor repeated, nor left out, and an object cannot take the name of another.

Source: "AES-GCM-HKDF Streaming AEAD" in the documentation of Tink.
"""

from __future__ import annotations

import io
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lakebackup.errors import Damaged

#: The bytes of a data key.
KEY_BYTES = 32
#: The bytes of a segment as it is stored.
SEGMENT_BYTES = 64 << 10
HEADER_BYTES = 40
_TAG_BYTES = 16
_PIECE_SEGMENTS = 16
_PREFIX_BYTES = 7
_SALT_BYTES = 32
_LARGEST_NUMBER = (1 << 32) - 1

#: Reads the bytes `[start, start + length)` of a stored object.
ReadRange = Callable[[int, int], bytes | memoryview]


def stored_bytes(content_bytes: int) -> int:
    """Return the size of an encrypted object whose content has `content_bytes`."""
    in_segments = SEGMENT_BYTES - _TAG_BYTES
    segments = max(1, -(-(content_bytes + HEADER_BYTES) // in_segments))
    return HEADER_BYTES + content_bytes + segments * _TAG_BYTES


def content_bytes(object_bytes: int) -> int | None:
    """Return the size of the content of an encrypted object of `object_bytes`; None if none has that size."""
    segments = -(-object_bytes // SEGMENT_BYTES)
    size = object_bytes - HEADER_BYTES - segments * _TAG_BYTES
    return size if size >= 0 and stored_bytes(size) == object_bytes else None


@dataclass(frozen=True, slots=True)
class _ObjectKey:
    """The key of one object, and the beginning of its nonces."""

    cipher: AESGCM = field(repr=False)
    prefix: bytes

    @classmethod
    def derive(cls, key: bytes, header: bytes, name: str) -> _ObjectKey:
        salt, prefix = header[1 : 1 + _SALT_BYTES], header[1 + _SALT_BYTES :]
        derived = HKDF(SHA256(), KEY_BYTES, salt, name.encode()).derive(key)
        return cls(AESGCM(derived), prefix)

    def nonce(self, number: int, *, last: bool) -> bytes:
        return self.prefix + number.to_bytes(4, "big") + bytes([last])


class Sealer:
    """Encrypts the content of one object, piece by piece. `name` is bound to the object."""

    def __init__(self, key: bytes, name: str) -> None:
        self._header = bytes([HEADER_BYTES]) + secrets.token_bytes(_SALT_BYTES + _PREFIX_BYTES)
        self._key = _ObjectKey.derive(key, self._header, name)
        self._pending = b""
        self._number = 0

    def update(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return the stored bytes that are complete once `data` follows."""
        content = memoryview(self._pending + data if self._pending else data)
        segments = []
        # The last segment is sealed by `finish`, since only then it is known to be the last.
        while len(content) > (size := self._content_bytes()):
            segments.append(self._seal(content[:size], last=False))
            content = content[size:]
        self._pending = bytes(content)
        return b"".join(segments)

    def finish(self) -> bytes:
        """Return the rest of the stored bytes."""
        return self._seal(self._pending, last=True)

    def _content_bytes(self) -> int:
        return SEGMENT_BYTES - _TAG_BYTES - (0 if self._number else HEADER_BYTES)

    def _seal(self, content: bytes | memoryview, *, last: bool) -> bytes:
        if self._number > _LARGEST_NUMBER:
            raise OverflowError("an encrypted object has at most 256 TiB")
        segment = self._key.cipher.encrypt(self._key.nonce(self._number, last=last), content, None)
        self._number += 1
        return segment if self._number > 1 else self._header + segment


class SealedObject(io.RawIOBase):
    """The content of an encrypted object, as a stream that reads and decrypts only the segments it needs.

    `object_bytes`: its size. `path`: what errors call it. Raises Damaged when a segment does not decrypt, or
    when no encrypted object has that size.
    """

    def __init__(self, key: bytes, name: str, object_bytes: int, read_range: ReadRange, *, path: str) -> None:
        super().__init__()
        self._path = path
        size = content_bytes(object_bytes)
        if size is None:
            raise _damaged(self._path)
        self._size, self._object_bytes, self._position = size, object_bytes, 0
        self._read_range = read_range
        header = bytes(read_range(0, HEADER_BYTES))
        if len(header) != HEADER_BYTES or header[0] != HEADER_BYTES:
            raise _damaged(self._path)
        self._key = _ObjectKey.derive(key, header, name)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, fewer at the end."""
        remaining = max(0, self._size - self._position)
        length = remaining if size is None or size < 0 else min(size, remaining)
        content = self.content(self._position, length)
        self._position += len(content)
        return content

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def content(self, start: int, length: int) -> bytes:
        """Return the bytes `[start, start + length)` of the content, fewer at its end."""
        return b"".join(self.pieces(start, length))

    def pieces(self, start: int, length: int) -> Iterator[memoryview]:
        """Yield the same bytes in pieces of about a MiB. They are read at once, and each piece is decrypted
        when it is asked for, so that all use the same memory."""
        end = min(start + length, self._size)
        if start >= end:
            if self._size == 0:
                deque(self._segments(0, 0), maxlen=0)  # an empty content is authentic too
            return
        in_segment = SEGMENT_BYTES - _TAG_BYTES
        first = (start + HEADER_BYTES) // in_segment
        last = (end - 1 + HEADER_BYTES) // in_segment
        position = max(first * in_segment - HEADER_BYTES, 0)
        segments = self._segments(first, last)
        while piece := b"".join(islice(segments, _PIECE_SEGMENTS)):
            yield memoryview(piece)[max(start - position, 0) : end - position]
            position += len(piece)

    def _segments(self, first: int, last: int) -> Iterator[bytes]:
        """Yield the content of the segments `first` to `last`, which are read at once."""
        start = max(first * SEGMENT_BYTES, HEADER_BYTES)
        end = min((last + 1) * SEGMENT_BYTES, self._object_bytes)
        ciphertext = memoryview(self._read_range(start, end - start))
        if len(ciphertext) != end - start:
            raise _damaged(self._path)
        for number in range(first, last + 1):
            begin = max(number * SEGMENT_BYTES, HEADER_BYTES) - start
            segment = ciphertext[begin : (number + 1) * SEGMENT_BYTES - start]
            is_last = (number + 1) * SEGMENT_BYTES >= self._object_bytes
            try:
                yield self._key.cipher.decrypt(self._key.nonce(number, last=is_last), segment, None)
            except InvalidTag:
                raise _damaged(self._path) from None


def _damaged(path: str) -> Damaged:
    return Damaged(
        f"{path} cannot be decrypted with the key of its backup: it is damaged, or belongs elsewhere.",
        hint="Restore it from another copy of the repository.",
    )
