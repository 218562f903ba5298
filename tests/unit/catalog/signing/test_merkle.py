"""Merkle trees: the vectors of RFC 6962's implementations, and proofs of any row of any tree.

Layer: pure.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.signing.merkle import leaf_hash, proof, proved_root, root

# The leaves and roots of the tests of github.com/google/certificate-transparency.
LEAVES = [bytes.fromhex(text) for text in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
ROWS = st.lists(st.binary(max_size=8), min_size=1, max_size=70)


@pytest.mark.parametrize("count", range(1, 9))
def test_roots_are_those_of_other_programs(count: int) -> None:
    assert root(LEAVES[:count]) == (count, ROOTS[count - 1])


def test_no_rows_have_the_hash_of_nothing() -> None:
    assert root([]) == (0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")


@given(rows=ROWS, data=st.data())
def test_each_row_can_be_proved(rows: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    path = proof([leaf_hash(row) for row in rows], index)
    assert proved_root(rows[index], index, len(rows), path) == root(rows)[1]


@given(rows=ROWS, data=st.data())
def test_no_other_row_index_or_path_is_proved(rows: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    path, top = proof([leaf_hash(row) for row in rows], index), root(rows)[1]
    assert proved_root(rows[index] + b"x", index, len(rows), path) != top
    other = data.draw(st.integers(-1, len(rows)).filter(lambda number: number != index))
    if not 0 <= other < len(rows) or rows[other] != rows[index]:
        assert proved_root(rows[index], other, len(rows), path) != top
    assert proved_root(rows[index], index, len(rows), [*path, b"0" * 32]) != top
    if path:
        position = data.draw(st.integers(0, len(path) - 1))
        assert proved_root(rows[index], index, len(rows), path[:position] + path[position + 1 :]) != top
        changed = [*path[:position], bytes(32), *path[position + 1 :]]
        assert proved_root(rows[index], index, len(rows), changed) != top
