"""Hashes of sets of rows: any order and any division into parts, and no other set.

Layer: pure.
"""

from __future__ import annotations

import hashlib
import struct
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lakebackup.signing.set_hash import SetHash

ROWS = st.lists(st.binary(max_size=8), max_size=30)


def sums(rows: list[bytes]) -> bytes:
    rows_hash = SetHash()
    for row in rows:
        rows_hash.add(row)
    return rows_hash.sums


@given(rows=ROWS, seed=st.integers(), cut=st.integers(0, 30))
def test_order_and_parts_do_not_matter(rows: list[bytes], seed: int, cut: int) -> None:
    shuffled = Random(seed).sample(rows, len(rows))
    whole = SetHash(sums(shuffled[:cut]))
    whole.merge(sums(shuffled[cut:]))
    assert whole.sums == sums(rows)


@given(rows=ROWS, more=st.binary(max_size=8))
def test_a_row_more_or_less_is_another_set(rows: list[bytes], more: bytes) -> None:
    assert sums([*rows, more]) != sums(rows)
    assert sums([*rows, more]) != sums([*rows, more + b"x"])


def test_the_sums_are_those_of_the_definition() -> None:
    first, second = (hashlib.shake_256(row).digest(2048) for row in (b"a", b"b"))
    numbers = zip(struct.unpack("<1024H", first), struct.unpack("<1024H", second), strict=True)
    added = [(a + b) % 65536 for a, b in numbers]
    assert sums([b"a", b"b"]) == struct.pack("<1024H", *added)
