"""A hash of a set of rows that does not depend on their order, so that tasks can add up their parts.

This is LtHash (Bellare and Micciancio 1997; Lewi et al. 2019): each row is hashed to 1,024 numbers of 16
bits, and these are added, number by number. Another set with the same sums cannot be found. The digests of
backups (`rows.digest`) have four numbers: they show damage, but not what somebody made to fit.
"""

from __future__ import annotations

import hashlib

import numpy as np

_BYTES = 2048
#: The sums of no rows.
NO_ROWS = bytes(_BYTES)


class SetHash:
    """The hash of a set of rows."""

    def __init__(self, sums: bytes = NO_ROWS) -> None:
        """`sums`: the `sums` of another hash, to go on with."""
        self._sums = np.frombuffer(sums, "<u2").copy()

    def add(self, row: bytes) -> None:
        """Add a row."""
        self._sums += np.frombuffer(hashlib.shake_256(row).digest(_BYTES), "<u2")

    def merge(self, sums: bytes) -> None:
        """Add the rows of another hash, by its `sums`."""
        self._sums += np.frombuffer(sums, "<u2")

    @property
    def sums(self) -> bytes:
        """The sums so far: two sets with the same sums are the same."""
        return self._sums.astype("<u2").tobytes()
