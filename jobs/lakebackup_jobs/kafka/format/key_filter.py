"""Key filters: each data file has a Bloom filter over its keys, so that a query for a key opens few files.

The filter is Apache Parquet's split-block Bloom filter (its format's BloomFilter.md). It consists of blocks
of eight 32-bit words. Of a key's XXH64 (seed 0; xxHash's published specification), the upper half chooses the
block, and the lower half sets one bit in each word. A filter is filled at one size and then folded: two
neighbouring blocks, OR'ed, are one block of a filter half as large. In storage a CRC-32 follows each block.
It covers the data file's sha256, the block's number and the block, so a probe is one read of 36 bytes that
verifies itself. Records without a key are not in the filter.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lakebackup.encryption.objects import (
    PREFIX_BYTES,
    BackupKey,
    FileName,
    Keyring,
    NamedFile,
    name_of,
    sealed_bytes,
)
from lakebackup.encryption.segments import HEADER_BYTES, SEGMENT_BYTES
from lakebackup.errors import LakebackupError
from lakebackup.rules import layout
from lakebackup.storage import ObjectWriter, Storage
from lakebackup_jobs.kafka.format.records import KEY, KEY_LENGTH, Columns
from lakebackup_jobs.kafka.key_sums import (
    BLOCK_WORDS,
    SEALED_BYTES,
    is_undamaged,
    is_undamaged_block,
    seal,
    words_of,
)
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, load8, load32, load64

Words = npt.NDArray[np.uint32]

#: Blocks of the filter of a file that is being written: 4 MiB, enough for 3 million keys at MOST_FALSE, for
#: 11 million at USELESS.
MOST_BLOCKS = 1 << 17
#: Files of fewer keys (4 MiB of hashes) get a filter of the size they need, which fits a processor's cache.
HELD_HASHES = 1 << 19
#: A filter is folded as long as its rate of false positives stays within this limit.
MOST_FALSE = 0.01
#: Keys per block at which a filter has that rate.
KEYS_A_BLOCK = 24
#: Filters of several files are joined only if the joined filter's rate is within this limit.
JOINED_FALSE = 0.03
#: A filter with a higher rate is not stored.
USELESS = 0.3
# One more read costs as much as reading this many bytes more.
_READ_COST = 4096

_SALT = (
    0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
)  # fmt: skip
# XXH64's primes as signed numbers, since compiled integers are signed and wrap around.
_P1, _P2, _P3, _P4, _P5 = (
    prime - (1 << 64) if prime >> 63 else prime
    for prime in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )
)  # fmt: skip
_log = logging.getLogger(__name__)


class Filtered(NamedFile, Protocol):
    """The columns of a data file's row that concern its filter."""

    @property
    def sha256(self) -> str: ...
    @property
    def key_id(self) -> str | None: ...
    @property
    def keys_path(self) -> str | None: ...
    @property
    def keys_start(self) -> int | None: ...
    @property
    def keys_blocks(self) -> int | None: ...


# --- hashing


@compiled
def _rotate(value: int, bits: int) -> int:
    return (value << bits) | ((value >> (64 - bits)) & ((1 << bits) - 1))


@compiled
def _round(lane: int) -> int:
    return _rotate(lane * _P2, 31) * _P1


@compiled
def hash_key(address: int, length: int) -> int:
    """Return XXH64 with seed 0 of the bytes at an address, as a signed number."""
    end = address + length
    position = address
    if length >= 32:
        a, b, c, d = _P1 + _P2, _P2, 0, -_P1
        while position <= end - 32:
            a = _rotate(a + load64(position) * _P2, 31) * _P1
            b = _rotate(b + load64(position + 8) * _P2, 31) * _P1
            c = _rotate(c + load64(position + 16) * _P2, 31) * _P1
            d = _rotate(d + load64(position + 24) * _P2, 31) * _P1
            position += 32
        digest = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for lane in (a, b, c, d):
            digest = (digest ^ _round(lane)) * _P1 + _P4
    else:
        digest = _P5
    digest += length
    while position <= end - 8:
        digest = _rotate(digest ^ _round(load64(position)), 27) * _P1 + _P4
        position += 8
    if position <= end - 4:
        digest = _rotate(digest ^ (load32(position) & 0xFFFFFFFF) * _P1, 23) * _P2 + _P3
        position += 4
    while position < end:
        digest = _rotate(digest ^ (load8(position) & 0xFF) * _P5, 11) * _P1
        position += 1
    digest = (digest ^ ((digest >> 33) & 0x7FFFFFFF)) * _P2
    digest = (digest ^ ((digest >> 29) & 0x7FFFFFFFF)) * _P3
    return digest ^ ((digest >> 32) & 0xFFFFFFFF)


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
    """Return the hashes of the keys of some records. Records without a key have none."""
    hashes: Longs = np.empty(len(columns.rows), np.int64)
    return hashes[: _hash_rows(columns.data, columns.rows, hashes)]


