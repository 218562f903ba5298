"""Writes and reads Avro object container files: a header, then blocks of compressed records.

A file is hashed while it is written, and each size in it is checked when it is read. The four codecs are
null, deflate (raw zlib), snappy (with its big-endian CRC-32) and zstandard. Compiled code counts records. It
is imported where it is used, since a run that has nothing to back up does not need it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import BinaryIO, Final, Protocol, TypeAlias

import cramjam
import numpy as np

from lakebackup.encryption.objects import ObjectSealer
from lakebackup.errors import Damaged, UsageProblem
from lakebackup_jobs.kafka.format.key_filter import KeyFilter
from lakebackup_jobs.kafka.format.records import Block, BlockStats, Columns, FileStats, decode_block
from lakebackup_jobs.kafka.format.schemas import FORMAT_V1, FORMAT_V2, SCHEMA_V1, SCHEMA_V2, format_of
from lakebackup_jobs.kafka.memory import Bytes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"Obj\x01"
_PIECE = 1 << 24
_MAX_HEADER = 1 << 20
CODECS: Final = ("null", "deflate", "snappy", "zstandard")
DEFAULT_CODEC: Final = "zstandard"
_LEVELS: Final = {"deflate": (6, 0, 9), "zstandard": (1, -5, 22)}
#: Kafka's largest message is below 10**9 bytes; no block this project writes or reads is larger than this.
MAX_BLOCK: Final = (1 << 30) + (1 << 26)
# An alias, since inside FileWriter `bytes` is a property.
CompressedBytes = bytes
#: Returns what encrypts a data file whose first record has this offset.
FileSealer: TypeAlias = "Callable[[int], ObjectSealer]"


def compressor(codec: str, level: int | None = None) -> Callable[[Bytes], bytes]:
    """Return the function that compresses a block's bytes with a codec; `level` None is its default.

    Raises UsageProblem for an unknown codec, a level that is out of range, or one for a codec without levels.
    """
    if codec not in CODECS:
        raise UsageProblem(f"There is no codec {codec!r}.", hint=f"One of {', '.join(CODECS)}.")
    if codec in _LEVELS:
        default, least, most = _LEVELS[codec]
        if level is not None and not least <= level <= most:
            raise UsageProblem(f"{codec} has levels {least} to {most}, not {level}.")
        actual_level = default if level is None else level
        if codec == "deflate":
            return lambda raw: zlib.compress(raw.data, actual_level, wbits=-15)
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: actual_level,
            zstd.CompressionParameter.checksum_flag: 1,
        }
        return lambda raw: zstd.compress(raw.data, options=options)
    if level is not None:
        raise UsageProblem(f"{codec} has no levels.")
    return _snappy if codec == "snappy" else lambda raw: raw.tobytes()


def _snappy(raw: Bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(raw.data)) + zlib.crc32(raw.data).to_bytes(4, "big")


def decompress(codec: str, content: bytes, limit: int = MAX_BLOCK) -> Bytes:
    """Decompress a block, to at most `limit` bytes. Raises Damaged when it is damaged or larger than that."""
    try:
        if codec == "null":
            raw: bytes = content
        elif codec == "deflate":
            inflater = zlib.decompressobj(-15)
            raw = inflater.decompress(content, limit)
            # Some writers (fastavro) append part of zlib's checksum.
            checksum = zlib.adler32(raw).to_bytes(4, "big")
            _check_end(
                inflater.eof, b"" if checksum.startswith(inflater.unused_data) else inflater.unused_data
            )
        elif codec == "snappy":
            if len(content) < 5 or cramjam.snappy.decompress_raw_len(content[:-4]) > limit:
                raise ValueError("its declared size cannot be")
            raw = bytes(cramjam.snappy.decompress_raw(content[:-4]))
            if zlib.crc32(raw) != int.from_bytes(content[-4:], "big"):
                raise ValueError("its CRC-32 is another")
        elif codec == "zstandard":
            expander = zstd.ZstdDecompressor()
            raw = expander.decompress(content, limit)
            _check_end(expander.eof, expander.unused_data)
        else:
            raise Damaged(f"there is no codec {codec!r}.")
    except (ValueError, EOFError, zlib.error, zstd.ZstdError, cramjam.DecompressionError) as error:
        raise Damaged(f"{codec} data cannot be decompressed: {error}.") from None
    return np.frombuffer(raw, np.uint8)


def _check_end(complete: bool, trailing: bytes) -> None:
    """Raise ValueError unless compressed data was complete and has no bytes after its end."""
    if not complete:
        raise ValueError("it ends too early or is larger than any block may be")
    if trailing:
        raise ValueError("there are bytes behind its end")


class FileSink(Protocol):
    """What a file's bytes are written to, such as a storage's ObjectWriter."""

    def write(self, data: bytes, /) -> object: ...


def _long(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    buffer = bytearray()
    while zigzag > 0x7F:
        buffer.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    buffer.append(zigzag)
    return bytes(buffer)


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def record_prefix(topic: str, partition: int) -> bytes:
    """Return the bytes that every record of a partition begins with: topic and partition."""
    return _sized(topic.encode()) + _long(partition)


def record_start(
    fmt: str,
    topic: str,
    partition: int,
    offset: int,
    ts: int,
    kind: int,
    key: bytes | None,
    value: bytes | None,
) -> bytes:
    """Return a record's bytes before its headers, in either version. `kind`: the index in TIMESTAMP_TYPES."""
    start = record_prefix(topic, partition) + _long(offset) + _long(ts)
    if fmt == FORMAT_V1:
        return start + (b"\2" if key is None else b"\0" + _sized(key)) + _sized(value or b"")
    parts = (b"\0" if part is None else b"\2" + _sized(part) for part in (key, value))
    return start + _long(kind) + b"".join(parts)


