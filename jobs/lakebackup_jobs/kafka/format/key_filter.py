"""Key filters: for each data file a Bloom filter over its keys, so that a query for a key opens few files.

The filter is Apache Parquet's split-block Bloom filter (its format's BloomFilter.md): blocks of eight 32-bit
words, the block chosen by the upper half of the key's XXH64 (seed 0; xxHash's published specification), one
bit a word by the lower half. It is filled at one size and folded: two neighbouring blocks, OR'ed, are the
block of a filter half as large. In storage a CRC-32 follows each block, over the data file's sha256, the
block's number and the block, so that a probe is one read of 36 bytes that verifies itself. Records without a
key are not in it.
"""

from __future__ import annotations

import logging
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from lakebackup.errors import LakebackupError
from lakebackup.rules import layout
from lakebackup_jobs.kafka.format.records import KEY, KEY_LENGTH
from lakebackup_jobs.kafka.key_sums import BLOCK_WORDS, SEALED_BYTES, intact, seal, whole, words_of
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, load8, load32, load64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from lakebackup.storage import ObjectWriter, Storage
    from lakebackup_jobs.kafka.format.records import Columns

Words = npt.NDArray[np.uint32]

#: An open file's filter: 4 MiB, good for 3 million keys at MOST_FALSE, for 11 million at USELESS.
MOST_BLOCKS = 1 << 17
#: Files of fewer keys (4 MiB of hashes) get a filter of the size they need, which fits a processor's cache.
HELD_HASHES = 1 << 19
#: A filter is folded as long as it lets no more keys through that are not in it...
MOST_FALSE = 0.01
#: ...which is so with this many keys a block.
KEYS_A_BLOCK = 24
#: Filters of several files become one as long as it lets no more through than this.
JOINED_FALSE = 0.03
#: A filter that lets through more is not kept.
USELESS = 0.3
# One read of the whole filter costs less than many of a block.
_READ_COST = 4096

_SALT = (
    0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
)  # fmt: skip
# XXH64's primes as signed numbers: compiled integers wrap around.
_P1, _P2, _P3, _P4, _P5 = (
    prime - (1 << 64) if prime >> 63 else prime
    for prime in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )
)  # fmt: skip
_log = logging.getLogger(__name__)


class Filtered(Protocol):
    """A data file's row, as far as its filter goes."""

    @property
    def sha256(self) -> str: ...
    @property
    def keys_path(self) -> str | None: ...
    @property
    def keys_start(self) -> int | None: ...
    @property
    def keys_blocks(self) -> int | None: ...


# --- hashing


@compiled
def _rotate(value: int, by: int) -> int:
    return (value << by) | ((value >> (64 - by)) & ((1 << by) - 1))


@compiled
def _round(lane: int) -> int:
    return _rotate(lane * _P2, 31) * _P1


@compiled
def hash_key(address: int, length: int) -> int:
    """XXH64 with seed 0 of the bytes at an address, as a signed number."""
    end = address + length
    at = address
    if length >= 32:
        a, b, c, d = _P1 + _P2, _P2, 0, -_P1
        while at <= end - 32:
            a = _rotate(a + load64(at) * _P2, 31) * _P1
            b = _rotate(b + load64(at + 8) * _P2, 31) * _P1
            c = _rotate(c + load64(at + 16) * _P2, 31) * _P1
            d = _rotate(d + load64(at + 24) * _P2, 31) * _P1
            at += 32
        found = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for lane in (a, b, c, d):
            found = (found ^ _round(lane)) * _P1 + _P4
    else:
        found = _P5
    found += length
    while at <= end - 8:
        found = _rotate(found ^ _round(load64(at)), 27) * _P1 + _P4
        at += 8
    if at <= end - 4:
        found = _rotate(found ^ (load32(at) & 0xFFFFFFFF) * _P1, 23) * _P2 + _P3
        at += 4
    while at < end:
        found = _rotate(found ^ (load8(at) & 0xFF) * _P5, 11) * _P1
        at += 1
    found = (found ^ ((found >> 33) & 0x7FFFFFFF)) * _P2
    found = (found ^ ((found >> 29) & 0x7FFFFFFFF)) * _P3
    return found ^ ((found >> 32) & 0xFFFFFFFF)