@lru_cache(maxsize=8)
def _hashes(keys: tuple[bytes, ...]) -> Longs:
    # The additional byte gives an empty key a valid address.
    arrays = [np.frombuffer(key + b"\0", np.uint8) for key in keys]
    return np.array([hash_key(array.ctypes.data, len(array) - 1) for array in arrays], np.int64)


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
    """Return the rate of false positives after folding each `step` neighbouring blocks into one."""
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
    """The filter of a file that is being written. Takes at most 4 MiB of memory, beside some hashes."""

    def __init__(self) -> None:
        self._batches: list[Longs] = []
        self._count = 0
        self._words: Words | None = None

    @classmethod
    def joined(cls, filters: Iterable[tuple[bytes, str]]) -> KeyFilter | None:
        """Join the filters of some files, given as stored, each with its data file's digest.

        Returns None when one is damaged, or when the joined filter's rate of false positives is above
        JOINED_FALSE: a filter of twice as many keys needs twice as many blocks, and a joined one has no more
        than the largest.
        """
        words: Words = np.zeros((1, BLOCK_WORDS), np.uint32)
        for sealed, sha256 in filters:
            if not sealed or not is_undamaged(sealed, sha256):
                return None
            blocks = words_of(sealed)
            # Repeating a block is the inverse of folding: a larger filter has several blocks for its keys.
            size = max(len(words), len(blocks))
            words = np.repeat(words, size // len(words), 0) | np.repeat(blocks, size // len(blocks), 0)
        if _false_rate(words, 1) > JOINED_FALSE:
            return None
        key_filter = cls()
        key_filter._words = words
        return key_filter

    def add(self, hashes: Longs) -> None:
        """Add keys by their hashes. The caller may reuse the array."""
        if self._words is None and self._count + len(hashes) > HELD_HASHES:
            self._words = np.zeros((MOST_BLOCKS, BLOCK_WORDS), np.uint32)
            for batch in self._batches:
                _insert(self._words, batch)
            self._batches = []
        if self._words is None:
            self._batches.append(hashes.copy())
        else:
            _insert(self._words, hashes)
        self._count += len(hashes)

    def sealed(self, sha256: str) -> bytes | None:
        """Return the filter as stored, for a data file with this digest.

        None: its rate of false positives is above USELESS.
        """
        words = self._words
        if words is None:
            # Enough blocks if no key repeats. If keys repeat, the filter is folded below.
            blocks = 1 << max(0, (self._count - 1) // KEYS_A_BLOCK).bit_length()
            words = np.zeros((blocks, BLOCK_WORDS), np.uint32)
            for batch in self._batches:
                _insert(words, batch)
        elif _false_rate(words, 1) > USELESS:
            return None
        while len(words) > 1 and _false_rate(words, 2) <= MOST_FALSE:
            words = words[0::2] | words[1::2]
        return seal(words, sha256)


class KeyFilters:
    """The object with the filters of the files that one task writes. Without a filter there is no object.

    `key` encrypts each filter by itself, so that a filter can be read without the others.
    """

    def __init__(
        self, storage: Storage, source: str, backup_id: str, task: int, key: BackupKey | None = None
    ) -> None:
        self._storage, self._key = storage, key
        # Each attempt of the task has its own object, which the rows of the successful attempt name.
        self._path = layout.keys_path(source, backup_id, task, secrets.token_hex(4))
        self._writer: ObjectWriter | None = None
        self._size = 0

    def add(self, sealed: bytes | None, name: FileName) -> dict[str, Any]:
        """Append the filter of the file `name`; returns the columns that the file's row has for it."""
        if sealed is None:
            return {}
        content = sealed if self._key is None else self._key.seal("keys", name, sealed)
        if self._writer is None:
            self._writer = self._storage.writer()
        start = self._size
        self._writer.write(content)
        self._size += len(content)
        return {
            "keys_path": self._path,
            "keys_start": start,
            "keys_blocks": len(sealed) // SEALED_BYTES,
        }

    def commit(self) -> None:
        """Write the object. Call it before the rows that name it are written."""
        if self._writer is not None:
            self._writer.commit(self._path)

    def __enter__(self) -> KeyFilters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, trace)


# --- probing


def read_filter(storage: Storage, file: Filtered, data_keys: Keyring) -> Callable[[int, int], bytes] | None:
    """Return the function that reads bytes `(start, length)` of a file's filter; None if it has none.

    The function decrypts an encrypted filter, segment by segment. Raises Damaged if its key was not opened.
    """
    path, first, blocks = file.keys_path, file.keys_start, file.keys_blocks
    if path is None or first is None or blocks is None or blocks < 1:
        return None
    size = blocks * SEALED_BYTES
    if file.key_id is None:
        return lambda start, length: storage.get(path, start=first + start, length=length)
    stored_size = sealed_bytes(size)
    # A filter of one segment is read at once, since its header alone would take a request too.
    is_small = stored_size <= PREFIX_BYTES + SEGMENT_BYTES
    beginning_size = stored_size if is_small else PREFIX_BYTES + HEADER_BYTES
    beginning = storage.get(path, start=first, length=beginning_size)

    def read_range(start: int, length: int) -> bytes:
        if start + length <= len(beginning):
            return beginning[start : start + length]
        return storage.get(path, start=first + start, length=length)

    return data_keys.open(path, "keys", name_of(file), stored_size, read_range).content


def may_hold(
    storage: Storage,
    file: Filtered,
    keys: Sequence[bytes],
    warn: Callable[[str], object] = _log.warning,
    data_keys: Keyring | None = None,
) -> bool:
    """Return whether the file may contain a record with one of these keys; False is certain.

    A file without a filter may contain any key. So may one whose filter is missing or damaged, and `warn` is
    called with a text about that. Never raises because of a filter. For few keys it reads 36 bytes per key,
    or a segment of an encrypted filter, which `data_keys` decrypt.
    """
    path, start, blocks = file.keys_path, file.keys_start, file.keys_blocks
    if path is None or start is None or not blocks:
        return True
    hashes = _hashes(tuple(keys))
    numbers = (((hashes >> 32) & 0xFFFFFFFF) * blocks) >> 32
    order = np.argsort(numbers, kind="stable")
    hashes, numbers = hashes[order], numbers[order]
    block_numbers = np.unique(numbers)
    reads_all = len(block_numbers) * _READ_COST >= blocks * SEALED_BYTES
    try:
        read = read_filter(storage, file, data_keys or Keyring())
        if read is None:
            return True
        data = read(0, blocks * SEALED_BYTES) if reads_all else b""
        for number in block_numbers.tolist():
            offset = number * SEALED_BYTES
            sealed = data[offset : offset + SEALED_BYTES] if reads_all else read(offset, SEALED_BYTES)
            if not is_undamaged_block(sealed, number, file.sha256):
                warn(
                    f"{path}, byte {start + offset}: this key filter is not as it was written; "
                    "it is not used."
                )
                return True
            words = np.frombuffer(sealed, "<u4", BLOCK_WORDS).astype(np.int64)
            low = hashes[numbers == number] & 0xFFFFFFFF
            bits = ((low[:, None] * np.array(_SALT)) & 0xFFFFFFFF) >> 27
            if ((words >> bits) & 1).all(axis=1).any():
                return True
    except LakebackupError as problem:
        warn(f"{path}: this key filter cannot be read and is not used: {problem.message}")
        return True
    return False