class Frame:
    """Writes a container file to `sink`, one compressed block after another, and hashes it.

    Nothing is written before the first block. `metadata`: more entries for the file's header (names that
    begin with `avro.` are Avro's own). `sealer` encrypts the file; its size and its hash are those of the
    encrypted file.
    """

    def __init__(
        self,
        sink: FileSink,
        *,
        codec: str,
        fmt: str,
        metadata: Mapping[str, str] | None = None,
        sealer: ObjectSealer | None = None,
    ) -> None:
        self._sink, self._sealer = sink, sealer
        self._hash = hashlib.sha256()
        self._sync = os.urandom(16)
        self._bytes = 0
        entries = {
            **(metadata or {}),
            "avro.schema": SCHEMA_V1 if fmt == FORMAT_V1 else SCHEMA_V2,
            "avro.codec": codec,
        }
        pairs = b"".join(_sized(name.encode()) + _sized(value.encode()) for name, value in entries.items())
        self._header = MAGIC + _long(len(entries)) + pairs + b"\0" + self._sync

    def write(self, entries: int, content: bytes) -> None:
        """Write a block of `entries` records, compressed with the file's codec."""
        head = _long(entries) + _long(len(content))
        self._append(self._header + head)
        self._append(content)
        self._append(self._sync)
        self._header = b""

    @property
    def bytes(self) -> int:
        """The size of the file, if no block follows."""
        return self._bytes if self._sealer is None else self._sealer.size

    def finish(self) -> str:
        """Write what remains, and return the sha256 of the file in lower hex."""
        if self._sealer is not None:
            self._store(self._sealer.finish())
        return self._hash.hexdigest()

    def _append(self, data: CompressedBytes) -> None:
        self._store(data if self._sealer is None else self._sealer.update(data))

    def _store(self, data: CompressedBytes) -> None:
        self._hash.update(data)
        self._sink.write(data)
        self._bytes += len(data)


class FileWriter:
    """Writes one data file to `sink` from blocks of records. The arguments are those of `Frame`.

    `seal` encrypts the file; then its figures have no bounds of its keys.
    """

    def __init__(
        self,
        sink: FileSink,
        *,
        codec: str = DEFAULT_CODEC,
        level: int | None = None,
        fmt: str = FORMAT_V2,
        metadata: Mapping[str, str] | None = None,
        seal: FileSealer | None = None,
    ) -> None:
        self._compress = compressor(codec, level)
        self._new_frame = partial(Frame, sink, codec=codec, fmt=fmt, metadata=metadata)
        self._seal = seal
        self._frame: Frame | None = None
        self._stats: BlockStats | None = None
        self._keys: KeyFilter | None = KeyFilter()
        self._raw = 0

    @property
    def bytes(self) -> int:
        """The number of bytes written so far."""
        return 0 if self._frame is None else self._frame.bytes

    def write_block(self, block: Block) -> None:
        """Compress a block and write it."""
        self.write_compressed(block, self._compress(block.data))

    def write_compressed(self, block: Block, content: CompressedBytes) -> None:
        """Write a block that was compressed elsewhere with this file's codec."""
        stats = block.stats
        if self._frame is None:
            sealer = None if self._seal is None else self._seal(stats.start_position)
            self._frame = self._new_frame(sealer=sealer)
        self._frame.write(stats.entries, content)
        self._stats = stats if self._stats is None else self._stats + stats
        self._raw += block.data.shape[0]
        if block.hashes is None:
            self._keys = None  # a filter that lacks keys would hide records
        elif self._keys is not None:
            self._keys.add(block.hashes)

    def finish(self) -> FileStats:
        """Return the file's figures; every byte is in the sink. Raises ValueError if no block was written."""
        if self._stats is None or self._frame is None:
            raise ValueError("a data file holds at least one record")
        stats = self._stats if self._seal is None else replace(self._stats, low_key=None, high_key=None)
        sha256 = self._frame.finish()
        keys = self._keys.sealed(sha256) if self._keys else None
        return FileStats(**asdict(stats), bytes=self.bytes, raw_bytes=self._raw, sha256=sha256, keys=keys)