@compiled
def _hash_rows(block: Bytes, rows: Longs, hashes: Longs) -> int:
    base = block.ctypes.data
    count = 0
    for i in range(rows.shape[0]):
        if rows[i, KEY_LENGTH] >= 0:
            hashes[count] = hash_key(base + rows[i, KEY], rows[i, KEY_LENGTH])
            count += 1
    return count


def hashes_of(columns: Columns) -> Longs:
    """The hashes of the keys of some records, those without a key left out."""
    hashes: Longs = np.empty(len(columns.rows), np.int64)
    return hashes[: _hash_rows(columns.data, columns.rows, hashes)]


@lru_cache(maxsize=8)
def _hashes(keys: tuple[bytes, ...]) -> Longs:
    # The byte more keeps the address of an empty key valid.
    arrays = [np.frombuffer(key + b"\0", np.uint8) for key in keys]
    return np.array([hash_key(a.ctypes.data, len(a) - 1) for a in arrays], np.int64)


# --- filling


@compiled
def _insert(words: Words, hashes: Longs) -> None:
    blocks = words.shape[0]
    for i in range(hashes.shape[0]):
        number = (((hashes[i] >> 32) & 0xFFFFFFFF) * blocks) >> 32
        low = hashes[i] & 0xFFFFFFFF
        for j in range(BLOCK_WORDS):
            words[number, j] |= np.uint32(1 << (((low * _SALT[j]) & 0xFFFFFFFF) >> 27))


@compiled
def _false_rate(words: Words, step: int) -> float:
    """Which part of all other keys gets through, when `step` neighbouring blocks are folded into one."""
    total = 0.0
    for first in range(0, words.shape[0], step):
        through = 1.0
        for j in range(BLOCK_WORDS):
            word = np.uint32(0)
            for number in range(first, first + step):
                word |= words[number, j]
            pairs = np.int64(word) - ((np.int64(word) >> 1) & 0x55555555)
            fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333)
            eights = (fours + (fours >> 4)) & 0x0F0F0F0F
            through *= ((eights * 0x01010101 >> 24) & 0x3F) / 32
        total += through
    return float(total * step / words.shape[0])


