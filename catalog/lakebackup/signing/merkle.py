"""The Merkle tree of the rows of a backup's files, as RFC 6962 (Certificate Transparency) defines it.

Its root stands for all rows in their order: other rows with the same root cannot be found. A proof shows that
one row is among them, with a few hashes and without the other rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

_LEAF, _NODE = b"\x00", b"\x01"


def leaf_hash(row: bytes) -> bytes:
    """The hash of a row."""
    return hashlib.sha256(_LEAF + row).digest()


def _node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()


def root(rows: Iterable[bytes]) -> tuple[int, str]:
    """Return the number of rows, and the root of their tree in lower hex. Memory holds one hash a level."""
    count, peaks = 0, list[bytes]()  # the roots of complete subtrees, the largest first
    for row in rows:
        peaks.append(leaf_hash(row))
        count += 1
        size = count
        while not size & 1:  # two subtrees of the same size become one
            right = peaks.pop()
            peaks.append(_node_hash(peaks.pop(), right))
            size >>= 1
    if not peaks:
        return 0, hashlib.sha256().hexdigest()
    top = peaks.pop()
    while peaks:
        top = _node_hash(peaks.pop(), top)
    return count, top.hex()


def proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the hashes that prove the leaf at an index, from its sibling up. `leaves`: those of all rows."""
    if len(leaves) <= 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*proof(leaves[:split], index), _root_of(leaves[split:])]
    return [*proof(leaves[split:], index - split), _root_of(leaves[:split])]


def proved_root(row: bytes, index: int, count: int, path: Sequence[bytes]) -> str | None:
    """Return the root that a proof leads to, in lower hex; None if it is no proof for that index.

    `count`: the number of rows of the tree.
    """
    if not 0 <= index < count:
        return None
    node, position, last = leaf_hash(row), index, count - 1
    for sibling in path:
        if not last:
            return None
        if position & 1 or position == last:
            node = _node_hash(sibling, node)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            node = _node_hash(node, sibling)
        position, last = position >> 1, last >> 1
    return None if last else node.hex()


def _split(count: int) -> int:
    """The size of the left subtree: the largest power of two below the number of leaves."""
    return 1 << (count - 1).bit_length() - 1


def _root_of(leaves: Sequence[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    split = _split(len(leaves))
    return _node_hash(_root_of(leaves[:split]), _root_of(leaves[split:]))