class FileReader:
    """Reads a data file of either version and any of the codecs block by block from `stream`.

    `name` is what errors call the file. Iterating gives each block's Columns. All errors are Damaged and name
    the position. Like any Avro file, one that is cut exactly between two blocks reads without error. So
    compare its size and sha256 with the catalog's, and pass the number of records that it must contain,
    `entries`.
    """

    def __init__(self, stream: BinaryIO, name: str, entries: int | None = None) -> None:
        self._stream, self._entries = stream, entries
        self.name = name
        self.position = 0
        if self._exactly(4) != MAGIC:
            raise Damaged(f"{name}: this is not an Avro data file.")
        self.metadata: dict[str, bytes] = {}
        while items := self._number():
            if items < 0:
                items = -items
                self._number()
            for _ in range(items):
                key = self._exactly(self._number(), _MAX_HEADER).decode(errors="replace")
                self.metadata[key] = self._exactly(self._number(), _MAX_HEADER)
        self._sync = self._exactly(16)
        self.fmt = format_of(self.metadata.get("avro.schema", b""), name)
        self.codec = self.metadata.get("avro.codec", b"null").decode(errors="replace")
        if self.codec not in CODECS:
            raise Damaged(f"{name}: its codec {self.codec[:40]!r} is not one of {', '.join(CODECS)}.")

    def __iter__(self) -> Iterator[Columns]:
        for location, count, content in self.compressed_blocks():
            yield self.decode(location, count, content)

    def compressed_blocks(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield each block as stored: what errors call it, its number of records, its compressed bytes."""
        record_count = 0
        while first_byte := self._stream.read(1):
            start = self.position
            count = self._number(first_byte)
            size = self._number()
            if count < 0:
                raise Damaged(f"{self.name}: byte {start}: a block of {count} records.")
            content = self._exactly(size, MAX_BLOCK)
            if self._exactly(16) != self._sync:
                raise Damaged(f"{self.name}: byte {self.position - 16}: the mark between blocks is another.")
            record_count += count
            yield f"{self.name}: byte {start}", count, content
        if self._entries not in (None, record_count):
            raise Damaged(f"{self.name} holds {record_count} records, its manifest says {self._entries}.")

    def decode(self, location: str, count: int, content: bytes) -> Columns:
        """Return the records of a block that `compressed_blocks` yielded."""
        try:
            data = decompress(self.codec, content)
        except Damaged as problem:
            raise Damaged(f"{location}: {problem.message}") from None
        return decode_block(data, count, self.fmt, location)

    def _exactly(self, size: int, limit: int = _PIECE) -> bytes:
        """Read exactly `size` bytes, in pieces: a wrong size allocates no memory ahead of the bytes."""
        if not 0 <= size <= limit:
            raise Damaged(f"{self.name}: byte {self.position}: a size of {size} cannot be.")
        piece = self._stream.read(min(size, _PIECE))
        self.position += len(piece)
        if len(piece) == size:
            return piece
        pieces = [piece]
        while missing := size - sum(map(len, pieces)):
            if not piece:
                raise Damaged(f"{self.name}: ends at byte {self.position}, {missing} bytes too early.")
            piece = self._stream.read(min(missing, _PIECE))
            self.position += len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def _number(self, first_byte: bytes = b"") -> int:
        self.position += len(first_byte)
        result = 0
        for shift in range(0, 70, 7):
            byte = (first_byte or self._exactly(1))[0]
            first_byte = b""
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise Damaged(f"{self.name}: byte {self.position}: a number that is too long.")
        return (result >> 1) ^ -(result & 1)
