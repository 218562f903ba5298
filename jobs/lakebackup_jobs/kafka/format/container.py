"""Avro object container files: the frame around blocks, hashed while written, distrusted when read.

Their four codecs are null, deflate (raw zlib), snappy (with its big-endian CRC-32) and zstandard. What counts
records is compiled, and imported where it is used: a run that has nothing to back up needs none of it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

import cramjam
import numpy as np

from lakebackup.errors import Damaged, UsageProblem
from lakebackup_jobs.kafka.format.schemas import FORMAT_V1, FORMAT_V2, SCHEMA_V1, SCHEMA_V2, format_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakebackup_jobs.kafka.format.key_filter import KeyFilter
    from lakebackup_jobs.kafka.format.records import Block, BlockStats, Columns, FileStats
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
# A name of its own: inside FileWriter, `bytes` is a property.
Stored = bytes


def compressor(codec: str, level: int | None = None) -> Callable[[Bytes], bytes]:
    """The function that turns a block's bytes into what is stored.

    Raises UsageProblem for an unknown codec, or a level where there is none or out of its range.
    """
    if codec not in CODECS:
        raise UsageProblem(f"There is no codec {codec!r}.", hint=f"One of {', '.join(CODECS)}.")
    if codec in _LEVELS:
        default, least, most = _LEVELS[codec]
        if level is not None and not least <= level <= most:
            raise UsageProblem(f"{codec} has levels {least} to {most}, not {level}.")
        chosen = default if level is None else level
        if codec == "deflate":
            return lambda raw: zlib.compress(raw.data, chosen, wbits=-15)
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: chosen,
            zstd.CompressionParameter.checksum_flag: 1,
        }
        return lambda raw: zstd.compress(raw.data, options=options)
    if level is not None:
        raise UsageProblem(f"{codec} has no levels.")
    return _snappy if codec == "snappy" else lambda raw: raw.tobytes()


def _snappy(raw: Bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(raw.data)) + zlib.crc32(raw.data).to_bytes(4, "big")


def decompress(codec: str, stored: bytes, limit: int = MAX_BLOCK) -> Bytes:
    """The block's bytes again, at most `limit` of them; raises Damaged when they cannot be had."""
    try:
        if codec == "null":
            raw: bytes = stored
        elif codec == "deflate":
            inflater = zlib.decompressobj(-15)
            raw = inflater.decompress(stored, limit)
            # Some writers (fastavro) leave part of zlib's checksum at the end.
            checksum = zlib.adler32(raw).to_bytes(4, "big")
            _whole(inflater.eof, b"" if checksum.startswith(inflater.unused_data) else inflater.unused_data)
        elif codec == "snappy":
            if len(stored) < 5 or cramjam.snappy.decompress_raw_len(stored[:-4]) > limit:
                raise ValueError("its declared size cannot be")
            raw = bytes(cramjam.snappy.decompress_raw(stored[:-4]))
            if zlib.crc32(raw) != int.from_bytes(stored[-4:], "big"):
                raise ValueError("its CRC-32 is another")
        elif codec == "zstandard":
            expander = zstd.ZstdDecompressor()
            raw = expander.decompress(stored, limit)
            _whole(expander.eof, expander.unused_data)
        else:
            raise Damaged(f"there is no codec {codec!r}.")
    except (ValueError, EOFError, zlib.error, zstd.ZstdError, cramjam.DecompressionError) as error:
        raise Damaged(f"{codec} data cannot be decompressed: {error}.") from None
    return np.frombuffer(raw, np.uint8)


def _whole(ended: bool, rest: bytes) -> None:
    if not ended:
        raise ValueError("it ends too early or is larger than any block may be")
    if rest:
        raise ValueError("there are bytes behind its end")


class FileSink(Protocol):
    """Where a file's bytes go; a storage's ObjectWriter is one."""

    def write(self, data: bytes, /) -> object: ...


def _long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def record_prefix(topic: str, partition: int) -> bytes:
    """The bytes every record of a partition begins with: topic and partition."""
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
    """A record up to its headers, in either version; `kind`: the place in TIMESTAMP_TYPES."""
    start = record_prefix(topic, partition) + _long(offset) + _long(ts)
    if fmt == FORMAT_V1:
        return start + (b"\2" if key is None else b"\0" + _sized(key)) + _sized(value or b"")
    parts = (b"\0" if part is None else b"\2" + _sized(part) for part in (key, value))
    return start + _long(kind) + b"".join(parts)


