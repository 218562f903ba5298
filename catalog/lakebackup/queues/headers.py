"""What the headers of an engine's messages say: tid, transaction and kind.

A message belongs to the transaction that it names; one that names none is done at its own tid. A transaction
is done, or undone, at the tid of the message that ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

#: The header of a message that a restore writes in front of what it brings back.
WATERMARK = "lakebackup-watermark"


class Kind(IntEnum):
    """What a message does, in the order of their words in a header; one without the header is a write."""

    WRITE = 0
    BEGIN = 1
    COMMIT = 2
    ROLLBACK = 3
    WATERMARK = 4


@dataclass(frozen=True, slots=True)
class HeaderNames:
    """The names of the headers. `tid_format`: a tid as decimal digits, or as 8 bytes, most significant first."""

    tid: str = "tid"
    transaction: str = "transaction"
    kind: str = "kind"
    tid_format: Literal["text", "int64"] = "text"
