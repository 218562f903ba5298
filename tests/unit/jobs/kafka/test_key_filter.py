"""Key filters: bit for bit those of Parquet, with every key that was added, not trusted when damaged."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.roots import roots_of

from lakebackup.storage import Storage, open_storage
from lakebackup_jobs.kafka.format import key_filter
from lakebackup_jobs.kafka.format.key_filter import KeyFilter, KeyFilters, may_hold
from lakebackup_jobs.kafka.format.records import decode_block, encode_record
from lakebackup_jobs.kafka.key_sums import BLOCK_WORDS, SEALED_BYTES, is_undamaged, is_undamaged_block, seal
from lakebackup_jobs.upkeep.verify_task import CheckKeys

SHA = "ab" * 32
NAME = ("orders", "0" * 32, "0", 0)
SOURCE, BACKUP = "prod", "20261121T140512Z-9f2c1a7e"


@dataclass(frozen=True)
class File:
    sha256: str = SHA
    keys_path: str | None = None
    keys_start: int | None = None
    keys_blocks: int | None = None
    key_id: str | None = None


def hashes(keys: Iterable[bytes]) -> key_filter.Longs:
    return key_filter._hashes(tuple(keys))


def sealed(keys: Iterable[bytes], sha256: str = SHA) -> bytes:
    bloom = KeyFilter()
    bloom.add(hashes(keys))
    data = bloom.sealed(sha256)
    assert data is not None
    return data


def store_filters(folder: Path, *filters: bytes | None) -> tuple[Storage, list[File]]:
    """Write one object with filters; returns its storage and the rows of the files they belong to."""
    storage = open_storage(str(folder))
    with KeyFilters(storage, SOURCE, BACKUP, 3) as key_filters:
        files = [File(**key_filters.add(data, NAME)) for data in filters]
        key_filters.commit()
    return storage, files


def refuse(text: str) -> None:
    pytest.fail(text)


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_published_hashes(key: bytes, expected: int) -> None:
    assert int(hashes([key])[0]) % 2**64 == expected


def test_a_filter_is_the_one_that_duckdb_writes_into_parquet(tmp_path: Path) -> None:
    """Keys of 5 to 90 bytes take every path of the hash."""
    file = tmp_path / "keys.parquet"
    with duckdb.connect() as db:
        select = "SELECT encode('key-' || range * 7919 % 5000 || repeat('x', CAST(range % 70 AS INT))) AS k"
        db.execute(
            f"COPY ({select} FROM range(5000)) TO '{file}' (FORMAT parquet, DICTIONARY_SIZE_LIMIT 100000)"
        )
        query = f"SELECT bloom_filter_offset, bloom_filter_length FROM parquet_metadata('{file}')"
        ((start, length),) = db.execute(query).fetchall()
        keys = [key for (key,) in db.execute(f"SELECT k FROM '{file}'").fetchall()]
    blocks = 1 << (length // 32).bit_length() - 1
    words = np.zeros((blocks, 8), np.uint32)
    key_filter._insert(words, hashes(keys))
    assert file.read_bytes()[start : start + length].endswith(words.astype("<u4").tobytes())


def test_folding_gives_the_filter_of_the_smaller_size() -> None:
    keys = [b"%d" % i for i in range(1000)]
    large, small = np.zeros((64, 8), np.uint32), np.zeros((32, 8), np.uint32)
    key_filter._insert(large, hashes(keys))
    key_filter._insert(small, hashes(keys))
    assert (large[0::2] | large[1::2] == small).all()
    assert key_filter._false_rate(large, 2) == pytest.approx(key_filter._false_rate(small, 1))


@given(st.lists(st.binary(max_size=80), max_size=300))
def test_every_key_is_found(keys: list[bytes]) -> None:
    data = sealed(keys)
    blocks = len(data) // SEALED_BYTES
    assert blocks & (blocks - 1) == 0
    assert is_undamaged(data, SHA)
    storage = OneObjectStorage(data)
    assert all(may_hold(storage, storage.file, [key], refuse) for key in keys)


class OneObjectStorage:
    """A storage of one object, which records how many bytes each read asks for."""

    def __init__(self, data: bytes) -> None:
        self.data, self.reads = data, list[int]()
        self.file = File(SHA, "k", 0, len(data) // SEALED_BYTES)

    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        assert path == self.file.keys_path
        self.reads.append(length or 0)
        return self.data[start : start + (length or 0)]

    def __getattr__(self, name: str) -> object:
        raise AssertionError(name)


@pytest.mark.parametrize("count", [1, 24, 25, 10_000, 700_000])
def test_a_filter_is_small_and_has_few_false_answers(count: int) -> None:
    rng = np.random.default_rng(count)
    bloom = KeyFilter()
    for chunk in np.array_split(rng.integers(-(2**63), 2**63 - 1, count), 7):
        bloom.add(chunk)
    data = bloom.sealed(SHA)
    blocks = len(data) // SEALED_BYTES
    assert blocks == 1 or 8 <= blocks * 256 / count < 25  # bits a key
    words = np.frombuffer(data, np.uint8).reshape(-1, SEALED_BYTES)[:, :32].copy().view("<u4")
    assert key_filter._false_rate(words, 1) <= 0.012
    storage = OneObjectStorage(data)
    false_answers = sum(may_hold(storage, storage.file, [b"other-%d" % i], refuse) for i in range(2000))
    assert false_answers <= 60  # one in a hundred is 20 on average
    assert (
        set(storage.reads) == {SEALED_BYTES} if blocks * SEALED_BYTES > 4096 else len(storage.reads) == 2000
    )


def test_repeated_keys_take_no_space() -> None:
    bloom = KeyFilter()
    for _ in range(30):
        bloom.add(hashes(b"%d" % i for i in range(20_000)))
    assert len(bloom.sealed(SHA) or b"") == len(sealed(b"%d" % i for i in range(20_000)))


def test_too_many_keys_give_no_filter() -> None:
    rng = np.random.default_rng(1)
    bloom = KeyFilter()
    for _ in range(12):
        bloom.add(rng.integers(-(2**63), 2**63 - 1, 1_000_000))
    assert bloom.sealed(SHA) is None


def test_filters_of_one_task_are_in_one_object(tmp_path: Path) -> None:
    storage, files = store_filters(tmp_path, sealed([b"a"]), None, sealed(b"%d" % i for i in range(500)))
    assert [file.keys_start for file in files] == [0, None, SEALED_BYTES]
    (entry,) = storage.list()
    assert entry.path.startswith(f"{SOURCE}/backups/{BACKUP}/keys/000003-")
    assert [may_hold(storage, file, [b"a"], refuse) for file in files] == [True, True, False]
    assert [may_hold(storage, file, [b"7"], refuse) for file in files] == [False, True, True]
    assert may_hold(storage, files[0], [b"7", b"8", b"a"], refuse)
    assert not may_hold(storage, files[0], [], refuse)
    # Without filters there is no object, and any key may be in the file. A filter without keys has none.
    storage, (file,) = store_filters(tmp_path / "none", None)
    assert list(storage.list()) == []
    assert may_hold(storage, file, [b"a"], refuse)
    storage, (file,) = store_filters(tmp_path / "keyless", sealed([]))
    assert not may_hold(storage, file, [b""], refuse)


def test_an_attempt_that_fails_leaves_nothing(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    key_filters = KeyFilters(storage, SOURCE, BACKUP, 3)
    with suppress(RuntimeError), key_filters:
        key_filters.add(sealed([b"a"]), NAME)
        raise RuntimeError
    assert list(storage.list()) == []
    assert list((tmp_path / ".tmp").iterdir()) == []


def answers(storage: Storage, file: File, keys: Sequence[bytes]) -> tuple[bool, int]:
    warnings: list[str] = []
    return may_hold(storage, file, keys, warnings.append), len(warnings)


def test_any_flipped_bit_opens_the_file_rather_than_hide_a_record() -> None:
    data = sealed(b"%d" % i for i in range(30))
    assert answers(OneObjectStorage(data), OneObjectStorage(data).file, [b"other"]) == (False, 0)
    assert OneObjectStorage(data).file.keys_blocks == 2
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not is_undamaged(bytes(damaged), SHA)
        storage = OneObjectStorage(bytes(damaged))
        for key in (b"7", b"8", b"9"):
            assert may_hold(storage, storage.file, [key], lambda _: None)
        block = bit // 8 // SEALED_BYTES
        assert not is_undamaged_block(bytes(damaged[block * SEALED_BYTES :][:SEALED_BYTES]), block, SHA)


def test_a_missing_truncated_or_foreign_filter_excludes_no_key(tmp_path: Path) -> None:
    own, foreign = sealed(b"%d" % i for i in range(30)), sealed([b"x"] * 30, "cd" * 32)
    storage, (file,) = store_filters(tmp_path, own)
    (path,) = (entry.path for entry in storage.list())
    swapped = own[SEALED_BYTES:] + own[:SEALED_BYTES]
    for data in (foreign * 2, own[:20], own[:-1], b"", swapped):
        storage.put(path, data)
        assert [may_hold(storage, file, [b"%d" % i], lambda _: None) for i in range(30)] == [True] * 30
        assert not is_undamaged(data, SHA) or data == b""
    storage.delete(path)
    assert answers(storage, file, [b"other"]) == (True, 1)


def test_the_checksum_is_the_ordinary_crc_32() -> None:
    data = sealed([b"a"])
    digest_crc = zlib.crc32(bytes(8), zlib.crc32(bytes.fromhex(SHA)))
    assert zlib.crc32(data[:32], digest_crc) == int.from_bytes(data[32:], "little")


def test_hashes_of_records_leave_those_without_a_key_out() -> None:
    keys: list[bytes | None] = [b"a", None, b"", b"x" * 100]
    data = b"".join(encode_record("t", 0, i, 5, 1, key, b"v", []) for i, key in enumerate(keys))
    record_hashes = key_filter.hashes_of(decode_block(data, len(keys)))
    assert record_hashes.tolist() == hashes(key for key in keys if key is not None).tolist()


def test_verify_reports_damaged_and_missing_filters(tmp_path: Path) -> None:
    storage, files = store_filters(tmp_path, sealed([b"a"]), sealed(b"%d" % i for i in range(500)))
    (path,) = (entry.path for entry in storage.list())
    roots = roots_of(d=storage.uri)
    data = storage.get(path)

    def verified(*, hashed: bool) -> tuple[str, str]:
        rows = [{"backup_id": BACKUP, "destination": "d", **asdict(file)} for file in files]
        check = CheckKeys("c", 5, roots, hashed)
        # The rows of one object may come in two batches.
        batches = list(check(pa.RecordBatch.from_pylist([row]) for row in rows))
        ((finding,),) = (batch.to_pylist() for batch in batches)
        assert (finding["path"], finding["mode"], finding["at"]) == (path, "keys", 5)
        return finding["outcome"], finding["detail"] or ""

    assert verified(hashed=True) == ("ok", "")
    damaged = bytearray(data)
    damaged[-40] ^= 4
    storage.put(path, bytes(damaged))
    assert verified(hashed=False) == ("ok", "")
    assert verified(hashed=True) == ("changed", f"the filter at byte {SEALED_BYTES} is not as it was written")
    storage.put(path, data[:-1])
    assert verified(hashed=False)[0] == "changed"
    storage.delete(path)
    assert verified(hashed=False)[0] == "missing"


@settings(max_examples=settings.default.max_examples // 3)
@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 3_000)), min_size=1, max_size=4))
def test_a_joined_filter_holds_all_keys_or_there_is_none(drawn: list[tuple[int, int]]) -> None:
    shas = [f"{i:064x}" for i in range(len(drawn))]
    keys_by_file = [[b"k%d" % i for i in range(start, start + count)] for start, count in drawn]
    joined = KeyFilter.joined(
        [(sealed(keys, sha), sha) for keys, sha in zip(keys_by_file, shas, strict=True)]
    )
    if joined is None:
        assert len(drawn) > 1
        return
    data = joined.sealed(SHA)
    assert is_undamaged(data, SHA)
    with tempfile.TemporaryDirectory() as name:
        storage, (file,) = store_filters(Path(name), data)
        assert all(may_hold(storage, file, [key], refuse) for keys in keys_by_file for key in keys)
        false_answers = sum(may_hold(storage, file, [b"x%d" % i], refuse) for i in range(500))
    assert false_answers < 50  # 3 in a hundred, and luck


def test_a_joined_filter_of_equal_filters_is_the_same() -> None:
    first = sealed([b"k%d" % i for i in range(3_000)])
    second = sealed([b"k%d" % i for i in range(3_000)], "cd" * 32)
    joined = KeyFilter.joined([(first, SHA), (second, "cd" * 32)])
    assert joined
    assert joined.sealed(SHA) == first
    assert KeyFilter.joined([(first, SHA), (second, SHA)]) is None, "it is of another file"
    assert KeyFilter.joined([(first, SHA), (b"", SHA)]) is None
    distinct = sealed([b"other-%d" % i for i in range(3_000)])
    assert KeyFilter.joined([(first, SHA), (distinct, SHA)]) is None, "it would keep out too little"


def test_an_invalid_digest_fits_no_filter() -> None:
    sealed = seal(np.zeros((1, BLOCK_WORDS), np.uint32), "00" * 32)
    assert is_undamaged(sealed, "00" * 32)
    assert not is_undamaged(sealed, "x")
    assert not is_undamaged(sealed[:-1], "00" * 32)
    assert not is_undamaged_block(sealed, 0, "x")
