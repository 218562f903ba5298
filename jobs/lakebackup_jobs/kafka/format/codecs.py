"""The four codecs of Avro files: null, deflate (raw zlib), snappy (with its big-endian CRC-32), zstandard."""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Final

import cramjam
import numpy as np

from lakebackup.errors import Damaged, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebackup_jobs.kafka.memory import Bytes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODECS: Final = ("null", "deflate", "snappy", "zstandard")
DEFAULT_CODEC: Final = "zstandard"
_LEVELS: Final = {"deflate": (6, 0, 9), "zstandard": (1, -5, 22)}
#: Kafka's largest message is below 10**9 bytes; no block this project writes or reads is larger than this.
MAX_BLOCK: Final = (1 << 30) + (1 << 26)


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