class KeyFilter:
    """The filter of a file that is being written; holds at most 4 MiB and some hashes."""

    def __init__(self) -> None:
        self._held: list[Longs] = []
        self._count = 0
        self._words: Words | None = None

    @classmethod
    def joined(cls, filters: Iterable[tuple[bytes, str]]) -> KeyFilter | None:
        """The filter of all keys of some files, from theirs as stored, each with its data file's digest.

        None when one is not as it was written, or when what comes of it lets more than JOINED_FALSE of
        other keys through: one of twice as many keys would need twice as many blocks.
        """
        words: Words = np.zeros((1, BLOCK_WORDS), np.uint32)
        for sealed, sha256 in filters:
            if not sealed or not whole(sealed, sha256):
                return None
            blocks = words_of(sealed)
            # A block stands for as many as a larger filter has for the same keys: the inverse of folding.
            size = max(len(words), len(blocks))
            words = np.repeat(words, size // len(words), 0) | np.repeat(blocks, size // len(blocks), 0)
        if _false_rate(words, 1) > JOINED_FALSE:
            return None
        found = cls()
        found._words = words
        return found

    def add(self, hashes: Longs) -> None:
        """Put keys in; the array may be used again afterwards."""
        if self._words is None and self._count + len(hashes) > HELD_HASHES:
            self._words = np.zeros((MOST_BLOCKS, BLOCK_WORDS), np.uint32)
            for held in self._held:
                _insert(self._words, held)
            self._held = []
        if self._words is None:
            self._held.append(hashes.copy())
        else:
            _insert(self._words, hashes)
        self._count += len(hashes)

    def sealed(self, sha256: str) -> bytes | None:
        """The filter as stored, for a data file with this digest; None when it would keep out too little."""
        words = self._words
        if words is None:
            # Keys that come again need less; folding finds out.
            blocks = 1 << max(0, (self._count - 1) // KEYS_A_BLOCK).bit_length()
            words = np.zeros((blocks, BLOCK_WORDS), np.uint32)
            for held in self._held:
                _insert(words, held)
        elif _false_rate(words, 1) > USELESS:
            return None
        while len(words) > 1 and _false_rate(words, 2) <= MOST_FALSE:
            words = words[0::2] | words[1::2]
        return seal(words, sha256)


class KeyFilters:
    """The object with the filters of the files that one task writes; none is put when no file has one."""

    def __init__(self, storage: Storage, source: str, backup_id: str, task: int) -> None:
        self._storage = storage
        # An attempt has a name of its own: the rows of the one that counts name its filters.
        self._path = layout.keys_path(source, backup_id, task, secrets.token_hex(4))
        self._writer: ObjectWriter | None = None
        self._size = 0

    def add(self, sealed: bytes | None) -> dict[str, Any]:
        """Append a file's filter; returns its columns of the file's row."""
        if sealed is None:
            return {}
        if self._writer is None:
            self._writer = self._storage.writer()
        start = self._size
        self._writer.write(sealed)
        self._size += len(sealed)
        return {
            "keys_path": self._path,
            "keys_start": start,
            "keys_blocks": len(sealed) // SEALED_BYTES,
        }

    def commit(self) -> None:
        """Put the object, before the rows that name it."""
        if self._writer is not None:
            self._writer.commit(self._path)

    def __enter__(self) -> KeyFilters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, trace)


# --- asking


def may_hold(
    storage: Storage,
    file: Filtered,
    keys: Sequence[bytes],
    warn: Callable[[str], object] = _log.warning,
) -> bool:
    """Whether the file may hold a record with one of these keys; False is certain.

    A file without a filter may hold any key, and so may one whose filter is gone or damaged, which is passed
    to `warn`. Never raises because of a filter. With a handful of keys it reads 36 bytes for each.
    """
    path, start, blocks = file.keys_path, file.keys_start, file.keys_blocks
    if path is None or start is None or blocks is None or blocks < 1:
        return True
    wanted = _hashes(tuple(keys))
    numbers = (((wanted >> 32) & 0xFFFFFFFF) * blocks) >> 32
    order = np.argsort(numbers, kind="stable")
    wanted, numbers = wanted[order], numbers[order]
    chosen = np.unique(numbers)
    whole = len(chosen) * _READ_COST >= blocks * SEALED_BYTES
    try:
        data = storage.get(path, start=start, length=blocks * SEALED_BYTES) if whole else b""
        for number in chosen.tolist():
            at = number * SEALED_BYTES
            sealed = (
                data[at : at + SEALED_BYTES]
                if whole
                else storage.get(path, start=start + at, length=SEALED_BYTES)
            )
            if not intact(sealed, number, file.sha256):
                warn(f"{path}, byte {start + at}: this key filter is not as it was written; it is not used.")
                return True
            words = np.frombuffer(sealed, "<u4", BLOCK_WORDS).astype(np.int64)
            low = wanted[numbers == number] & 0xFFFFFFFF
            bits = ((low[:, None] * np.array(_SALT)) & 0xFFFFFFFF) >> 27
            if ((words >> bits) & 1).all(axis=1).any():
                return True
    except LakebackupError as problem:
        warn(f"{path}: this key filter cannot be read and is not used: {problem.message}")
        return True
    return False