class Frame:
    """A container file on its way to `sink`, block by block, as they are stored; hashed while written.

    Nothing is written before the first block. `metadata`: more entries for the file's header (names in the
    `avro.` space are Avro's own).
    """

    def __init__(
        self, sink: FileSink, *, codec: str, fmt: str, metadata: Mapping[str, str] | None = None
    ) -> None:
        self._sink = sink
        self._hash = hashlib.sha256()
        self._sync = os.urandom(16)
        self.bytes = 0
        entries = {
            **(metadata or {}),
            "avro.schema": SCHEMA_V1 if fmt == FORMAT_V1 else SCHEMA_V2,
            "avro.codec": codec,
        }
        pairs = b"".join(_sized(name.encode()) + _sized(value.encode()) for name, value in entries.items())
        self._header = MAGIC + _long(len(entries)) + pairs + b"\0" + self._sync

    def write(self, entries: int, stored: bytes) -> None:
        """Write a block of `entries` records, compressed with the file's codec."""
        head = _long(entries) + _long(len(stored))
        self._put(head if self.bytes else self._header + head)
        self._put(stored)
        self._put(self._sync)

    @property
    def sha256(self) -> str:
        """Of every byte so far, as lower hex."""
        return self._hash.hexdigest()

    def _put(self, data: bytes) -> None:
        self._hash.update(data)
        self._sink.write(data)
        self.bytes += len(data)


class FileWriter:
    """One data file on its way to `sink`, from blocks of records; arguments as `Frame` has them."""

    def __init__(
        self,
        sink: FileSink,
        *,
        codec: str = DEFAULT_CODEC,
        level: int | None = None,
        fmt: str = FORMAT_V2,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        from lakebackup_jobs.kafka.format.key_filter import KeyFilter

        self._compress = compressor(codec, level)
        self._frame = Frame(sink, codec=codec, fmt=fmt, metadata=metadata)
        self._stats: BlockStats | None = None
        self._keys: KeyFilter | None = KeyFilter()
        self._raw = 0

    @property
    def bytes(self) -> int:
        """Written so far."""
        return self._frame.bytes

    def write_block(self, block: Block) -> None:
        """Compress a block and write it."""
        self.write_compressed(block, self._compress(block.data))

    def write_compressed(self, block: Block, stored: Stored) -> None:
        """Write a block that was compressed elsewhere with this file's codec."""
        stats = block.stats
        self._frame.write(stats.entries, stored)
        self._stats = stats if self._stats is None else self._stats + stats
        self._raw += block.data.shape[0]
        if block.hashes is None:
            self._keys = None  # a filter that lacks keys would hide records
        elif self._keys is not None:
            self._keys.add(block.hashes)

    def finish(self) -> FileStats:
        """The file's figures; every byte is in the sink. Raises ValueError when no block was written."""
        from lakebackup_jobs.kafka.format.records import FileStats

        if self._stats is None:
            raise ValueError("a data file holds at least one record")
        sha256 = self._frame.sha256
        keys = self._keys.sealed(sha256) if self._keys else None
        return FileStats(
            **asdict(self._stats), bytes=self.bytes, raw_bytes=self._raw, sha256=sha256, keys=keys
        )


class FileReader:
    """A data file of either version and any of the codecs, read block by block from `stream`.

    `name` is what errors call the file. Iterating gives each block's Columns. All errors are Damaged and
    name the position. A file cut exactly between two blocks reads without error, as Avro files do: compare
    the size and the sha256 with the catalog's, and give the number of records, `entries`, that it must hold.
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
        for where, count, stored in self.stored():
            yield self.decode(where, count, stored)

    def stored(self) -> Iterator[tuple[str, int, bytes]]:
        """Each block as it is stored: what errors call it, its number of records, its compressed bytes."""
        total = 0
        while first := self._stream.read(1):
            start = self.position
            count = self._number(first)
            size = self._number()
            if count < 0:
                raise Damaged(f"{self.name}: byte {start}: a block of {count} records.")
            stored = self._exactly(size, MAX_BLOCK)
            if self._exactly(16) != self._sync:
                raise Damaged(f"{self.name}: byte {self.position - 16}: the mark between blocks is another.")
            total += count
            yield f"{self.name}: byte {start}", count, stored
        if self._entries not in (None, total):
            raise Damaged(f"{self.name} holds {total} records, its manifest says {self._entries}.")

    def decode(self, where: str, count: int, stored: bytes) -> Columns:
        """The records of a block that `stored` gave."""
        from lakebackup_jobs.kafka.format.records import decode_block

        try:
            data = decompress(self.codec, stored)
        except Damaged as problem:
            raise Damaged(f"{where}: {problem.message}") from None
        return decode_block(data, count, self.fmt, where)

    def _exactly(self, size: int, limit: int = _PIECE) -> bytes:
        """Read `size` bytes; a declared size is never allocated before the bytes are there."""
        if not 0 <= size <= limit:
            raise Damaged(f"{self.name}: byte {self.position}: a size of {size} cannot be.")
        pieces = []
        missing = size
        while missing:
            piece = self._stream.read(min(missing, _PIECE))
            if not piece:
                raise Damaged(f"{self.name}: ends at byte {self.position}, {missing} bytes too early.")
            pieces.append(piece)
            self.position += len(piece)
            missing -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _number(self, first: bytes = b"") -> int:
        self.position += len(first)
        result = 0
        for shift in range(0, 70, 7):
            byte = (first or self._exactly(1))[0]
            first = b""
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise Damaged(f"{self.name}: byte {self.position}: a number that is too long.")
        return (result >> 1) ^ -(result & 1)
